# SPDX-License-Identifier: Apache-2.0
"""The compiled form of a CDI spec: one device is read out of thousands without parsing the rest.

A compiled file lies below the state directory and is keyed by the source's path, size, mtime and
inode. Its lines are

    gpuhook-compiled 1 <size>-<mtime_ns>-<inode> <source path>
    {"kind": ..., "cdiVersion": ..., "containerEdits": {...}}
        or {"error": [code, message, hint], "by": the release that found it}
    <device name> TAB <its containerEdits as JSON>
    ...

A broken source is compiled too, into its error, so that it is looked at once per version: of the
source, and of gpuhook, as another release may know what this one does not.
"""

from __future__ import annotations

import os
from binascii import crc32

from gpuhook import __version__
from gpuhook.errors import GpuhookError
from gpuhook.host.hot import fastjson, files, state

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from gpuhook.cdi.hot.container_edits import ContainerEdits, Spec

FORMAT = b"gpuhook-compiled 1 "
_MAX_SIZE = 256 << 20


class Compiled:
    """A compiled spec, read as far as it was asked about."""

    __slots__ = ("_data", "_lines_by_name", "edits", "error", "kind", "path", "version")

    def __init__(self, path: str, data: bytes) -> None:
        """Read the head of `data`, the compiled form of the spec at `path`; raises ValueError."""
        start = data.index(b"\n") + 1  # the rest may be large: it is not copied
        head = fastjson.loads(data[start : data.index(b"\n", start)])
        if not isinstance(head, dict):
            raise ValueError("no head")  # noqa: TRY004 # of the text, not of an argument
        self.path = path
        self.kind: str = head.get("kind", "")
        self.version: str = head.get("cdiVersion", "")
        self.edits: ContainerEdits = head.get("containerEdits") or {}
        self.error: GpuhookError | None = None
        if "error" in head:
            if head.get("by") != __version__:
                raise ValueError("found by another release")
            self.error = GpuhookError(*head["error"])
        self._data = data
        self._lines_by_name: dict[bytes, bytes] | None = None

    @classmethod
    def of_fault(cls, path: str, error: GpuhookError) -> Compiled:
        """Return what stands for a spec that could not be read or compiled at all."""
        return cls(path, b"\n" + _head_of(error) + b"\n")

    def device(self, name: str) -> ContainerEdits | None:
        """Return the edits of the device `name`, None if the spec has no such device."""
        if self._lines_by_name is not None:
            line = self._lines_by_name.get(name.encode())
            found: ContainerEdits | None = None if line is None else fastjson.loads(line)
            return found
        mark = b"\n" + name.encode() + b"\t"
        start = self._data.find(mark)
        if start < 0:
            return None
        start += len(mark)
        edits: ContainerEdits = fastjson.loads(self._data[start : self._data.index(b"\n", start)])
        return edits

    def names(self) -> list[str]:
        """Return the names of the devices, in the order of the spec."""
        if self._lines_by_name is None:
            # Who has asked for all names may ask for each device: none is searched for from now on.
            lines = (line.partition(b"\t") for line in self._data.split(b"\n")[2:] if line)
            self._lines_by_name = {name: edits for name, _, edits in lines}
        return [name.decode() for name in self._lines_by_name]


def compiled_path(source: str) -> str:
    """Return where the compiled form of the spec at `source` is kept."""
    name = f"{crc32(os.fsencode(source)):08x}-{os.path.basename(source)[-100:]}"
    return os.path.join(state.directory(), "compiled", name)


def load(source: str, found: os.stat_result) -> Compiled | None:
    """Return the compiled form of this very version of `source`, None if it is not there."""
    kept = compiled_path(source)
    try:
        if not state.usable(os.lstat(kept)):
            return None
        data = files.read(kept, _MAX_SIZE)
        if not data.startswith(_key(source, found)):
            return None
        return Compiled(source, data)
    except (OSError, ValueError, IndexError, TypeError, GpuhookError):
        return None  # whatever is wrong with it, it is made again


def encoded(source: str, found: os.stat_result, spec: Spec | GpuhookError) -> bytes:
    """Return the compiled form of a valid spec, or of what is wrong with it."""
    return _lines(_key(source, found)[:-1], spec)


def of_spec(path: str, spec: Spec) -> Compiled:
    """Return the compiled form of a valid spec that is in memory alone; `path` is its name."""
    return Compiled(path, _lines(b"", spec))


def _lines(key: bytes, spec: Spec | GpuhookError) -> bytes:
    lines = [key]
    if isinstance(spec, GpuhookError):
        lines.append(_head_of(spec))
    else:
        head: dict[str, Any] = {"kind": spec["kind"], "cdiVersion": spec["cdiVersion"]}
        head["containerEdits"] = spec.get("containerEdits") or {}
        lines.append(fastjson.dumps(head))
        for device in spec["devices"]:
            edits = fastjson.dumps(device["containerEdits"])
            lines.append(device["name"].encode() + b"\t" + edits)
    return b"\n".join(lines) + b"\n"


def _head_of(error: GpuhookError) -> bytes:
    said = [error.code, error.message, error.hint]
    return fastjson.dumps({"error": said, "by": __version__})


def store(source: str, found: os.stat_result, spec: Spec | GpuhookError) -> Compiled:
    """Keep the compiled form of `source` and return it, also where it cannot be kept."""
    data = encoded(source, found, spec)
    kept = compiled_path(source)
    try:
        os.makedirs(os.path.dirname(kept), 0o755, exist_ok=True)
        files.replace(kept, data, mode=0o644)
    except OSError:
        pass  # an unwritable /run costs time on every create, nothing else
    return Compiled(source, data)


def _key(source: str, found: os.stat_result) -> bytes:
    version = files.version(found).encode()
    return FORMAT + version + b" " + os.fsencode(source).replace(b"\n", b"?") + b"\n"
