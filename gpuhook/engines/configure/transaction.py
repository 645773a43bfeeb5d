# SPDX-License-Identifier: Apache-2.0
"""Write all files or none. The record is written first, so that a killed run can be undone."""

from __future__ import annotations

import errno
import os

from gpuhook.errors import GpuhookError, fault

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gpuhook.engines.configure.changeset import Changeset
    from gpuhook.engines.configure.configure_record import ConfigureRecord, RecordStore
    from gpuhook.engines.configure.engine_plan import ConfigChange
    from gpuhook.engines.configure.host_files import Host, Kept


class Applied:
    """A changeset on a host; `roll_back` restores the state before it."""

    def __init__(self, host: Host, store: RecordStore, work: Changeset) -> None:
        """Write the record, then all files or none. Raises GH2001, GH2002 and GH2012."""
        self._host = host
        self._store = store
        self._work = work
        self._done: list[tuple[ConfigChange, Kept | None]] = []
        try:
            store.save(work.meanwhile, work.backups)
            for directory in work.made:
                host.make_directory(directory)
            for write in work.writes:
                self._write(write)
        except BaseException as error:
            self.roll_back()
            if isinstance(error, OSError):
                raise unwritable(error) from error
            raise

    def _write(self, write: ConfigChange) -> None:
        if self._host.read(write.path) != write.before:
            raise fault("GH2012", path=write.path)
        kept = self._host.kept(write.path)
        self._done.append((write, kept))
        if write.after is None:
            self._host.remove(write.path)
        else:
            self._host.put(write.path, write.after, write.kept, write.mode)

    def roll_back(self) -> None:
        """Restore the files in reverse order. Raises GH2002 if that fails.

        The record of the write then remains: it has the digests of both contents.
        """
        work = self._work
        try:
            for write, kept in reversed(self._done):
                if write.before is None:
                    self._host.remove(write.path)
                elif self._host.read(write.path) != write.before or (
                    self._host.kept(write.path) != kept
                ):
                    self._host.put(write.path, write.before, kept)
            for directory in reversed(work.made):
                self._host.remove_directory(directory)
            if work.old is None:
                self._store.forget()
            else:
                self._store.save(work.old)
        except OSError as error:
            where, place = error.filename, self._store.place
            raise fault(
                "GH2002",
                path=where,
                reason=error.strerror,
                place=place,
                engine=work.meanwhile.engine,
            ) from error

    def finish(self, record: ConfigureRecord | None) -> tuple[str, ...]:
        """Save the final record and remove directories; return those that are not empty.

        Raises GH2001.
        """
        removed = self._work.removed
        try:
            left = [one for one in removed if not self._host.remove_directory(one)]
            if record is None:
                self._store.forget()
            else:
                self._store.save(record)
                self._store.clear(record)
        except OSError as error:
            raise unwritable(error) from error
        return tuple(left)


_ADVICE = {
    errno.EROFS: "its file system is mounted read-only: name another file with --config or "
    "--drop-in, or use --route cdi if the engine needs no configuration for it",
    errno.ENOSPC: "free space on its disk",
    errno.EDQUOT: "free space in the quota of its owner",
    errno.EISDIR: "move the directory away",
    errno.EEXIST: "move the existing file away",
    errno.ENOENT: "fix the link: its target does not exist",
    errno.ENOTDIR: "move away the file that is in place of a directory",
    errno.ELOOP: "fix the links of the path",
}


def unwritable(error: OSError) -> GpuhookError:
    """Return GH2001 for a failed write, with advice."""
    advice = _ADVICE.get(error.errno or 0, "find out why it cannot be written")
    if error.errno in (errno.EPERM, errno.EACCES):
        advice = (
            "run this as root, or as the user of a rootless engine"
            if os.geteuid()
            else f"check whether it is immutable: lsattr {error.filename}"
        )
    reason = error.strerror or error
    return fault("GH2001", path=error.filename, reason=reason, advice=advice)
