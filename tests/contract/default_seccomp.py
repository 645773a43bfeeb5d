# SPDX-License-Identifier: Apache-2.0
"""The seccomp profile RuntimeDefault: podman's file, without what containerd's profile forbids."""

from __future__ import annotations

import json
import platform
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

# The default profile of podman and CRI-O, which Debian installs with podman.
PROFILE = Path("/usr/share/containers/seccomp.json")
_MACHINES = {"x86_64": ("amd64", "SCMP_ARCH_X86_64"), "aarch64": ("arm64", "SCMP_ARCH_AARCH64")}
# Calls that podman allows, and that containerd and Docker allow with this capability only.
_OF_ADMIN = frozenset(
    "fsconfig fsmount fsopen fspick mount mount_setattr move_mount open_tree quotactl setdomainname"
    " sethostname setns syslog umount umount2 unshare".split()
)
_OF_PTRACE = frozenset("pidfd_getfd process_vm_readv process_vm_writev".split())
_NEVER = frozenset("add_key keyctl request_key name_to_handle_at io_uring_enter io_uring_register"
                   " io_uring_setup userfaultfd".split())  # fmt: skip


def default_seccomp(capabilities: Collection[str]) -> dict[str, Any]:
    """Return `linux.seccomp` of a container with these capabilities (CAP_KILL, ...)."""
    profile = json.loads(PROFILE.read_text(encoding="utf-8"))
    machine, architecture = _MACHINES[platform.machine()]

    def matches(condition: Mapping[str, Any]) -> bool:
        wanted = condition.get("caps") or (), capabilities
        return bool(set(wanted[0]) & set(wanted[1])) or machine in (condition.get("arches") or ())

    forbidden = set(_NEVER)
    forbidden |= _OF_ADMIN if "CAP_SYS_ADMIN" not in capabilities else set()
    forbidden |= _OF_PTRACE if "CAP_SYS_PTRACE" not in capabilities else set()
    rules = []
    for one in profile["syscalls"]:
        is_included = not one.get("includes") or matches(one["includes"])
        is_excluded = bool(one.get("excludes")) and matches(one["excludes"])
        names = [name for name in one["names"] if name not in forbidden]
        if is_included and not is_excluded and names:
            kept = {key: one[key] for key in ("action", "args", "errnoRet") if one.get(key)}
            rules.append({"names": names, **kept})
    (families,) = (one for one in profile["archMap"] if one["architecture"] == architecture)
    return {
        "defaultAction": profile["defaultAction"],
        "defaultErrnoRet": profile["defaultErrnoRet"],
        "architectures": [architecture, *families["subArchitectures"]],
        "syscalls": rules,
    }
