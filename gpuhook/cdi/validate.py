# SPDX-License-Identifier: Apache-2.0
"""The check of a CDI spec against CDI's rules and our stricter JSON schema."""

from __future__ import annotations

import json
from importlib import resources
from typing import Any

import jsonschema

from gpuhook.cdi.hot import spec_rules
from gpuhook.errors import fault


def check(spec: Any, where: str, *, is_read: bool = False) -> None:
    """Raise the fault of the first error in the spec of the file `where`.

    In addition to the faults of spec_rules, GH1106 names what only our schema forbids: container
    paths that are not absolute, hooks without a timeout, options without a name, and text that is
    not UTF-8. `is_read`: the reader of the file has checked the rules already.
    """
    if not is_read:
        spec_rules.check(spec, where)
    _require_unicode(spec, where)
    errors = jsonschema.Draft202012Validator(_schema()).iter_errors(spec)
    first = min(errors, key=lambda error: list(error.absolute_path), default=None)
    if first is not None:
        pointer = "".join(f"/{step}" for step in first.absolute_path) or "/"
        raise fault("GH1106", path=where, pointer=pointer, reason=first.message)


def _require_unicode(spec: Any, where: str) -> None:
    """Raise GH1106 for text that is not Unicode: neither JSON nor YAML can represent it."""
    try:
        json.dumps(spec, ensure_ascii=False).encode()
    except UnicodeEncodeError as error:
        text = error.object[max(error.start - 40, 0) : error.end + 40]
        raise fault("GH1106", path=where, pointer="/", reason=f"{text!a} is not UTF-8") from error


def _schema() -> dict[str, Any]:
    text = resources.files("gpuhook.schemas").joinpath("cdi.json").read_text("utf-8")
    document: dict[str, Any] = json.loads(text)
    return document
