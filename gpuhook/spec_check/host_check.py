# SPDX-License-Identifier: Apache-2.0
"""Checks a CDI spec against the host: its device nodes, files and hooks exist and match.

It calls stat(2) on the paths; it opens and runs nothing.
"""

from __future__ import annotations

import os
import stat
from dataclasses import dataclass

from gpuhook.apply.rootfs import hook_args
from gpuhook.cdi.hot import spec_versions
from gpuhook.errors import GpuhookError
from gpuhook.vendors.nvidia.hot import host_fingerprint

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

    from gpuhook.cdi.hot.container_edits import DeviceNode, Hook, Mount, Spec

ERROR, WARNING = "error", "warning"
_KINDS = {"b": stat.S_ISBLK, "c": stat.S_ISCHR, "u": stat.S_ISCHR, "p": stat.S_ISFIFO}
_INSIDE = "startContainer"  # a program in the container
_GROUP, _OTHERS = 0o020, 0o002
_READ_BY_ALL = "0.5.0"  # podman 4.3 and containerd 1.7 read nothing newer


@dataclass(frozen=True, slots=True)
class SpecFinding:
    """A fault of the value at a JSON pointer of a spec; `level` is ERROR or WARNING."""

    level: str
    pointer: str
    message: str


def findings(spec: Spec, path: str) -> list[SpecFinding]:
    """Return the faults of the spec of the file `path` on this host.

    A fault that many devices share is listed once, at the first of them.
    """
    found: dict[str, SpecFinding] = {}
    for finding in (*_of_parts(spec), *_of_file(spec, path)):
        found.setdefault(finding.message, finding)
    return list(found.values())


def _of_parts(spec: Spec) -> Iterator[SpecFinding]:
    parts: list[tuple[str, Any]] = [("", spec)]
    parts += [(f"/devices/{at}", device) for at, device in enumerate(spec.get("devices") or ())]
    seen: set[str] = set()
    for pointer, part in parts:
        edits = part.get("containerEdits") or {}
        for key, check in _CHECKS.items():
            for at, item in enumerate(edits.get(key) or ()):
                known = f"{key} {item}"
                if known not in seen:
                    seen.add(known)
                    yield from check(item, f"{pointer}/containerEdits/{key}/{at}")


def _node(node: DeviceNode, pointer: str) -> Iterator[SpecFinding]:
    path = node.get("hostPath") or node["path"]
    kind = node.get("type") or ""
    is_whole = bool(kind) and (
        kind == "p" or "major" in node
    )  # an engine does not call stat(2) on it
    try:
        status = os.stat(path)
    except OSError as error:
        level = WARNING if is_whole else ERROR
        yield SpecFinding(level, pointer, f"the device node {path}: {error.strerror}")
        return
    is_node = stat.S_ISCHR(status.st_mode) or stat.S_ISBLK(status.st_mode)
    if not (is_node or stat.S_ISFIFO(status.st_mode)):
        yield SpecFinding(ERROR, pointer, f"{path} is not a device node")
        return
    if kind and not _KINDS[kind](status.st_mode):
        yield SpecFinding(ERROR, pointer, f"{path} does not have the type {kind}")
    number = (os.major(status.st_rdev), os.minor(status.st_rdev))
    written = (
        node.get("major", number[0]),
        node.get("minor", number[1] if "major" not in node else 0),
    )
    if is_node and written != number:
        wrong = f"{path} is {number[0]}:{number[1]}, but the spec has {written[0]}:{written[1]}"
        yield SpecFinding(ERROR, pointer, wrong)


def _mount(mount: Mount, pointer: str) -> Iterator[SpecFinding]:
    if mount.get("type") not in (None, "", "bind", "none"):
        return  # it mounts a file system, not a file
    try:
        os.stat(mount["hostPath"])
    except OSError as error:
        yield SpecFinding(ERROR, pointer, f"the mounted {mount['hostPath']}: {error.strerror}")


def _hook(hook: Hook, pointer: str) -> Iterator[SpecFinding]:
    path = hook["path"]
    if hook["hookName"] == _INSIDE:
        return
    try:
        status = os.stat(path)
        loose = _loose(path)
    except OSError as error:
        yield SpecFinding(ERROR, pointer, f"the hook {path}: {error.strerror}")
        return
    if not stat.S_ISREG(status.st_mode) or not status.st_mode & 0o111:
        yield SpecFinding(ERROR, pointer, f"the hook {path} is not an executable file")
    if loose is not None:
        place, users = loose
        message = f"the hook {path} runs as root, and {place} can be written by {users}"
        yield SpecFinding(ERROR, pointer, message)
    yield from _fingerprint(hook, pointer)


def _fingerprint(hook: Hook, pointer: str) -> Iterator[SpecFinding]:
    """Compare the host with the fingerprint in a hook of gpuhook."""
    if not hook_args.is_ours(hook):
        if not hook.get("env"):
            message = f"the hook {hook['path']} has no env: it runs with the image's variables"
            yield SpecFinding(WARNING, pointer, message)
        return
    try:
        job = hook_args.of_hook(hook)
    except GpuhookError as error:
        yield SpecFinding(ERROR, pointer, error.message)
        return
    changed = host_fingerprint.changes(job)
    if changed:
        message = "it does not match the current state of this host: " + "; ".join(changed)
        yield SpecFinding(ERROR, pointer, message)


_CHECKS: dict[str, Any] = {"deviceNodes": _node, "mounts": _mount, "hooks": _hook}


def _of_file(spec: Spec, path: str) -> Iterator[SpecFinding]:
    try:
        loose = _loose(path)
    except OSError:
        loose = None  # it was removed after it was read
    if loose is not None:
        place, users = loose
        message = (
            f"{place} can be written by {users}; a user who writes a spec is effectively root on "
            "this host"
        )
        yield SpecFinding(WARNING, "", message)
    version = spec["cdiVersion"]
    if spec_versions.VERSIONS.index(version) > spec_versions.VERSIONS.index(_READ_BY_ALL):
        needed, reason = spec_versions.needed(dict(spec))
        why = f"{reason} needs {needed}" if needed == version else f"{needed} is enough"
        message = (
            f"cdiVersion {version} is newer than {_READ_BY_ALL}: engines with an older CDI library "
            f"(podman 4.3, containerd 1.7) skip the file; {why}"
        )
        yield SpecFinding(WARNING, "/cdiVersion", message)


def _writers(found: os.stat_result) -> str:
    """Return the users other than root who can write a file or directory, "" if there are none.

    All users can write a directory with the sticky bit, but they cannot replace root's files in it.
    """
    if found.st_uid not in (0, os.geteuid()):
        return f"the user {found.st_uid}, who owns it"
    if stat.S_ISDIR(found.st_mode) and found.st_mode & stat.S_ISVTX:
        return ""
    if found.st_mode & _OTHERS:
        return f"every user (its mode is {stat.S_IMODE(found.st_mode):04o})"
    if found.st_mode & _GROUP and found.st_gid:
        return f"the group {found.st_gid} (its mode is {stat.S_IMODE(found.st_mode):04o})"
    return ""


def _loose(path: str) -> tuple[str, str] | None:
    """Return (path, users) of the first of a file and its parents that others than root can write.

    Links are followed, as an engine does. Raises OSError if the file does not exist.
    """
    place = os.path.realpath(path, strict=True)
    while True:
        users = _writers(os.stat(place))
        if users:
            return place, users
        above = os.path.dirname(place)
        if above == place:
            return None
        place = above
