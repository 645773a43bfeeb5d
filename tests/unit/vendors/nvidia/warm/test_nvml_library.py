# SPDX-License-Identifier: Apache-2.0
"""The path of libnvidia-ml.so.1 below a driver root."""

from __future__ import annotations

import subprocess

import pytest

from gpuhook.errors import GpuhookError
from gpuhook.vendors.nvidia.warm import nvml_library
from tests.simulated import elf_maker, layouts
from tests.simulated.node import make_node

TYPE_CHECKING = False
if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize("layout", layouts.LAYOUTS)
def test_library_is_found_in_every_layout(tmp_path: Path, layout: layouts.Layout) -> None:
    """By its file's own name."""
    made = make_node(tmp_path, "t4", layout=layout, real_nodes=False)
    assert nvml_library.find(made.driver_root) == made.nvml_library


def test_absolute_links_stay_inside_the_root(tmp_path: Path) -> None:
    """An absolute link leads to the driver root's file, not to the host's."""
    root = tmp_path / "root"
    library = root / "opt/libnvidia-ml.so.580.95.05"
    library.parent.mkdir(parents=True)
    elf_maker.write(library, "libnvidia-ml.so.1")
    (root / "usr/lib64").mkdir(parents=True)
    (root / "usr/lib64/libnvidia-ml.so.1").symlink_to("/../opt/libnvidia-ml.so.580.95.05")
    assert nvml_library.find(str(root)) == str(library)


def test_circular_links_are_no_library(tmp_path: Path) -> None:
    """They cause no endless loop."""
    (tmp_path / "usr/lib64").mkdir(parents=True)
    (tmp_path / "usr/lib64/libnvidia-ml.so.1").symlink_to("/usr/lib64/other")
    (tmp_path / "usr/lib64/other").symlink_to("libnvidia-ml.so.1")
    with pytest.raises(GpuhookError) as caught:
        nvml_library.find(str(tmp_path))
    assert caught.value.code == "GH1200"


def test_missing_driver_lists_the_searched_directories(tmp_path: Path) -> None:
    """The fault has the root, too."""
    with pytest.raises(GpuhookError) as caught:
        nvml_library.find(str(tmp_path), search_paths=("/opt/nvidia",))
    assert caught.value.code == "GH1200"
    for place in (str(tmp_path), "/opt/nvidia", "/usr/lib64", "/etc/ld.so.cache"):
        assert place in caught.value.message


def test_search_path_takes_precedence(tmp_path: Path) -> None:
    for directory in ("usr/lib64", "opt/nvidia"):
        (tmp_path / directory).mkdir(parents=True)
        elf_maker.write(tmp_path / directory / "libnvidia-ml.so.1", "libnvidia-ml.so.1")
    found = nvml_library.find(str(tmp_path), search_paths=("/opt/nvidia",))
    assert found == str(tmp_path / "opt/nvidia/libnvidia-ml.so.1")


def test_explicit_library_is_a_path_of_the_host(tmp_path: Path) -> None:
    """A missing one is a fault with the path."""
    library = tmp_path / "libnvidia-ml.so.1"
    elf_maker.write(library, "libnvidia-ml.so.1")
    assert nvml_library.find("/nowhere", library=str(library)) == str(library)
    with pytest.raises(GpuhookError) as caught:
        nvml_library.find("/", library=str(tmp_path / "missing"))
    assert caught.value.code == "GH1201"


def test_unusual_directory_is_found_in_the_loader_cache(tmp_path: Path) -> None:
    """The directory is only in the root's ld.so.cache."""
    library = tmp_path / "opt/odd/libnvidia-ml.so.580.95.05"
    library.parent.mkdir(parents=True)
    elf_maker.write(library, "libnvidia-ml.so.1")
    (tmp_path / "etc").mkdir()
    (tmp_path / "etc/ld.so.conf").write_text("/opt/odd\n", encoding="utf-8")
    subprocess.run(["/sbin/ldconfig", "-r", str(tmp_path)], check=True)
    assert nvml_library.find(str(tmp_path)) == str(library)


@pytest.mark.parametrize("content", [b"", b"glibc-ld.so.cache1.1", b"\xff" * 4096])
def test_broken_loader_cache_is_a_fault(tmp_path: Path, content: bytes) -> None:
    """The usual fault, which names the cache."""
    (tmp_path / "etc").mkdir()
    (tmp_path / "etc/ld.so.cache").write_bytes(content)
    with pytest.raises(GpuhookError) as caught:
        nvml_library.find(str(tmp_path))
    assert caught.value.code == "GH1200"


@pytest.mark.parametrize(
    ("path", "version"),
    [
        ("/usr/lib64/libnvidia-ml.so.580.95.05", "580.95.05"),
        ("/usr/lib64/libnvidia-ml.so.470.82", "470.82"),
        ("/usr/lib64/libnvidia-ml.so.1", None),
        ("/usr/lib64/libnvidia-ml.so", None),
        ("/usr/lib64/libnvidia-ml.so.580.old", None),
    ],
)
def test_version_in_a_file_name(path: str, version: str | None) -> None:
    """Only a dotted number is a driver version, not a SONAME's single digit."""
    assert nvml_library.version_of(path) == version
