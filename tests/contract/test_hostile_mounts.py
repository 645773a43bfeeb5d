# SPDX-License-Identifier: Apache-2.0
"""Mounts over mounts: a hook writes into file systems of the container only."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from gpuhook.kernel import mounts
from tests import private_machine
from tests.contract import roots
from tests.contract.bundles import Bundle, Bundles
from tests.contract.installation import CONTROL, Installation, asks
from tests.contract.runtimes import ENGINES, Result
from tests.contract.test_hostile import Canary, canary
from tests.contract.test_nvidia_names import foreign, named_bindir
from tests.contract.views import questions

__all__ = ["canary", "foreign", "named_bindir"]

TMPFS = {"type": "tmpfs", "source": "tmpfs", "options": ["mode=755"]}
CACHE = "/etc/ld.so.cache"


@pytest.fixture(params=["directory", "tmpfs", "inside"])
def volume(request: pytest.FixtureRequest, canary: Canary) -> Iterator[Path]:
    """Yield a directory on the host: on the root's file system, a tmpfs, or below a tmpfs."""
    if request.param == "directory":
        yield canary.path
        return
    place = Path("/dev/shm", f"gpuhook-test-{uuid4().hex[:12]}")
    place.mkdir()
    try:
        if request.param == "tmpfs":
            mount_for_the_first_process(place)
            if str(place) not in Path("/proc/1/mountinfo").read_text(encoding="utf-8"):
                pytest.skip("these tests have other mounts than the first process")
        shutil.copytree(canary.path, place, dirs_exist_ok=True, symlinks=True)
        yield place
    finally:
        if request.param == "tmpfs":
            mounts.umount2(str(place), mounts.MNT_DETACH)
            private_machine.on_machine(lambda: mounts.umount2(str(place), mounts.MNT_DETACH))
        shutil.rmtree(place)


def mount_for_the_first_process(place: Path) -> None:
    """Mount a tmpfs that the machine's first process sees too, unlike one of a container."""

    def mount_and_clone() -> int:
        mounts.mount("tmpfs", str(place), "tmpfs", 0)
        return mounts.clone(str(place), 0)

    tree = private_machine.on_machine(mount_and_clone)
    target = os.open(place, os.O_PATH | os.O_DIRECTORY)
    mounts.move_mount(tree, target, str(place))
    for fd in (tree, target):
        os.close(fd)


def with_mounts_at(made: Bundle, path: str, *mounts: dict[str, Any]) -> Bundle:
    """Replace the mounts below the path with these, each one over the one before."""
    config = made.config()
    config["mounts"] = [one for one in config["mounts"] if not one["destination"].startswith(path)]
    config["mounts"] += [{"destination": path, **one} for one in mounts]
    made.write(config)
    return made


def bind_mount(source: Path) -> dict[str, Any]:
    """Return a writable bind mount of a directory on the host."""
    return {"type": "bind", "source": str(source), "options": ["rbind", "rw", "rprivate"]}


def run_container(installation: Installation, engine: str, made: Bundle) -> Result:
    """Run a container by gpuhook-runtime, with the state directory for its hook."""
    return installation.run_with_state(made, engine)


def assert_not_written(volume: Path, before: dict[str, tuple[object, ...]]) -> None:
    """Assert that only empty files and directories were added, on which runtimes mount."""
    after = roots.listing(volume)
    assert {path: after.get(path) for path in before} == before
    new = [volume / path for path in after if path not in before]
    files = [path for path in new if path.is_symlink() or not path.is_dir()]
    assert [path for path in files if path.is_symlink() or path.stat().st_size] == []


@ENGINES
@pytest.mark.parametrize("spec", ["own", "nvidia"])
def test_hook_does_not_write_into_a_volume_over_a_tmpfs(
    spec: str,
    engine: str,
    volume: Path,
    request: pytest.FixtureRequest,
    apart: Installation,
    bundle_of: Bundles,
) -> None:
    """A tmpfs in config.json does not allow the hook to write into a volume mounted over it."""
    installation: Installation = request.getfixturevalue("foreign") if spec == "nvidia" else apart
    before = roots.listing(volume)
    made = with_mounts_at(
        bundle_of("debian", ["/probe"], asks("0")), "/etc", TMPFS, bind_mount(volume)
    )
    view = run_container(installation, engine, made).view
    assert set(view.gpus()) >= {*CONTROL, installation.device(0)}
    assert_not_written(volume, before)


@ENGINES
def test_hook_writes_into_a_tmpfs_over_a_volume(
    engine: str, volume: Path, node8: Installation, bundle_of: Bundles
) -> None:
    """The hook writes into a tmpfs of the container, whatever is below it."""
    before = roots.listing(volume)
    command = ["/probe", *questions(CACHE)]
    made = with_mounts_at(
        bundle_of("debian", command, asks("0")), "/etc", bind_mount(volume), TMPFS
    )
    view = run_container(node8, engine, made).view
    assert b"libcuda.so.1" in view.paths[CACHE].content
    assert_not_written(volume, before)


@ENGINES
def test_hook_does_not_change_the_mode_of_a_volume(
    engine: str, apart: Installation, volume: Path, bundle_of: Bundles
) -> None:
    """The hook chmod does not change the mode of a host directory at /dev."""
    apart.generate("--enable-hook", "chmod")
    (volume / "dri").mkdir(mode=0o700)
    before = roots.listing(volume)
    device = [{"path": "/dev/dri/card0", "type": "c", "major": 226, "minor": 0}]
    made = bundle_of("debian", ["/probe"], asks("1"), linux={"devices": device})
    run_container(apart, engine, with_mounts_at(made, "/dev", TMPFS, bind_mount(volume)))
    assert roots.listing(volume)["dri"] == before["dri"]
