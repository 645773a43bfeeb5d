# SPDX-License-Identifier: Apache-2.0
"""The users of a node who run rootless engines."""

from __future__ import annotations

from gpuhook.node_facts.check import fact
from gpuhook.node_facts.engine_facts import homes
from gpuhook.node_facts.sources.node_tree import text

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gpuhook.node_facts.check import ExaminedNode

NO_USER = "no user on this node runs a rootless engine"
_STORAGE = (".local/share/containers", ".local/share/docker", ".config/docker/daemon.json")


@fact
def users(node: ExaminedNode) -> list[tuple[str, str]]:
    """Return the name and the user id, "" if unknown, of each user who runs a rootless engine."""
    numbers = {}
    for entry in (text(node.tree, "/etc/passwd") or "").splitlines():
        fields = entry.split(":")
        if len(fields) > 5:
            numbers[fields[5]] = (fields[0], fields[2])
    found = {}
    for home in homes(node.tree):
        if any(node.tree.status(f"{home}/{place}") for place in _STORAGE):
            name, number = numbers.get(home, (home.rpartition("/")[2], ""))
            found[name] = number
    return list(found.items())
