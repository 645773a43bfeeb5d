# SPDX-License-Identifier: Apache-2.0
"""Podman's database of containers, SQLite or BoltDB, read without podman.

Source: containers/podman, libpod/sqlite_state_internal.go and libpod/boltdb_state.go.
"""

from __future__ import annotations

import json
import re
import sqlite3
import sys
from contextlib import closing, contextmanager
from dataclasses import dataclass
from tempfile import TemporaryDirectory
from typing import Any

from gpuhook.containers.stores import stored_container
from gpuhook.containers.stores.stored_container import StoredContainer
from gpuhook.host import documents

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

    from gpuhook.containers.stores.store_files import StoreFiles

STORAGE = "/var/lib/containers/storage"
OF_A_USER = ".local/share/containers/storage"  # below the home directory
_ENDING = "-containers"  # overlay-containers, vfs-containers
_BOLT = "libpod/bolt_state.db"
_BEGIN = '{"spec":{'  # the JSON of a container in BoltDB
_SQLITE = "db.sql"
_PLAIN = re.compile(r"CREATE (TABLE|(UNIQUE )?INDEX) ")  # as SQLite writes it
_MOST_BYTES = 32 << 20  # of all rows; computed columns could be larger


@dataclass(frozen=True)
class LibpodContainer(StoredContainer):
    """A container in the database; `runtime` is a name in the configuration, or a path."""

    runtime: str = ""
    driver: str = ""
    database: str = ""


def drivers(files: StoreFiles, storage: str) -> list[str]:
    """Return the storage drivers that have containers. Raises OSError."""
    names = files.names(storage)
    return [one.removesuffix(_ENDING) for one in names if one.endswith(_ENDING)]


def storage_of(bundle: str, identity: str) -> str:
    """Return the storage of a container by its bundle, "" for a bundle of another engine.

    >>> storage_of("/data/storage/overlay-containers/4c1f/userdata", "4c1f")
    '/data/storage'
    """
    place, ending = f"{_ENDING}/{identity}/userdata", bundle.rstrip("/")
    return ending.removesuffix(place).rpartition("/")[0] if ending.endswith(place) else ""


def containers(files: StoreFiles, storage: str) -> Iterator[LibpodContainer]:
    """Yield the containers. Raises what `files` raises.

    Rows of removed containers, which have no directory, are skipped.
    """
    existing = {
        one: driver
        for driver in drivers(files, storage)
        for one in files.names(f"{storage}/{driver}{_ENDING}")
    }
    seen = set()
    for file, read in ((_SQLITE, _sqlite), (_BOLT, _bolt)):
        path = f"{storage}/{file}"
        for row in read(files.read(path) or b""):
            identity = stored_container.name(row.get("id"))
            if identity in existing and identity not in seen:
                seen.add(identity)
                yield _container(row, identity, existing[identity], path)


def _container(row: dict[str, Any], identity: str, driver: str, path: str) -> LibpodContainer:
    project, service = stored_container.labels(row.get("labels"))
    runtime = row.get("runtime")
    return LibpodContainer(
        "podman",
        identity,
        stored_container.name(row.get("name")),
        stored_container.image(row.get("rootfsImageName")),
        project,
        service,
        runtime=runtime if isinstance(runtime, str) else "",
        driver=driver,
        database=path,
    )


def _sqlite(content: bytes) -> Iterator[dict[str, Any]]:
    if not content:
        return
    try:
        with _database(content) as database:
            rows = _rows(database)
    except (sqlite3.Error, OverflowError):
        return  # another version, or a write in progress
    for text in rows:
        try:
            row = documents.parse_json(text)
        except ValueError:
            continue
        if isinstance(row, dict):
            yield row


@contextmanager
def _database(content: bytes) -> Iterator[sqlite3.Connection]:
    """Yield a database in memory; Python before 3.11 can only open a file, here a temporary one."""
    if sys.version_info >= (3, 11):
        with closing(sqlite3.connect(":memory:")) as database:
            database.deserialize(content)
            yield database
    else:
        with TemporaryDirectory(prefix="gpuhook-") as place:
            copy = f"{place}/{_SQLITE}"
            with open(copy, "wb") as file:
                file.write(content)
            # immutable: SQLite reads no journal, and creates no lock or other file.
            with closing(sqlite3.connect(f"file:{copy}?immutable=1", uri=True)) as database:
                yield database


def _rows(database: sqlite3.Connection) -> list[bytes | str]:
    """Return the texts of the table, never computed values.

    In a hostile database, a view or a generated column with the table's name could be endless, as
    could a virtual table, which has the type "table".
    """
    columns = database.execute("PRAGMA table_xinfo(ContainerConfig)").fetchall()
    is_plain = [hidden for _, name, *_, hidden in columns if name == "JSON"] == [0]
    statements = database.execute("SELECT sql FROM sqlite_master WHERE sql IS NOT NULL")
    if not is_plain or not all(_PLAIN.match(str(text)) for (text,) in statements):
        return []
    rows: list[bytes | str] = []
    left = _MOST_BYTES
    for (text,) in database.execute("SELECT JSON FROM ContainerConfig"):
        if isinstance(text, (bytes, str)):  # podman writes bytes into the column of texts
            left -= len(text)
            rows.append(text)
        if left < 0:
            return []
    return rows


def _bolt(content: bytes) -> Iterator[dict[str, Any]]:
    """Yield the JSON in a BoltDB, which stores each value in one piece."""
    text = content.decode("latin-1")
    decoder = json.JSONDecoder()
    at = text.find(_BEGIN)
    while at >= 0:
        try:
            row, end = decoder.raw_decode(text, at)
        except (ValueError, RecursionError):
            end = at + 1
        else:
            if isinstance(row, dict):
                yield row
        at = text.find(_BEGIN, end)
