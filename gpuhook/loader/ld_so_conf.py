# SPDX-License-Identifier: Apache-2.0
"""gpuhook's files in /etc/ld.so.conf.d: an ldconfig in the container then makes the same cache.

FIRST names the directories that contain only the driver, before all others. LAST names directories
of the system that the image's ldconfig does not search by itself: after those of the image, so that
its own libraries keep their order. Comments in FIRST record the entries that were added to the
cache, so that a restart with another driver knows which ones to remove.
"""

from __future__ import annotations

from binascii import unhexlify

from gpuhook.errors import fault
from gpuhook.loader.loader_paths import FIRST, LAST

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

MAX_BYTES = 1 << 20
MAX_LIBRARIES = 4096

_USUAL = b"include /etc/ld.so.conf.d/*.conf\n"
_INCLUDES = (_USUAL, b"include ld.so.conf.d/*.conf\n")
_HEADER = b"# Written by gpuhook, for ldconfig: directories of the GPU driver's libraries.\n"
_LIBRARY = b"# library "
_IMAGE = b"# image "
_BEHIND = b"# last "
_MAX_NAME = 255
_MAX_PATH = 4095
# ldconfig cuts at "#", reads a library type after "=", and trims white space.
_UNSPEAKABLE = b"#=\0\n\t\v\f\r "
_PLAIN = bytes(c for c in range(33, 127) if c != 37)  # 37: the percent sign


def first(
    dirs: Iterable[bytes],
    last: Iterable[bytes],
    libraries: Iterable[tuple[bytes, bytes]],
    of_image: Iterable[tuple[bytes, bytes]] = (),
) -> bytes:
    """Return the text of FIRST: it names `dirs` for ldconfig, and records the others.

    `last` are the directories of LAST, `libraries` the driver's (name, path) entries of the cache,
    `of_image` those of the image's own libraries that were added. Raises GH1604 for a directory
    that ldconfig could not read from it.
    """
    lines = [_HEADER, *_directories(dirs)]
    lines += [_BEHIND + _quoted(where) + b"\n" for where in last]
    for kind, entries in ((_LIBRARY, libraries), (_IMAGE, of_image)):
        for soname, path in dict.fromkeys(entries):
            lines.append(kind + _quoted(soname) + b" " + _quoted(path) + b"\n")
    return b"".join(lines)


def last(dirs: Iterable[bytes]) -> bytes:
    """Return the text of LAST, which names `dirs`; GH1604 as `first`."""
    return b"".join([_HEADER, *_directories(dirs)])


def _directories(dirs: Iterable[bytes]) -> list[bytes]:
    lines = []
    for where in dict.fromkeys(dirs):
        if not where.startswith(b"/") or any(c in _UNSPEAKABLE for c in where):
            raise fault("GH1604", directory=where.decode("utf-8", "replace"), file=FIRST)
        lines.append(where + b"\n")
    return lines


def recorded(text: bytes, *, of_image: bool = False) -> list[tuple[bytes, bytes]]:
    """Return the driver's (name, path) pairs that first() put into `text`; an image may forge it.

    With `of_image`, the image's own as well. Other lines are skipped, and a text over 1 MiB has
    none.
    """
    kinds = (_LIBRARY, _IMAGE) if of_image else (_LIBRARY,)
    if len(text) > MAX_BYTES:
        return []
    found: list[tuple[bytes, bytes]] = []
    for line in text.split(b"\n"):
        if not line.startswith(kinds) or len(found) == MAX_LIBRARIES:
            continue
        soname, _, path = line.partition(b" ")[2].partition(b" ")[2].partition(b" ")
        pair = _plain(soname), _plain(path)
        if _credible(*pair):
            found.append(pair)
    return found


def has_last(text: bytes) -> bool:
    """Return whether first() recorded in `text` that LAST names a directory."""
    return b"\n" + _BEHIND in text


def names_last(text: bytes, directory: bytes) -> bool:
    """Return whether first() recorded in `text` that `directory` is in LAST."""
    return b"\n" + _BEHIND + _quoted(directory) + b"\n" in text


def main(text: bytes, *, with_last: bool) -> bytes:
    """Return the ld.so.conf `text` with includes of FIRST at its start, and of LAST if needed.

    A file that is missing or empty becomes the usual one. If another one does not include all of
    ld.so.conf.d, the image leaves the rest of that directory out.
    """
    if text.startswith(_INCLUDES):
        return text
    if not text.strip():
        return _USUAL
    if not _includes(_lines(text)[:1], FIRST):
        text = b"include " + FIRST.encode() + b"\n" + text
    if with_last and not _includes(_lines(text), LAST):
        separator = b"" if text.endswith(b"\n") else b"\n"
        text += separator + b"include " + LAST.encode() + b"\n"
    return text


def _lines(text: bytes) -> list[list[bytes]]:
    """Return the words of each line that ldconfig reads."""
    lines = [line.partition(b"#")[0].split() for line in text.split(b"\n")]
    return [words for words in lines if words]


def _includes(lines: list[list[bytes]], path: str) -> bool:
    """Return whether one of `lines` makes ldconfig read `path`."""
    return any(
        words[:1] == [b"include"] and any(_matches(pattern, path) for pattern in words[1:])
        for words in lines
    )


def _matches(pattern: bytes, name: str) -> bool:
    """Return whether the glob `pattern` of an include line, with up to one "*", matches `name`."""
    if not pattern.startswith(b"/"):
        pattern = b"/etc/" + pattern
    start, star, end = pattern.partition(b"*")
    path = name.encode()
    if not star:
        return path == pattern
    # A star stops at a slash.
    middle = path[len(start) : len(path) - len(end)]
    fits = path.startswith(start) and path.endswith(end) and len(start) + len(end) <= len(path)
    return fits and b"/" not in middle


def _credible(soname: bytes, path: bytes) -> bool:
    short = len(soname) <= _MAX_NAME and len(path) <= _MAX_PATH
    return short and soname != b"" and b"/" not in soname and path.startswith(b"/")


def _quoted(name: bytes) -> bytes:
    """Return `name` on one line and in one word: bytes that are not in _PLAIN as %xx."""
    if not name.translate(None, _PLAIN):
        return name
    return b"".join(bytes((c,)) if c in _PLAIN else b"%%%02x" % c for c in name)


def _plain(word: bytes) -> bytes:
    """Return `word` with %xx replaced, b"" for another quoting."""
    first, *rest = word.split(b"%")
    try:
        return first + b"".join([unhexlify(part[:2]) + part[2:] for part in rest])
    except ValueError:
        return b""
