# SPDX-License-Identifier: Apache-2.0
"""node.json below the state directory: what generate-cdi saw of this node when it wrote its spec.

It is the inventory's dump with two keys more: `aliases`, the other names of each GPU in lower
case to the name that the spec has, and `spec`, the file that was written and its identity
(<size>-<mtime_ns>-<inode>), so that a spec can be told from the node it was written for.
node_json.py reads it.
"""

from __future__ import annotations

import os

from gpuhook.host.hot import fastjson, files, state
from gpuhook.vendors.nvidia.hot import node_json
from gpuhook.vendors.nvidia.inventory import dump

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gpuhook.vendors.nvidia.inventory.inventory import Node


def write(node: Node, aliases: dict[str, str], spec_path: str) -> None:
    """Write node.json, atomically, for the spec just written to `spec_path`; raises OSError."""
    found = os.stat(spec_path)
    identity = files.version(found)
    document = {
        **dump.as_dict(node),
        "aliases": aliases,
        "spec": {"path": spec_path, "identity": identity},
    }
    os.makedirs(state.directory(), 0o755, exist_ok=True)
    files.replace(node_json.path(), fastjson.dumps(document) + b"\n", mode=0o644)
