# SPDX-License-Identifier: Apache-2.0
"""Where in a CDI spec file a device, or what all of its devices share, is described."""

from __future__ import annotations

from functools import lru_cache

import yaml

from gpuhook.errors import GpuhookError
from gpuhook.host import bounded_yaml
from gpuhook.host.hot import files

_MAX_SIZE = 16 << 20


def of_device(path: str, name: str) -> int | None:
    """Return the line of the device `name` in the spec file, None where it cannot be told."""
    return _lines(path).get(name)


def of_shared(path: str) -> int | None:
    """Return the line of what all devices of the spec file share, None where there is none."""
    return _lines(path).get("")


@lru_cache(maxsize=64)
def _lines(path: str) -> dict[str, int]:
    """Return the line of each device by its name, and that of the shared edits by ""."""
    try:
        # JSON is YAML, but for tabs between its words.
        text = files.read(path, _MAX_SIZE).replace(b"\t", b" ")
        root = bounded_yaml.compose(text)
    except (OSError, GpuhookError, yaml.YAMLError):
        return {}
    parts = _parts(root)
    found = {}
    if "containerEdits" in parts:
        found[""] = _line(parts["containerEdits"])
    devices = parts.get("devices")
    for device in devices.value if isinstance(devices, yaml.SequenceNode) else ():
        name = _parts(device).get("name")
        if isinstance(name, yaml.ScalarNode):
            found[str(name.value)] = _line(name)
    return found


def _parts(node: object) -> dict[str, yaml.Node]:
    pairs = node.value if isinstance(node, yaml.MappingNode) else ()
    return {str(key.value): value for key, value in pairs if isinstance(key, yaml.ScalarNode)}


def _line(node: yaml.Node) -> int:
    return int(node.start_mark.line) + 1
