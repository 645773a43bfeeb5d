# SPDX-License-Identifier: Apache-2.0
"""How a container shares its GPUs: what is isolated, and its fair share of the memory.

The ledger has replicas and limits; config.json has MPS and the requested memory. A GPU that several
containers of the ledger hold is time-sliced.
"""

from __future__ import annotations

import os
from types import MappingProxyType

from gpuhook.apply.spec import config_json
from gpuhook.errors import GpuhookError
from gpuhook.host.hot import files, state
from gpuhook.request import memory_request, parse, replicas
from gpuhook.request.memory_request import BY_DRIVER, BY_KERNEL, amount
from gpuhook.request.parse import Vocabulary
from gpuhook.vendors.catalogue import vendor_of_resource
from gpuhook.vendors.hot.memory_vendors import vendor_of
from gpuhook.vendors.usage.device_isolation import (
    BY_HARDWARE,
    BY_MPS,
    BY_NOBODY,
    EXCLUSIVE,
    MEMORY_UNITS,
    MPS,
    TIME_SLICING,
    SharedUse,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence
    from typing import Any

_MPS_ENV = "CUDA_MPS_PIPE_DIRECTORY"
_MAX_CONFIG = 16 << 20


def sharing_of(
    spec: dict[str, Any],
    gpus: Iterable[str],
    replicas_held: Iterable[str],
    holders: Mapping[str, int],
    limits: Iterable[Mapping[str, Any]] = (),
    *,
    parts: Collection[str] = (),
    domains: Mapping[str, str] = MappingProxyType({}),
    profiles: Mapping[str, str] = MappingProxyType({}),
) -> list[dict[str, Any]]:
    """Return, for each of a container's `gpus`, how it is shared and the four answers.

    `spec` is its config.json. `holders` has the number of containers of each GPU. `limits` are the
    memory limits as `gpuhook ps` lists them: `gpu`, `limit` in bytes, `by` what enforces it, and
    `trouble`. `parts` are the devices that are a part of a GPU, `profiles` their kinds. `domains`
    are those of the vendors of devices whose ids do not show the vendor.
    """
    by_gpu = {limit["gpu"]: limit for limit in limits}
    sliced = set(map(replicas.device_of, replicas_held))
    return [
        _one(
            spec,
            gpu,
            _sharing(spec, gpu, holders.get(gpu, 1), is_replica=gpu in sliced),
            by_gpu.get(gpu),
            is_part=gpu in parts,
            profile=profiles.get(gpu, ""),
            domain=domains.get(gpu) or vendor_of(gpu).domain,
        )
        for gpu in gpus
    ]


def holder_counts(gpus: Iterable[list[str]]) -> dict[str, int]:
    """Return the number of containers that hold each GPU; `gpus` are those of each container."""
    counts: dict[str, int] = {}
    for held in gpus:
        for gpu in set(held):
            counts[gpu] = counts.get(gpu, 0) + 1
    return counts


def config(entry: Mapping[str, Any]) -> dict[str, Any]:
    """Return the config.json of an entry's container, {} if it is gone or not root's."""
    bundle = entry.get("bundle")
    path = os.path.join(bundle, "config.json") if isinstance(bundle, str) and bundle else ""
    try:
        if path and state.usable(os.stat(path)):
            return config_json.parsed(path, files.read(path, _MAX_CONFIG))
    except (OSError, GpuhookError):
        return {}
    return {}


def fair_share(
    gpu: str,
    total: int | None,
    container: Mapping[str, Any],
    units: Sequence[str],
    holders: int,
) -> dict[str, Any] | None:
    """Return the container's share of a GPU's memory as {"bytes", "by"}, None if that is unknown.

    The share is its limit; else the part of its replicas of all `units` that the kubelet has of the
    GPU; else the memory divided by the number of `holders`. `container` is one of `gpuhook ps`.
    """
    for limit in container["memory"]:
        if limit["gpu"] == gpu and limit["limit"]:
            return {"bytes": limit["limit"], "by": "limit"}
    if total is None:
        return None
    held = [one for one in container["replicas"] if replicas.device_of(one) == gpu]
    if held and len(units) >= len(held):
        return {"bytes": total * len(held) // len(units), "by": "replicas"}
    return {"bytes": total // max(1, holders), "by": "holders"}


def is_over(used: int | None, share: Mapping[str, Any] | None) -> bool:
    """Return whether a container uses more than its share."""
    return used is not None and share is not None and used > share["bytes"]


def _one(
    spec: dict[str, Any],
    gpu: str,
    sharing: str,
    recorded: Mapping[str, Any] | None,
    *,
    is_part: bool,
    profile: str,
    domain: str,
) -> dict[str, Any]:
    limit = _limit(spec, gpu, recorded)
    bounded_by = recorded["by"] if recorded and limit else BY_NOBODY
    if bounded_by not in (BY_DRIVER, BY_KERNEL) and sharing == MPS:
        bounded_by = BY_MPS
    is_mig = gpu.startswith("MIG-")
    if is_mig and sharing == EXCLUSIVE and not limit:
        bounded_by = BY_HARDWARE
    unenforced = recorded["trouble"] if recorded else ""
    is_part = is_part or is_mig
    use = SharedUse(sharing, bounded_by, is_part, profile, limit=limit, unenforced=unenforced)
    answers = vendor_of_resource(domain).isolation(use)
    return {
        "gpu": gpu,
        "sharing": sharing,
        "memory_by": bounded_by,
        "isolation": dict(answers.sentences()),
    }


def _limit(spec: dict[str, Any], gpu: str, recorded: Mapping[str, Any] | None) -> str:
    """Return the limit with its unit, "" for none: the recorded one, else the granted one."""
    if recorded is not None:
        return amount(recorded["limit"]) if recorded["limit"] else ""
    grant = memory_request.granted(spec, Vocabulary.memory_prefix).get(gpu)
    return amount(grant.hard) if grant is not None else ""


def _sharing(spec: dict[str, Any], gpu: str, holders: int, *, is_replica: bool) -> str:
    if _MPS_ENV in parse.environment(spec):
        return MPS
    if is_replica:
        return TIME_SLICING
    grant = memory_request.granted(spec, Vocabulary.memory_prefix).get(gpu)
    if grant is not None:  # only a grant of memory units has a request of the pod
        return MEMORY_UNITS if grant.is_asked else TIME_SLICING
    return EXCLUSIVE if holders < 2 else TIME_SLICING
