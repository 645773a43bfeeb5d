# SPDX-License-Identifier: Apache-2.0
"""The JSON schema of the configuration file, made from its grammar; for editors.

It knows single values; what contradicts what, `gpuhook device-plugin --validate` knows.
"""

from __future__ import annotations

import json

from gpuhook.device_plugin.config.grammar import config_keys
from gpuhook.device_plugin.config.grammar.grammar import MOST_ENTRIES, Either, Entries, Key, Section


def text() -> str:
    """Return the schema as the text of gpuhook/schemas/device-plugin.json."""
    head: dict[str, object] = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "The configuration of gpuhook device-plugin, version v1",
    }
    return json.dumps(head | _section(config_keys.FILE), indent=2, ensure_ascii=False) + "\n"


def _section(section: Section) -> dict[str, object]:
    """Return the schema of a mapping; an empty key is one that is not there."""
    required = [key.name for key in section.keys if key.required]
    made: dict[str, object] = {
        "type": "object" if required else ["object", "null"],
        "additionalProperties": False,
        "properties": {key.name: _key(key) for key in section.keys},
    }
    return made | ({"required": required} if required else {})


def _key(key: Key) -> dict[str, object]:
    about: dict[str, object] = {"description": key.about}
    if isinstance(key.kind, Section):
        null = {"type": ["object", "null"]} if key.may_be_null else {}
        return about | _section(key.kind) | null
    if isinstance(key.kind, Entries):
        entries: dict[str, object] = {
            "type": "array",
            "maxItems": MOST_ENTRIES,
            "items": _section(key.kind.section),
        }
        return about | entries | ({} if key.kind.may_be_empty else {"minItems": 1})
    if isinstance(key.kind, Either):
        return about | {"anyOf": [key.kind.kind.schema(), _section(key.kind.section)]}
    return about | key.kind.schema()
