# SPDX-License-Identifier: Apache-2.0
"""A CDI spec held against the rules of CDI and our stricter JSON schema."""

from __future__ import annotations

import json
from importlib import resources
from typing import Any

import jsonschema

from gpuhook.cdi.hot import spec_rules
from gpuhook.errors import fault

_DIGITS = dict.fromkeys(map(ord, "123456789"), "0")


def check(spec: Any, where: str, *, is_read: bool = False) -> None:
    """Raise the fault of the first thing that is wrong with the spec of the file `where`.

    Besides the faults of spec_rules, GH1106 names what only our schema forbids: container
    paths that are not absolute, hooks without a time to run in, options without a name, and text
    that is not UTF-8. With `is_read` the rules have been checked, by whoever has read the file.
    """
    if not is_read:
        spec_rules.check(spec, where)
    _require_unicode(spec, where)
    validator = _validator()
    if next(validator.iter_errors(_short(spec)), None) is not None:
        # The place of a device in the whole list: what it says alone may stand further in front.
        whole = min(validator.iter_errors(spec), key=lambda e: list(e.absolute_path))
        pointer = "".join(f"/{step}" for step in whole.absolute_path) or "/"
        raise fault("GH1106", path=where, pointer=pointer, reason=whole.message)


def _require_unicode(spec: Any, where: str) -> None:
    """Raise GH1106 for text that is no Unicode: neither JSON nor YAML can have it."""
    try:
        json.dumps(spec, ensure_ascii=False).encode()
    except UnicodeEncodeError as error:
        text = error.object[max(error.start - 40, 0) : error.end + 40]
        raise fault("GH1106", path=where, pointer="/", reason=f"{text!a} is not UTF-8") from error


def _short(spec: dict[str, Any]) -> dict[str, Any]:
    """Return `spec` with one device of each shape: the schema says nothing about the others.

    Two are of one shape if they differ in their names, and in digits, alone: no pattern of the
    schema tells one digit from another, but for a timeout of 0 and the bound of a number.
    """
    shapes: dict[object, Any] = {}
    for device in spec["devices"]:
        shapes.setdefault(_shape(device), device)
    return {**spec, "devices": list(shapes.values())}


def _shape(value: Any) -> object:
    """Return what the schema can tell of a value of a device, as a key."""
    if isinstance(value, dict):
        return tuple((key, _shape(item)) for key, item in value.items())
    if isinstance(value, list):
        return (list, *dict.fromkeys(map(_shape, value)))
    if isinstance(value, str):
        return (str, value.translate(_DIGITS))
    return (type(value), value)


def schema() -> dict[str, Any]:
    """Return the JSON schema of CDI specs that ships with the package."""
    text = resources.files("gpuhook.schemas").joinpath("cdi.json").read_text("utf-8")
    document: dict[str, Any] = json.loads(text)
    return document


def _validator() -> jsonschema.protocols.Validator:
    return jsonschema.Draft202012Validator(schema())
