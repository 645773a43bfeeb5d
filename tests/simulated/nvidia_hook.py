# SPDX-License-Identifier: Apache-2.0
"""NVIDIA's hooks as a program: `nvidia-cdi-hook VERB ...` and the legacy `prestart`.

It runs with -I -S and the standard library only, and reads an OCI state. It leaves out what needs a
driver in the kernel (/proc/driver/nvidia) if there is none.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

LDCONFIG = "/sbin/ldconfig"
PROFILE = "etc/nvidia/nvidia-application-profiles-rc.d/10-container.conf"


def main() -> int:
    words = sys.argv[1:]
    if words[0] == "--inside":
        inside(Path(words[1]), json.loads(Path(words[2]).read_text(encoding="utf-8")))
        return 0
    state = json.load(sys.stdin)
    bundle = Path(state["bundle"])
    config = json.loads((bundle / "config.json").read_text(encoding="utf-8"))
    root = bundle / config["root"]["path"]
    if words[0] == "prestart":
        prestart(int(state["pid"]), bundle, root)
    elif words[0] == "create-symlinks":
        links(root, [value.split("::") for value in values(words, "--link")])
    elif words[0] == "update-ldcache":
        update_ldcache(root, values(words, "--folder"))
    elif words[0] == "update-application-profile":
        profile(root)
    return 0


def values(words: list[str], option: str) -> list[str]:
    return [words[n + 1] for n, word in enumerate(words[:-1]) if word == option]


def links(root: Path, pairs: list[list[str]]) -> None:
    for target, path in pairs:
        place = root / path.lstrip("/")
        place.parent.mkdir(parents=True, exist_ok=True)
        place.unlink(missing_ok=True)
        place.symlink_to(target)


def update_ldcache(root: Path, folders: list[str]) -> None:
    etc = root / "etc"
    drop_ins = etc / "ld.so.conf.d"
    drop_ins.mkdir(parents=True, exist_ok=True)
    if not (etc / "ld.so.conf").exists():
        (etc / "ld.so.conf").write_text("include /etc/ld.so.conf.d/*.conf\n", encoding="utf-8")
    (drop_ins / "00-nvcr-1.conf").write_text("\n".join(folders) + "\n", encoding="utf-8")
    is_debian = (etc / "debian_version").exists()
    system = ["/lib", "/usr/lib"] if is_debian else ["/lib", "/usr/lib", "/lib64", "/usr/lib64"]
    (drop_ins / "zz-nvcr-1.conf").write_text("\n".join(system) + "\n", encoding="utf-8")
    if (etc / "alpine-release").exists():
        with (etc / "ld-musl-x86_64.path").open("a", encoding="utf-8") as file:
            file.write("\n".join([*folders, *system]) + "\n")
    subprocess.run([LDCONFIG, "-r", str(root)], check=True, capture_output=True, env={})


def profile(root: Path) -> None:
    mask = 0
    for name in os.listdir(root / "dev"):
        match = re.fullmatch(r"nvidia([0-9]+)", name)
        mask |= 1 << int(match[1]) if match else 0
    place = root / PROFILE
    place.parent.mkdir(parents=True, exist_ok=True)
    setting = ["EGLVisibleDGPUDevices", mask]
    document = {"profiles": [{"name": "_container_", "settings": setting}], "rules": []}
    place.write_text(json.dumps(document), encoding="utf-8")


def prestart(pid: int, bundle: Path, root: Path) -> None:
    """Do what nvidia-container-cli configure does, in the container's mount namespace."""
    plan = bundle / "nvidia-legacy.json"
    command = ["nsenter", "-t", str(pid), "-m", sys.executable, "-IS", __file__]
    subprocess.run([*command, "--inside", str(root), str(plan)], check=True)
    for rule in json.loads(plan.read_text(encoding="utf-8"))["rules"]:
        cgroup(pid).joinpath("devices.allow").write_text(rule, encoding="ascii")


def inside(root: Path, plan: dict[str, list[dict[str, str]]]) -> None:
    for mount in plan["mounts"]:
        options = "ro,nosuid,nodev" if mount["ro"] else "nosuid,nodev,noexec"
        bind(mount["source"], root / mount["target"].lstrip("/"), options)
    for node in plan["nodes"]:
        bind(node["source"], root / node["target"].lstrip("/"), "nosuid,noexec")
    links(root, [list(pair) for pair in plan["links"]])
    update_ldcache(root, [str(folder) for folder in plan["folders"]])


def bind(source: str, target: Path, options: str) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    target.touch()
    subprocess.run(["mount", "--bind", source, str(target)], check=True)
    subprocess.run(["mount", "-o", f"remount,bind,{options}", str(target)], check=True)


def cgroup(pid: int) -> Path:
    for line in Path(f"/proc/{pid}/cgroup").read_text(encoding="ascii").splitlines():
        _, controllers, path = line.split(":", 2)
        if "devices" in controllers.split(","):
            return Path("/sys/fs/cgroup/devices", path.lstrip("/"))
    raise SystemExit("there is no device cgroup of version 1")


if __name__ == "__main__":
    sys.exit(main())
