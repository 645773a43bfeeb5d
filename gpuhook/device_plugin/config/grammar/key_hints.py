# SPDX-License-Identifier: Apache-2.0
"""Hints for unknown keys: the key that was probably meant, and files of another kind."""

from __future__ import annotations

import yaml

from gpuhook.device_plugin.config.grammar.grammar import walk
from gpuhook.host.suggestion import nearest

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gpuhook.device_plugin.config.grammar.grammar import Section

_SETTINGS = ("limits", "request", "runtime", "cdi")  # the sections of /etc/gpuhook/config.yaml
# Keys of other files that contain a configuration: the file, and the place of the configuration.
_FOREIGN = {
    "kind": ("this is a Kubernetes manifest", "`data` of a ConfigMap"),
    "devicePlugin": ("these are the values of a Helm chart", "devicePlugin.config.data"),
    "config": ("these are the values of a Helm chart", "config.map"),
}


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


def _letters(name: str) -> str:
    return name.replace("-", "").replace("_", "").lower()


def foreign_file(root: yaml.Node, section: Section) -> tuple[str, str, str, yaml.Node] | None:
    """Return (key, message, hint, node) if a file only contains a configuration, else None.

    To ignore the keys around a configuration would serve the defaults: whole GPUs instead of
    replicas.
    """
    if not isinstance(root, yaml.MappingNode):
        return None
    for key, value in root.value:
        name = key.value
        if not isinstance(key, yaml.ScalarNode) or section.key(name) is not None:
            continue
        if name == "kind" or (name in _FOREIGN and isinstance(value, yaml.MappingNode)):
            what, place = _FOREIGN[name]
            message = f"{what}, not a configuration"
            return name, message, f"use the text of one configuration below {place}", key
        if isinstance(value, yaml.ScalarNode) and "\n" in value.value.strip():
            message = "is a multi-line text, like the data of a ConfigMap"
            return name, message, "use only that text, without indentation", key
    return None
