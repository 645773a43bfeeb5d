# SPDX-License-Identifier: Apache-2.0
"""Byte patterns of containers that concern gpuhook; a config.json without any is not parsed.

The variables are parsed in request/parse.py. For most containers, this is the only module of the
vendors that is loaded.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

# A config.json without any of these requests nothing from gpuhook.
MARKS = (
    b"NVIDIA_VISIBLE_DEVICES",
    b'"CUDA_VERSION=',
    b"nvidia-container-devices",
    b"gpuhook-hook",
    b"gpuhook/memory/",
    b"io.gpuhook.record",
    b"AMD_VISIBLE_DEVICES",
    b"amd-container-devices",
)
# Escapes of JSON that the engines' encoder writes: of & < > in any container's arguments.
_USUAL_ESCAPES = (b"\\u0026", b"\\u003c", b"\\u003e", b"\\u003C", b"\\u003E")
# The beginnings of the escapes of the characters of MARKS.
_UNUSUAL_ESCAPES = (b"\\u002", b"\\u003", b"\\u004", b"\\u005", b"\\u006", b"\\u007")
# A container without any of these has only a plan of the first vendor: see plan_nodes.py.
FURTHER = (
    "AMD_VISIBLE_DEVICES",
    "AMD_GPU_MEMORY_",
    "amd-container-devices",
    "amd.com/",
    "DOCKER_RESOURCE_",
)


def has_unusual_escapes(raw: bytes) -> bool:
    """Return whether a config.json may have a word of MARKS in escaped characters."""
    raw = raw.replace(b"\\\\", b"")  # an escaped backslash escapes nothing
    if b"\\u00" in raw:
        for usual in _USUAL_ESCAPES:  # there may be millions of them
            raw = raw.replace(usual, b"")
        if any(escape in raw for escape in _UNUSUAL_ESCAPES):
            return True
    return b"\\/" in raw


def is_further(spec: dict[str, Any]) -> bool:
    """Return whether a config.json has a word of a further vendor."""
    from gpuhook.host.hot import fastjson  # most containers are not parsed

    annotations = spec.get("annotations")
    texts = [
        *fastjson.strings(spec, "process", "env"),
        *map(str, annotations.values() if isinstance(annotations, dict) else ()),
        *(str(mount.get("destination")) for mount in fastjson.objects(spec, "mounts")),
    ]
    return any(word in text for text in texts for word in FURTHER)
