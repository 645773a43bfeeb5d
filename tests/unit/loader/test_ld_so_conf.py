# SPDX-License-Identifier: Apache-2.0
"""The drop-in for ldconfig: read by the real ldconfig, and by gpuhook after a restart."""

import subprocess
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuhook.errors import GpuhookError
from gpuhook.loader import ld_so_conf, loader_paths

names = st.binary(min_size=1, max_size=40).filter(lambda n: b"/" not in n)


def test_ldconfig_reads_the_drop_in(tmp_path: Path) -> None:
    """The real ldconfig finds a library in a directory of the drop-in, and only that one."""
    where = tmp_path / "opt/driver/lib"
    where.mkdir(parents=True)
    (tmp_path / "etc/ld.so.conf.d").mkdir(parents=True)
    (tmp_path / "x.c").write_text("int x;")
    for name in ("one", "two"):
        command = ["gcc", "-shared", "-nostdlib", f"-Wl,-soname,lib{name}.so.1", "-o"]
        folder = where if name == "one" else tmp_path
        subprocess.run([*command, f"{folder}/lib{name}.so.1", f"{tmp_path}/x.c"], check=True)
    (tmp_path / loader_paths.MAIN[1:]).write_bytes(ld_so_conf.main(b"", with_last=False))
    text = ld_so_conf.first([b"/opt/driver/lib"], [], [(b"libtwo.so.1", b"/libtwo.so.1")])
    (tmp_path / loader_paths.FIRST[1:]).write_bytes(text)
    subprocess.run(["ldconfig", "-X", "-r", str(tmp_path)], check=True)
    command = ["ldconfig", "-p", "-r", str(tmp_path)]
    listed = subprocess.check_output(command, text=True)
    assert "/opt/driver/lib/libone.so.1" in listed
    assert "libtwo" not in listed


@given(st.lists(st.tuples(names, names.map(lambda n: b"/" + n)), unique=True))
def test_recorded_libraries_are_read_back(libraries: list[tuple[bytes, bytes]]) -> None:
    """Whatever bytes their names have."""
    text = ld_so_conf.first([b"/a"], [], libraries)
    assert ld_so_conf.recorded(text) == libraries
    assert text.count(b"\n") == 2 + len(libraries)


@given(st.binary(max_size=300))
def test_forged_drop_in_gives_no_invalid_names(junk: bytes) -> None:
    """A drop-in that an image forged has no names that a library cannot have."""
    for soname, path in ld_so_conf.recorded(b"# library " + junk.replace(b"\n", b"\n# library ")):
        assert b"/" not in soname
        assert path.startswith(b"/")


def test_size_and_number_are_bounded() -> None:
    """A huge drop-in is ignored, and the number of libraries is limited."""
    line = b"# library liba.so /liba.so\n"
    assert len(ld_so_conf.recorded(line * 5000)) == ld_so_conf.MAX_LIBRARIES
    assert ld_so_conf.recorded(line * 50000) == []


@pytest.mark.parametrize("where", [b"a", b"/a b", b"/a#b", b"/a=b", b"/a\nb"])
def test_invalid_directory_is_refused(where: bytes) -> None:
    """A directory that ldconfig would cut or split is refused by name."""
    with pytest.raises(GpuhookError) as caught:
        ld_so_conf.first([where], [], [])
    assert caught.value.code == "GH1604"


USUAL = b"include /etc/ld.so.conf.d/*.conf\n"
MAINS = [
    b"",
    b"# nothing\n",
    USUAL,
    b"/lib\ninclude ld.so.conf.d/*.conf # all\n",
    b"\tinclude  /etc/ld.so.conf.d/00-gpuhook.conf",
    b"include /etc/*/00-gpuhook.conf",
    b"#include /etc/ld.so.conf.d/*.conf\n",
    b"include /etc/*.conf\n",
    b"include /usr/etc/ld.so.conf.d/*.conf\n/lib\n",
    b"/own",
]


@pytest.mark.parametrize("has_last", [True, False])
@pytest.mark.parametrize("text", MAINS)
def test_directories_of_first_and_last(text: bytes, has_last: bool, tmp_path: Path) -> None:
    """The real ldconfig searches FIRST's directory before and LAST's after those of the image."""
    (tmp_path / "etc/ld.so.conf.d").mkdir(parents=True)
    for name in ("first", "own", "last"):
        (tmp_path / name).mkdir()
    (tmp_path / loader_paths.MAIN[1:]).write_bytes(ld_so_conf.main(text, with_last=has_last))
    (tmp_path / loader_paths.FIRST[1:]).write_bytes(ld_so_conf.first([b"/first"], [b"/last"], []))
    (tmp_path / loader_paths.LAST[1:]).write_bytes(ld_so_conf.last([b"/last"]))
    (tmp_path / "etc/ld.so.conf.d/image.conf").write_bytes(b"/own\n")
    command = ["ldconfig", "-v", "-N", "-X", "-r", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    lines = [line.partition(":")[0] for line in done.stdout.splitlines()]
    searched = [line for line in lines if line in ("/first", "/own", "/last")]
    assert searched[0] == "/first"
    assert not has_last or searched[-1] == "/last"
    assert ld_so_conf.main(
        ld_so_conf.main(text, with_last=has_last), with_last=has_last
    ) == ld_so_conf.main(text, with_last=has_last)


def test_ld_so_conf_without_drop_ins_includes_only_gpuhooks(tmp_path: Path) -> None:
    text = ld_so_conf.main(b"/own\n", with_last=False)
    assert text == b"include /etc/ld.so.conf.d/00-gpuhook.conf\n/own\n"


def test_a_directory_of_last_is_recorded() -> None:
    """A restart knows which directories are searched because of LAST."""
    text = ld_so_conf.first([b"/a"], [b"/usr/lib 64"], [])
    assert ld_so_conf.names_last(text, b"/usr/lib 64")
    assert not ld_so_conf.names_last(text, b"/usr/lib")
    assert not ld_so_conf.names_last(text, b"/a")
