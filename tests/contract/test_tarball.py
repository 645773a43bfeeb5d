# SPDX-License-Identifier: Apache-2.0
"""The tarball: the command line runs from any directory, and needs only a kernel."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import tarfile
from pathlib import Path

import pytest

from tests.contract import image, roots
from tests.contract.build_cache import CHECKOUT
from tests.contract.runtimes import Result, run_command

pytestmark = pytest.mark.contract


@pytest.fixture(scope="module")
def unpacked(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the unpacked tarball of the image's tree, in a directory with a space."""
    place = tmp_path_factory.mktemp("tarball")
    tarball = written(place / "one")
    assert written(place / "two").read_bytes() == tarball.read_bytes()
    said = Path(f"{tarball}.sha256").read_text(encoding="utf-8").split()
    assert said == [hashlib.sha256(tarball.read_bytes()).hexdigest(), tarball.name]
    target = place / "with space"
    target.mkdir()
    with tarfile.open(tarball) as archive:
        archive.extractall(target, filter="data")
    (found,) = target.iterdir()
    return found


def written(directory: Path) -> Path:
    tree = image.root() / "opt/gpuhook"
    command = [
        "/usr/bin/python3",
        str(CHECKOUT / "packaging/image/tarball.py"),
        "--tree",
        str(tree),
    ]
    done = run_command([*command, str(directory)])
    assert done.rc == 0, done.stderr
    return Path(done.stdout.strip())


def called(unpacked: Path, *words: str, at: Path | None = None) -> Result:
    return run_command([str(at or unpacked / "gpuhook"), *words], {"PATH": "/nowhere"})


def test_it_runs_from_its_directory(unpacked: Path, tmp_path: Path) -> None:
    """By its path, by a link, and without a variable of the caller."""
    link = tmp_path / "link"
    link.symlink_to(unpacked / "gpuhook")
    for program in (unpacked / "gpuhook", link):
        found = json.loads(called(unpacked, "version", "-o", "json", at=program).stdout)
        assert found["package"] == str(unpacked / "lib/gpuhook/gpuhook")
        assert found["interpreter"] == str(unpacked / "python/bin/python3")


def test_commands(unpacked: Path) -> None:
    """Those that need packages, data files, a child process, and the plugin's libraries."""
    assert "Tesla T4" in called(unpacked, "map", "--inventory", "t4").stdout
    spec = json.loads(called(unpacked, "generate-cdi", "--inventory", "t4", "-o", "json").stdout)
    assert spec["kind"] == "nvidia.com/gpu"
    assert "not applicable" in called(unpacked, "doctor", "--checks", "driver").stderr
    printed = called(unpacked, "device-plugin", "--print-config")
    assert printed.stdout.startswith("version: v1"), printed
    assert called(unpacked, "no-such-command").rc == 2


def test_host_needs_no_c_library(unpacked: Path, tmp_path: Path) -> None:
    """The root file system has the tarball alone: no shell, no loader, no /proc."""
    place = tmp_path / "root/place"
    place.parent.mkdir()
    subprocess.run(["cp", "-al", str(unpacked), str(place)], check=True)
    done = run_command(["/usr/sbin/chroot", str(tmp_path / "root"), "/place/gpuhook", "version"])
    assert done.stdout.startswith("gpuhook "), done
    assert "/place/python/bin/python3" in done.stdout


@pytest.mark.parametrize("name", ["debian", "musl", "distroless"])
def test_other_c_libraries(name: str, unpacked: Path, tmp_path: Path) -> None:
    """The loader and the libraries of the root file system do not matter."""
    place = roots.copy(name, tmp_path / "root")
    subprocess.run(["cp", "-al", str(unpacked), str(place / "gpuhook-tree")], check=True)
    done = run_command(["/usr/sbin/chroot", str(place), "/gpuhook-tree/gpuhook", "version"])
    assert done.stdout.startswith("gpuhook "), done


def test_documents_are_included(unpacked: Path) -> None:
    """The pages that hints of errors name, and the licence."""
    assert (unpacked / "docs/reference/configuration.md").is_file()
    assert (unpacked / "LICENSE").is_file()
    modes = {os.stat(path).st_mode & 0o777 for path in unpacked.rglob("*") if not path.is_symlink()}
    assert modes <= {0o644, 0o755}
