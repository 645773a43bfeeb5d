# SPDX-License-Identifier: Apache-2.0
"""/etc/ld.so.conf.d/00-gpuhook.conf: so that a later ldconfig in the container keeps the driver.

HOT. The file names the directories, and in comments the libraries that were added to the cache,
so that a restart with another driver knows which entries to take out again.
"""

from __future__ import annotations

from binascii import unhexlify

from gpuhook.errors import fault

DROP_IN = "/etc/ld.so.conf.d/00-gpuhook.conf"
INCLUDE = b"include /etc/ld.so.conf.d/*.conf\n"  # the text of a missing /etc/ld.so.conf
MAIN = "/etc/ld.so.conf"
MAX_BYTES = 1 << 20
MAX_LIBRARIES = 4096

_HEADER = b"# Written by gpuhook, for ldconfig: where the GPU driver's libraries are.\n"
_LIBRARY = b"# library "
_MAX_NAME = 255
_MAX_PATH = 4095
# ldconfig cuts at "#", takes what follows "=" for a library type, and trims white space.
_UNSPEAKABLE = b"#=\0\n\t\v\f\r "
_PLAIN = bytes(c for c in range(33, 127) if c != 37)  # 37: the percent sign


def render(dirs: list[bytes], libraries: list[tuple[bytes, bytes]]) -> bytes:
    """Return the drop-in that names `dirs` for ldconfig, and `libraries` (soname, path) for us.

    A directory that ldconfig could not read from it is fault GH1604.
    """
    for where in dirs:
        if not where.startswith(b"/") or any(c in _UNSPEAKABLE for c in where):
            raise fault("GH1604", directory=where.decode("utf-8", "replace"), file=DROP_IN)
    lines = [_HEADER]
    lines += [where + b"\n" for where in dict.fromkeys(dirs)]
    lines += [
        _LIBRARY + _quoted(soname) + b" " + _quoted(path) + b"\n"
        for soname, path in dict.fromkeys(libraries)
    ]
    return b"".join(lines)


def recorded(text: bytes) -> list[tuple[bytes, bytes]]:
    """Return the (soname, path) pairs that render() put into `text`, which an image may forge.

    Lines that are not ours are skipped, and a text over 1 MiB has none.
    """
    if len(text) > MAX_BYTES:
        return []
    found: list[tuple[bytes, bytes]] = []
    for line in text.split(b"\n"):
        if not line.startswith(_LIBRARY) or len(found) == MAX_LIBRARIES:
            continue
        soname, _, path = line[len(_LIBRARY) :].partition(b" ")
        pair = _plain(soname), _plain(path)
        if _credible(*pair):
            found.append(pair)
    return found


def includes_drop_ins(text: bytes) -> bool:
    """Tell whether the ld.so.conf `text` makes ldconfig read DROP_IN."""
    for line in text.split(b"\n"):
        words = line.partition(b"#")[0].split()
        if words[:1] == [b"include"] and any(_matches(pattern) for pattern in words[1:]):
            return True
    return False


def _matches(pattern: bytes) -> bool:
    """Tell whether the glob `pattern` of an include line covers DROP_IN; at most one "*" is."""
    if not pattern.startswith(b"/"):
        pattern = b"/etc/" + pattern
    start, star, end = pattern.partition(b"*")
    path = DROP_IN.encode()
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
    """Return `name` on one line and in one word: other bytes than _PLAIN as %xx."""
    if not name.translate(None, _PLAIN):
        return name
    return b"".join(bytes((c,)) if c in _PLAIN else b"%%%02x" % c for c in name)


def _plain(word: bytes) -> bytes:
    """Return `word` with %xx replaced, b"" when it was not quoted by us."""
    first, *rest = word.split(b"%")
    try:
        return first + b"".join([unhexlify(part[:2]) + part[2:] for part in rest])
    except ValueError:
        return b""
