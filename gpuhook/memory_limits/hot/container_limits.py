# SPDX-License-Identifier: Apache-2.0
"""The memory limits of a container: its grant, for the GPUs that it has.

Imported only for a container with a limit.
"""

from __future__ import annotations

import os

from gpuhook.errors import GpuhookError, fault
from gpuhook.host.hot import settings
from gpuhook.request import memory_request, replicas
from gpuhook.request.memory_request import amount
from gpuhook.vendors.nvidia.hot import node_json, vocabulary

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable
    from typing import Any

    from gpuhook.request.memory_request import MemoryLimit

FIRST_BRANCH = 615  # the driver branch of CUDA 13.4, the first with memory limits
_CONTEXT = 256 << 20  # bytes: a CUDA context with its libraries takes about as much


def container_limits(spec: dict[str, Any], devices: Collection[str]) -> list[MemoryLimit]:
    """Return the limits of a container that has `devices`; [] without any. Raises GH1022, 1023.

    A container without a GPU has no limits, whatever its variables say.
    """
    return memory_request.limits(spec, devices, vocabulary.VOCABULARY) if devices else []


def wider(spec: dict[str, Any], limits: Iterable[MemoryLimit]) -> list[MemoryLimit]:
    """Return the grants that the container itself has narrowed to `limits`."""
    grants = memory_request.granted(spec, vocabulary.VOCABULARY.memory_prefix)
    pairs = ((grants.get(limit.device), limit) for limit in limits)
    return [
        grant
        for grant, limit in pairs
        if grant is not None and (grant.hard, grant.soft) != (limit.hard, limit.soft)
    ]


def doubts(limits: Iterable[MemoryLimit]) -> list[GpuhookError]:
    """Return a warning for each limit that is too small for any program."""
    return [
        fault("GH1025", limit=amount(limit.hard), device=limit.device, least=amount(_CONTEXT))
        for limit in limits
        if limit.hard < _CONTEXT
    ]


def is_asked(spec: dict[str, Any]) -> bool:
    """Return whether the pod itself requests a limit, as far as that is known without its GPUs."""
    grants = memory_request.granted(spec, vocabulary.VOCABULARY.memory_prefix)
    return not grants or any(limit.is_asked for limit in grants.values())


def is_required(policy: str, *, is_asked: bool) -> bool:
    """Return whether a container may not start without its limits: limits.onFailure `policy`."""
    return is_asked if policy == settings.AUTO else policy == settings.REFUSE


def devices(
    spec: dict[str, Any],
    nodes: Collection[str],
    names: Iterable[str],
    covered: Callable[[], Collection[str]],
) -> list[str]:
    """Return the UUIDs of the GPUs and instances of a container with the device nodes `nodes`.

    `names` are those of its devices, qualified or as requested. Without an inventory of this node,
    its grants in `spec` name some, and `covered` returns the names of the devices whose nodes are
    among `nodes`. Raises GH1024 if a GPU cannot be identified.
    """
    known = node_json.uuids()
    nodes = list(dict.fromkeys(nodes))
    found = [known[path] for path in nodes if path in known]
    found += map(_plain, names)
    uuids = [name for name in dict.fromkeys(found) if vocabulary.is_uuid(name)]
    unknown = [path for path in nodes if vocabulary.is_whole_gpu(path) and path not in known]
    if known and uuids:
        return uuids  # the node of a GPU with instances has no UUID: these were found
    if len(unknown) > len(uuids):
        grants = memory_request.granted(spec, vocabulary.VOCABULARY.memory_prefix)
        uuids = list(dict.fromkeys([*uuids, *filter(vocabulary.is_uuid, grants)]))
    if len(unknown) > len(uuids):
        uuids = list(dict.fromkeys([*uuids, *filter(vocabulary.is_uuid, covered())]))
    if any(name.startswith("MIG-") for name in uuids) or len(unknown) <= len(uuids):
        return uuids
    raise fault("GH1024", nodes=", ".join(unknown))


def driver_branch(library: str) -> int | None:
    """Return the driver's branch by its library's name, None for another name.

    >>> driver_branch("/usr/lib/libnvidia-ml.so.580.65.06")
    580
    """
    first = os.path.realpath(library).rpartition(".so.")[2].partition(".")[0]
    # libnvidia-ml.so.1 alone, without its target, has no branch
    return int(first) if first.isdecimal() and int(first) > 1 else None


def _plain(name: str) -> str:
    """Return the device of a name: without a kind, without a replica's number.

    A UUID is returned in NVML's spelling: a request may have it in any case.
    """
    plain = name.rpartition("=")[2]
    plain = replicas.device_of(plain) or plain
    is_written_so = not vocabulary.is_uuid(plain) or plain.startswith(vocabulary.OLD_MIG)
    return plain if is_written_so else plain[:4] + plain[4:].lower()
