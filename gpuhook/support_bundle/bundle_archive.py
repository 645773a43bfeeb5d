# SPDX-License-Identifier: Apache-2.0
"""The archive of a bundle: a gzipped tar of regular files, readable by its owner only.

Members are read into memory, and never unpacked by their names. An archive with a link, a device, a
directory, a duplicate name, or more than the limits is refused.
"""

from __future__ import annotations

import gzip
import io
import os
import stat
import tarfile
import zlib

from gpuhook.errors import GpuhookError, fault
from gpuhook.host import output_file

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

    from _typeshed import WriteableBuffer

MODE = 0o600
MOST_BYTES = 160 << 20  # of all members, unpacked; the files of a bundle have 128 MiB
MOST_MEMBERS = 20_000
LARGEST = 32 << 20  # bytes of a member
_TOP = "gpuhook-bundle/"


def write(path: str, members: Mapping[str, bytes], made: float) -> None:
    """Write the members to `path`, mode 0600, with the time `made`. Raises OSError.

    An existing file is replaced atomically, and kept if that fails.
    """
    packed = io.BytesIO()
    with (
        gzip.GzipFile(fileobj=packed, mode="wb", mtime=int(made)) as stream,
        tarfile.open(fileobj=stream, mode="w", format=tarfile.PAX_FORMAT) as tar,
    ):
        for name, content in members.items():
            member = tarfile.TarInfo(_TOP + name)
            member.size, member.mtime, member.mode = len(content), int(made), MODE
            tar.addfile(member, io.BytesIO(content))
    output_file.write(path, packed.getvalue(), MODE)


def read(path: str) -> dict[str, bytes]:
    """Return the members of a bundle by name. Raises GH1906, GH1907 and OSError."""
    members: dict[str, bytes] = {}
    try:
        with (
            open(path, "rb", opener=_opened) as file,
            tarfile.open(fileobj=_Bounded(file, path), mode="r|") as tar,
        ):
            for member in tar:
                name = _checked(path, member, members)
                content = tar.extractfile(member)
                members[name] = content.read() if content is not None else b""
    except gzip.BadGzipFile as error:
        raise fault("GH1906", path=path, reason="it is not a valid gzip file") from error
    except (
        tarfile.TarError,
        EOFError,
        zlib.error,
        ValueError,
        RecursionError,
    ) as error:
        raise fault("GH1906", path=path, reason=str(error) or type(error).__name__) from error
    return members


def _opened(path: str, flags: int) -> int:
    """Return a descriptor of a regular file; other types may block, and raise GH1906."""
    fd = os.open(path, flags | os.O_NONBLOCK)
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        os.close(fd)
        raise fault("GH1906", path=path, reason="it is not a regular file")
    return fd


def _checked(path: str, member: tarfile.TarInfo, members: Mapping[str, bytes]) -> str:
    """Return the name of a member. Raises GH1906 and GH1907."""
    name = member.name
    if not member.isfile() or member.issparse():
        raise _refused(path, f"{name} is not a regular file")
    if not name.startswith(_TOP):
        raise fault("GH1906", path=path, reason=f"{name} is not below {_TOP}")
    name = name[len(_TOP) :]
    if os.path.normpath("/" + name) != "/" + name or "\0" in name or not name:
        raise _refused(path, f"{name} is outside of it")
    if name in members:
        raise _refused(path, f"{name} occurs twice")
    if len(members) >= MOST_MEMBERS:
        raise _refused(path, f"it has more than {MOST_MEMBERS} files")
    if member.size > LARGEST:
        raise _refused(path, f"{name} has {member.size} bytes")
    return name


def _refused(path: str, reason: str) -> GpuhookError:
    return fault("GH1907", path=path, reason=reason)


class _Bounded(io.RawIOBase):
    """The content of a gzipped file, up to MOST_BYTES; raises GH1907 for more."""

    def __init__(self, file: io.BufferedReader, path: str) -> None:
        self._stream = gzip.GzipFile(fileobj=file, mode="rb")
        self._left = MOST_BYTES
        self._path = path

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: WriteableBuffer) -> int:
        view = memoryview(buffer).cast("B")
        content = self._stream.read(len(view))
        self._left -= len(content)
        if self._left < 0:
            raise _refused(self._path, f"it is larger than {MOST_BYTES >> 20} MiB, unpacked")
        view[: len(content)] = content
        return len(content)
