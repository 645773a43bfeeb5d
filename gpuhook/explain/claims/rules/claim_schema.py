# SPDX-License-Identifier: Apache-2.0
"""What the API server refuses in a claim, a template or a class: fields, values, limits.

schemas/resource-claims.json has them. The descriptions in it complete the sentence "must be".
"""

from __future__ import annotations

import functools
import json
from importlib import resources
from typing import Any, cast

from gpuhook.device_plugin.config.grammar.value_kinds import shown
from gpuhook.explain.pods.pod_requests import API_SERVER, REFUSED, Objection
from gpuhook.host.suggestion import nearest

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import jsonschema

    from gpuhook.explain.pods.manifest_value import Value

_UNKNOWN = ("additionalProperties", "unevaluatedProperties")
_MOST = 50
_MOST_KNOWN = 1000


@functools.cache
def _validator() -> Any:
    import jsonschema  # 0.1 s

    text = resources.files("gpuhook.schemas").joinpath("resource-claims.json").read_text("utf-8")
    return jsonschema.Draft202012Validator(json.loads(text))


def schema_objections(document: Any, value: Value) -> Iterator[Objection]:
    """Yield the objections to an object; `value` has the lines of its `document`."""
    rest = _without_metadata(document)
    if rest in _valid and _has_valid_metadata(document):
        return
    errors = sorted(_validator().iter_errors(document), key=lambda e: list(map(str, e.path)))
    if not errors and len(_valid) < _MOST_KNOWN:
        _valid.add(rest)
    for error in errors[:_MOST]:
        for path, said, instead in _sentences(error):
            where = place(value, path).where
            yield Objection("api-server", API_SERVER, REFUSED, said, instead, where)


# Objects without an objection: those of one template differ in their metadata only, and a
# validation takes a millisecond.
_valid: set[str] = set()


def _without_metadata(document: Any) -> str:
    is_object = isinstance(document, dict)
    return repr({**document, "metadata": None} if is_object else document)


def _has_valid_metadata(document: Any) -> bool:
    validator = _validator()
    schema = validator.schema["properties"]["metadata"]
    return not any(validator.descend(document.get("metadata"), schema))


def place(value: Value, path: Sequence[str | int]) -> Value:
    """Return the value at a path, or the last one of the path that exists."""
    for key in path:
        items = value.items()
        found = items[key] if isinstance(key, int) and key < len(items) else value[str(key)]
        if not found.kind:
            break
        value = found
    return value


def path_text(path: Sequence[str | int]) -> str:
    """Return spec.devices.requests[0] for a path."""
    return "".join(f"[{one}]" if isinstance(one, int) else f".{one}" for one in path).lstrip(".")


def _sentences(
    error: jsonschema.ValidationError,
) -> Iterator[tuple[tuple[str | int, ...], str, str]]:
    path = tuple(error.absolute_path)
    found: Any = error.instance
    where, wanted = path_text(path), cast("Any", error.validator_value)
    if error.validator in _UNKNOWN and isinstance(found, dict):
        yield from _unknown_fields(error, path)
    elif error.validator == "required" and isinstance(found, dict):
        for name in wanted if isinstance(wanted, list) else ():
            if name not in found:
                yield path, f"{path_text((*path, name))}: Required value", f"{name}: a value"
    elif error.validator == "maxItems":
        said = f"{where}: Too many: {len(found)}: must have at most {wanted} items"
        yield path, said, f"{wanted} items"
    elif error.validator == "enum":
        words = ", ".join(map(str, wanted))
        near = nearest(str(found), list(map(str, wanted)))
        yield (
            path,
            f"{where}: Unsupported value: {shown(found)}: supported values: {words}",
            near or words,
        )
    else:
        meaning = _description(error) or f"of type {wanted}"
        yield path, f"{where}: Invalid value: {shown(found)}: must be {meaning}", meaning


def _unknown_fields(
    error: jsonschema.ValidationError, path: tuple[str | int, ...]
) -> Iterator[tuple[tuple[str | int, ...], str, str]]:
    schema: Any = error.schema
    known = [*schema.get("properties", ())]
    if "$ref" in schema:
        reference = _validator().schema["$defs"][schema["$ref"].rpartition("/")[2]]
        known += reference["properties"]
    for name in error.instance:  # type: ignore[union-attr]
        if name not in known:
            near = nearest(str(name), known)
            instead = near or f"one of {', '.join(known)}"
            yield (*path, name), f'unknown field "{path_text((*path, name))}"', instead


def _description(error: jsonschema.ValidationError) -> str:
    schema: Any = error.schema
    return str(schema.get("description", "")) if isinstance(schema, dict) else ""
