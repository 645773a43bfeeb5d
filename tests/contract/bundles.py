# SPDX-License-Identifier: Apache-2.0
"""OCI bundles as containerd writes them, with a config.json that can request devices."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import uuid4

PATH = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
CGROUP = "gpuhook-tests"
CAPABILITIES = ["CAP_CHOWN", "CAP_DAC_OVERRIDE", "CAP_FSETID", "CAP_FOWNER", "CAP_MKNOD"]
CAPABILITIES += ["CAP_NET_RAW", "CAP_SETGID", "CAP_SETUID", "CAP_SETFCAP", "CAP_SETPCAP"]
CAPABILITIES += ["CAP_NET_BIND_SERVICE", "CAP_SYS_CHROOT", "CAP_KILL", "CAP_AUDIT_WRITE"]
MASKED = ["acpi", "asound", "kcore", "keys", "latency_stats", "timer_list", "sched_debug", "scsi"]
READONLY = ["bus", "fs", "irq", "sys", "sysrq-trigger"]


@dataclass(frozen=True)
class Bundle:
    """A bundle directory and the root file system that its config.json names."""

    path: Path
    root: Path

    @property
    def file(self) -> Path:
        """Return the path of config.json."""
        return self.path / "config.json"

    def config(self) -> dict[str, Any]:
        """Return the content of config.json."""
        return dict(json.loads(self.file.read_text(encoding="utf-8")))

    def mount(self, source: Path, destination: str, *options: str) -> None:
        """Add a bind mount, by default read-only and without set-uid bits and devices."""
        config = self.config()
        words = list(options) or ["ro", "nosuid", "nodev", "rbind", "rprivate"]
        config["mounts"].append(_mount(destination, "bind", str(source), words))
        self.write(config)

    def write(self, config: dict[str, Any]) -> None:
        """Replace config.json."""
        self.file.write_text(json.dumps(config, indent=2), encoding="utf-8")


# The fixture bundle_of: bundle() with a root file system or its kind, and without a path.
Bundles = Callable[..., Bundle]


def bundle(
    path: Path,
    root: Path,
    args: Sequence[str] = ("/probe",),
    env: Sequence[str] = (),
    annotations: Mapping[str, str] | None = None,
    **oci: Any,
) -> Bundle:
    """Write a bundle at `path` for the root file system `root`, and return it.

    `env` follows a PATH. Each of `oci` replaces a top-level key of the config; objects are merged
    key by key (`process={"user": {...}}`, `linux={"devices": [...]}`).
    """
    path.mkdir(parents=True, exist_ok=True)
    config = _config(root, args, env)
    if annotations:
        config["annotations"] = dict(annotations)
    made = Bundle(path, root)
    made.write(merged_objects(config, oci))
    return made


def merged_objects(under: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    """Return `under` with the values of `over`, objects merged key by key; None removes a key."""
    result = dict(under)
    for key, value in over.items():
        if value is None:
            result.pop(key, None)
        elif isinstance(value, dict) and isinstance(result.get(key), dict):
            result[key] = merged_objects(result[key], value)
        else:
            result[key] = value
    return result


def device(path: str, major: int, minor: int) -> dict[str, Any]:
    """Return a character device for linux.devices."""
    return {"path": path, "type": "c", "major": major, "minor": minor, "fileMode": 0o666}


def rule(major: int, minor: int, access: str = "rwm") -> dict[str, Any]:
    """Return the rule for linux.resources.devices that allows a character device."""
    return {"allow": True, "type": "c", "major": major, "minor": minor, "access": access}


def _config(root: Path, args: Sequence[str], env: Sequence[str]) -> dict[str, Any]:
    return {
        "ociVersion": "1.0.2",
        "process": {
            "terminal": False,
            "user": {"uid": 0, "gid": 0},
            "args": list(args),
            "env": [PATH, *env],
            "cwd": "/",
            "capabilities": dict.fromkeys(("bounding", "effective", "permitted"), CAPABILITIES),
            "noNewPrivileges": True,
        },
        "root": {"path": str(root)},
        "hostname": "contract",
        "mounts": _mounts(),
        "linux": {
            "cgroupsPath": f"/{CGROUP}/{uuid4().hex[:12]}",
            "resources": {"devices": [{"allow": False, "access": "rwm"}]},
            "namespaces": [{"type": t} for t in ("pid", "ipc", "uts", "mount", "network")],
            "maskedPaths": [f"/proc/{name}" for name in MASKED],
            "readonlyPaths": [f"/proc/{name}" for name in READONLY],
        },
    }


def _mounts() -> list[dict[str, Any]]:
    locked = ["nosuid", "noexec", "nodev"]
    small = ["nosuid", "strictatime", "mode=755", "size=65536k"]
    pts = ["nosuid", "noexec", "newinstance", "ptmxmode=0666", "mode=0620"]
    return [
        _mount("/proc", "proc", "proc", locked),
        _mount("/dev", "tmpfs", "tmpfs", small),
        _mount("/dev/pts", "devpts", "devpts", pts),
        _mount("/dev/shm", "tmpfs", "shm", [*locked, "mode=1777", "size=65536k"]),
        _mount("/dev/mqueue", "mqueue", "mqueue", locked),
        _mount("/sys", "sysfs", "sysfs", [*locked, "ro"]),
        _mount("/sys/fs/cgroup", "cgroup", "cgroup", [*locked, "relatime", "ro"]),
        _mount("/run", "tmpfs", "tmpfs", small),
    ]


def _mount(destination: str, fstype: str, source: str, options: list[str]) -> dict[str, Any]:
    return {"destination": destination, "type": fstype, "source": source, "options": options}
