# SPDX-License-Identifier: Apache-2.0
"""Inventories as files: documents with the facts of all vendors, checked with their schema.

The profiles in the folder `profiles` are such documents, of nodes that one may not own. The vendors
read their parts of a document.
"""

from __future__ import annotations

import json
import os
from typing import Any

import yaml

from gpuhook.errors import fault
from gpuhook.host import bounded_yaml, documents
from gpuhook.vendors.inventory.inventory_document import SCHEMA, OneLine

TYPE_CHECKING = False
if TYPE_CHECKING:
    from jsonschema import ValidationError

PROFILES = os.path.join(os.path.dirname(__file__), "../profiles")
_SCHEMA = os.path.join(os.path.dirname(__file__), "../../schemas/inventory.json")
_Dumper: type[Any] = getattr(yaml, "CSafeDumper", yaml.SafeDumper)

# The types of JSON schema in a sentence.
_TYPES = {
    "array": "a list",
    "boolean": "true or false",
    "integer": "a whole number",
    "object": "a mapping",
    "string": "a text",
}
_PATTERNS = {
    "^unknown$": "a whole number or 'unknown'",
    "^(unknown)$": "true, false or 'unknown'",
    "^(unknown|[0-9]+(\\.[0-9]+)+)$": "a version like '580.95.05', or 'unknown'",
    "^[^\\u0000-\\u001f\\u007f]*$": "a text on one line",
    "^/[^\\u0000-\\u001f\\u007f]*$": "an absolute path",
}


def profiles() -> list[str]:
    """Return the names of the profiles that ship with the package."""
    names = os.listdir(PROFILES)
    return sorted(name[: -len(".yaml")] for name in names if name.endswith(".yaml"))


def path(name: str) -> str:
    """Return the path of the file `name`, or of a profile. Raises GH1500 if it is neither."""
    if os.path.exists(name):
        return name
    if name not in profiles():
        raise fault("GH1500", name=name, profiles=", ".join(profiles()))
    return os.path.join(PROFILES, name + ".yaml")


def load(name: str) -> dict[str, Any]:
    """Return the document `name`: a file, or one of the profiles.

    Raises GH1500 (neither), GH1501 (not YAML), GH1502 (not an inventory), GH1316 (too large) and
    OSError.
    """
    file = path(name)
    return parse(documents.read(file), file)


def parse(content: bytes, file: str) -> dict[str, Any]:
    """Return the document in `content`, YAML or JSON; `file` names it in faults."""
    try:
        document = bounded_yaml.document(content, documents.LARGEST)
    except (yaml.YAMLError, ValueError) as error:
        line, column, reason = bounded_yaml.place_and_reason(error)
        at = {"line": line or 1, "column": column or 1}
        raise fault("GH1501", file=file, reason=reason, **at) from error
    if not isinstance(document, dict):
        reason = "expected a mapping with the key 'schema', as gpuhook inventory writes it"
        raise fault("GH1502", file=file, where="/", reason=reason)
    require(_wrong(document), file)
    return document


def require(wrong: tuple[str, str] | None, file: str) -> None:
    """Raise GH1502 for the place and the reason of an error in a document, if there is one."""
    if wrong is not None:
        raise fault("GH1502", file=file, where=wrong[0], reason=wrong[1])


def text(document: dict[str, Any], form: str) -> str:
    """Return a document as text: `form` is "yaml" or "json"."""
    if form == "json":
        return json.dumps(document, indent=2) + "\n"
    return documents.yaml_text(document, _Lines, width=100_000)


class _Lines(_Dumper):  # type: ignore[misc] # the C dumper or the Python one, at run time
    """A dumper that writes OneLine on one line."""


_Lines.add_representer(
    OneLine,
    lambda dumper, item: dumper.represent_mapping("tag:yaml.org,2002:map", item, flow_style=True),
)


def _wrong(document: dict[str, Any]) -> tuple[str, str] | None:
    """Return the place and the reason of the first error in an inventory, None if it is valid."""
    import jsonschema

    if document.get("schema") != SCHEMA:
        return ("/schema", f"expected {SCHEMA!r}, found {document.get('schema')!r}")
    with open(_SCHEMA, encoding="utf-8") as stream:
        validator = jsonschema.Draft202012Validator(json.load(stream))
    first = min(
        validator.iter_errors(document), key=lambda error: list(map(str, error.path)), default=None
    )
    if first is None:
        return None
    return ("/" + "/".join(map(str, first.absolute_path)), _in_words(first))


def _in_words(error: ValidationError) -> str:
    rule = str(error.validator)
    found: Any = error.instance
    expected: Any = error.validator_value
    if rule == "required":
        return f"{next(key for key in expected if key not in found)!r} is missing"
    if rule == "additionalProperties":
        allowed = sorted(error.schema["properties"] if isinstance(error.schema, dict) else ())
        unknown = next(key for key in found if key not in allowed)
        return f"unknown key {unknown!r}; known are {', '.join(allowed)}"
    if rule == "type":
        expected = " or ".join(
            _TYPES[name] for name in ([expected] if isinstance(expected, str) else expected)
        )
    elif rule == "enum":
        expected = "one of " + ", ".join(expected)
    elif rule in ("minimum", "maximum"):
        expected = f"a number with the {rule} {expected}"
    elif rule == "pattern":
        expected = _PATTERNS.get(expected, f"something like {expected}")
    else:
        return error.message
    return f"expected {expected}, found {found!r}"
