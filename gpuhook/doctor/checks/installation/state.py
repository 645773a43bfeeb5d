# SPDX-License-Identifier: Apache-2.0
"""What gpuhook keeps on the node while it runs: its directory, its files, and the ledger."""

from __future__ import annotations

import os
from functools import partial

from gpuhook.doctor.check import FAILED, GPUHOOK, WARNING, Check, Finding, Mend, absent, ok
from gpuhook.doctor.facts import ledger_facts
from gpuhook.host.hot import state
from gpuhook.kernel import mountinfo
from gpuhook.node import node_readings

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

    from gpuhook.doctor.check import Node

_PLACE = state.DIRECTORY
_LEDGER, _COMPILED = ledger_facts.LEDGER, f"{_PLACE}/compiled"
_MOUNTS = ("/proc/1/mountinfo", "/proc/self/mountinfo")
_NOTHING = absent(f"{_PLACE} is not there yet: the first container makes it", _PLACE)


def _directory(node: Node) -> Iterable[Finding]:
    """Find a state directory that cannot be written, or that others may change."""
    found = node.tree.status(_PLACE)
    if found is None:
        return [_NOTHING]
    if not found.is_directory:
        return [_failed(f"{_PLACE} is no directory", f"rm {_PLACE}")]
    where = _read_only(node)
    if where:
        said = f"{_PLACE} cannot be written: {where} is mounted read-only"
        return [_failed(said, f"mount -o remount,rw {where}")]
    mode = found.permissions
    if found.uid == 0 and not mode & 0o022:
        return [ok(f"{_PLACE} is root's, and nobody else may write there", _PLACE)]
    safe = (mode | 0o700) & ~0o022
    return [
        Finding(
            WARNING,
            f"others than root may write in {_PLACE}: owner {found.uid}, mode {mode:04o}",
            subject=_PLACE,
            meaning="they can remove what gpuhook knows of containers, and its compiled specs",
            command=f"chown root:root {_PLACE} && chmod {safe:04o} {_PLACE}",
            looked_at=(_PLACE,),
            mend=Mend(f"give {_PLACE} to root, with mode {safe:04o}", partial(_give, node, safe)),
        )
    ]


def _give(node: Node, mode: int) -> None:
    place = _host(node, _PLACE)
    os.chown(place, 0, 0)
    os.chmod(place, mode)


def _read_only(node: Node) -> str:
    """Return the mount point that makes the state directory read-only, "" where none does."""
    for path in _MOUNTS:
        content = node.tree.read(path)
        if not content:
            continue
        around = [
            mount
            for mount in mountinfo.parse(content)
            if mount.target == "/" or f"{_PLACE}/".startswith(mount.target.rstrip("/") + "/")
        ]
        if not around:
            return ""
        deepest = max(len(mount.target) for mount in around)
        last = [mount for mount in around if len(mount.target) == deepest][-1]
        return last.target if "ro" in last.options.split(",") else ""
    return ""


def _files(node: Node) -> Iterable[Finding]:
    """Find files of the state that gpuhook does not believe: they are not root's alone."""
    if node.tree.status(_PLACE) is None:
        return [_NOTHING]
    doubtful = [
        f"{directory}/{name}"
        for directory in (_LEDGER, _COMPILED)
        for name in node.tree.names(directory)
        if not ledger_facts.is_usable(node, f"{directory}/{name}")
    ]
    return [
        Finding(
            WARNING,
            f"{path} is not believed: it is no regular file of root's that nobody else may write",
            subject=path,
            meaning="gpuhook ignores it: `gpuhook ps` lists a container without its route, replicas"
            " and limits, or a spec is compiled for each start",
            command=f"rm {path}",
            looked_at=(path,),
        )
        for path in doubtful
    ] or [ok("the files of the state are root's alone", _LEDGER, _COMPILED)]


def _entries(node: Node) -> Iterable[Finding]:
    """Find entries of the ledger that nobody understands, and tell of those that are over."""
    names = [name for name in node.tree.names(_LEDGER) if name.endswith(".json")]
    if not names:
        return [absent("the ledger has no entry", _LEDGER)]
    found: list[Finding] = []
    gone = 0
    for name in names:
        path = f"{_LEDGER}/{name}"
        if not ledger_facts.is_usable(node, path):
            continue
        entry = ledger_facts.parse_entry(node.tree.read(path) or b"")
        if entry is None:
            found.append(_broken(node, path))
        elif not ledger_facts.is_alive(node, entry):
            gone += 1
    over = f", {gone} of them of containers that are gone" if gone else ""
    return found or [ok(f"the ledger has {len(names)} entries{over}", _LEDGER)]


def _broken(node: Node, path: str) -> Finding:
    return Finding(
        WARNING,
        f"{path} is no entry of the ledger that can be read",
        subject=path,
        meaning="`gpuhook ps` lists this container without its route, replicas and limits",
        command=f"rm {path}",
        looked_at=(path,),
        mend=Mend(f"remove {path}", partial(_remove, node, path)),
    )


def _remove(node: Node, path: str) -> None:
    place = _host(node, path)
    if os.path.lexists(place):
        os.unlink(place)


def _ledger(node: Node) -> Iterable[Finding]:
    """Find running containers that gpuhook gave their GPUs, and of which it knows nothing."""
    reading = node.readings.document(node_readings.CONTAINERS)
    if reading is None:
        return [absent("which containers run cannot be told from files alone", _LEDGER)]
    ours = [one for one in reading["containers"] if "gpuhook" in one["injected_by"]]
    if not ours:
        return [absent("no running container got a GPU of gpuhook", _LEDGER)]
    return [
        Finding(
            WARNING,
            f"container {one['id']} got its GPUs from gpuhook, and the ledger has no entry for it",
            subject=one["id"],
            meaning="`gpuhook ps` lists it with another route and without its limits: the state"
            " directory was emptied, or was not writable when the container started",
            command=f"gpuhook inspect {one['id']}  # a restart of the container writes an entry",
            looked_at=(_LEDGER, f"container {one['id']}"),
        )
        for one in ours
        if not one["recorded"]
    ] or [ok(f"the ledger knows all {len(ours)} running containers with GPUs of gpuhook", _LEDGER)]


def _failed(said: str, command: str) -> Finding:
    return Finding(
        FAILED,
        said,
        subject=_PLACE,
        meaning="CDI specs in YAML cannot be compiled for the wrapper: containers with GPUs do not"
        " start (error GH1105), and `gpuhook ps` shows none",
        command=command,
        looked_at=(_PLACE, *_MOUNTS),
    )


def _host(node: Node, path: str) -> str:
    return node.tree.root.rstrip("/") + path


CHECKS = (
    Check(
        "state.directory",
        GPUHOOK,
        "The state directory can be written, by root alone",
        _directory,
    ),
    Check(
        "state.files",
        GPUHOOK,
        "What gpuhook has written down can be believed",
        _files,
        ("state.directory",),
    ),
    Check(
        "state.entries",
        GPUHOOK,
        "The entries of the ledger can be read",
        _entries,
        ("state.directory",),
    ),
    Check(
        "state.ledger",
        GPUHOOK,
        "The ledger knows the running containers that have GPUs of gpuhook",
        _ledger,
        ("state.directory",),
    ),
)
