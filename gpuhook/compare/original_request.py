# SPDX-License-Identifier: Apache-2.0
"""What a container asked for, before somebody's answer was written into its config.json.

CDI's edits of variables are appended, so that the request of the image or the pod is still in
front of them; the record of gpuhook's wrapper says itself what was there before. Where nothing
was asked in config.json (an engine was told by its own protocol, as containerd is by the kubelet's
CDIDevices), the GPUs count whose device nodes the container has.
"""

from __future__ import annotations

import json
from dataclasses import dataclass

from gpuhook.apply.spec import change_record
from gpuhook.errors import GpuhookError
from gpuhook.vendors.nvidia.hot import node_devices, vocabulary
from gpuhook.vendors.nvidia.spec import injection_traces

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Collection
    from typing import Any

    from gpuhook.vendors.nvidia.hot.nvidia_node import NvidiaNode

# The first variables that come with NVIDIA's GPUs; toolkit 1.20, `cdi generate`, and our specs.
_ADDED = (f"{vocabulary.LIBCUDA_DIRECTORY_ENV}=", "NVCT_EMPTY_DEVICE=")
BY_NODES = "its device nodes"  # config.json does not say what was asked for


@dataclass(frozen=True, slots=True)
class Before:
    """A config.json as it was before the GPUs were given, and the variables that came with them."""

    spec: dict[str, Any]
    added: tuple[str, ...] = ()


def before(spec: dict[str, Any]) -> Before:
    """Return `spec`, which stays as it is, without what was answered to its request."""
    kept = json.loads(json.dumps(spec))  # a copy, five times as fast as copy.deepcopy
    env = variables(spec)
    if change_record.take_back(kept):
        old = variables(kept)
        return Before(kept, tuple(entry for entry in env if entry not in old))
    own = _own(env)
    if len(own) < len(env):
        kept["process"]["env"] = own
    return Before(kept, tuple(entry for entry in env[len(own) :] if _is_vendors(entry)))


def _is_vendors(entry: str) -> bool:
    return entry.startswith((*injection_traces.VARIABLES, *_ADDED))


def variables(spec: dict[str, Any]) -> list[str]:
    """Return the variables of a config.json, "NAME=value"."""
    process = spec.get("process")
    env = process.get("env") if isinstance(process, dict) else None
    return [entry for entry in env if isinstance(entry, str)] if isinstance(env, list) else []


def _own(env: list[str]) -> list[str]:
    """Return the variables in front of the first that a CDI spec of NVIDIA's appends.

    `void` is that only behind another value, or at the very end: a pod may say it itself, and a
    device plugin does.
    """
    name = vocabulary.VOCABULARY.devices_env + "="
    is_asked = False
    for number, entry in enumerate(env):
        if entry.startswith(_ADDED):
            return env[:number]
        if entry == name + "void" and (is_asked or number == len(env) - 1):
            return env[:number]
        is_asked = is_asked or entry.startswith(name)
    return env


def by_nodes(node: NvidiaNode, nodes: Collection[str]) -> list[str]:
    """Return the devices all of whose nodes are among `nodes`, each under one name.

    Of an instance of MIG its own nodes count besides its GPU's. [] where nothing describes any.
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
