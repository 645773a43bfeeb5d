# SPDX-License-Identifier: Apache-2.0
"""Bundles of the record: a config.json in the form of an engine, and small root file systems."""

from __future__ import annotations

import json
import os
import stat
from pathlib import Path
from typing import Any

from tests.contract.bundles import merged_objects
from tests.simulated import elf_maker

BUNDLE, ROOT = "/mnt/case/bundle", "/mnt/case/rootfs"
CAPABILITIES = ["CAP_CHOWN", "CAP_KILL", "CAP_MKNOD"]
ALL = [*CAPABILITIES, "CAP_SYS_ADMIN"]
PRIVILEGED = {"process": {"capabilities": dict.fromkeys(("bounding", "effective"), ALL)}}
_MULTIARCH = "usr/lib/x86_64-linux-gnu"


def config(env: list[str], **oci: Any) -> dict[str, Any]:
    """Return a config.json's document, updated by `oci`: None removes a key."""
    mounts = [
        {"destination": "/proc", "type": "proc", "source": "proc", "options": ["nosuid"]},
        {"destination": "/dev", "type": "tmpfs", "source": "tmpfs", "options": ["mode=755"]},
        {"destination": "/sys", "type": "sysfs", "source": "sysfs", "options": ["nosuid", "ro"]},
    ]
    document = {
        "ociVersion": "1.0.2",
        "process": {
            "user": {"uid": 0, "gid": 0},
            "args": ["sh"],
            "env": ["PATH=/usr/bin:/bin", *env],
            "cwd": "/",
            "capabilities": dict.fromkeys(("bounding", "effective"), CAPABILITIES),
        },
        "root": {"path": ROOT},
        "mounts": mounts,
        "linux": {
            "resources": {"devices": [{"allow": False, "access": "rwm"}]},
            "namespaces": [{"type": "pid"}, {"type": "mount"}],
        },
    }
    return merged_objects(document, oci)


def text(env: list[str], **oci: Any) -> str:
    """Return the text of a config.json."""
    return json.dumps(config(env, **oci), separators=(",", ":"))


def root(kind: str, at: str = ROOT) -> None:
    """Make a root file system: "debian", "lib64", "musl", "distroless" or "empty"."""
    place = Path(at)
    for name in ("dev", "etc", "proc", "sys", "tmp", "usr/bin", "usr/lib", "run"):
        (place / name).mkdir(parents=True, exist_ok=True)
    if kind in ("debian", "lib64"):
        _glibc(place, "usr/lib64" if kind == "lib64" else _MULTIARCH)
        for name in ("bin", "lib", "lib64"):
            (place / "usr" / name).mkdir(exist_ok=True)
            (place / name).symlink_to(f"usr/{name}")
        lines = "/usr/lib64\n" if kind == "lib64" else f"/usr/local/lib\n/{_MULTIARCH}\n"
        (place / "etc/ld.so.conf.d").mkdir()
        (place / "etc/ld.so.conf").write_text(f"include /etc/ld.so.conf.d/*.conf\n{lines}")
    elif kind == "distroless":
        _glibc(place, _MULTIARCH)
    elif kind == "musl":
        (place / "lib").mkdir()
        elf_maker.write(place / "lib/ld-musl-x86_64.so.1", None, needed=())
        (place / "etc/alpine-release").write_text("3.20.0\n")
    mark = {"debian": "debian_version", "lib64": "redhat-release"}.get(kind)
    if mark:
        (place / "etc" / mark).write_text("12.11\n")


def _glibc(place: Path, directory: str) -> None:
    libraries = place / directory
    libraries.mkdir(parents=True, exist_ok=True)
    (place / "usr/lib64").mkdir(exist_ok=True)
    for name in ("libc.so.6", "libm.so.6"):
        elf_maker.write(libraries / name, name, needed=())
    loader = libraries / "ld-linux-x86-64.so.2"
    elf_maker.write(loader, "ld-linux-x86-64.so.2", needed=())
    link = place / "usr/lib64/ld-linux-x86-64.so.2"
    if link != loader:
        link.symlink_to(f"/{directory}/ld-linux-x86-64.so.2")


def node(path: str, major: int, minor: int) -> None:
    """Make a character device at an absolute path."""
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    os.mknod(path, stat.S_IFCHR | 0o666, os.makedev(major, minor))
