# SPDX-License-Identifier: Apache-2.0
"""The text of every fault a person can meet, by its code: kind, sentence, way out.

Loaded only where something is wrong: of the blocks of codes, only the one at hand.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gpuhook.errors import GpuhookError

# The module of each block of codes, by the first four characters.
BLOCKS = {
    "GH10": "requests",
    "GH11": "cdi_specs",
    "GH12": "driver",
    "GH13": "containers",
    "GH14": "runtimes",
    "GH15": "settings",
    "GH16": "hooks",
    "GH17": "live",
    "GH18": "plugin",
    "GH19": "diagnosis",
    "GH20": "engines",
    "GH21": "installing",
}


def text_of(code: str) -> tuple[type[GpuhookError], str, str]:
    """Return the kind of the fault, its sentence and its hint; KeyError for no code of ours."""
    name = f"{__name__}.{BLOCKS[code[:4]]}"
    found: tuple[type[GpuhookError], str, str] = __import__(name, fromlist=["TEXTS"]).TEXTS[code]
    return found


def is_known(code: str) -> bool:
    """Return whether there is such a fault."""
    try:
        text_of(code)
    except KeyError:
        return False
    return True


def load() -> None:
    """Load all texts now, for where nothing can be loaded later."""
    for name in BLOCKS.values():
        __import__(f"{__name__}.{name}")
