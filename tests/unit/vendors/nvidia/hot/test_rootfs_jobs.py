# SPDX-License-Identifier: Apache-2.0
"""Which jobs the wrapper does in the root file system, and which are left to the hook."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from gpuhook.apply.rootfs.root_directory import Root
from gpuhook.apply.rootfs.rootfs_files import provide
from gpuhook.apply.spec.oci_spec import HOOK_MARK
from gpuhook.errors import GpuhookError
from gpuhook.loader import ld_cache_entries, ld_so_conf
from gpuhook.vendors.nvidia.hot.rootfs import rootfs_jobs, rootfs_plan
from gpuhook.vendors.nvidia.hot.rootfs.hook_args import Jobs

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
    """Do the jobs `todo` for a container with foreign mounts at `destinations`."""
    ours: Any = {"mounts": [{"hostPath": LIBRARY, "containerPath": LIBRARY}]}
    mounts = [{"destination": path} for path in (LIBRARY, *destinations)]
    whole = {"root": {"path": "root"}, "mounts": mounts, **spec}
    work = rootfs_jobs.RootfsWork()
    return rootfs_jobs.do(str(bundle), whole, ours, list(todo), engine=list(engine), work=work)


def found(bundle: Path) -> dict[str, str]:
    """Return the path of each library in the loader's cache; a later ldconfig must agree."""
    entries = ld_cache_entries.parse((bundle / "root/etc/ld.so.cache").read_bytes())
    places = {entry.soname.decode(): entry.path.decode() for entry in entries}
    files = [bundle / f"root{path}" for path in (ld_so_conf.FIRST, ld_so_conf.LAST)]
    lines = [line for file in files if file.exists() for line in file.read_text().splitlines()]
    named = [line for line in lines if not line.startswith("#")]
    assert sorted(named) == sorted({os.path.dirname(path) for path in places.values()})
    return places


BOTH = {"libcuda.so.1": "/usr/lib/libcuda.so.1", "libother.so.2": "/opt/other/libother.so.2"}


def link(bundle: Path) -> bool:
    return os.path.islink(bundle / "root/usr/lib/libcuda.so.1")


@pytest.mark.parametrize("mounts", [[], ["/proc", "/usr/libx", "/usr/lib/python3", "/etc/hosts"]])
def test_in_the_root(mounts: list[str], bundle: Path) -> None:
    """If no mount covers the written files, the wrapper writes them and no hook is needed."""
    outcome = done(bundle, *mounts)
    assert outcome.hooks == []
    assert link(bundle)


MOUNTS = (
    "/ /usr /usr/lib/ /lib //usr/./lib /lib/libcuda.so.1"
    " /etc /etc/ld.so.cache /etc//ld.so.conf /etc/ld.so.conf.d"
)


@pytest.mark.parametrize("mount", MOUNTS.split())
def test_below_a_mount(mount: str, bundle: Path) -> None:
    """What would be hidden is the hook's, however the mount's place is spelled."""
    (hook,) = done(bundle, mount).hooks
    assert hook["path"] == "/usr/bin/gpuhook-hook"
    assert hook["args"][:4] == ["gpuhook-hook", "apply", "--library", f"{LIBRARY}=libcuda.so.1"]
    assert hook["env"] == ["PATH=/usr/sbin:/usr/bin:/sbin:/bin", HOOK_MARK + "apply"]
    assert not link(bundle)


@pytest.mark.parametrize("root", [None, {}, {"path": ""}, {"path": 7}, {"path": "missing"}, "root"])
def test_no_root(root: object, bundle: Path) -> None:
    """A bundle without a usable root file system is GH1306 with its path."""
    with pytest.raises(GpuhookError) as caught:
        done(bundle, root=root)
    assert caught.value.code == "GH1306"
    assert str(bundle) in caught.value.message


def test_a_directory_of_the_image(bundle: Path) -> None:
    """A directory at a link's path is reported, and the container starts."""
    (bundle / "root/usr/lib/libcuda.so.1").mkdir()
    outcome = done(bundle)
    assert outcome.hooks == []
    assert outcome.left_out == ["/usr/lib/libcuda.so.1: the image has a directory there"]


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to become the container's root")
def test_files_belong_to_the_containers_root(bundle: Path) -> None:
    """With a user namespace what is made belongs to its root, and we are ourselves again."""
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
def test_a_root_that_is_not_the_containers(bundle: Path) -> None:
    """If the container's root may not write from outside, the hook tries from inside."""
    linux = {
        "namespaces": [{"type": "user"}],
        "uidMappings": [{"containerID": 0, "hostID": 100000, "size": 65536}],
        "gidMappings": [{"containerID": 0, "hostID": 100000, "size": 65536}],
    }
    (hook,) = done(bundle, linux=linux).hooks
    assert "--library" in hook["args"]
    assert os.geteuid() == 0


def test_two_jobs(bundle: Path) -> None:
    """Libraries of two specs are both found, and a second start changes nothing."""
    assert done(bundle, todo=[CUDA, OTHER]).hooks == []
    assert found(bundle) == BOTH
    files = [bundle / "root/etc/ld.so.cache", bundle / f"root{ld_so_conf.FIRST}"]
    once = [file.read_bytes() for file in files]
    assert done(bundle, todo=[CUDA, OTHER]).hooks == []
    assert [file.read_bytes() for file in files] == once


def test_a_spec_that_is_asked_for_no_more(bundle: Path) -> None:
    """Started again without one of its two specs, a container has nothing of that one left."""
    done(bundle, todo=[CUDA, OTHER])
    done(bundle, todo=[OTHER])
    assert found(bundle) == {"libother.so.2": BOTH["libother.so.2"]}


def test_hooks_do_all_or_nothing(bundle: Path) -> None:
    """A hook does not see the wrapper's work: with one job for a hook, all are."""
    hooks = done(bundle, "/opt/other", todo=[CUDA, OTHER]).hooks
    assert [hook["args"][3] for hook in hooks] == [
        f"{LIBRARY}=libcuda.so.1",
        "/opt/other/libother.so.2.0=libother.so.2",
    ]
    assert not link(bundle)


def test_an_engines_hook_with_other_libraries(bundle: Path) -> None:
    """It would take the wrapper's libraries for an older driver's: a hook does these as well."""
    (hook,) = done(bundle, engine=[OTHER]).hooks
    assert hook["args"][3] == f"{LIBRARY}=libcuda.so.1"
    assert not link(bundle)


def test_an_engines_hook_with_the_same_libraries(bundle: Path) -> None:
    """What it will add is not taken out before, and it finds its work done."""
    whole = Jobs("/usr/bin/gpuhook-hook")
    whole.libraries = [*CUDA.libraries, *OTHER.libraries]
    assert done(bundle, engine=[whole]).hooks == []
    assert found(bundle) == BOTH


@pytest.mark.parametrize("order", [[CUDA, OTHER], [OTHER, CUDA]])
def test_hooks_one_after_the_other(order: list[Jobs], bundle: Path) -> None:
    """Each hook of a container keeps what the others add, in whatever order they run."""
    with Root(str(bundle / "root")) as root:
        provide(
            root,
            rootfs_plan.rootfs_plan(root, [job("/usr/lib/libcuda.so.470.1", "libcuda.so.470")])[0],
        )
        for one in order:
            made, reasons = rootfs_plan.beside(root, one, [CUDA, OTHER])
            assert provide(root, made) == []
            assert reasons == []
    assert found(bundle) == BOTH
