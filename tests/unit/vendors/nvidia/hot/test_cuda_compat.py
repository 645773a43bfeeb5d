# SPDX-License-Identifier: Apache-2.0
"""Images with a newer libcuda, and the host drivers that it is for."""

from __future__ import annotations

from pathlib import Path

import pytest

from gpuhook.apply.rootfs import hook_args
from gpuhook.apply.rootfs.root_directory import Root
from gpuhook.vendors.hot import rootfs_plan
from gpuhook.vendors.nvidia.hot.rootfs import cuda_compat
from tests.simulated import elf_maker

DIRECTORY = "/usr/local/cuda/compat"
DRIVER = "535.104.05"


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """Return a root file system with an empty compatibility directory."""
    (tmp_path / DIRECTORY[1:]).mkdir(parents=True)
    return tmp_path


def library(place: Path, version: str, note: bytes | None = None) -> None:
    """Add the libraries of one compatibility package to the image."""
    where = place / DIRECTORY[1:]
    held = note and elf_maker.Note(
        cuda_compat.NOTE_SECTION.decode(), cuda_compat.NOTE_OWNER.decode(), note
    )
    for name in ("libcuda", "libnvidia-ptxjitcompiler"):
        soname = name + ".so.1"
        elf_maker.write(where / f"{name}.so.{version}", soname, note=held or None)
        (where / soname).unlink(missing_ok=True)
        (where / soname).symlink_to(f"{name}.so.{version}")


def chosen(place: Path, driver: str = DRIVER) -> tuple[list[str], str]:
    """Return the SONAMEs that come first, or the reason why there are none."""
    with Root(str(place)) as root:
        found, reason = cuda_compat.libraries(root, DIRECTORY, root.names(DIRECTORY), driver)
    assert all(path == f"{DIRECTORY}/{name}" for name, path in found)
    return [name for name, _ in found], reason


ALL = ["libcuda.so.1", "libnvidia-ptxjitcompiler.so.1"]


@pytest.mark.parametrize(
    ("version", "driver", "fits"),
    [
        ("550.54.15", DRIVER, True),
        ("535.104.12", DRIVER, False),
        ("525.60.13", DRIVER, False),
        ("550.54.15", "550.54.15", False),
        ("1000.1", "999.1", True),
    ],
)
def test_package_without_a_note(version: str, driver: str, fits: bool, place: Path) -> None:
    """An older package fits if its major version is above the driver's."""
    library(place, version)
    assert chosen(place, driver) == (ALL if fits else [], "")


@pytest.mark.parametrize(
    ("note", "version", "fits"),
    [
        (b'{"Driver": ["535", "525"]}', "550.54.15", True),
        (b'{"Driver": [535]}', "550.54.15", True),
        (b'{"Driver": ["470"]}', "550.54.15", False),
        (b'{"Driver": ["535"]}', "535.54.03", False),
        (b'{"driver": ["535"]}', "535.200.01", True),
        (b'{"Driver": "535"}', "550.54.15", False),
        (b'{"CUDA": ["12"]}', "550.54.15", False),
        (b"[535]", "550.54.15", False),
        (b"no json", "550.54.15", False),
    ],
)
def test_package_with_a_note(note: bytes, version: str, fits: bool, place: Path) -> None:
    """The note must list the branch of the host driver, and the library must be newer."""
    library(place, version, note)
    assert chosen(place) == (ALL if fits else [], "")


def test_directory_without_libraries_has_no_message(place: Path) -> None:
    """An empty directory, or one with links only."""
    assert chosen(place) == ([], "")
    (place / DIRECTORY[1:] / "libcuda.so.1").symlink_to("libcuda.so.550.54.15")
    assert chosen(place) == ([], "")


def test_two_versions_are_ambiguous(place: Path) -> None:
    """None is used, and the reason is reported."""
    library(place, "550.54.15")
    library(place, "560.28.03")
    assert chosen(place) == ([], f"{DIRECTORY} holds 2 versions of libcuda")


@pytest.mark.parametrize(
    "version", ["²50.1", "\u0665\u0665\u0660.1", "x.y", "5" * 200 + ".1", "550..1"]
)
def test_invalid_versions_are_left_out(version: str, place: Path) -> None:
    """A file name of the image may have any form."""
    library(place, version)
    names, reason = chosen(place)
    assert names in ([], ALL)
    assert reason == ""


def test_invalid_libraries_are_left_out(place: Path) -> None:
    """A directory has a reason; a link out of the image is treated as missing."""
    (place / DIRECTORY[1:] / "libcuda.so.550.1").mkdir()
    names, reason = chosen(place)
    assert names == []
    assert f"{DIRECTORY}/libcuda.so.550.1" in reason
    (place / DIRECTORY[1:] / "libcuda.so.550.1").rmdir()
    (place / DIRECTORY[1:] / "libcuda.so.550.1").symlink_to("/proc/self/exe")
    assert chosen(place) == ([], "")


@pytest.mark.parametrize("version", ["550.54.15", "525.60.13"])
def test_fitting_libraries_precede_the_hosts(version: str, place: Path) -> None:
    """Others leave no file."""
    library(place, version)
    job = hook_args.Jobs("/h")
    job.libraries = [("/usr/lib/libcuda.so.535.104.05", "libcuda.so.1")]
    job.cuda_compat, job.driver_version = DIRECTORY, DRIVER
    with Root(str(place)) as root:
        whole, reasons = rootfs_plan.rootfs_plan(root, [job])
    paths = [path.decode() for name, path in whole.entries() if name == b"libcuda.so.1"]
    first = [f"{DIRECTORY}/libcuda.so.1"] if version == "550.54.15" else []
    assert paths == [*first, "/usr/lib/libcuda.so.1"]
    assert reasons == []


@pytest.mark.parametrize(
    ("note", "version", "driver", "cuda", "fits"),
    [
        (b'{"CUDA Version": "13.2"}', "1.1", "540.4.0", "12.6", True),
        (b'{"CUDA Version": "13.2", "Driver": []}', "1.1", "", "12.6", True),
        (b'{"CUDA Version": "12.10"}', "1.1", "540.4.0", "12.6", True),
        (b'{"CUDA Version": "12.6"}', "1.1", "540.4.0", "12.6", False),
        (b'{"CUDA Version": "12.2"}', "1.1", "540.4.0", "12.6", False),
        (b'{"CUDA Version": "13.2"}', "1.1", "540.4.0", "", False),
        (b'{"Driver": [540]}', "1.1", "540.4.0", "12.6", False),
        (b'{"CUDA Version": "' + b"9" * 5000 + b'"}', "1.1", "540.4.0", "12.6", False),
        (b"[13]", "1.1", "540.4.0", "12.6", False),
        (None, "1.1", "540.4.0", "12.6", False),
        (b'{"CUDA Version": "13.2", "Driver": []}', "590.44", "", "13.0", True),
        (None, "590.44", "", "13.0", False),
    ],
)
def test_cuda_versions_decide_without_a_driver_version(
    note: bytes | None, version: str, driver: str, cuda: str, fits: bool, place: Path
) -> None:
    """On a Tegra, and if the host's driver is unknown."""
    library(place, version, note)
    with Root(str(place)) as root:
        found, _ = cuda_compat.libraries(root, DIRECTORY, root.names(DIRECTORY), driver, cuda)
    assert [name for name, _ in found] == (ALL if fits else [])
