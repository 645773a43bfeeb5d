# SPDX-License-Identifier: Apache-2.0
"""Hints for unknown keys: the key that was probably meant, and files of another kind."""

from __future__ import annotations

import yaml

from gpuhook.device_plugin.config.grammar.grammar import walk
from gpuhook.errors import printable
from gpuhook.host.suggestion import nearest

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gpuhook.device_plugin.config.grammar.grammar import Section

# Keys whose misspelling removes a limit.
LIMIT_KEYS = (
    "memory",
    "oversubscribe",
    "replicas",
    "unit",
    "memoryUnits",
    "memoryReserve",
    "guard",
)
_SETTINGS = ("limits", "request", "runtime", "cdi")  # the sections of /etc/gpuhook/config.yaml
# Of the GPU operator's chart, and of the chart of NVIDIA's device plugin.
_CHART_KEYS = {"devicePlugin": "devicePlugin.config.data", "config": "config.map"}


def hint(name: str, path: str, section: Section, root: Section) -> str:
    """Return the hint for an unknown key of the section at `path`: the nearest known path."""
    if not path and name in _SETTINGS:
        return f"{name} is a key of /etc/gpuhook/config.yaml, the settings of the node's runtime"
    place = path + "." if path else ""
    here = {key.name: place + key.name for key in section.keys}
    elsewhere: dict[str, str] = {}
    for known, key in walk(root):
        if key.name not in here:
            elsewhere.setdefault(key.name, known)
    for known_names in (here, elsewhere):
        same = [known for known in known_names if _letters(known) == _letters(name)]
        near = same[0] if same else nearest(name, known_names)
        if near is not None:
            return f"did you mean {known_names[near]}?"
    return f"known keys are {', '.join(here)}"


def strict_hint(name: str, path: str) -> str:
    """Return a hint at --strict-config if the ignored key is probably one of a limit, else ""."""
    is_setting = not path and name in _SETTINGS
    is_limit = not is_setting and nearest(name, LIMIT_KEYS)
    return " (--strict-config refuses unknown keys)" if is_limit else ""


def _letters(name: str) -> str:
    return name.replace("-", "").replace("_", "").lower()


def foreign_file(root: yaml.Node, section: Section) -> tuple[yaml.Node, str, str, str] | None:
    """Return (node, key, message, hint) if a file only contains a configuration, else None.

    To ignore the keys around a configuration would serve the defaults: whole GPUs instead of
    replicas.
    """
    if not isinstance(root, yaml.MappingNode):
        return None
    pairs = {
        key.value: (key, value) for key, value in root.value if isinstance(key, yaml.ScalarNode)
    }
    if "kind" in pairs:
        key, value = pairs["kind"]
        message = "this is a Kubernetes manifest, not a configuration"
        if value.value == "ConfigMap":
            return key, "kind", message, "use the text below `data` of the ConfigMap"
        return key, "kind", message, "use the file that begins with `version: v1`"
    for name, (key, value) in pairs.items():
        if section.key(name) is not None:
            continue
        if name in _CHART_KEYS and isinstance(value, yaml.MappingNode):
            message = "these are the values of a Helm chart, not a configuration"
            return key, name, message, f"use the text of a configuration below {_CHART_KEYS[name]}"
        if isinstance(value, yaml.ScalarNode) and "\n" in value.value.strip():
            message = "is a text of several lines, like the data of a ConfigMap"
            text = f"use only that text, without `{printable(name, 60)}:` and without indentation"
            return key, name, message, text
    return None
