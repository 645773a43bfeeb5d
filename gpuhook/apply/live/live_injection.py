# SPDX-License-Identifier: Apache-2.0
"""What was newly made in a running container, so that exactly that can be taken away again.

It is kept in the ledger, as JSON.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from gpuhook.cdi.hot.container_edits import ContainerEdits
    from gpuhook.kernel.bpf.device_filter import Rule

_LISTS = ("changes", "directories", "files", "mounts", "rules")


class InjectedItems:
    """`files` (empty targets of mounts) and `directories` are paths in the container.

    `changes` are the links and files, [path, what was made, what was there before] as Change
    notes it; `mounts` are [path, device, inode] of what is mounted, `rules` the device rules
    [type, major, minor, access] that were added.
    """

    __slots__ = _LISTS

    def __init__(self, document: object = None) -> None:
        known = document if isinstance(document, dict) else {}
        for name in _LISTS:
            held = known.get(name)
            setattr(self, name, list(held) if isinstance(held, list) else [])

    changes: list[list[Any]]
    directories: list[str]
    files: list[str]
    mounts: list[list[Any]]
    rules: list[list[Any]]

    def document(self) -> dict[str, list[Any]]:
        """Return it as JSON has it."""
        return {name: getattr(self, name) for name in _LISTS}

    def add(self, other: InjectedItems) -> None:
        """Take in what was made later.

        A link or file that was made twice is as it was made last, and before that it was what it
        was first.
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
        """Leave out a device node that was taken away: its mount, its target and its rule."""
        self.mounts = [mount for mount in self.mounts if mount[0] != node]
        self.files = [path for path in self.files if path != node]
        self.rules = [held for held in self.rules if held != rule]


class LiveRecord:
    """What the ledger keeps of what a container was given while it lives.

    `edits` is what was given besides what config.json gives, `jobs` the arguments of
    `gpuhook-hook apply` for it, `made` what was not there before; `coming` is what somebody has
    begun to make, None when that is done.
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


def noted(rule: Rule) -> list[Any]:
    """Return a device rule as it is noted."""
    return [*rule.device, rule.access]
