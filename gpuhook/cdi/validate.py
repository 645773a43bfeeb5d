# SPDX-License-Identifier: Apache-2.0
"""A CDI spec held against the rules of CDI and our stricter JSON schema."""

from __future__ import annotations

import json
from importlib import resources
from typing import Any

import jsonschema

from gpuhook.cdi import rules
from gpuhook.errors import fault


def check(spec: Any, where: str) -> None:
    """Raise the fault of the first thing that is wrong with the spec of the file `where`.

    Besides the faults of gpuhook.cdi.rules, GH1106 names what only our schema forbids: container
    paths that are not absolute, hooks without a time to run in, options without a name.
    """
    rules.check(spec, where)
    errors = sorted(_validator().iter_errors(spec), key=lambda error: list(error.absolute_path))
    if errors:
        pointer = "".join(f"/{step}" for step in errors[0].absolute_path) or "/"
        raise fault("GH1106", path=where, pointer=pointer, reason=errors[0].message)


def schema() -> dict[str, Any]:
    """Return the JSON schema of CDI specs that ships with the package."""
    text = resources.files("gpuhook.schemas").joinpath("cdi.json").read_text("utf-8")
    document: dict[str, Any] = json.loads(text)
    return document


def _validator() -> jsonschema.protocols.Validator:
    return jsonschema.Draft202012Validator(schema())
