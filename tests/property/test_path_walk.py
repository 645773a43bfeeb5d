# SPDX-License-Identifier: Apache-2.0
"""The fallback of openat2 returns the same results as the kernel, for any tree."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from hypothesis import example, given, settings
from hypothesis import strategies as st

from gpuhook.kernel import openat2, openat2_fallback
from tests.depth import depth

NAMES = st.sampled_from(["a", "b", "c", "etc", "missing"])
PARTS = st.one_of(NAMES, st.sampled_from(["..", ".", "", "proc/self"]))
WORDS = st.tuples(
    st.sampled_from(["", "/"]), st.lists(PARTS, min_size=1, max_size=6), st.sampled_from(["", "/"])
).map(lambda parts: parts[0] + "/".join(parts[1]) + parts[2])
# (path; "directory", "file", or the target of a link)
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


def outcome(call: object, root: int, path: str, flags: int) -> object:
    """Return inode and mode of the opened file, or number and path of the error."""
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


def create_tree(root: Path, entries: list[tuple[str, str]]) -> None:
    """Create the possible entries, in order."""
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


@settings(max_examples=depth(60, 300))
@given(ENTRIES, st.lists(WORDS, min_size=1, max_size=8), FLAGS)
@example([("a", "->b/"), ("b", "file")], ["a", "a/", "b/", "b/.", "/"], os.O_PATH)
@example([("a", "->a")], ["a", "a/b"], os.O_PATH)
@example([("a", "directory"), ("a/b", "->../../../../a")], ["a/b/b/b/", "a/b"], os.O_RDONLY)
def test_fallback_equals_openat2(
    entries: list[tuple[str, str]], paths: list[str], flags: int
) -> None:
    """The result is the same file or the same error."""
    with tempfile.TemporaryDirectory() as place:
        create_tree(Path(place), entries)
        root = os.open(place, os.O_PATH)
        before = sorted(os.listdir("/proc/self/fd"))
        try:
            for path in paths:
                expected = outcome(openat2.openat2, root, path, flags)
                assert outcome(openat2_fallback.opened, root, path, flags) == expected, path
            assert sorted(os.listdir("/proc/self/fd")) == before
        finally:
            os.close(root)
