# SPDX-License-Identifier: Apache-2.0
"""The checkpoint: all claims that the driver prepares or has prepared.

The first line has the version, the boot and a checksum, the rest is JSON. Each change writes a new
file and keeps the one before. Two drivers may run during a rolling update: each change is made
under a lock on what the file then has.
"""

from __future__ import annotations

import hashlib
import json
import os
import threading
from contextlib import suppress
from dataclasses import dataclass
from queue import SimpleQueue

from gpuhook.dra.claims import prepared_claim
from gpuhook.dra.claims.checkpoint import durable_file
from gpuhook.errors import GpuhookError, fault
from gpuhook.host import documents
from gpuhook.host.hot import files
from gpuhook.host.hot.file_lock import FileLock
from gpuhook.host.logs import logger

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from gpuhook.dra.claims.prepared_claim import PreparedClaim

    Claims = dict[str, PreparedClaim]  # by UID

NAME = "gpuhook-claims.json"
VERSION = 1
_FORMAT = "gpuhook-dra-claims"
_LOCK_TIMEOUT = 10.0  # seconds; a change takes milliseconds
_MAX_HEAD = 4096
_MAX_SIZE = 256 << 20


class DamagedError(Exception):
    """The reason why a checkpoint cannot be read."""


@dataclass(slots=True)
class _Change:
    """A change that waits for the file; `error` is why it was not made."""

    make: Callable[[Claims], None]
    is_done: bool = False
    error: Exception | None = None


class ClaimCheckpoint:
    """The file in the directory of a driver; `boot` is the id of this boot of the machine."""

    def __init__(self, directory: str, boot: str) -> None:
        self.path = os.path.join(directory, NAME)
        self.previous = f"{self.path}.previous"
        self.boot = boot
        self._turn = threading.Lock()
        self._waiting: SimpleQueue[_Change] = SimpleQueue()
        self._claims: Claims = {}
        self._version = ""  # of the file that `_claims` are of
        self._texts: dict[str, tuple[PreparedClaim, str]] = {}  # by UID: what was written last

    def lock(self) -> FileLock:
        """Return the lock of the file, which all drivers of the node share; GH2604 if it waits."""
        reason = f"another driver holds the lock of {self.path}"
        return FileLock(
            f"{self.path}.lock",
            _LOCK_TIMEOUT,
            lambda: fault("GH2604", what="the checkpoint", seconds=_LOCK_TIMEOUT, reason=reason),
        )

    def claims(self) -> Mapping[str, PreparedClaim]:
        """Return the claims in the file by UID; raises OSError."""
        with self._turn:
            self._refresh()
            return dict(self._claims)

    def change(self, make: Callable[[Claims], None]) -> None:
        """Let `make` change the claims, and return when that is on the disk.

        Raises what `make` raises, GH2604 and OSError. Changes that wait for each other are written
        together.
        """
        own = _Change(make)
        self._waiting.put(own)
        with self._turn:
            if not own.is_done:
                self._write([self._waiting.get() for _ in range(self._waiting.qsize())])
        if own.error is not None:
            raise own.error

    def _write(self, waiting: list[_Change]) -> None:
        """Make the changes; a failed one leaves the claims as they were."""
        try:
            with self.lock():
                self._refresh()
                claims = self._claims
                for change in waiting:
                    tried = dict(claims)
                    try:
                        change.make(tried)
                    except Exception as error:  # the caller raises it
                        change.error = error
                    else:
                        claims = tried
                if claims != self._claims or not self._version:
                    self.write(claims)
        except (OSError, GpuhookError) as error:
            for change in waiting:
                change.error = change.error or error
        finally:
            for change in waiting:
                change.is_done = True

    def _refresh(self) -> None:
        """Read the file if it has changed. One that is lost now has what this process knows.

        The claims of another boot have ended.
        """
        try:
            version = files.version(os.stat(self.path))
            if version != self._version:
                claims, boot = self.load(self.path)
                self._claims, self._version = claims if boot == self.boot else {}, version
        except FileNotFoundError:
            self._version = ""
        except DamagedError as error:
            self.quarantine(self.path, str(error))
            self._version = ""

    def write(self, claims: Claims) -> None:
        """Write all claims, and keep the file before as `previous`. The caller has the lock."""
        body = self._body(claims).encode()
        head = {
            "format": _FORMAT,
            "version": VERSION,
            "boot": self.boot,
            "sha256": hashlib.sha256(body).hexdigest(),
        }
        durable_file.keep_copy(self.path, self.previous)
        durable_file.replace(self.path, json.dumps(head).encode() + b"\n" + body, 0o600)
        self._claims = claims
        self._version = files.version(os.stat(self.path))

    def _body(self, claims: Claims) -> str:
        """Return all claims as JSON. A claim that was written before keeps its text."""
        texts = {}
        for uid, one in claims.items():
            known = self._texts.get(uid)
            if known is None or known[0] is not one:
                known = one, f"{json.dumps(uid)}: {json.dumps(one.document())}"
            texts[uid] = known
        self._texts = texts
        return f"{{{', '.join(text for _, text in texts.values())}}}"

    def load(self, path: str) -> tuple[Claims, str]:
        """Return the claims in a file, and the boot that they are of.

        Raises FileNotFoundError, and DamagedError for any other file that is not a checkpoint of
        this version.
        """
        try:
            head, _, body = files.read(path, _MAX_SIZE).partition(b"\n")
            known = documents.parse_json_object(head[:_MAX_HEAD])
            if known.get("format") != _FORMAT:
                raise DamagedError("it is not a checkpoint of gpuhook")
            if known.get("version") != VERSION:
                raise DamagedError(f"its version is {known.get('version')!r}, not {VERSION}")
            if known.get("sha256") != hashlib.sha256(body).hexdigest():
                raise DamagedError("its checksum is wrong")
            found = {
                uid: prepared_claim.from_document(one)
                for uid, one in documents.parse_json_object(body).items()
            }
            return found, str(known["boot"])
        except FileNotFoundError:
            raise
        except (OSError, GpuhookError) as error:
            raise DamagedError(getattr(error, "strerror", None) or str(error)) from error
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            raise DamagedError("it is not complete") from error

    def quarantine(self, path: str, reason: str) -> None:
        """Rename a damaged file, and log it; only the newest one is kept."""
        place = f"{path}.damaged"
        with suppress(FileNotFoundError):
            os.rename(path, place)
        error = fault("GH2607", path=path, reason=reason, place=place)
        logger().warning(error.message, code=error.code, hint=error.hint)
