# SPDX-License-Identifier: Apache-2.0
"""How a container shares each of its GPUs, as far as can be told: and so what is isolated.

The ledger tells replicas and limits, config.json how MPS and memory units are handed out. A GPU
that the ledger has in several containers' hands is shared in turns, whoever gave it to them.
"""

from __future__ import annotations

import os

from gpuhook.apply.spec import oci_spec
from gpuhook.errors import GpuhookError
from gpuhook.host.hot import files, state
from gpuhook.request import memory_request, parse, replicas
from gpuhook.request.memory_request import amount
from gpuhook.vendors.nvidia.gpu import sharing_isolation
from gpuhook.vendors.nvidia.hot import vocabulary

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from typing import Any

_MPS_ENV = "CUDA_MPS_PIPE_DIRECTORY"
_MAX_CONFIG = 16 << 20


def container_sharing(
    entry: dict[str, Any],
    gpus: list[str],
    holders: dict[str, int],
    limits: Sequence[Mapping[str, Any]] = (),
) -> list[dict[str, Any]]:
    """Return, for each of the container's `gpus`, how it is shared and the four answers.

    `holders` counts the containers of each GPU; `limits` has the `limit` of some by `gpu`, in
    bytes, `by` whom it is held, and the `trouble` of those that are not, as `gpuhook ps` lists it.
    """
    return of_spec(entry, config(entry), gpus, holders, limits)


def of_spec(
    entry: dict[str, Any],
    spec: dict[str, Any],
    gpus: list[str],
    holders: dict[str, int],
    limits: Sequence[Mapping[str, Any]] = (),
) -> list[dict[str, Any]]:
    """Return what container_sharing() returns, for a container whose config.json says `spec`."""
    told = {limit["gpu"]: limit for limit in limits}
    return [_one(entry, spec, gpu, holders.get(gpu, 1), told.get(gpu)) for gpu in gpus]


def counted(gpus: Iterable[list[str]]) -> dict[str, int]:
    """Return in how many containers' hands each GPU is; `gpus` are those of each container."""
    counts: dict[str, int] = {}
    for held in gpus:
        for gpu in set(held):
            counts[gpu] = counts.get(gpu, 0) + 1
    return counts


def config(entry: dict[str, Any]) -> dict[str, Any]:
    """Return the config.json of an entry's container, {} where it is gone or not to be believed."""
    bundle = entry.get("bundle")
    path = os.path.join(bundle, "config.json") if isinstance(bundle, str) and bundle else ""
    try:
        if path and state.usable(os.stat(path)):
            return oci_spec.parsed(path, files.read(path, _MAX_CONFIG))
    except (OSError, GpuhookError):
        return {}
    return {}


def _one(
    entry: dict[str, Any],
    spec: dict[str, Any],
    gpu: str,
    holders: int,
    told: Mapping[str, Any] | None,
) -> dict[str, Any]:
    sharing = _sharing(entry, spec, gpu, holders)
    limit = _limit(spec, gpu, told)
    bounded_by = told["by"] if told and limit else sharing_isolation.BY_NOBODY
    if bounded_by != sharing_isolation.BY_DRIVER and sharing == sharing_isolation.MPS:
        bounded_by = sharing_isolation.BY_MPS
    is_mig = gpu.startswith("MIG-")
    if is_mig and sharing == sharing_isolation.EXCLUSIVE and not limit:
        bounded_by = sharing_isolation.BY_HARDWARE
    answers = sharing_isolation.isolation_of(
        sharing,
        is_mig=is_mig,
        memory_by=bounded_by,
        limit=limit,
        unheld=told["trouble"] if told else "",
    )
    return {
        "gpu": gpu,
        "sharing": sharing,
        "memory_by": bounded_by,
        "isolation": dict(answers.sentences()),
    }


def _limit(spec: dict[str, Any], gpu: str, told: Mapping[str, Any] | None) -> str:
    """Return the limit in words: as it is known, or as it was granted; "" for none."""
    if told is not None:
        return amount(told["limit"]) if told["limit"] else ""
    grant = memory_request.granted(spec, vocabulary.VOCABULARY.memory_prefix).get(gpu)
    return amount(grant.hard) if grant is not None else ""


def _sharing(entry: dict[str, Any], spec: dict[str, Any], gpu: str, holders: int) -> str:
    if _MPS_ENV in parse.environment(spec):
        return sharing_isolation.MPS
    if any(replicas.device_of(name) == gpu for name in entry.get("replicas") or ()):
        return sharing_isolation.TIME_SLICING
    grant = memory_request.granted(spec, vocabulary.VOCABULARY.memory_prefix).get(gpu)
    if grant is not None:  # of memory units alone it says that the pod has asked for it
        return sharing_isolation.MEMORY_UNITS if grant.is_asked else sharing_isolation.TIME_SLICING
    return sharing_isolation.EXCLUSIVE if holders < 2 else sharing_isolation.TIME_SLICING
