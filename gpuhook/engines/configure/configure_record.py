# SPDX-License-Identifier: Apache-2.0
"""The record of a configured engine, and the backups: what `gpuhook configure undo` needs."""

from __future__ import annotations

import hashlib
import json
import os
import time
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, fields
from typing import Any

from gpuhook.engines.configure.engine_plan import EngineOptions, Service
from gpuhook.engines.configure.host_files import Kept
from gpuhook.engines.configure.transaction import unwritable
from gpuhook.errors import fault
from gpuhook.host import documents
from gpuhook.host.hot import file_lock, files

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from gpuhook.engines.configure.host_files import Host

SCHEMA = "gpuhook/configured/v1"
OF_THE_HOST = "/var/lib/gpuhook/configured"
OF_A_USER = ".local/state"  # below the home directory, without XDG_STATE_HOME
NAME = "record.json"
_LOCK_TIME = 30.0  # seconds to wait for another run that configures the same engine


@dataclass(frozen=True, slots=True)
class Original:
    """A file as it was before it was configured first.

    `digest` is the SHA-256 of its content, and the name of the backup; "" if no file existed.
    `known` has the digests of the original and of gpuhook's contents: a file with another digest
    was edited since.
    """

    path: str
    digest: str
    kept: Kept | None
    known: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ConfigureRecord:
    """How an engine was configured.

    `directories` are those that were created for its files. `service` is the plan's: undo has no
    plan. `is_taken_up` is set if the engine was reloaded or restarted since.
    """

    engine: str
    wanted: EngineOptions
    config: str
    drop_in: str
    files: tuple[Original, ...]
    directories: tuple[str, ...]
    service: Service
    is_taken_up: bool = False


def digest(content: bytes | None) -> str:
    """Return the SHA-256 of a content, "" for no file."""
    return "" if content is None else hashlib.sha256(content).hexdigest()


def directory(engine: str, home: str | None) -> str:
    """Return the directory of the record: of root's engine, or of the user's with `home`."""
    if home is None:
        return f"{OF_THE_HOST}/{engine}"
    state = os.environ.get("XDG_STATE_HOME") or f"{home}/{OF_A_USER}"
    return f"{state}/gpuhook/configured/{engine}"


def parsed(content: bytes, path: str) -> ConfigureRecord:
    """Return the record in a file. Raises GH2009 if it is not valid."""
    try:
        return _record(documents.parse_json(content))
    except (ValueError, KeyError, TypeError) as error:
        raise fault("GH2009", path=path, reason=error) from error


class RecordStore:
    """The record of one engine and its backups, in a directory on the host.

    Only the owner may read it: configurations of engines can have passwords. Methods raise OSError,
    and GH2009 for a record that is not valid.
    """

    def __init__(self, host: Host, place: str) -> None:
        """Take the directory's path on the host."""
        self._host = host
        self.place = place

    def load(self) -> ConfigureRecord | None:
        """Return the record, None if none exists."""
        path = f"{self.place}/{NAME}"
        content = self._host.read(path)
        if content is None:
            return None
        return parsed(content, path)

    def backup(self, original: Original) -> bytes | None:
        """Return the original content of a file, None if it did not exist. Raises GH2009."""
        if not original.digest:
            return None
        path = f"{self.place}/{original.digest}"
        content = self._host.read(path)
        if content is None or digest(content) != original.digest:
            reason = "does not exist" if content is None else "has another content"
            raise fault("GH2009", path=path, reason=f"the backup of {original.path} {reason}")
        return content

    def save(self, record: ConfigureRecord, contents: Iterable[bytes] = ()) -> None:
        """Write the backups, then the record that names them."""
        for content in contents:
            self._host.put(f"{self.place}/{digest(content)}", content, mode=0o600)
        document = {"schema": SCHEMA, **asdict(record)}
        if not record.wanted.further_names:
            del document["wanted"]["further_names"]
        text = json.dumps(document, indent=2) + "\n"
        self._host.put(f"{self.place}/{NAME}", text.encode(), mode=0o600)

    def clear(self, record: ConfigureRecord) -> None:
        """Remove the backups that the record does not name."""
        named = {NAME, *(one.digest for one in record.files)}
        for name in self._host.names(self.place):
            if name not in named:
                self._host.remove(f"{self.place}/{name}")

    def forget(self) -> None:
        """Remove the record, then the backups."""
        self._host.remove(f"{self.place}/{NAME}")
        for name in self._host.names(self.place):
            self._host.remove(f"{self.place}/{name}")

    def remove_remainder(self) -> None:
        """Remove the backups and directories that a killed run left, if there is no record."""
        if self._host.status(f"{self.place}/{NAME}") is not None:
            return
        above = os.path.dirname(self.place)
        empty = [path for path in (above, os.path.dirname(above)) if not self._host.names(path)]
        if any(self._host.status(path) is not None for path in (self.place, *empty)):
            with self.locked():
                pass

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Lock the engine against other runs. Raises GH2008 if it remains locked.

        Creates the directory, and removes it at the end if it has no record. Raises GH2001 if it
        cannot be created.
        """
        try:
            fd = self._locked()
        except OSError as error:
            raise unwritable(error) from error
        try:
            yield
        finally:
            with suppress(OSError):
                self._clear()
            os.close(fd)

    def _locked(self) -> int:
        """Return a locked descriptor of the directory, which is still the one at its path."""
        end = time.monotonic() + _LOCK_TIME
        while True:
            for path in (*self._host.missing(self.place), self.place):
                self._host.make_directory(path, 0o700 if path == self.place else 0o755)
            with self._host.directory(self.place) as opened:
                fd = os.dup(opened)
            if not file_lock.is_locked(fd, end - time.monotonic()):
                os.close(fd)
                raise fault("GH2008", path=self.place)
            found = self._host.status(self.place)
            if found is not None and os.path.samestat(found, os.fstat(fd)):
                return fd
            os.close(fd)

    def _clear(self) -> None:
        """Remove what killed runs left, and the empty directories: of records, of gpuhook."""
        path = self.place
        with self._host.directory(path) as opened:
            files.remove_stale(f"/proc/self/fd/{opened}")
        if self._host.status(f"{path}/{NAME}") is None:
            self.forget()
        for _ in range(3):
            if not self._host.remove_directory(path):
                return
            path = os.path.dirname(path)


def _record(document: dict[str, Any]) -> ConfigureRecord:
    """Return the record; keys of a newer gpuhook are ignored."""
    if document["schema"] != SCHEMA:
        raise ValueError("it was written by another version of gpuhook")
    wanted = _fields_of(EngineOptions, document["wanted"])
    wanted["further_names"] = tuple(wanted.get("further_names", ()))
    document["wanted"] = EngineOptions(**wanted)
    service = document["service"]
    names = (tuple(service["units"]), tuple(service["processes"]))
    ends = service.get("ends_containers", False)
    document["service"] = Service(*names, reloads=service["reloads"], ends_containers=ends)
    document["directories"] = tuple(document["directories"])
    document["files"] = tuple(_original(one) for one in document["files"])
    return ConfigureRecord(**_fields_of(ConfigureRecord, document))


def _fields_of(kind: Any, document: Any) -> dict[str, Any]:
    if not isinstance(document, dict):
        raise TypeError(f"{document!r} is not an object")
    names = {one.name for one in fields(kind)}
    return {name: value for name, value in document.items() if name in names}


def _original(document: dict[str, Any]) -> Original:
    kept = document["kept"] and Kept(**_fields_of(Kept, document["kept"]))
    return Original(document["path"], document["digest"], kept, tuple(document["known"]))
