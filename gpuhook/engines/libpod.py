# SPDX-License-Identifier: Apache-2.0
"""Podman's database of containers, of SQLite or BoltDB, read without podman.

Source: containers/podman, libpod/sqlite_state_internal.go and libpod/boltdb_state.go.
"""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from dataclasses import dataclass
from tempfile import TemporaryDirectory
from typing import Any

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

    from gpuhook.engines.files import Files

_ENDING = "-containers"  # overlay-containers, vfs-containers
_BOLT = "libpod/bolt_state.db"
_SQLITE = "db.sql"


@dataclass(frozen=True, slots=True)
class Container:
    """A container as podman keeps it: `runtime` is a name of its configuration, or a path."""

    id: str
    name: str
    runtime: str
    driver: str
    database: str


def drivers(files: Files, storage: str) -> list[str]:
    """Return the storage drivers that have containers; raises OSError."""
    names = files.names(storage)
    return [one.removesuffix(_ENDING) for one in names if one.endswith(_ENDING)]


def containers(files: Files, storage: str) -> Iterator[Container]:
    """Yield the containers that are there; raises OSError.

    What a database keeps of those that were removed is left out.
    """
    there = {
        one: driver
        for driver in drivers(files, storage)
        for one in files.names(f"{storage}/{driver}{_ENDING}")
    }
    seen = set()
    for name, read in ((_SQLITE, _sqlite), (_BOLT, _bolt)):
        path = f"{storage}/{name}"
        for said in read(files.read(path) or b""):
            identity, runtime = said.get("id"), said.get("runtime")
            if isinstance(identity, str) and identity in there and identity not in seen:
                seen.add(identity)
                called = said.get("name")
                yield Container(
                    identity,
                    called if isinstance(called, str) else "",
                    runtime if isinstance(runtime, str) else "",
                    there[identity],
                    path,
                )


def _sqlite(content: bytes) -> Iterator[dict[str, Any]]:
    if not content:
        return
    with TemporaryDirectory(prefix="gpuhook-") as place:
        copy = f"{place}/{_SQLITE}"
        with open(copy, "wb") as file:
            file.write(content)
        try:
            with closing(sqlite3.connect(copy)) as database:
                rows = database.execute("SELECT JSON FROM ContainerConfig").fetchall()
        except sqlite3.Error:
            return  # of another version, or being written
    for (text,) in rows:
        yield from _documents(text if isinstance(text, str) else "")


def _bolt(content: bytes) -> Iterator[dict[str, Any]]:
    """Yield the JSON in a BoltDB, whose values lie in one piece in it."""
    text = content.decode("latin-1")
    yield from _documents(text, '{"spec":{')


def _documents(text: str, begin: str = "{") -> Iterator[dict[str, Any]]:
    decoder = json.JSONDecoder()
    at = text.find(begin)
    while at >= 0:
        try:
            said, end = decoder.raw_decode(text, at)
        except (ValueError, RecursionError):
            end = at + 1
        else:
            if isinstance(said, dict):
                yield said
        at = text.find(begin, end)
