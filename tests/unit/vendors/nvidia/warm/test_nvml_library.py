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
def test_every_layout(tmp_path: Path, layout: layouts.Layout) -> None:
    """The library of each layout is found, by its file's own name."""
    made = make_node(tmp_path, "t4", layout=layout, real_nodes=False)
    assert nvml_library.find(made.driver_root) == made.nvml_library


def test_absolute_links_stay_inside_the_root(tmp_path: Path) -> None:
    """An absolute link leads to the driver root's file, not to the host's of that name."""
    root = tmp_path / "root"
    library = root / "opt/libnvidia-ml.so.580.95.05"
    library.parent.mkdir(parents=True)
    elf_maker.write(library, "libnvidia-ml.so.1")
    (root / "usr/lib64").mkdir(parents=True)
    (root / "usr/lib64/libnvidia-ml.so.1").symlink_to("/../opt/libnvidia-ml.so.580.95.05")
    assert nvml_library.find(str(root)) == str(library)


def test_links_in_a_circle(tmp_path: Path) -> None:
    """Links that lead to each other are no library, and no endless loop."""
    (tmp_path / "usr/lib64").mkdir(parents=True)
    (tmp_path / "usr/lib64/libnvidia-ml.so.1").symlink_to("/usr/lib64/other")
    (tmp_path / "usr/lib64/other").symlink_to("libnvidia-ml.so.1")
    with pytest.raises(GpuhookError) as caught:
        nvml_library.find(str(tmp_path))
    assert caught.value.code == "GH1200"


def test_no_driver_names_the_places(tmp_path: Path) -> None:
    """A root without a driver is refused with the root and the directories looked in."""
    with pytest.raises(GpuhookError) as caught:
        nvml_library.find(str(tmp_path), search_paths=("/opt/nvidia",))
    assert caught.value.code == "GH1200"
    for place in (str(tmp_path), "/opt/nvidia", "/usr/lib64", "/etc/ld.so.cache"):
        assert place in caught.value.message


def test_a_search_path_comes_first(tmp_path: Path) -> None:
    """A given directory wins over the usual ones."""
    for directory in ("usr/lib64", "opt/nvidia"):
        (tmp_path / directory).mkdir(parents=True)
        elf_maker.write(tmp_path / directory / "libnvidia-ml.so.1", "libnvidia-ml.so.1")
    found = nvml_library.find(str(tmp_path), search_paths=("/opt/nvidia",))
    assert found == str(tmp_path / "opt/nvidia/libnvidia-ml.so.1")


def test_a_library_by_its_path(tmp_path: Path) -> None:
    """An explicit library is taken as a path of the host; a missing one is named."""
    library = tmp_path / "libnvidia-ml.so.1"
    elf_maker.write(library, "libnvidia-ml.so.1")
    assert nvml_library.find("/nowhere", library=str(library)) == str(library)
    with pytest.raises(GpuhookError) as caught:
        nvml_library.find("/", library=str(tmp_path / "missing"))
    assert caught.value.code == "GH1201"


def test_an_odd_directory_by_the_loader_cache(tmp_path: Path) -> None:
    """A library in a directory that only the root's ld.so.cache knows is found."""
    library = tmp_path / "opt/odd/libnvidia-ml.so.580.95.05"
    library.parent.mkdir(parents=True)
    elf_maker.write(library, "libnvidia-ml.so.1")
    (tmp_path / "etc").mkdir()
    (tmp_path / "etc/ld.so.conf").write_text("/opt/odd\n", encoding="utf-8")
    subprocess.run(["/sbin/ldconfig", "-r", str(tmp_path)], check=True)
    assert nvml_library.find(str(tmp_path)) == str(library)


@pytest.mark.parametrize("content", [b"", b"glibc-ld.so.cache1.1", b"\xff" * 4096])
def test_a_broken_loader_cache(tmp_path: Path, content: bytes) -> None:
    """A loader cache that cannot be read ends in the usual fault, which names it."""
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
def test_the_version_in_a_file_name(path: str, version: str | None) -> None:
    """Only a dotted number is a driver version, not a SONAME's single digit."""
    assert nvml_library.version_of(path) == version
