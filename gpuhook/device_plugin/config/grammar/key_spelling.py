# SPDX-License-Identifier: Apache-2.0
"""What somebody meant who wrote a key that there is none of."""

from __future__ import annotations

from gpuhook.device_plugin.config.grammar import config_keys
from gpuhook.host.suggestion import nearest

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gpuhook.device_plugin.config.grammar.grammar import Section


def differs_in_case(name: str, section: Section) -> bool:
    """Return whether a key of the section has this name but for upper and lower case.

    NVIDIA's plugin takes such keys, so to ignore one would be to serve something else than it did.
    """
    return any(key.name.lower() == name.lower() for key in section.keys)


def suggestion(name: str, path: str, section: Section) -> str:
    """Return the hint for an unknown key of the section at `path`: the nearest valid path."""
    place = path + "." if path else ""
    here = {key.name: place + key.name for key in section.keys}
    elsewhere: dict[str, str] = {}
    for known, key in config_keys.walk():
        if key.name not in here:
            elsewhere.setdefault(key.name, known)
    for known_names in (here, elsewhere):
        for known, where in known_names.items():
            if _letters(known) == _letters(name):  # the same word, written in another way
                return f"did you mean {where}?"
        near = nearest(name, known_names)
        if near is not None:
            return f"did you mean {known_names[near]}?"
    return f"known here are {', '.join(here)}"


def _letters(name: str) -> str:
    return name.replace("-", "").replace("_", "").lower()
