# SPDX-License-Identifier: Apache-2.0
"""What engines of a host are configured to do now, and by whom."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, replace

from gpuhook.engines.configure import engine_verification
from gpuhook.engines.configure.configure_record import (
    ConfigureRecord,
    RecordStore,
    digest,
    directory,
)
from gpuhook.engines.configure.containerd import containerd_locations, containerd_process
from gpuhook.engines.configure.engine_plan import EngineNode
from gpuhook.errors import GpuhookError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gpuhook.engines.configure.configure_engine import Where
    from gpuhook.engines.configure.host_files import Host
    from gpuhook.engines.read.config_files import ConfigFiles

# What has become of a file since it was written: it is as we left it, as it was before that, ...
AS_WRITTEN, AS_BEFORE, EDITED, GONE = "as written", "as before", "edited since", "gone"


@dataclass(frozen=True, slots=True)
class EngineStatus:
    """An engine: what its files say, and the record of `gpuhook configure`, None without one.

    `files` are those of the record, each with what has become of it. `is_readable` is whether we
    may look for a record.
    """

    engine: str
    said: engine_verification.Said
    record: ConfigureRecord | None
    files: tuple[tuple[str, str], ...]
    is_readable: bool = True

    @property
    def is_there(self) -> bool:
        """Whether there is anything to show: files of the engine, or a record."""
        return bool(self.said.configuration.files or self.said.hooks or self.record)


def engine_status(host: Host, where: Where) -> EngineStatus:
    """Return what an engine is configured to do; raises OSError and GH2009."""
    store = RecordStore(host, directory(where.engine, where.home))
    is_readable = True
    try:
        record = store.load()
    except PermissionError:
        record, is_readable = None, False
    config = where.config or (record.config if record else "")
    version = containerd_process.host_programs(host, where.engine, config).version(where.engine)
    node = EngineNode(host, version, config, where.drop_in, where.home)
    if where.engine == "containerd" and not config:
        with suppress(GpuhookError):  # of several, the usual one is shown
            node = replace(node, config=containerd_locations.containerd_location(node).root)
    said = engine_verification.read_engine(where.engine, node)
    return EngineStatus(where.engine, said, record, files_since(host, record), is_readable)


def files_since(files: ConfigFiles, record: ConfigureRecord | None) -> tuple[tuple[str, str], ...]:
    """Return the files of a record, each with what has become of it; raises OSError."""
    found = []
    for one in record.files if record else ():
        now = files.read(one.path)
        state = GONE if now is None else EDITED
        if digest(now) in one.known:
            state = AS_BEFORE if digest(now) == one.digest else AS_WRITTEN
        found.append((one.path, state))
    return tuple(found)
