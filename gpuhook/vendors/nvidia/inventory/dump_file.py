# SPDX-License-Identifier: Apache-2.0
"""Dumps of nodes as files: reading with checks, writing as YAML, JSON or node.json.

The profiles in this folder are such dumps, of nodes that one may not own.
"""

from __future__ import annotations

import json
import os
from typing import Any

import yaml

from gpuhook.errors import fault
from gpuhook.host import bounded_yaml, documents
from gpuhook.host.hot import fastjson, files, state
from gpuhook.vendors.nvidia.hot import node_json
from gpuhook.vendors.nvidia.inventory import dump

TYPE_CHECKING = False
if TYPE_CHECKING:
    from jsonschema import ValidationError

    from gpuhook.vendors.nvidia.inventory.inventory import Node

PROFILES = os.path.join(os.path.dirname(__file__), "profiles")
_SCHEMA = os.path.join(os.path.dirname(__file__), "../../../schemas/inventory.json")
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


def load(name: str) -> Node:
    """Return the node in the dump `name`: a file, or one of the profiles.

    Raises GH1500 (neither), GH1501 (not YAML), GH1502 (not an inventory), GH1316 (too large) and
    OSError.
    """
    path = name
    if not os.path.exists(name):
        if name not in profiles():
            raise fault("GH1500", name=name, profiles=", ".join(profiles()))
        path = os.path.join(PROFILES, name + ".yaml")
    return parse(documents.read(path), path)


def parse(content: bytes, file: str) -> Node:
    """Return the node in `content`, YAML or JSON; `file` names it in faults."""
    try:
        document = bounded_yaml.document(content, documents.LARGEST)
    except (yaml.YAMLError, ValueError) as error:
        line, column, reason = bounded_yaml.place_and_reason(error)
        at = {"line": line or 1, "column": column or 1}
        raise fault("GH1501", file=file, reason=reason, **at) from error
    wrong = _wrong(document)
    if wrong is not None:
        raise fault("GH1502", file=file, where=wrong[0], reason=wrong[1])
    return dump.from_dict(document)


def text(node: Node, form: str) -> str:
    """Return the dump of `node` as a document: `form` is "yaml" or "json"."""
    document = dump.as_dict(node)
    if form == "json":
        return json.dumps(document, indent=2) + "\n"
    for key in ("device_nodes", "links", "files"):
        document[key] = [_OneLine(item) for item in document[key]]
    for gpu in document["gpus"]:
        if "instances" in gpu:
            gpu["instances"] = [_OneLine(item) for item in gpu["instances"]]
    return documents.yaml_text(document, _Lines, width=100_000)


def write_node_json(node: Node, aliases: dict[str, str], spec_path: str) -> None:
    """Write node.json atomically: the node that the spec at `spec_path` was generated for.

    It is the dump with two more keys: `aliases`, the other names of each GPU in lower case to the
    name that the spec has, and `spec`, the file and its identity (<size>-<mtime_ns>-<inode>).
    node_json.py reads it. Raises OSError.
    """
    identity = files.version(os.stat(spec_path))
    document = {
        **dump.as_dict(node),
        "aliases": aliases,
        "spec": {"path": spec_path, "identity": identity},
    }
    os.makedirs(state.directory(), 0o755, exist_ok=True)
    files.replace(node_json.path(), fastjson.dumps(document) + b"\n", mode=0o644)


class _OneLine(dict[str, Any]):
    """A mapping that is written on one line."""


class _Lines(_Dumper):  # type: ignore[misc] # the C dumper or the Python one, at run time
    """A dumper that writes _OneLine on one line."""


_Lines.add_representer(
    _OneLine,
    lambda dumper, item: dumper.represent_mapping("tag:yaml.org,2002:map", item, flow_style=True),
)


def _wrong(document: object) -> tuple[str, str] | None:
    """Return the place and the reason of the first error in an inventory, None if it is valid."""
    import jsonschema

    if not isinstance(document, dict):
        return ("/", "expected a mapping with the key 'schema', as gpuhook inventory writes it")
    if document.get("schema") != dump.SCHEMA:
        return ("/schema", f"expected {dump.SCHEMA!r}, found {document.get('schema')!r}")
    with open(_SCHEMA, encoding="utf-8") as stream:
        validator = jsonschema.Draft202012Validator(json.load(stream))
    first = min(
        validator.iter_errors(document), key=lambda error: list(map(str, error.path)), default=None
    )
    if first is not None:
        return ("/" + "/".join(map(str, first.absolute_path)), _in_words(first))
    return _twice(document)


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


def _twice(document: dict[str, Any]) -> tuple[str, str] | None:
    """Return the first value of two GPUs or MIG instances that must be unique."""
    gpus = {f"/gpus/{number}": gpu for number, gpu in enumerate(document["gpus"])}
    instances: dict[str, dict[str, Any]] = {}
    for place, gpu in gpus.items():
        own = enumerate(gpu.get("instances", ()))
        mine = {f"{place}/instances/{number}": instance for number, instance in own}
        wrong = _shared(mine, "index")
        if wrong is not None:
            return wrong
        instances |= mine
    wrongs = [_shared(gpus, key) for key in ("index", "uuid", "minor", "pci_bus_id")]
    wrongs.append(_shared(instances, "uuid"))
    return next((wrong for wrong in wrongs if wrong is not None), None)


def _shared(several: dict[str, dict[str, Any]], key: str) -> tuple[str, str] | None:
    """Return the first place with a value of `key` that another has already, and the sentence."""
    seen: dict[object, str] = {}
    for place, facts in several.items():
        value = facts.get(key, dump.UNKNOWN)
        if value != dump.UNKNOWN and value in seen:
            return (f"{place}/{key}", f"{value!r} is the {key} of {seen[value]} already")
        seen[value] = place
    return None
