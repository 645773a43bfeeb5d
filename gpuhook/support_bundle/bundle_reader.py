# SPDX-License-Identifier: Apache-2.0
"""Read a bundle: the node's files and readings, as they were when it was created.

A bundle may be forged, so the readings are checked against their shapes. The parts that one check
alone reads, and checks itself (inventory, answers of the API server), have no shape here.
"""

from __future__ import annotations

from gpuhook.errors import fault
from gpuhook.host import documents
from gpuhook.node_facts.check import ExaminedNode
from gpuhook.node_facts.sources import node_readings
from gpuhook.node_facts.sources.node_readings import Reading, Readings
from gpuhook.support_bundle import bundle_archive, bundle_records
from gpuhook.support_bundle.bundle_records import ShapeError
from gpuhook.support_bundle.recorded_tree import RecordedTree

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


SCHEMA = "gpuhook/support-bundle/v1"
MANIFEST, TREE, READINGS, CONTENTS = "manifest.json", "tree.json", "readings.json", "files"


def bundle_node(path: str) -> ExaminedNode:
    """Return a bundle's node for doctor's checks. Raises GH1906, GH1907 and OSError."""
    members = bundle_archive.read(path)
    manifest = _document(path, members, MANIFEST)
    if manifest.get("schema") != SCHEMA:
        raise fault("GH1906", path=path, reason=f"its {MANIFEST} does not have the schema {SCHEMA}")
    contents = {
        name[len(CONTENTS) :]: content
        for name, content in members.items()
        if name.startswith(CONTENTS + "/")
    }
    try:
        known = bundle_records.parsed(_document(path, members, TREE), contents)
        taken = {
            name: _reading(name, one) for name, one in _document(path, members, READINGS).items()
        }
        places = [_path(manifest[key]) for key in ("driver_root", "dev_root")]
    except (ShapeError, KeyError, TypeError) as error:
        raise fault("GH1906", path=path, reason=error) from error
    kept = Readings({})
    kept.taken.update(taken)
    return ExaminedNode(RecordedTree(known), kept, driver_root=places[0], dev_root=places[1])


def _document(path: str, members: dict[str, bytes], name: str) -> dict[str, Any]:
    if name not in members:
        raise fault("GH1906", path=path, reason=f"it has no {name}")
    try:
        return documents.parse_json_object(members[name])
    except ValueError as error:
        raise fault("GH1906", path=path, reason=f"{name}: {error}") from error


def _reading(name: str, found: dict[str, Any]) -> Reading:
    texts = {key: found[key] for key in ("trouble", "code", "hint")}
    if not all(isinstance(text, str) for text in texts.values()):
        raise ShapeError("a reading without its texts")
    require_shape(name, found["document"])
    return Reading(document=found["document"], **texts)


def _path(value: object) -> str:
    bundle_records.require_path(value)
    return str(value)


# A type; [shape] for a list; {"": shape} for an object with any keys, {key: shape} with these keys.
_TEXTS = {"": str}
_MAYBE = (str, type(None))
_FAULTS = [{"code": str, "message": str, "hint": str}]
_SHAPES: dict[str, Any] = {
    node_readings.INVENTORY: {"": object},
    node_readings.VENDORS: {"": {"": object}},
    node_readings.UNITS: {"": _TEXTS},
    node_readings.PROCESSES: [
        {"pid": int, "name": str, "argv": [str], "started": (int, float), "exe": str}
    ],
    node_readings.CONTAINERS: {
        "looked_at": int,
        "trouble": [{"where": str, "code": str, "message": str, "hint": str}],
        "containers": [
            {
                "id": str,
                **dict.fromkeys(("engine", "runtime", "pod", "namespace", "container"), _MAYBE),
                "missing": _FAULTS,
                "findings": _FAULTS,
                "injected_by": [str],
                "repairable": bool,
            }
        ],
    },
    node_readings.PROGRAMS: {"": {"path": str, "version": str, "trouble": str}},
    node_readings.CONTAINERD: {"config": str, "command": str},
    node_readings.STORED: [
        {**dict.fromkeys(("engine", "id", "name", "why", "program"), str), "running": bool}
    ],
    node_readings.API: {"": object},
    node_readings.DRA_SOCKETS: _TEXTS,
    node_readings.SELF: _TEXTS,
}


def require_shape(name: str, document: object) -> None:
    """Raise ShapeError if the document of a reading has another shape; None is valid."""
    if document is not None and name in _SHAPES:
        _require_shape(name, document, _SHAPES[name])


def _require_shape(where: str, found: object, shape: Any) -> None:
    if isinstance(shape, list):
        for one in _typed(where, found, list):
            _require_shape(where, one, shape[0])
    elif isinstance(shape, dict):
        members = _typed(where, found, dict)
        for key, one in shape.items():
            if key and key not in members:
                raise ShapeError(f"{where}: it has no {key}")
            for value in [members[key]] if key else members.values():
                _require_shape(f"{where}.{key}" if key else where, value, one)
    else:
        _typed(where, found, shape)


def _typed(where: str, found: Any, kind: Any) -> Any:
    if not isinstance(found, kind) or (isinstance(found, bool) and kind not in (bool, object)):
        raise ShapeError(f"{where} is of the wrong type {type(found).__name__}")
    return found
