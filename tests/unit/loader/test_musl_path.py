# SPDX-License-Identifier: Apache-2.0
"""musl's path file."""

import pytest

from gpuhook.errors import GpuhookError
from gpuhook.loader import musl_path


def test_missing_file_keeps_musls_own_directories() -> None:
    """A new file starts with the directories that musl searches without one."""
    assert (
        musl_path.merged(None, [b"/usr/lib64"]) == b"/lib\n/usr/local/lib\n/usr/lib\n/usr/lib64\n"
    )


@pytest.mark.parametrize(
    "text", [None, b"", b"/lib", b"/lib:/x:", b"/lib\n/x", b"/lib\n/x\0behind"]
)
def test_twice_is_once(text: bytes | None) -> None:
    """Adding the same directories again changes nothing, and what was there stays in front."""
    once = musl_path.merged(text, [b"/a", b"/b", b"/a"])
    assert musl_path.merged(once, [b"/b", b"/a"]) == once
    assert once.startswith((text or b"").partition(b"\0")[0])
    assert once.count(b"/a") == once.count(b"/b") == 1


def test_directories_land_in_what_musl_reads() -> None:
    """musl stops at a NUL, so the directories go before it and the rest survives."""
    assert musl_path.merged(b"/lib\0junk", [b"/a"]) == b"/lib\n/a\n\0junk"


@pytest.mark.parametrize("where", [b"relative", b"/with:colon", b"/with\nline"])
def test_unspeakable_directory(where: bytes) -> None:
    """A directory that would be read as another one is refused by name."""
    with pytest.raises(GpuhookError) as caught:
        musl_path.merged(None, [where])
    assert caught.value.code == "GH1604"


def test_oversized_file() -> None:
    """A path file beyond the bound is refused."""
    with pytest.raises(GpuhookError) as caught:
        musl_path.merged(b"/lib\n" * 20000, [b"/a"])
    assert caught.value.code == "GH1601"
    assert caught.value.message.startswith("the musl path file of the image is ")


def test_recognising_an_image() -> None:
    """The loader's name identifies a musl image and its architecture."""
    assert musl_path.architectures(["libc.so", "ld-musl-x86_64.so.1"]) == ["x86_64"]
    assert musl_path.architectures(["ld-linux-x86-64.so.2", "ld-musl-.so.1", "ld-musl-x.so"]) == []
    assert musl_path.path_file("x86_64") == "/etc/ld-musl-x86_64.path"
    assert musl_path.path_file("i686") == "/etc/ld-musl-i386.path"
