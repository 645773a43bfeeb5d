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

from gpuhook.host import documents

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

    from gpuhook.engines.read.config_files import ConfigFiles

_ENDING = "-containers"  # overlay-containers, vfs-containers
_BOLT = "libpod/bolt_state.db"
_BEGIN = '{"spec":{'  # of a container in BoltDB
_SQLITE = "db.sql"
_MOST_BYTES = 32 << 20  # of all rows: a database has no more, and what it computes may


@dataclass(frozen=True, slots=True)
class Container:
    """A container as podman keeps it: `runtime` is a name of its configuration, or a path."""

    id: str
    name: str
    runtime: str
    driver: str
    database: str


def drivers(files: ConfigFiles, storage: str) -> list[str]:
    """Return the storage drivers that have containers; raises OSError."""
    names = files.names(storage)
    return [one.removesuffix(_ENDING) for one in names if one.endswith(_ENDING)]


def containers(files: ConfigFiles, storage: str) -> Iterator[Container]:
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
            # immutable: as it is, without a journal, and no lock or other file is made.
            with closing(sqlite3.connect(f"file:{copy}?immutable=1", uri=True)) as database:
                rows = _rows(database)
        except (sqlite3.Error, OverflowError):
            return  # of another version, or being written
    for text in rows:
        try:
            said = documents.parse_json(text)
        except ValueError:
            continue
        if isinstance(said, dict):
            yield said


def _rows(database: sqlite3.Connection) -> list[str]:
    """Return the texts of the table; nothing that the database would have us compute.

    It may be another one's: a view or a generated column by the table's name never ends.
    """
    columns = database.execute("PRAGMA table_xinfo(ContainerConfig)").fetchall()
    plain = [hidden for _, name, *_, hidden in columns if name == "JSON"] == [0]
    found = database.execute("SELECT type FROM sqlite_master WHERE name = 'ContainerConfig'")
    if not plain or found.fetchall() != [("table",)]:
        return []
    rows: list[str] = []
    left = _MOST_BYTES
    for (text,) in database.execute("SELECT JSON FROM ContainerConfig"):
        if isinstance(text, str):
            left -= len(text)
            rows.append(text)
        if left < 0:
            return []
    return rows


def _bolt(content: bytes) -> Iterator[dict[str, Any]]:
    """Yield the JSON in a BoltDB, whose values lie in one piece in it."""
    text = content.decode("latin-1")
    decoder = json.JSONDecoder()
    at = text.find(_BEGIN)
    while at >= 0:
        try:
            said, end = decoder.raw_decode(text, at)
        except (ValueError, RecursionError):
            end = at + 1
        else:
            if isinstance(said, dict):
                yield said
        at = text.find(_BEGIN, end)
