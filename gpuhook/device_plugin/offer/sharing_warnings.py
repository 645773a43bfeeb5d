# SPDX-License-Identifier: Apache-2.0
"""Warnings about shares: GPUs without preemption, little memory, many replicas."""

from __future__ import annotations

from gpuhook.device_plugin.config.grammar.memory_values import CONTEXT_MEMORY, UNLIMITED
from gpuhook.device_plugin.config.sharing_section import MEMORY_UNITS, MOST_CLIENTS, MPS
from gpuhook.device_plugin.offer.offered_devices import most_clients
from gpuhook.request.memory_request import MIB
from gpuhook.vendors.vendor_device import capability

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

    from gpuhook.device_plugin.offer.offered_devices import UnitMemory
    from gpuhook.device_plugin.offer.replica_sharing import Share

_LITTLE = 1 << 30  # bytes; a CUDA context alone takes a few hundred MiB
_MANY = MOST_CLIENTS  # of time slices, too: a smaller share is of little use
_PASCAL = (6, 0)


def share_warnings(limits: Mapping[Share, UnitMemory | None], strategy: str) -> tuple[str, ...]:
    """Return one warning for each problem, model and resource.

    `limits` has the limit of a unit of each share, None without one. A container requests as many
    memory units as it needs, so their size and their number have no warnings.
    """
    found: dict[str, None] = {}
    for share, limit in limits.items():
        if not share.is_divided:
            continue
        texts = [_preemption(share, strategy)]
        if strategy != MEMORY_UNITS:
            texts += [_memory(share, limit), _number(share, strategy), _unknown(share, limit)]
        found |= {f"{share.resource}: {text}": None for text in texts if text}
    return tuple(found)


def _preemption(share: Share, strategy: str) -> str:
    known = capability(share.device.compute_capability)
    if strategy == MPS or known is None or known >= _PASCAL:
        return ""
    parts = "memory units" if strategy == MEMORY_UNITS else f"{share.replicas} replicas"
    return (
        f"{share.model} (compute capability {share.device.compute_capability}) is older than "
        "Pascal: it has no compute preemption, so a long kernel of one container blocks the "
        f"others on its {parts}"
    )


def _memory(share: Share, limit: UnitMemory | None) -> str:
    each = share.memory_each if limit is None else limit.hard
    if each is None or each >= _LITTLE:
        return ""
    if limit is not None and each < CONTEXT_MEMORY:
        return (
            f"{share.replicas} replicas of {share.model} have a limit of {each // MIB} MiB of "
            f"memory each, and a CUDA context alone takes {CONTEXT_MEMORY // MIB} MiB: programs "
            "cannot start"
        )
    return (
        f"{share.replicas} replicas of {share.model} have {each // MIB} MiB of memory each, "
        "less than 1 GiB"
    )


def _unknown(share: Share, limit: UnitMemory | None) -> str:
    """Return the warning about a limit on a device of unknown memory."""
    limit_key = share.entry.limit if share.entry else None
    if share.device.memory_bytes is not None or limit_key in (None, UNLIMITED):
        return ""
    device = f"the driver does not report the memory of device {share.device.index} ({share.model})"
    if limit is None:
        return f"{device}: its replicas have no limit"
    return f"{device}: cannot check whether {share.replicas} times {limit.hard // MIB} MiB fit"


def _number(share: Share, strategy: str) -> str:
    if strategy == MPS:
        clients = most_clients(share.device.compute_capability)
        most = _MANY if clients is None else clients
        text = f"the MPS server of a {share.model} serves at most {most} clients"
    else:
        most = _MANY
        text = f"each gets 1/{share.replicas} of the time of a {share.model} when all are busy"
    return f"{share.replicas} replicas are many: {text}" if share.replicas > most else ""
