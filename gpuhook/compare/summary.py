# SPDX-License-Identifier: Apache-2.0
"""What a file of records comes to: how many containers, and their differences, like with like."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

SCHEMA = "gpuhook/compare-summary/v1"
_EXAMPLES = 5


@dataclass(slots=True)
class Group:
    """Differences of one kind, name and verdict: in how many containers, when, and in which."""

    kind: str
    name: str
    verdict: str
    count: int = 0
    first: str = ""
    last: str = ""
    there: str | None = None
    gpuhook: str | None = None
    containers: list[str] = field(default_factory=list)

    def take(self, record: dict[str, Any], item: dict[str, Any]) -> None:
        """Count one more; what each side had is that of the last."""
        self.count += 1
        self.first = min(self.first or record["at"], record["at"])
        if record["at"] >= self.last:
            self.last = record["at"]
            self.there, self.gpuhook = _text(item.get("there")), _text(item.get("gpuhook"))
        name = str(record.get("container"))
        if len(self.containers) < _EXAMPLES and name not in self.containers:
            self.containers.append(name)


def of(records: Iterable[dict[str, Any]], unreadable: int) -> dict[str, Any]:
    """Return the summary's document of records; times are those of the records, in UTC."""
    creates = differences = differing = 0
    times: list[str] = []
    by: dict[str, int] = {}
    groups: dict[tuple[str, str, str], Group] = {}
    for record in records:
        creates += 1
        times = [min([*times[:1], record["at"]]), max([*times[1:], record["at"]])]
        given = str(record.get("givenBy"))
        by[given] = by.get(given, 0) + 1
        differences += record["counts"]["differences"]
        differing += record["counts"]["differences"] > 0
        for item in record["items"]:
            key = (str(item.get("kind")), str(item.get("name")), str(item.get("verdict")))
            groups.setdefault(key, Group(*key)).take(record, item)
    most = sorted(groups.values(), key=lambda group: (-group.count, group.kind, group.name))
    return {
        "schema": SCHEMA,
        "creates": creates,
        "differing": differing,
        "differences": differences,
        "first": times[0] if times else None,
        "last": times[1] if times else None,
        "givenBy": dict(sorted(by.items())),
        "groups": [_document(group) for group in most],
        "unreadable": unreadable,
    }


def _document(group: Group) -> dict[str, Any]:
    return {name: getattr(group, name) for name in Group.__slots__}


def _text(value: object) -> str | None:
    return value if isinstance(value, str) else None
