# SPDX-License-Identifier: Apache-2.0
"""The drop-in for ldconfig: read by the real one, and by us after a restart."""

import subprocess
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuhook.errors import GpuhookError
from gpuhook.loader import conf

names = st.binary(min_size=1, max_size=40).filter(lambda n: b"/" not in n)


def test_ldconfig_reads_the_drop_in(tmp_path: Path) -> None:
    """The real ldconfig finds a library of a directory that the drop-in names, and only that."""
    where = tmp_path / "opt/driver/lib"
    where.mkdir(parents=True)
    (tmp_path / "etc/ld.so.conf.d").mkdir(parents=True)
    (tmp_path / "x.c").write_text("int x;")
    for name in ("one", "two"):
        command = ["gcc", "-shared", "-nostdlib", f"-Wl,-soname,lib{name}.so.1", "-o"]
        folder = where if name == "one" else tmp_path
        subprocess.run([*command, f"{folder}/lib{name}.so.1", f"{tmp_path}/x.c"], check=True)
    (tmp_path / conf.MAIN[1:]).write_bytes(conf.INCLUDE)
    text = conf.render([b"/opt/driver/lib"], [(b"libtwo.so.1", b"/libtwo.so.1")])
    (tmp_path / conf.DROP_IN[1:]).write_bytes(text)
    subprocess.run(["ldconfig", "-X", "-r", str(tmp_path)], check=True)
    command = ["ldconfig", "-p", "-r", str(tmp_path)]
    listed = subprocess.check_output(command, text=True)
    assert "/opt/driver/lib/libone.so.1" in listed
    assert "libtwo" not in listed


def test_the_first_line_is_true_whenever_it_was_written() -> None:
    """A drop-in may be of the container's create, or of a later `gpuhook attach`."""
    first = conf.render([b"/a"], []).splitlines()[0]
    assert first == b"# Written by gpuhook, for ldconfig: where the GPU driver's libraries are."


@given(st.lists(st.tuples(names, names.map(lambda n: b"/" + n)), unique=True))
def test_libraries_come_back(libraries: list[tuple[bytes, bytes]]) -> None:
    """Whatever bytes the names hold, the record gives back what was written."""
    text = conf.render([b"/a"], libraries)
    assert conf.recorded(text) == libraries
    assert text.count(b"\n") == 2 + len(libraries)


@given(st.binary(max_size=300))
def test_forged_text_is_survived(junk: bytes) -> None:
    """A drop-in that an image forged gives no names that could not be a library's."""
    for soname, path in conf.recorded(b"# library " + junk.replace(b"\n", b"\n# library ")):
        assert b"/" not in soname
        assert path.startswith(b"/")


def test_bounds() -> None:
    """A huge drop-in is not believed, and no more than so many libraries are."""
    line = b"# library liba.so /liba.so\n"
    assert len(conf.recorded(line * 5000)) == conf.MAX_LIBRARIES
    assert conf.recorded(line * 50000) == []


@pytest.mark.parametrize("where", [b"a", b"/a b", b"/a#b", b"/a=b", b"/a\nb"])
def test_directory_that_ldconfig_would_misread(where: bytes) -> None:
    """A directory that ldconfig would cut or split is refused by name."""
    with pytest.raises(GpuhookError) as caught:
        conf.render([where], [])
    assert caught.value.code == "GH1604"


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        (conf.INCLUDE, True),
        (b"/lib\ninclude ld.so.conf.d/*.conf # all\n", True),
        (b"\tinclude  /etc/ld.so.conf.d/00-gpuhook.conf", True),
        (b"include /etc/*/00-gpuhook.conf", True),
        (b"#include /etc/ld.so.conf.d/*.conf\n", False),
        (b"include /etc/*.conf\n", False),
        (b"include /usr/etc/ld.so.conf.d/*.conf\n/lib\n", False),
        (b"", False),
    ],
)
def test_include_lines(text: bytes, answer: bool, tmp_path: Path) -> None:
    """Only an include line whose pattern covers our drop-in counts, as for the real ldconfig."""
    assert conf.includes_drop_ins(text) is answer
    (tmp_path / "etc/ld.so.conf.d").mkdir(parents=True)
    (tmp_path / "found").mkdir()
    (tmp_path / "etc/ld.so.conf").write_bytes(text)
    (tmp_path / conf.DROP_IN[1:]).write_bytes(b"/found\n")
    command = ["ldconfig", "-v", "-N", "-X", "-r", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert ("/found:" in done.stdout) is answer
