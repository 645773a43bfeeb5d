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
_OF_ADMIN = """
    fsconfig fsmount fsopen fspick mount mount_setattr move_mount open_tree quotactl setdomainname
    sethostname setns syslog umount umount2 unshare
"""
_OF_PTRACE = "pidfd_getfd process_vm_readv process_vm_writev"
_NEVER = """
    add_key io_uring_enter io_uring_register io_uring_setup keyctl name_to_handle_at request_key
    userfaultfd
"""


def default_seccomp(capabilities: Collection[str]) -> dict[str, Any]:
    """Return `linux.seccomp` of a container with these capabilities (CAP_KILL, ...)."""
    profile = json.loads(PROFILE.read_text(encoding="utf-8"))
    machine, architecture = _MACHINES[platform.machine()]

    def matches(condition: Mapping[str, Any]) -> bool:
        has_capability = bool(set(condition.get("caps") or ()) & set(capabilities))
        return has_capability or machine in (condition.get("arches") or ())

    forbidden = set(_NEVER.split())
    for capability, names_of in (("CAP_SYS_ADMIN", _OF_ADMIN), ("CAP_SYS_PTRACE", _OF_PTRACE)):
        forbidden |= set() if capability in capabilities else set(names_of.split())
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
