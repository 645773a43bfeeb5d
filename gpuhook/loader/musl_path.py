# SPDX-License-Identifier: Apache-2.0
"""musl's only file: /etc/ld-musl-<arch>.path, the directories that its loader searches.

musl has no cache; it reads this file whole, up to a NUL, and splits it at newlines and colons.
Without the file it searches DEFAULT. Source: musl ldso/dynlink.c, load_library().
"""

from __future__ import annotations

from gpuhook.errors import fault

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

DEFAULT = b"/lib:/usr/local/lib:/usr/lib"
MAX_BYTES = 64 << 10

# uname's name -> musl's LDSO_ARCH, where they differ
_ARCHITECTURES = {
    "arm64": "aarch64",
    "armv7l": "armhf",
    "i686": "i386",
    "ppc64le": "powerpc64le",
}


def path_file(machine: str) -> str:
    """Return the path of the file for `machine`, given as uname or musl spells it."""
    return "/etc/ld-musl-" + _ARCHITECTURES.get(machine, machine) + ".path"


def architectures(names: Iterable[str]) -> list[str]:
    """Return musl's architectures among `names`, the listing of an image's /lib.

    [] for an image without musl.
    """
    return sorted(
        name[len("ld-musl-") : -len(".so.1")]
        for name in names
        if name.startswith("ld-musl-") and name.endswith(".so.1") and len(name) > 13
    )


def merged(text: bytes | None, dirs: list[bytes]) -> bytes:
    """Return the path file `text` with `dirs` after its directories; None is a missing file.

    Directories that it already names are not added, so a second time changes nothing. An empty file
    remains without the defaults, as musl reads it. A file over 64 KiB is fault GH1601, a directory
    that cannot be written in it is fault GH1604.
    """
    for where in dirs:
        if not where.startswith(b"/") or any(c in where for c in (b"\n", b":", b"\0")):
            raise fault("GH1604", directory=where.decode("utf-8", "replace"), file="musl's path")
    if text is None:
        text = DEFAULT.replace(b":", b"\n") + b"\n"
    if len(text) > MAX_BYTES:
        raise fault("GH1601", file="the musl path file", size=len(text), limit=MAX_BYTES)
    # musl never reads what follows a NUL, but it is part of the image.
    read, nul, unread = text.partition(b"\0")
    named = set(read.replace(b":", b"\n").split(b"\n"))
    new = [where for where in dict.fromkeys(dirs) if where not in named]
    if not new:
        return text
    if read and not read.endswith((b"\n", b":")):
        read += b"\n"
    return read + b"\n".join(new) + b"\n" + nul + unread
