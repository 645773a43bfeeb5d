# SPDX-License-Identifier: Apache-2.0
"""The pictures in docs/images: `gpuhook map`, doctor's output, the ways to share a GPU.

docs/images/map.json is a document of `gpuhook ps -o json`. The output of doctor is that of a page,
which tests/doctor compares with what doctor prints.
"""

from __future__ import annotations

import json
from pathlib import Path

from drawings import sharing, terminal

from gpuhook.map import map_drawing, map_svg

CHECKOUT = Path(__file__).parents[2]
IMAGES = "docs/images"
_PAGE = "docs/start/debug.md"
_COMMAND = "$ gpuhook doctor\n"
_REPLICAS = 4


def files() -> dict[str, str]:
    """Return the SVG files by their paths."""
    return {
        f"{IMAGES}/map.svg": map_picture(),
        f"{IMAGES}/doctor.svg": terminal.picture("gpuhook doctor", _doctor_output()),
        f"{IMAGES}/sharing.svg": sharing.picture(),
    }


def map_picture() -> str:
    """Return the picture of the node in map.json; its first GPU has four replicas."""
    document = json.loads((CHECKOUT / IMAGES / "map.json").read_text(encoding="utf-8"))
    first = document["gpus"][0]["gpu"]
    units = {first: tuple(f"{first}::{number}" for number in range(_REPLICAS))}
    return map_svg.text(map_drawing.picture("gpu-node-7", document, units))


def _doctor_output() -> str:
    _, command, rest = (CHECKOUT / _PAGE).read_text(encoding="utf-8").partition(_COMMAND)
    if not command:
        raise ValueError(f"{_PAGE} lacks the line {_COMMAND.strip()}")
    return command + rest.partition("```")[0]
