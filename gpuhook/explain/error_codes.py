# SPDX-License-Identifier: Apache-2.0
"""The explanations of error codes, as a document and as text."""

from __future__ import annotations

import re
from dataclasses import asdict
from typing import Any

from gpuhook.errors import catalogue, fault

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

SCHEMA = "gpuhook/explain-code/v1"
RETIRED_SCHEMA = "gpuhook/explain-retired-code/v1"
_CODE = re.compile(r"GH\d{1,6}", re.IGNORECASE)
_NEAREST = 3
_AREA = 4  # characters: GH and two digits


def is_code(text: str) -> bool:
    """Return whether a text has the form of a code, in any case and with any digits."""
    return _CODE.fullmatch(text) is not None


def document(code: str) -> dict[str, Any]:
    """Return the explanation of a code as gpuhook/explain-code/v1; GH1914 for an unknown code.

    The document of a retired code is gpuhook/explain-retired-code/v1.
    """
    name = code.upper()
    if name in (known := catalogue.explanations()):
        found = known[name]
        return {"schema": SCHEMA, **asdict(found), "kind": catalogue.KINDS[found.kind]}
    if name in (retired := catalogue.retired_codes()):
        return {"schema": RETIRED_SCHEMA, **asdict(retired[name])}
    raise fault("GH1914", name=name, others=_others(name))


def lines(document: dict[str, Any]) -> Iterator[str]:
    """Yield the lines on an error code; <names> are placeholders for the facts of a case."""
    if "reason" in document:
        yield from _retired_code(document)
        return
    hint = catalogue.with_angle_brackets(document["hint"])
    message = catalogue.with_angle_brackets(document["message"])
    yield f"{document['code']}: {message}"
    if message != document["message"] and (known := _example_message(document)):
        yield f"for example: {known}"
    yield f"({document['kind']})"
    if not hint.startswith("<"):
        yield f"hint: {hint}"
    for title in ("cause", "cure", "example"):
        if not document[title]:
            continue
        yield ""
        yield title.capitalize()
        yield from (f"  {line}".rstrip() for line in document[title].splitlines())


def _example_message(document: dict[str, Any]) -> str:
    """Return the whole message of the error in the example, "" without one."""
    start = f"Error {document['code']}: "
    found = [one for one in document["example"].splitlines() if one.startswith(start)]
    return found[0].removeprefix(start) if found and not found[0].endswith("...") else ""


def _retired_code(document: dict[str, Any]) -> Iterator[str]:
    yield f"{document['code']}: no longer used"
    yield f"reason: {document['reason']}"
    if document["replacement"]:
        yield f"replaced by: {document['replacement']}"


def _others(name: str) -> str:
    """Return a phrase with the nearest codes of the same area; without any, the range of codes."""
    known = sorted(catalogue.explanations())
    area = [code for code in known if code[:_AREA] == name[:_AREA]]
    near = sorted(area, key=lambda code: abs(_number(code) - _number(name)))[:_NEAREST]
    if near:
        return f"the nearest codes are {', '.join(sorted(near))}"
    return f"the codes are from {known[0]} to {known[-1]}"


def _number(code: str) -> int:
    return int(code[2:6].ljust(4, "0"))
