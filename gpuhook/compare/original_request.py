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
from gpuhook.request import parse
from gpuhook.vendors.catalogue import vendors

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Collection
    from typing import Any

    from gpuhook.vendors.interface import VendorNode

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
    traces = [vendor.traces for vendor in vendors()]
    return any(entry.startswith((*one.VARIABLES, *one.SPEC_VARIABLES)) for one in traces)


def _own(env: list[str]) -> list[str]:
    """Return the variables before the first one that a vendor's CDI spec appends.

    `void` is such a variable only after another value or at the end: a pod or a device plugin may
    set it too.
    """
    added = tuple(start for one in vendors() for start in one.traces.SPEC_VARIABLES)
    voids = {f"{one.vocabulary.devices_env}=void" for one in vendors()}
    names: set[str] = set()
    for number, entry in enumerate(env):
        name = entry.partition("=")[0]
        is_last = voids.issuperset(env[number:])
        if entry.startswith(added) or (entry in voids and (name in names or is_last)):
            return env[:number]
        names.add(name)
    return env


def by_nodes(node: VendorNode, nodes: Collection[str]) -> list[str]:
    """Return the devices whose nodes are all in `nodes`, each by one name.

    The nodes of a MIG instance include those of its GPU. Returns [] without a spec.
    """
    held: dict[frozenset[str], str] = {}
    for name, paths in node.nodes_by_device().items():
        if paths and paths.issubset(nodes) and not name.endswith("=all"):
            held.setdefault(paths, name)
    return list(held.values())
