# SPDX-License-Identifier: Apache-2.0
"""musl's path file."""

import pytest

from gpuhook.errors import GpuhookError
from gpuhook.loader import musl_path


def test_missing_file_gets_musls_default_directories() -> None:
    """A new file starts with the directories that musl searches without one."""
    assert (
        musl_path.merged(None, [b"/usr/lib64"]) == b"/lib\n/usr/local/lib\n/usr/lib\n/usr/lib64\n"
    )


@pytest.mark.parametrize(
    "text", [None, b"", b"/lib", b"/lib:/x:", b"/lib\n/x", b"/lib\n/x\0behind"]
)
def test_second_run_changes_nothing(text: bytes | None) -> None:
    """Existing directories are kept in front."""
    once = musl_path.merged(text, [b"/a", b"/b", b"/a"])
    assert musl_path.merged(once, [b"/b", b"/a"]) == once
    assert once.startswith((text or b"").partition(b"\0")[0])
    assert once.count(b"/a") == once.count(b"/b") == 1


def test_directories_are_added_before_a_nul() -> None:
    """musl stops at a NUL: the directories go before it, and the rest is kept."""
    assert musl_path.merged(b"/lib\0junk", [b"/a"]) == b"/lib\n/a\n\0junk"


@pytest.mark.parametrize("where", [b"relative", b"/with:colon", b"/with\nline"])
def test_invalid_directory_is_refused(where: bytes) -> None:
    """A directory that would be read as another one is refused by name."""
    with pytest.raises(GpuhookError) as caught:
        musl_path.merged(None, [where])
    assert caught.value.code == "GH1604"


def test_oversized_file_is_refused() -> None:
    with pytest.raises(GpuhookError) as caught:
        musl_path.merged(b"/lib\n" * 20000, [b"/a"])
    assert caught.value.code == "GH1601"
    assert caught.value.message.startswith("the musl path file of the image is ")


def test_musl_image_is_recognized_by_its_loader() -> None:
    """The loader's name also has the architecture."""
    assert musl_path.architectures(["libc.so", "ld-musl-x86_64.so.1"]) == ["x86_64"]
    assert musl_path.architectures(["ld-linux-x86-64.so.2", "ld-musl-.so.1", "ld-musl-x.so"]) == []
    assert musl_path.path_file("x86_64") == "/etc/ld-musl-x86_64.path"
    assert musl_path.path_file("i686") == "/etc/ld-musl-i386.path"
