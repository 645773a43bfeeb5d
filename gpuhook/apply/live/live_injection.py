# SPDX-License-Identifier: Apache-2.0
"""Items that were created in a running container, so that exactly these can be removed again.

The ledger keeps them as JSON.
"""

from __future__ import annotations

from gpuhook.host.hot import fastjson

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from gpuhook.cdi.hot.container_edits import ContainerEdits
    from gpuhook.kernel.bpf.device_filter import Rule

_LISTS = ("changes", "directories", "files", "mounts", "rules")


class InjectedItems:
    """`files` (empty targets of mounts) and `directories` are paths in the container.

    `changes` are the links and files, [path, new content, old content] as FileChange records them;
    `mounts` are [path, device, inode] of mounts, `rules` the added device rules [type, major,
    minor, access].
    """

    __slots__ = _LISTS

    def __init__(self, document: object = None) -> None:
        for name in _LISTS:
            setattr(self, name, list(fastjson.array(document, name)))

    changes: list[list[Any]]
    directories: list[str]
    files: list[str]
    mounts: list[list[Any]]
    rules: list[list[Any]]

    def document(self) -> dict[str, list[Any]]:
        """Return it as JSON has it."""
        return {name: getattr(self, name) for name in _LISTS}

    def add(self, other: InjectedItems) -> None:
        """Add later items.

        A link or file that was made twice has its last new content and its first old one.
        """
        for name in ("directories", "files", "mounts", "rules"):
            held = getattr(self, name)
            held.extend(item for item in getattr(other, name) if item not in held)
        found = {change[0]: change for change in self.changes}
        for path, made, before in other.changes:
            first = found[path][2] if path in found else before
            found[path] = [path, made, first]
        self.changes = list(found.values())

    def forget(self, node: str, rule: list[Any]) -> None:
        """Drop a device node that was removed: its mount, its target and its rule."""
        self.mounts = [mount for mount in self.mounts if mount[0] != node]
        self.files = [path for path in self.files if path != node]
        self.rules = [held for held in self.rules if held != rule]


class LiveRecord:
    """What the ledger keeps of a change to a running container.

    `edits` are those that config.json does not have, `jobs` the arguments of `gpuhook-hook apply`
    for them, `made` the created items; `coming` are those of an unfinished attach, None without
    one.
    """

    __slots__ = ("coming", "edits", "jobs", "made")

    def __init__(self, document: object = None) -> None:
        known = document if isinstance(document, dict) else {}
        self.edits: ContainerEdits = known.get("edits") or {}
        self.jobs: list[list[str]] = known.get("jobs") or []
        self.made = InjectedItems(known.get("made"))
        self.coming = InjectedItems(known["coming"]) if "coming" in known else None

    def document(self) -> dict[str, Any]:
        """Return it as JSON has it."""
        record = {"edits": self.edits, "jobs": self.jobs, "made": self.made.document()}
        return record if self.coming is None else {**record, "coming": self.coming.document()}


def rule_record(rule: Rule) -> list[Any]:
    """Return a device rule in the form of the record."""
    return [*rule.device, rule.access]
