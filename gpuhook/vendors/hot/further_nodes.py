# SPDX-License-Identifier: Apache-2.0
"""The nodes of the further vendors, for plans of containers that name their devices.

The first vendor's node is part of every plan: it serves all names that no other vendor serves. A
vendor's modules are imported only for a container with one of its words.
"""

from __future__ import annotations

from gpuhook.host.hot import bundle, fastjson

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from gpuhook.cdi.hot.registry import Registry
    from gpuhook.vendors.interface import VendorNode

_AMD = "gpuhook.vendors.amd.hot.amd_plan_node"
_AMD_WORDS = ("AMD_VISIBLE_DEVICES", "amd-container-devices", "amd.com/", "DOCKER_RESOURCE_")


def further_nodes(
    load: Callable[[str, str], Registry],
    has_word: Callable[[str], bool] | None = None,
    *,
    is_here: bool = True,
) -> list[VendorNode]:
    """Return the node of each further vendor that a container names, of each for None.

    `has_word(word)` searches the container. `load(vendor, way)` returns the registry of the node's
    CDI specs. `is_here`: it is this machine.
    """
    if has_word is not None and not is_named(has_word):
        return []
    bundle.load(_AMD)
    from gpuhook.vendors.amd.hot.amd_plan_node import AmdPlanNode

    return [AmdPlanNode(load, is_here=is_here)]


def is_named(has_word: Callable[[str], bool]) -> bool:
    """Return whether a container has a word of a further vendor."""
    return any(map(has_word, _AMD_WORDS))


def words_of(spec: dict[str, Any]) -> Callable[[str], bool]:
    """Return `has_word` of a config.json."""
    annotations = spec.get("annotations")
    texts = [
        *fastjson.strings(spec, "process", "env"),
        *map(str, annotations.values() if isinstance(annotations, dict) else ()),
        *(str(mount.get("destination")) for mount in fastjson.objects(spec, "mounts")),
    ]
    return lambda word: any(word in text for text in texts)
