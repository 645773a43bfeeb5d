# SPDX-License-Identifier: Apache-2.0
"""The entries of the ledger, as the files of a node have them."""

from __future__ import annotations

from typing import Any

from gpuhook.containers.hot import ledger
from gpuhook.host import documents
from gpuhook.host.hot import procfs, state

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gpuhook.doctor.check import ExaminedNode

LEDGER = f"{state.DIRECTORY}/containers"


def is_usable(node: ExaminedNode, path: str) -> bool:
    """Return whether a state file is a regular file of root that no other user may write."""
    found = node.tree.status(path, follow=False)
    return found is None or (found.is_file and found.uid == 0 and not found.permissions & 0o022)


def parse_entry(content: bytes) -> dict[str, Any] | None:
    """Return the entry in a file of the ledger, None if the content is not an entry."""
    try:
        found = documents.parse_json_object(content)
    except ValueError:
        return None
    if found.get("schema") != ledger.SCHEMA:
        return None
    is_whole = isinstance(found.get("id"), str) and isinstance(found.get("root"), str)
    return found if is_whole and isinstance(found.get("since"), (int, float)) else None


def is_alive(node: ExaminedNode, entry: dict[str, Any]) -> bool:
    """Return whether the container of an entry exists, by the files of the node.

    In the device plugin's pod no state root exists: no file shows that a container has ended.
    """
    root = entry["root"]
    if root and (
        node.tree.status(root) is None or node.tree.status(f"{root}/{entry['id']}") is not None
    ):
        return True
    content = node.tree.read(f"/proc/{entry.get('pid')}/stat", 65536)
    try:
        return content is not None and procfs.start_ticks(content) == entry.get("started")
    except (ValueError, IndexError):
        return False
