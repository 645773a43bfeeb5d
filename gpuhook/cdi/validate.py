# SPDX-License-Identifier: Apache-2.0
"""The check of a CDI spec against CDI's rules and our stricter JSON schema."""

from __future__ import annotations

import json
from importlib import resources
from typing import Any

import jsonschema

from gpuhook.cdi.hot import spec_rules
from gpuhook.errors import fault

_DIGITS = dict.fromkeys(map(ord, "123456789"), "0")


def check(spec: Any, where: str, *, is_read: bool = False) -> None:
    """Raise the fault of the first error in the spec of the file `where`.

    In addition to the faults of spec_rules, GH1106 names what only our schema forbids: container
    paths that are not absolute, hooks without a timeout, options without a name, and text that is
    not UTF-8. `is_read`: the reader of the file has checked the rules already.
    """
    if not is_read:
        spec_rules.check(spec, where)
    _require_unicode(spec, where)
    validator = _validator()
    if next(validator.iter_errors(_short(spec)), None) is not None:
        # The position of the device in the whole list, not among those that were checked.
        whole = min(validator.iter_errors(spec), key=lambda e: list(e.absolute_path))
        pointer = "".join(f"/{step}" for step in whole.absolute_path) or "/"
        raise fault("GH1106", path=where, pointer=pointer, reason=whole.message)


def _require_unicode(spec: Any, where: str) -> None:
    """Raise GH1106 for text that is not Unicode: neither JSON nor YAML can represent it."""
    try:
        json.dumps(spec, ensure_ascii=False).encode()
    except UnicodeEncodeError as error:
        text = error.object[max(error.start - 40, 0) : error.end + 40]
        raise fault("GH1106", path=where, pointer="/", reason=f"{text!a} is not UTF-8") from error


def _short(spec: dict[str, Any]) -> dict[str, Any]:
    """Return `spec` with one device of each shape; the schema cannot reject another one of it.

    Two devices have one shape if they differ in their names and in digits only: no pattern of the
    schema distinguishes digits, except a timeout of 0 and the bounds of a number.
    """
    shapes: dict[object, Any] = {}
    for device in spec["devices"]:
        shapes.setdefault(_shape(device), device)
    return {**spec, "devices": list(shapes.values())}


def _shape(value: Any) -> object:
    """Return a key for all values of a device that the schema treats alike."""
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
