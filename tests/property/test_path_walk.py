# SPDX-License-Identifier: Apache-2.0
"""The walk that replaces openat2 answers as the kernel does, on trees of all kinds."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from hypothesis import example, given, settings
from hypothesis import strategies as st

from gpuhook.kernel import openat2, openat2_fallback

NAMES = st.sampled_from(["a", "b", "c", "etc", "missing"])
PARTS = st.one_of(NAMES, st.sampled_from(["..", ".", "", "proc/self"]))
WORDS = st.tuples(
    st.sampled_from(["", "/"]), st.lists(PARTS, min_size=1, max_size=6), st.sampled_from(["", "/"])
).map(lambda parts: parts[0] + "/".join(parts[1]) + parts[2])
# (path, "directory", "file", or where a link leads)
ENTRIES = st.lists(
    st.tuples(
        st.lists(NAMES, min_size=1, max_size=3).map("/".join),
        st.one_of(st.sampled_from(["directory", "file"]), WORDS.map(lambda text: "->" + text)),
    ),
    max_size=12,
)
FLAGS = st.sampled_from(
    [
        os.O_PATH,
        os.O_RDONLY,
        os.O_PATH | os.O_NOFOLLOW,
        os.O_RDONLY | os.O_NOFOLLOW,
        os.O_PATH | os.O_DIRECTORY,
        os.O_RDONLY | os.O_DIRECTORY,
        os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW,
        os.O_WRONLY,
    ]
)


def answer(call: object, root: int, path: str, flags: int) -> object:
    """Return what a call found (the inode and its mode), or its error's number and path."""
    try:
        fd = call(root, path, flags)  # type: ignore[operator] # either of the two
    except OSError as error:
        return error.errno, error.filename
    try:
        assert not os.get_inheritable(fd)
        found = os.fstat(fd)
        return found.st_ino, found.st_dev, found.st_mode
    finally:
        os.close(fd)


def grow(root: Path, entries: list[tuple[str, str]]) -> None:
    """Make what can be made of the entries, in their order."""
    for path, what in entries:
        place = root / path
        try:
            if not place.parent.resolve().is_relative_to(root):
                continue
            if what == "directory":
                place.mkdir()
            elif what == "file":
                fd = os.open(place, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW)
                os.close(fd)
            elif what[2:]:
                place.symlink_to(what[2:])
        except (OSError, RuntimeError):
            continue


@settings(max_examples=300)
@given(ENTRIES, st.lists(WORDS, min_size=1, max_size=8), FLAGS)
@example([("a", "->b/"), ("b", "file")], ["a", "a/", "b/", "b/.", "/"], os.O_PATH)
@example([("a", "->a")], ["a", "a/b"], os.O_PATH)
@example([("a", "directory"), ("a/b", "->../../../../a")], ["a/b/b/b/", "a/b"], os.O_RDONLY)
def test_as_the_kernel(entries: list[tuple[str, str]], asked: list[str], flags: int) -> None:
    """The same file or the same error, for links, dots and slashes of all kinds."""
    with tempfile.TemporaryDirectory() as place:
        grow(Path(place), entries)
        root = os.open(place, os.O_PATH)
        before = sorted(os.listdir("/proc/self/fd"))
        try:
            for path in asked:
                expected = answer(openat2.openat2, root, path, flags)
                assert answer(openat2_fallback.opened, root, path, flags) == expected, path
            assert sorted(os.listdir("/proc/self/fd")) == before
        finally:
            os.close(root)
