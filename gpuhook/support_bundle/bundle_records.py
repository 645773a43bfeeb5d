# SPDX-License-Identifier: Apache-2.0
"""The recorded answers about a node's files, and their JSON form.

An answer is stored under the path of the question. Only one fact is derived from other answers: a
directory with known names has no other names.
"""

from __future__ import annotations

import os
from dataclasses import asdict, dataclass, field

from gpuhook.node_facts.sources.node_tree import Status

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

SCHEMA = "gpuhook/bundle-tree/v1"
MOST_PATHS = 200_000
READ, NAMES, STATUS, LSTAT, REAL = QUESTIONS = ("read", "names", "status", "lstat", "real")
_MOST_ERRNO = 4095
_WORD = (1 << 32) - 1
_MOST = {**dict.fromkeys(("mode", "uid", "gid", "major", "minor"), _WORD), "size": (1 << 63) - 1}


class ShapeError(ValueError):
    """The document is not one of records."""


@dataclass(slots=True)
class Records:
    """Answers by question and path; `errors` has the errno of questions that failed.

    A content, status or real path of None is a file that did not exist.
    """

    contents: dict[str, bytes | None] = field(default_factory=dict)
    names: dict[str, list[str]] = field(default_factory=dict)
    statuses: dict[str, Status | None] = field(default_factory=dict)
    lstats: dict[str, Status | None] = field(default_factory=dict)
    reals: dict[str, str | None] = field(default_factory=dict)
    errors: dict[tuple[str, str], int] = field(default_factory=dict)

    def is_missing(self, path: str) -> bool:
        """Return whether the records prove that `path` did not exist."""
        while path != "/":
            if any(path in known and known[path] is None for known in (self.statuses, self.lstats)):
                return True
            parent = os.path.dirname(path)
            if parent in self.names and os.path.basename(path) not in self.names[parent]:
                return True
            path = parent
        return False


def document(records: Records) -> dict[str, Any]:
    """Return the records as a JSON document, without the contents, which are separate files."""
    return {
        "schema": SCHEMA,
        "absent": sorted(path for path, content in records.contents.items() if content is None),
        "names": records.names,
        "status": {path: _status(one) for path, one in records.statuses.items()},
        "lstat": {path: _status(one) for path, one in records.lstats.items()},
        "real": records.reals,
        "errors": [[question, path, code] for (question, path), code in records.errors.items()],
    }


def parsed(found: object, contents: dict[str, bytes]) -> Records:
    """Return the records of a document. Raises ShapeError."""
    try:
        records = _parsed(found, contents)
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
        raise ShapeError(f"{type(error).__name__}: {error}") from error
    paths = {
        *records.contents,
        *records.names,
        *records.statuses,
        *records.lstats,
        *records.reals,
    }
    if len(paths) > MOST_PATHS:
        raise ShapeError(f"more than {MOST_PATHS} paths")
    for path in paths:
        require_path(path)
    return records


def require_path(path: object) -> None:
    """Raise ShapeError if it is not a normalised absolute path."""
    is_plain = isinstance(path, str) and path.startswith("/") and "\0" not in path
    if not is_plain or os.path.normpath(str(path)) != path or str(path).startswith("//"):
        raise ShapeError(f"{path!r} is not a normalised absolute path")


def _parsed(found: Any, contents: dict[str, bytes]) -> Records:
    if found["schema"] != SCHEMA:
        raise ShapeError(f"its records are {found['schema']!r}, expected {SCHEMA!r}")
    return Records(
        contents={**dict.fromkeys(map(_text, found["absent"])), **contents},
        names={_text(path): [_text(name) for name in ns] for path, ns in found["names"].items()},
        statuses={_text(path): _read_status(one) for path, one in found["status"].items()},
        lstats={_text(path): _read_status(one) for path, one in found["lstat"].items()},
        reals={
            _text(path): None if one is None else _text(one) for path, one in found["real"].items()
        },
        errors={
            (_question(question), _text(path)): _number(code, _MOST_ERRNO)
            for question, path, code in found["errors"]
        },
    )


def _status(found: Status | None) -> dict[str, Any] | None:
    return None if found is None else asdict(found)


def _read_status(found: dict[str, Any] | None) -> Status | None:
    if found is None:
        return None
    numbers = {name: _number(found[name], most) for name, most in _MOST.items()}
    return Status(**numbers, mtime=float(found["mtime"]), target=_text(found["target"]))


def _number(value: object, most: int) -> int:
    if not isinstance(value, int) or not 0 <= value <= most:
        raise ShapeError(f"{value!r} is not a number up to {most}")
    return value


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise ShapeError(f"{value!r} is not a string")
    return value


def _question(value: object) -> str:
    if value not in QUESTIONS:
        raise ShapeError(f"{value!r} is not a question")
    return str(value)
