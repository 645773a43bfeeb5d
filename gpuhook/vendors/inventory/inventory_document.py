# SPDX-License-Identifier: Apache-2.0
"""The document of an inventory: the facts of a node by vendor, as dicts, lists and plain values."""

from __future__ import annotations

from typing import Any

SCHEMA = "gpuhook/inventory/v1"


class OneLine(dict[str, Any]):
    """A mapping that is written on one line of YAML."""


def first_shared(
    several: dict[str, dict[str, Any]], key: str, unknown: object = None
) -> tuple[str, str] | None:
    """Return the first place with a value of `key` that another has already, and the sentence.

    `several` are mappings by their places in a document; the value `unknown` names nothing.
    """
    seen: dict[object, str] = {}
    for place, facts in several.items():
        value = facts.get(key, unknown)
        if value != unknown and value in seen:
            return (f"{place}/{key}", f"{value!r} is the {key} of {seen[value]} already")
        seen[value] = place
    return None
