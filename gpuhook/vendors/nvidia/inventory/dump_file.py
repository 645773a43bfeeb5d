# SPDX-License-Identifier: Apache-2.0
"""NVIDIA's part of inventories: reading with checks, writing as YAML, JSON or node.json."""

from __future__ import annotations

import os
from typing import Any

from gpuhook.host import documents
from gpuhook.host.hot import fastjson, files, state
from gpuhook.vendors.inventory import inventory_file
from gpuhook.vendors.inventory.inventory_document import OneLine, first_shared
from gpuhook.vendors.nvidia.hot import node_json
from gpuhook.vendors.nvidia.inventory import dump

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gpuhook.vendors.nvidia.inventory.inventory import Node


def load(name: str) -> Node:
    """Return the node in the dump `name`: a file, or one of the profiles.

    Raises GH1500 (neither), GH1501 (not YAML), GH1502 (not an inventory), GH1316 (too large) and
    OSError.
    """
    file = inventory_file.path(name)
    return parse(documents.read(file), file)


def parse(content: bytes, file: str) -> Node:
    """Return the node in `content`, YAML or JSON; `file` names it in faults."""
    return of_document(inventory_file.parse(content, file), file)


def of_document(document: dict[str, Any], file: str) -> Node:
    """Return the node in a document that fits the schema; `file` names it in GH1502."""
    inventory_file.require(_twice(document), file)
    return dump.from_dict(document)


def text(node: Node, form: str) -> str:
    """Return the dump of `node` as a document: `form` is "yaml" or "json"."""
    return inventory_file.text(lines(dump.as_dict(node)), form)


def lines(document: dict[str, Any]) -> dict[str, Any]:
    """Return a dump whose small mappings are on one line each in YAML."""
    for key in ("device_nodes", "links", "files"):
        document[key] = [OneLine(item) for item in document[key]]
    for gpu in document["gpus"]:
        if "instances" in gpu:
            gpu["instances"] = [OneLine(item) for item in gpu["instances"]]
    return document


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


def _twice(document: dict[str, Any]) -> tuple[str, str] | None:
    """Return the first value of two GPUs or MIG instances that must be unique."""
    gpus = {f"/gpus/{number}": gpu for number, gpu in enumerate(document.get("gpus", ()))}
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
    return first_shared(several, key, dump.UNKNOWN)
