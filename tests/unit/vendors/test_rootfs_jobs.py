# SPDX-License-Identifier: Apache-2.0
"""The jobs that the wrapper does in the root file system, and those that it leaves to the hook."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from gpuhook.apply.rootfs.hook_args import Jobs
from gpuhook.apply.rootfs.root_directory import Root
from gpuhook.apply.rootfs.rootfs_files import provide
from gpuhook.apply.spec.oci_spec import HOOK_MARK
from gpuhook.errors import GpuhookError
from gpuhook.loader import ld_cache_entries, loader_paths
from gpuhook.vendors.hot import rootfs_jobs, rootfs_plan

LIBRARY = "/usr/lib/libcuda.so.550.1"


@pytest.fixture
def bundle(tmp_path: Path) -> Path:
    """Return a bundle whose root file system has /usr/lib and a link /lib to it."""
    (tmp_path / "root/usr/lib").mkdir(parents=True)
    (tmp_path / "root/lib").symlink_to("usr/lib")
    return tmp_path


def job(path: str, soname: str) -> Jobs:
    """Return the jobs of one library."""
    made = Jobs("/usr/bin/gpuhook-hook")
    made.libraries = [(path, soname)]
    return made


CUDA = job(LIBRARY, "libcuda.so.1")
OTHER = job("/opt/other/libother.so.2.0", "libother.so.2")


def done(
    bundle: Path,
    *destinations: str,
    todo: Sequence[Jobs] = (CUDA,),
    engine: Sequence[Jobs] = (),
    **spec: Any,
) -> rootfs_jobs.JobsOutcome:
    """Do the jobs `todo` for a container with other mounts at `destinations`."""
    ours: Any = {"mounts": [{"hostPath": LIBRARY, "containerPath": LIBRARY}]}
    mounts = [{"destination": path} for path in (LIBRARY, *destinations)]
    whole = {"root": {"path": "root"}, "mounts": mounts, **spec}
    work = rootfs_jobs.RootfsWork()
    return rootfs_jobs.do(str(bundle), whole, ours, list(todo), engine=list(engine), work=work)


def cached_libraries(bundle: Path) -> dict[str, str]:
    """Return the path of each library in the loader's cache; a later ldconfig must agree."""
    entries = ld_cache_entries.parse((bundle / "root/etc/ld.so.cache").read_bytes())
    places = {entry.soname.decode(): entry.path.decode() for entry in entries}
    files = [bundle / f"root{path}" for path in (loader_paths.FIRST, loader_paths.LAST)]
    lines = [line for file in files if file.exists() for line in file.read_text().splitlines()]
    named = [line for line in lines if not line.startswith("#")]
    assert sorted(named) == sorted({os.path.dirname(path) for path in places.values()})
    return places


BOTH = {"libcuda.so.1": "/usr/lib/libcuda.so.1", "libother.so.2": "/opt/other/libother.so.2"}


def link(bundle: Path) -> bool:
    return os.path.islink(bundle / "root/usr/lib/libcuda.so.1")


@pytest.mark.parametrize("mounts", [[], ["/proc", "/usr/libx", "/usr/lib/python3", "/etc/hosts"]])
def test_jobs_without_covering_mounts_are_done_by_the_wrapper(
    mounts: list[str], bundle: Path
) -> None:
    """No hook is needed then."""
    outcome = done(bundle, *mounts)
    assert outcome.hooks == []
    assert link(bundle)


MOUNTS = (
    "/ /usr /usr/lib/ /lib //usr/./lib /lib/libcuda.so.1"
    " /etc /etc/ld.so.cache /etc//ld.so.conf /etc/ld.so.conf.d"
)


@pytest.mark.parametrize("mount", MOUNTS.split())
def test_jobs_below_a_mount_are_left_to_the_hook(mount: str, bundle: Path) -> None:
    """However the path of the mount is spelled."""
    (hook,) = done(bundle, mount).hooks
    assert hook["path"] == "/usr/bin/gpuhook-hook"
    assert hook["args"][:4] == ["gpuhook-hook", "apply", "--library", f"{LIBRARY}=libcuda.so.1"]
    assert hook["env"] == ["PATH=/usr/sbin:/usr/bin:/sbin:/bin", HOOK_MARK + "apply"]
    assert not link(bundle)


@pytest.mark.parametrize("root", [None, {}, {"path": ""}, {"path": 7}, {"path": "missing"}, "root"])
def test_unusable_root_is_a_fault(root: object, bundle: Path) -> None:
    """A bundle without a usable root file system is GH1306 with its path."""
    with pytest.raises(GpuhookError) as caught:
        done(bundle, root=root)
    assert caught.value.code == "GH1306"
    assert str(bundle) in caught.value.message


def test_directory_in_place_of_a_link_is_reported(bundle: Path) -> None:
    """The container starts."""
    (bundle / "root/usr/lib/libcuda.so.1").mkdir()
    outcome = done(bundle)
    assert outcome.hooks == []
    assert outcome.left_out == ["/usr/lib/libcuda.so.1: the image has a directory there"]


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to become the container's root")
def test_files_belong_to_the_containers_root(bundle: Path) -> None:
    """In a user namespace; afterwards the wrapper has its own user again."""
    for path in (bundle / "root", bundle / "root/usr", bundle / "root/usr/lib"):
        os.chown(path, 100000, 100001)
    linux = {
        "namespaces": [{"type": "user"}],
        "uidMappings": [{"containerID": 0, "hostID": 100000, "size": 65536}],
        "gidMappings": [{"containerID": 0, "hostID": 100001, "size": 65536}],
    }
    assert done(bundle, linux=linux).hooks == []
    for name in ("usr/lib/libcuda.so.1", "etc", "etc/ld.so.cache"):
        found = os.lstat(bundle / "root" / name)
        assert (found.st_uid, found.st_gid) == (100000, 100001)
    assert (os.geteuid(), os.getegid()) == (0, 0)


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to become the container's root")
def test_root_that_is_not_writable_from_outside(bundle: Path) -> None:
    """If the container's root may not write from outside, the hook writes from inside."""
    linux = {
        "namespaces": [{"type": "user"}],
        "uidMappings": [{"containerID": 0, "hostID": 100000, "size": 65536}],
        "gidMappings": [{"containerID": 0, "hostID": 100000, "size": 65536}],
    }
    (hook,) = done(bundle, linux=linux).hooks
    assert "--library" in hook["args"]
    assert os.geteuid() == 0


def test_libraries_of_two_specs_are_found(bundle: Path) -> None:
    """A second start changes nothing."""
    assert done(bundle, todo=[CUDA, OTHER]).hooks == []
    assert cached_libraries(bundle) == BOTH
    files = [bundle / "root/etc/ld.so.cache", bundle / f"root{loader_paths.FIRST}"]
    once = [file.read_bytes() for file in files]
    assert done(bundle, todo=[CUDA, OTHER]).hooks == []
    assert [file.read_bytes() for file in files] == once


def test_removed_spec_leaves_no_entries(bundle: Path) -> None:
    """A container that is started again without one of its two specs has none of its entries."""
    done(bundle, todo=[CUDA, OTHER])
    done(bundle, todo=[OTHER])
    assert cached_libraries(bundle) == {"libother.so.2": BOTH["libother.so.2"]}


def test_jobs_are_all_done_by_the_hook_or_by_the_wrapper(bundle: Path) -> None:
    """A hook does not see the wrapper's work: with one job for a hook, all are."""
    hooks = done(bundle, "/opt/other", todo=[CUDA, OTHER]).hooks
    assert [hook["args"][3] for hook in hooks] == [
        f"{LIBRARY}=libcuda.so.1",
        "/opt/other/libother.so.2.0=libother.so.2",
    ]
    assert not link(bundle)


def test_hook_of_an_engine_with_other_libraries(bundle: Path) -> None:
    """It would treat the wrapper's libraries as an older driver's: a hook does these as well."""
    (hook,) = done(bundle, engine=[OTHER]).hooks
    assert hook["args"][3] == f"{LIBRARY}=libcuda.so.1"
    assert not link(bundle)


def test_hook_of_an_engine_with_the_same_libraries(bundle: Path) -> None:
    """The libraries that it will add are not removed first, and it changes nothing."""
    whole = Jobs("/usr/bin/gpuhook-hook")
    whole.libraries = [*CUDA.libraries, *OTHER.libraries]
    assert done(bundle, engine=[whole]).hooks == []
    assert cached_libraries(bundle) == BOTH


@pytest.mark.parametrize("order", [[CUDA, OTHER], [OTHER, CUDA]])
def test_hooks_run_in_any_order(order: list[Jobs], bundle: Path) -> None:
    """Each hook of a container keeps the entries of the others."""
    with Root(str(bundle / "root")) as root:
        provide(
            root,
            rootfs_plan.rootfs_plan(root, [job("/usr/lib/libcuda.so.470.1", "libcuda.so.470")])[0],
        )
        for one in order:
            made, reasons = rootfs_plan.beside(root, one, [CUDA, OTHER])
            assert provide(root, made) == []
            assert reasons == []
    assert cached_libraries(bundle) == BOTH
