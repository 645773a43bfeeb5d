# SPDX-License-Identifier: Apache-2.0
"""The compiled form of a CDI spec: one device is read out of thousands without parsing the rest.

A compiled file is in the state directory. Its key is the source's path, size, mtime and inode. Its
lines are

    gpuhook-compiled 1 <size>-<mtime_ns>-<inode> <source path>
    {"kind": ..., "cdiVersion": ..., "containerEdits": {...}}, and "annotations" if it has any
        or {"error": [code, message, hint], "by": the release that found it}
    <device name> TAB <its containerEdits as JSON>
    ...

A broken source is compiled into its error, so that it is read once per version of the source and of
gpuhook: another release may accept it.
"""

from __future__ import annotations

import os
from binascii import crc32

from gpuhook import __version__
from gpuhook.errors import GpuhookError, fault
from gpuhook.host.hot import fastjson, files, state

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from gpuhook.cdi.hot.container_edits import ContainerEdits, Spec

FORMAT = b"gpuhook-compiled 1 "
_MAX_SIZE = 256 << 20


class Compiled:
    """A compiled spec; devices are parsed when they are requested."""

    __slots__ = (
        "_data",
        "_lines_by_name",
        "annotations",
        "edits",
        "error",
        "kind",
        "path",
        "version",
    )

    def __init__(self, path: str, data: bytes) -> None:
        """Read the head of `data`, the compiled form of the spec at `path`; raises ValueError."""
        start = data.index(b"\n") + 1  # the rest may be large: it is not copied
        head = fastjson.loads(data[start : data.index(b"\n", start)])
        if not isinstance(head, dict):
            raise ValueError("no head")  # noqa: TRY004 # of the text, not of an argument
        self.path = path
        self.kind: str = head.get("kind", "")
        self.version: str = head.get("cdiVersion", "")
        self.annotations: dict[str, str] = head.get("annotations") or {}
        self.edits: ContainerEdits = head.get("containerEdits") or {}
        if not (type(self.kind) is type(self.version) is str):
            raise TypeError("no kind")
        if not (type(self.annotations) is type(self.edits) is dict):
            raise TypeError("no edits")
        self.error: GpuhookError | None = None
        if "error" in head:
            if head.get("by") != __version__:
                raise ValueError("found by another release")
            self.error = GpuhookError(*head["error"])
        self._data = data
        self._lines_by_name: dict[bytes, bytes] | None = None

    @classmethod
    def of_fault(cls, path: str, error: GpuhookError) -> Compiled:
        """Return the stand-in for a spec that could not be read or compiled."""
        return cls(path, b"\n" + _head_of(error) + b"\n")

    @classmethod
    def unreadable(cls, path: str, error: OSError) -> Compiled:
        """Return the stand-in for a file that cannot be read, GH1110."""
        return cls.of_fault(path, fault("GH1110", path=path, reason=error.strerror or error))

    def device(self, name: str) -> ContainerEdits | None:
        """Return the edits of the device `name`, None if the spec has no such device."""
        if self._lines_by_name is not None:
            line = self._lines_by_name.get(name.encode())
            return None if line is None else self._edits(line)
        mark = b"\n" + name.encode() + b"\t"
        start = self._data.find(mark)
        if start < 0:
            return None
        start += len(mark)
        return self._edits(self._data[start : self._data.find(b"\n", start)])

    def _edits(self, line: bytes) -> ContainerEdits:
        try:
            found: object = fastjson.loads(line)
        except ValueError:
            found = None
        if not isinstance(found, dict):
            raise self._damaged()
        edits: ContainerEdits = found  # type: ignore[assignment] # they were checked before
        return edits

    def _damaged(self) -> GpuhookError:
        """Remove the compiled form, and return GH1110: the next reader compiles the spec again."""
        kept = compiled_path(self.path)
        try:  # noqa: SIM105 # contextlib costs a start
            os.unlink(kept)
        except OSError:
            pass  # removed meanwhile
        reason = f"its compiled form {kept} was damaged, and was removed; try again"
        return fault("GH1110", path=self.path, reason=reason)

    def names(self) -> list[str]:
        """Return the names of the devices, in the order of the spec."""
        if self._lines_by_name is None:
            # The caller may read each device next: from now on, none is searched for.
            lines = (line.partition(b"\t") for line in self._data.split(b"\n")[2:] if line)
            self._lines_by_name = {name: edits for name, _, edits in lines}
        try:
            return [name.decode() for name in self._lines_by_name]
        except UnicodeDecodeError:
            raise self._damaged() from None


def compiled_path(source: str) -> str:
    """Return the path of the compiled form of the spec at `source`."""
    name = f"{crc32(os.fsencode(source)):08x}-{os.path.basename(source)[-100:]}"
    return os.path.join(state.directory(), "compiled", name)


def load(source: str, found: os.stat_result) -> Compiled | None:
    """Return the compiled form of this version of `source`, None if there is none."""
    data = state.read(compiled_path(source), _MAX_SIZE)
    if data is None or not data.startswith(_key(source, found)):
        return None
    try:
        return Compiled(source, data)
    except (ValueError, IndexError, TypeError):
        return None  # a broken compiled form is made again


def encoded(source: str, found: os.stat_result, spec: Spec | GpuhookError) -> bytes:
    """Return the compiled form of a valid spec, or of its fault."""
    return _lines(_key(source, found)[:-1], spec)


def of_spec(path: str, spec: Spec) -> Compiled:
    """Return the compiled form of a valid spec that exists in memory only; `path` is its name."""
    return Compiled(path, _lines(b"", spec))


def _lines(key: bytes, spec: Spec | GpuhookError) -> bytes:
    lines = [key]
    if isinstance(spec, GpuhookError):
        lines.append(_head_of(spec))
    else:
        head: dict[str, Any] = {"kind": spec["kind"], "cdiVersion": spec["cdiVersion"]}
        head["containerEdits"] = spec.get("containerEdits") or {}
        if spec.get("annotations"):
            head["annotations"] = spec["annotations"]
        lines.append(fastjson.dumps(head))
        for device in spec["devices"]:
            edits = fastjson.dumps(device["containerEdits"])
            lines.append(device["name"].encode() + b"\t" + edits)
    return b"\n".join(lines) + b"\n"


def _head_of(error: GpuhookError) -> bytes:
    parts = [error.code, error.message, error.hint]
    return fastjson.dumps({"error": parts, "by": __version__})


def store(source: str, found: os.stat_result, spec: Spec | GpuhookError) -> Compiled:
    """Store the compiled form of `source` and return it, also if it cannot be stored."""
    data = encoded(source, found, spec)
    kept = compiled_path(source)
    try:
        os.makedirs(os.path.dirname(kept), 0o755, exist_ok=True)
        files.replace(kept, data, mode=0o644)
    except OSError:
        pass  # with an unwritable /run, every create compiles the spec again
    return Compiled(source, data)


def _key(source: str, found: os.stat_result) -> bytes:
    version = files.version(found).encode()
    return FORMAT + version + b" " + os.fsencode(source).replace(b"\n", b"?") + b"\n"
