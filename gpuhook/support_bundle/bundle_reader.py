# SPDX-License-Identifier: Apache-2.0
"""A bundle opened again: the node's files and readings, as they were when it was made."""

from __future__ import annotations

from gpuhook.doctor.check import ExaminedNode
from gpuhook.errors import fault
from gpuhook.host import documents
from gpuhook.node.node_readings import Reading, Readings
from gpuhook.support_bundle import bundle_archive, bundle_records, reading_shapes
from gpuhook.support_bundle.replay import RecordedTree

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

SCHEMA = "gpuhook/support-bundle/v1"
MANIFEST, TREE, READINGS, CONTENTS = "manifest.json", "tree.json", "readings.json", "files"


def opened(path: str) -> tuple[RecordedTree, Readings]:
    """Return the files and the readings of a bundle's node. Raises GH1906, GH1907 and OSError."""
    node = examined(path)
    assert isinstance(node.tree, RecordedTree)  # noqa: S101 # made there
    return node.tree, node.readings


def examined(path: str) -> ExaminedNode:
    """Return a bundle's node as checks take it. Raises GH1906, GH1907 and OSError."""
    members = bundle_archive.read(path)
    manifest = _document(path, members, MANIFEST)
    if manifest.get("schema") != SCHEMA:
        raise fault("GH1906", path=path, reason=f"its {MANIFEST} is not of schema {SCHEMA}")
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
    except (bundle_records.ShapeError, KeyError, TypeError) as error:
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
        raise bundle_records.ShapeError("a reading without its texts")
    reading_shapes.require(name, found["document"])
    return Reading(document=found["document"], **texts)


def _path(value: object) -> str:
    bundle_records.require_path(value)
    return str(value)
