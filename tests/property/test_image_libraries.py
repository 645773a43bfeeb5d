# SPDX-License-Identifier: Apache-2.0
"""The libraries of an image's directory, compared with the real ldconfig."""

from __future__ import annotations

import os
import subprocess
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory

from hypothesis import given, settings
from hypothesis import strategies as st

from gpuhook.apply.rootfs.root_directory import Root
from gpuhook.loader import image_libraries
from tests.simulated import elf_maker, elf_maker_32

NAMES = ["liba.so", "liba.so.1", "liba.so.1.2", "libab.so.1", "libb.so.2", "libb.so", "ld-x.so.1"]
NAMES += ["liba.so.1.#prelink#", "liba-x.1", "xliba.so.1", "liba.so.1.10", "libB.so.2"]
names = st.sampled_from(NAMES)
files = st.dictionaries(names, st.one_of(st.none(), names, st.just("32"), st.just("text")))
links = st.dictionaries(names, names)


@settings(max_examples=80)
@given(files=files, links=links)
def test_entries_equal_those_of_ldconfig(
    files: dict[str, str | None], links: dict[str, str]
) -> None:
    """Links that ldconfig would create are skipped."""
    with TemporaryDirectory() as place:
        directory = Path(place) / "lib"
        directory.mkdir()
        for name, soname in files.items():
            _write(directory / name, soname)
        for name, target in links.items():
            with suppress(FileExistsError):
                (directory / name).symlink_to(target)
        with Root(place) as root:
            ours = image_libraries.entries(root, "/lib", root.names("/lib"))
        assert set(ours) == _ldconfig_entries(Path(place))


def _write(path: Path, soname: str | None) -> None:
    if soname == "32":
        elf_maker_32.write(path, "libnarrow.so.1")
    elif soname == "text":
        path.write_text("/* GNU ld script */\n" * 20, encoding="utf-8")
    else:
        elf_maker.write(path, soname)


def _ldconfig_entries(place: Path) -> set[tuple[str, str]]:
    """Return the 64-bit entries of /lib in `place` that the real ldconfig writes."""
    (place / "conf").write_text("/lib\n", encoding="utf-8")
    options = ["-r", str(place), "-X", "-f", "/conf", "-C", "/cache"]
    subprocess.run(["ldconfig", *options], check=True, capture_output=True)
    printed = subprocess.check_output(
        ["ldconfig", "-r", str(place), "-C", "/cache", "-p"], text=True
    )
    entries = [line.split() for line in printed.splitlines() if "x86-64" in line]
    paths = {(words[0], words[-1]) for words in entries if words[-1].startswith("/lib/")}
    return {(name, path) for name, path in paths if os.path.lexists(place / path[1:])}


def test_directory_with_too_many_libraries_is_not_read(tmp_path: Path) -> None:
    names = [f"lib{number}.so" for number in range(image_libraries.MAX_LIBRARIES + 1)]
    (tmp_path / "lib").mkdir()
    elf_maker.write(tmp_path / "lib/lib0.so", None)
    with Root(str(tmp_path)) as root:
        assert image_libraries.entries(root, "/lib", names[:-1]) == [("lib0.so", "/lib/lib0.so")]
        assert image_libraries.entries(root, "/lib", names) == []
        # Those that are not requested are ignored.
        assert image_libraries.entries(root, "/lib", names, names[-1:]) != []
