# SPDX-License-Identifier: Apache-2.0
"""TOML files are edited so that every byte that is not ours stays.

New tables are appended, keys are written on lines of their own, and a line that changes is kept as
a comment. What that cannot do, such as a member of an inline table, tomlkit does. Either result
counts only if it says exactly what it has to say.
"""

from __future__ import annotations

import copy
from typing import Any

from gpuhook.engines.configure.toml import toml_values
from gpuhook.engines.configure.toml.toml_lines import Setting, by_lines, value_of
from gpuhook.engines.read import toml_document

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence


class CannotError(Exception):
    """The file cannot be edited: the message says why."""


def edited(content: bytes, settings: Sequence[Setting]) -> bytes:
    """Return the file with all settings; raises CannotError, and UnreadableError for no TOML."""
    document = toml_document.parsed(content)
    wanted = _applied(document, settings)
    if wanted == document:
        return content
    found = by_lines(content, document, settings)
    if found is not None and _says(found, wanted):
        return found
    if len(settings) > 1:  # what lines can do, they do
        for one in settings:
            content = edited(content, (one,))
        return content
    found = _by_tomlkit(content, document, settings)
    if found is not None and _says(found, wanted):
        return found
    raise CannotError("it is written in a way that cannot be changed without touching the rest")


def _says(content: bytes, wanted: dict[str, Any]) -> bool:
    try:
        return toml_document.parsed(content) == wanted
    except toml_document.UnreadableTomlError:
        return False


def _applied(document: dict[str, Any], settings: Sequence[Setting]) -> dict[str, Any]:
    wanted = copy.deepcopy(document)
    for one in settings:
        place: Any = wanted
        for depth, name in enumerate(one.path[:-1], 1):
            place = place.setdefault(name, {})
            if not isinstance(place, dict):
                said = toml_values.dotted(one.path[:depth])
                raise CannotError(f"{said} is no table")
        if one.value is None:
            place.pop(one.path[-1], None)
        else:
            place[one.path[-1]] = copy.deepcopy(one.value)
    return wanted


def _by_tomlkit(
    content: bytes, document: dict[str, Any], settings: Sequence[Setting]
) -> bytes | None:
    import tomlkit  # cold, and seldom needed
    from tomlkit.exceptions import TOMLKitError

    try:
        whole = tomlkit.parse(content.decode("utf-8"))
        for one in settings:
            if value_of(document, one.path) == one.value:
                continue
            place: Any = whole
            for name in one.path[:-1]:
                if name not in place:
                    place[name] = tomlkit.table(is_super_table=True)
                place = place[name]
            if one.value is None:
                place.remove(one.path[-1])
            else:
                place[one.path[-1]] = one.value
        return tomlkit.dumps(whole).encode()
    except (TOMLKitError, KeyError, TypeError, AttributeError, ValueError, RecursionError):
        return None  # some versions trip over tables that are written in odd places
