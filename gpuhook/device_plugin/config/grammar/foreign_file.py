# SPDX-License-Identifier: Apache-2.0
"""Files that hold a configuration somewhere inside, and are given as if they were one.

To ignore what is around it would be to serve the defaults: whole GPUs to those who asked for
replicas.
"""

from __future__ import annotations

from dataclasses import dataclass

import yaml

from gpuhook.device_plugin.config.grammar import config_keys
from gpuhook.errors import printable

# Of the GPU operator's chart, and of that of NVIDIA's device plugin.
_CHART_KEYS = {"devicePlugin": "devicePlugin.config.data", "config": "config.map"}


@dataclass(frozen=True, slots=True)
class ForeignFile:
    """What the file is instead, and by which key that can be seen."""

    name: str
    key: yaml.Node
    message: str
    hint: str


def foreign_file(root: yaml.Node) -> ForeignFile | None:
    """Return what a document is instead of a configuration, None where nothing tells of it."""
    if not isinstance(root, yaml.MappingNode):
        return None
    pairs = {
        key.value: (key, value) for key, value in root.value if isinstance(key, yaml.ScalarNode)
    }
    if "kind" in pairs:
        key, value = pairs["kind"]
        message = "this is a Kubernetes manifest, not a configuration"
        hint = "give the file that begins with `version: v1`"
        if value.value == "ConfigMap":
            hint = "give the text that is below `data` in a ConfigMap"
        return ForeignFile("kind", key, message, hint)
    for name, (key, value) in pairs.items():
        if config_keys.FILE.key(name) is not None:
            continue
        if name in _CHART_KEYS and isinstance(value, yaml.MappingNode):
            message = "these are the values of a Helm chart, not a configuration"
            hint = f"give the text of a configuration, which is below {_CHART_KEYS[name]}"
            return ForeignFile(name, key, message, hint)
        if isinstance(value, yaml.ScalarNode) and "\n" in value.value.strip():
            message = "holds a text of several lines, as the data of a ConfigMap do"
            hint = f"give that text alone, without `{printable(name, 60)}:` and unindented"
            return ForeignFile(name, key, message, hint)
    return None
