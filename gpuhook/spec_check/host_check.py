# SPDX-License-Identifier: Apache-2.0
"""A CDI spec held against the host: its nodes, files and hooks are there, and are what it says.

Nothing is opened or run: a look at each path tells.
"""

from __future__ import annotations

import os
import stat
from dataclasses import dataclass

from gpuhook.cdi.hot import spec_versions
from gpuhook.errors import GpuhookError
from gpuhook.spec_check import file_trust
from gpuhook.vendors.nvidia.hot import host_fingerprint
from gpuhook.vendors.nvidia.hot.rootfs import hook_args

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

    from gpuhook.cdi.hot.container_edits import DeviceNode, Hook, Mount, Spec

ERROR, WARNING = "error", "warning"
_KINDS = {"b": stat.S_ISBLK, "c": stat.S_ISCHR, "u": stat.S_ISCHR, "p": stat.S_ISFIFO}
_INSIDE = "startContainer"  # a program of the container's
_READ_BY_ALL = "0.5.0"  # podman 4.3 and containerd 1.7 read nothing newer


@dataclass(frozen=True, slots=True)
class SpecFinding:
    """What is wrong with the value at a JSON pointer of a spec: `level` is ERROR or WARNING."""

    level: str
    pointer: str
    said: str


def findings(spec: Spec, path: str) -> list[SpecFinding]:
    """Return what the spec of the file `path` says and the host does not have, or should not.

    What many devices say alike is told once, where it stands first.
    """
    found: dict[str, SpecFinding] = {}
    for finding in (*_of_parts(spec), *_of_file(spec, path)):
        found.setdefault(finding.said, finding)
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
    is_whole = bool(kind) and (kind == "p" or "major" in node)  # an engine need not look at it
    try:
        status = os.stat(path)
    except OSError as error:
        level = WARNING if is_whole else ERROR
        yield SpecFinding(level, pointer, f"the device node {path}: {error.strerror}")
        return
    is_node = stat.S_ISCHR(status.st_mode) or stat.S_ISBLK(status.st_mode)
    if not (is_node or stat.S_ISFIFO(status.st_mode)):
        yield SpecFinding(ERROR, pointer, f"{path} is no device node")
        return
    if kind and not _KINDS[kind](status.st_mode):
        yield SpecFinding(ERROR, pointer, f"{path} is not of the type {kind}")
    number = (os.major(status.st_rdev), os.minor(status.st_rdev))
    told = (
        node.get("major", number[0]),
        node.get("minor", number[1] if "major" not in node else 0),
    )
    if is_node and told != number:
        wrong = f"{path} is {number[0]}:{number[1]}, and the spec says {told[0]}:{told[1]}"
        yield SpecFinding(ERROR, pointer, wrong)


def _mount(mount: Mount, pointer: str) -> Iterator[SpecFinding]:
    if mount.get("type") not in (None, "", "bind", "none"):
        return  # of a file system, not of a file
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
        loose = file_trust.loose(path)
    except OSError as error:
        yield SpecFinding(ERROR, pointer, f"the hook {path}: {error.strerror}")
        return
    if not stat.S_ISREG(status.st_mode) or not status.st_mode & 0o111:
        yield SpecFinding(ERROR, pointer, f"the hook {path} is no executable file")
    if loose is not None:
        place, who = loose
        said = f"the hook {path} runs as root, and {place} can be written by {who}"
        yield SpecFinding(ERROR, pointer, said)
    yield from _ours(hook, pointer)


def _ours(hook: Hook, pointer: str) -> Iterator[SpecFinding]:
    """Compare the state of the host that our hook was written for with what it is now."""
    if not hook_args.is_ours(hook):
        if not hook.get("env"):
            said = f"the hook {hook['path']} has no env: it runs with the image's variables"
            yield SpecFinding(WARNING, pointer, said)
        return
    try:
        job = hook_args.of_hook(hook)
    except GpuhookError as error:
        yield SpecFinding(ERROR, pointer, error.message)
        return
    changed = host_fingerprint.changes(job)
    if changed:
        said = "it describes another state of this host: " + "; ".join(changed)
        yield SpecFinding(ERROR, pointer, said)


_CHECKS: dict[str, Any] = {"deviceNodes": _node, "mounts": _mount, "hooks": _hook}


def _of_file(spec: Spec, path: str) -> Iterator[SpecFinding]:
    try:
        loose = file_trust.loose(path)
    except OSError:
        loose = None  # it was read a moment ago: who took it away knows
    if loose is not None:
        place, who = loose
        said = f"{place} can be written by {who}: who writes a spec is root on this host"
        yield SpecFinding(WARNING, "", said)
    version = spec["cdiVersion"]
    if spec_versions.VERSIONS.index(version) > spec_versions.VERSIONS.index(_READ_BY_ALL):
        needed, reason = spec_versions.needed(dict(spec))
        why = f"{reason} needs {needed}" if needed == version else f"{needed} would do"
        said = (
            f"cdiVersion {version} is newer than {_READ_BY_ALL}: engines with an older CDI library "
            f"(podman 4.3, containerd 1.7) leave the file out; {why}"
        )
        yield SpecFinding(WARNING, "/cdiVersion", said)
