# SPDX-License-Identifier: Apache-2.0
"""Exclusive devices: those of request.exclusiveDevices serve one container at a time.

Loaded only on a node with that setting. The ledger names the containers that have a device: those
of gpuhook-runtime, of the hooks and of `attach`.
"""

from __future__ import annotations

import errno
import os

from gpuhook.containers.hot import first_process, ledger
from gpuhook.errors import fault
from gpuhook.host.hot import file_lock, procfs, state

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from typing import Any

    from gpuhook.entry.plan_context import VendorContext
    from gpuhook.request.resolve import Grant

_ALL = "all"
_TIMEOUT = 10.0  # seconds
_locks: list[int] = []  # until the process ends, or release()


def claim(
    grants: Iterable[tuple[VendorContext, Grant]],
    own_bundle: str = "",
    own_id: str = "",
    *,
    is_dry: bool = False,
) -> bool:
    """Return whether a device of `grants` is exclusive; GH1063 if another container has it.

    The container of `own_bundle` and `own_id`, of which "" is unknown, is no other one. Unless this
    is a dry run, no other process can claim devices until this one has ended, after it has entered
    its container in the ledger. Raises OSError if the lock cannot be taken. An unknown device in
    the setting is a warning.
    """
    wanted = [(one, names) for one, grant in grants if (names := _exclusive(one, grant))]
    if not wanted:
        return False
    if not is_dry:
        _lock()
    for entry in ledger.living():
        if _is_of(entry, own_bundle, own_id):
            continue
        for context, names in wanted:
            shared = names & _names(context, _nodes(entry), entry.get("devices") or ())
            if shared and not _has_ended(entry):
                name = min(shared, key=lambda one: (len(one), one))
                holder = entry.get("pod") or entry["id"]
                raise fault("GH1063", device=f"{context.node.kind}={name}", holder=holder)
    return True


def release() -> None:
    """Let other processes claim devices."""
    while _locks:
        os.close(_locks.pop())


def _is_of(entry: dict[str, Any], bundle: str, identity: str) -> bool:
    """Return whether an entry is of the container with this bundle and id; "" is unknown."""
    if not (bundle or identity) or identity not in ("", entry["id"]):
        return False
    recorded = entry.get("bundle")
    if bundle in ("", recorded):
        return True
    # A runtime reports the bundle without links, the ledger has it as the engine names it.
    real = os.path.realpath(recorded) if isinstance(recorded, str) and recorded else ""
    return real == os.path.realpath(bundle)


def _has_ended(entry: dict[str, Any]) -> bool:
    """Return whether the container of an entry has ended although its entry still applies.

    Its runtime may keep its state; a runtime that fails early leaves no state root.
    """
    pid, started = entry.get("pid"), entry.get("started")
    if started is not None and isinstance(pid, int) and procfs.start_time(pid) == started:
        return False  # also the process that creates it
    if ledger.is_over(entry):
        return True
    return bool(entry["root"]) and first_process.has_exited(entry["root"], entry["id"])


def _exclusive(context: VendorContext, grant: Grant) -> frozenset[str]:
    """Return the names of the exclusive devices of a grant. Another node has no containers here."""
    node, chosen = context.node, context.settings.exclusive_devices
    if not node.is_here:
        return frozenset()
    paths = [one["path"] for one in grant.edits.get("deviceNodes") or ()]
    names = _names(context, paths, grant.devices)
    if _ALL in chosen:
        return names
    known = node.nodes_by_device()
    exclusive: set[str] = set()
    for one in chosen:
        if one in known:
            exclusive |= _names(context, known[one], [one])
        elif one.partition("=")[0] == node.kind:
            context.log.warning(fault("GH1064", name=one))
    return names & exclusive


def _names(
    context: VendorContext, nodes: Iterable[str], qualified: Iterable[str]
) -> frozenset[str]:
    """Return all names of the devices with these nodes or qualified names, of one vendor.

    In a user namespace, a container's nodes are not those of its entry.
    """
    kind = context.node.kind
    named = (name.partition("=") for name in qualified)
    return context.node.covered([*nodes]).union(
        device for one, _, device in named if one == kind and device != _ALL
    )


def _nodes(entry: dict[str, Any]) -> Sequence[str]:
    gone = entry.get("withdrawn") or ()
    return [path for path in entry.get("nodes") or () if path not in gone]


def _lock() -> None:
    """Wait until no other process claims devices; the kernel unlocks when this process ends."""
    if _locks:
        return
    path = os.path.join(state.directory(), "locks", "exclusive")
    lock = file_lock.open_lock(path)
    if not file_lock.is_locked(lock, _TIMEOUT):
        os.close(lock)
        raise TimeoutError(errno.ETIMEDOUT, os.strerror(errno.ETIMEDOUT), path)
    _locks.append(lock)
