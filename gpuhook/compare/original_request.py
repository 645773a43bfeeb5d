# SPDX-License-Identifier: Apache-2.0
"""The request of a container, without the edits that a program made for it in config.json.

CDI appends variables, so the request of the image or the pod precedes them. The record of
gpuhook's wrapper has the original values. If config.json has no request (the kubelet passes
CDIDevices to containerd), the GPUs of the container's device nodes are the request.
"""

from __future__ import annotations

import json
from dataclasses import dataclass

from gpuhook.apply.spec import change_record
from gpuhook.errors import GpuhookError
from gpuhook.request import parse
from gpuhook.vendors.nvidia.hot import vocabulary
from gpuhook.vendors.nvidia.hot.device_names import node_devices
from gpuhook.vendors.nvidia.spec import injection_traces

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Collection
    from typing import Any

    from gpuhook.vendors.interface import VendorNode

# The first variables that come with NVIDIA's GPUs: toolkit 1.20, `cdi generate`, and gpuhook.
_ADDED = (f"{vocabulary.LIBCUDA_DIRECTORY_ENV}=", "NVCT_EMPTY_DEVICE=")
BY_NODES = "its device nodes"  # config.json has no request


@dataclass(frozen=True, slots=True)
class Before:
    """A config.json from before the GPUs were added, and the variables that came with them."""

    spec: dict[str, Any]
    added: tuple[str, ...] = ()


def before(spec: dict[str, Any]) -> Before:
    """Return a copy of `spec` without the edits for its request."""
    kept = json.loads(json.dumps(spec))  # five times as fast as copy.deepcopy
    env = parse.variables(spec)
    if change_record.take_back(kept):
        old = parse.variables(kept)
        return Before(kept, tuple(entry for entry in env if entry not in old))
    own = _own(env)
    if len(own) < len(env):
        kept["process"]["env"] = own
    return Before(kept, tuple(entry for entry in env[len(own) :] if _is_vendors(entry)))


def _is_vendors(entry: str) -> bool:
    return entry.startswith((*injection_traces.VARIABLES, *_ADDED))


def _own(env: list[str]) -> list[str]:
    """Return the variables before the first one that a CDI spec of NVIDIA appends.

    `void` is such a variable only after another value or at the end: a pod or a device plugin may
    set it too.
    """
    name = vocabulary.VOCABULARY.devices_env + "="
    is_requested = False
    for number, entry in enumerate(env):
        if entry.startswith(_ADDED):
            return env[:number]
        if entry == name + "void" and (is_requested or number == len(env) - 1):
            return env[:number]
        is_requested = is_requested or entry.startswith(name)
    return env


def by_nodes(node: VendorNode, nodes: Collection[str]) -> list[str]:
    """Return the devices whose nodes are all in `nodes`, each by one name.

    The nodes of a MIG instance include those of its GPU. Returns [] without a spec.
    """
    try:
        described = node_devices.nodes_by_device(node.registry(), node.kind)
    except GpuhookError:
        return []
    held: dict[frozenset[str], str] = {}
    for name, paths in described.items():
        if not paths or not paths.issubset(nodes) or name.endswith("=all"):
            continue
        held.setdefault(paths, name)
    return list(held.values())
