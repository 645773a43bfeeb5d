# SPDX-License-Identifier: Apache-2.0
"""The state of an engine: its configuration now, and the record of `gpuhook configure`."""

from __future__ import annotations

from dataclasses import dataclass

from gpuhook.engines.configure import engine_verification
from gpuhook.engines.configure.configure_record import (
    ConfigureRecord,
    RecordStore,
    digest,
    directory,
)
from gpuhook.engines.configure.containerd import containerd_process
from gpuhook.engines.configure.engine_plan import EngineNode

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gpuhook.engines.configure.configure_engine import Where
    from gpuhook.engines.configure.host_files import Host
    from gpuhook.engines.read.config_files import ConfigFiles

# The state of a file since it was written.
AS_WRITTEN, AS_BEFORE, EDITED, GONE = "as written", "as before", "edited since", "gone"


@dataclass(frozen=True, slots=True)
class EngineStatus:
    """An engine: its configuration, and the record of `gpuhook configure`, None without one.

    `files` has the files of the record, each with its state. `is_readable` is false if permission
    to read the record was denied.
    """

    engine: str
    reading: engine_verification.EngineReading
    record: ConfigureRecord | None
    files: tuple[tuple[str, str], ...]
    is_readable: bool = True

    @property
    def is_there(self) -> bool:
        """Whether the engine has files, hooks or a record."""
        return bool(self.reading.configuration.files or self.reading.hooks or self.record)


def engine_status(host: Host, where: Where) -> EngineStatus:
    """Return the state of an engine. Raises OSError and GH2009."""
    store = RecordStore(host, directory(where.engine, where.home))
    is_readable = True
    try:
        record = store.load()
    except PermissionError:
        record, is_readable = None, False
    config = where.config or (record.config if record else "")
    version = containerd_process.host_programs(host, where.engine, config).version(where.engine)
    node = EngineNode(host, version, config, where.drop_in, where.home)
    reading = engine_verification.read_engine(where.engine, node)
    return EngineStatus(where.engine, reading, record, files_since(host, record), is_readable)


def files_since(files: ConfigFiles, record: ConfigureRecord | None) -> tuple[tuple[str, str], ...]:
    """Return the files of a record, each with its state. Raises OSError."""
    states = []
    for one in record.files if record else ():
        now = files.read(one.path)
        state = GONE if now is None else EDITED
        if digest(now) in one.known:
            state = AS_BEFORE if digest(now) == one.digest else AS_WRITTEN
        states.append((one.path, state))
    return tuple(states)
