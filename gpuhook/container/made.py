# SPDX-License-Identifier: Apache-2.0
"""What was newly made in a running container, so that exactly that can be taken away again.

WARM. It is kept in the ledger, as JSON.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from gpuhook.kernel.device_filter import Rule

_LISTS = ("contents", "directories", "files", "links", "mounts", "nodes", "rules")


class Made:
    """`nodes` and `files` (targets of mounts) and `directories` are paths in the container.

    `mounts` are [path, device, inode] of what is mounted, `links` [path, target, the target before
    or None], `contents` [path, checksum of what was written, the text before or None,
    whether there was a file] of files,
    `rules` the device rules [type, major, minor, access] that were added.
    """

    __slots__ = _LISTS

    def __init__(self, document: object = None) -> None:
        known = document if isinstance(document, dict) else {}
        for name in _LISTS:
            held = known.get(name)
            setattr(self, name, list(held) if isinstance(held, list) else [])

    contents: list[list[Any]]
    directories: list[str]
    files: list[str]
    links: list[list[Any]]
    mounts: list[list[Any]]
    nodes: list[str]
    rules: list[list[Any]]

    def document(self) -> dict[str, list[Any]]:
        """Return it as JSON has it."""
        return {name: getattr(self, name) for name in _LISTS}

    def add(self, other: Made) -> None:
        """Take in what was made later.

        A link or file that was made twice is as it was made last, and before that it was what it
        was first.
        """
        for name in ("directories", "files", "mounts", "nodes", "rules"):
            held = getattr(self, name)
            held.extend(item for item in getattr(other, name) if item not in held)
        self.links = _joined(self.links, other.links)
        self.contents = _joined(self.contents, other.contents)

    def forget(self, node: str, rule: list[Any]) -> None:
        """Leave out a device node that was taken away, its mount and its rule."""
        self.nodes = [path for path in self.nodes if path != node]
        self.mounts = [mount for mount in self.mounts if mount[0] != node]
        self.files = [path for path in self.files if path != node]
        self.rules = [held for held in self.rules if held != rule]


def noted(rule: Rule) -> list[Any]:
    """Return a device rule as it is noted."""
    return [*rule.device, rule.access]


def _joined(first: list[list[Any]], later: list[list[Any]]) -> list[list[Any]]:
    """Return [path, what was made, what was before ...] of both, each path once."""
    found = {item[0]: item for item in first}
    for item in later:
        old = found.get(item[0])
        found[item[0]] = item if old is None else [*item[:2], *old[2:]]
    return list(found.values())
