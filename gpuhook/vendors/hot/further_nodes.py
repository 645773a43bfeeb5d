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

    from gpuhook.host.hot.settings import Settings
    from gpuhook.vendors.interface import VendorNode

_AMD = "gpuhook.vendors.amd.hot.amd_node"
_AMD_WORDS = ("AMD_VISIBLE_DEVICES", "amd-container-devices", "amd.com/", "DOCKER_RESOURCE_")


def further_nodes(
    settings: Settings, compile_spec: Callable[[str], None], has_word: Callable[[str], bool]
) -> list[VendorNode]:
    """Return the node of each further vendor of which a container has a word.

    `has_word(word)` returns that for one word; `compile_spec(path)` compiles a YAML spec.
    """
    if not any(map(has_word, _AMD_WORDS)):
        return []
    bundle.load(_AMD)
    from gpuhook.vendors.amd.hot.amd_node import AmdPlanNode

    return [AmdPlanNode(settings, compile_spec)]


def words_of(spec: dict[str, Any]) -> Callable[[str], bool]:
    """Return `has_word` of a config.json."""
    annotations = spec.get("annotations")
    texts = [
        *fastjson.strings(spec, "process", "env"),
        *map(str, annotations.values() if isinstance(annotations, dict) else ()),
        *(str(mount.get("destination")) for mount in fastjson.objects(spec, "mounts")),
    ]
    return lambda word: any(word in text for text in texts)
