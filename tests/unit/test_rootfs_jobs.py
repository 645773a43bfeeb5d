# SPDX-License-Identifier: Apache-2.0
"""Which jobs the wrapper does in the root file system, and which are left to the hook."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from gpuhook.container.record import HOOK_MARK
from gpuhook.errors import GpuhookError
from gpuhook.programs import rootfs_jobs
from gpuhook.vendors.nvidia.jobs import Jobs

LIBRARY = "/usr/lib/libcuda.so.550.1"


@pytest.fixture
def bundle(tmp_path: Path) -> Path:
    """Return a bundle whose root file system has /usr/lib and a link /lib to it."""
    (tmp_path / "root/usr/lib").mkdir(parents=True)
    (tmp_path / "root/lib").symlink_to("usr/lib")
    return tmp_path


def done(bundle: Path, *destinations: str, **spec: Any) -> rootfs_jobs.Outcome:
    """Do the jobs of one library for a container with foreign mounts at `destinations`."""
    job = Jobs("/usr/bin/gpuhook-hook")
    job.libraries = [(LIBRARY, "libcuda.so.1")]
    ours: Any = {"mounts": [{"hostPath": LIBRARY, "containerPath": LIBRARY}]}
    mounts = [{"destination": path} for path in (LIBRARY, *destinations)]
    whole = {"root": {"path": "root"}, "mounts": mounts, **spec}
    return rootfs_jobs.do(str(bundle), whole, ours, [job], rootfs_jobs.Work())


def link(bundle: Path) -> bool:
    return os.path.islink(bundle / "root/usr/lib/libcuda.so.1")


@pytest.mark.parametrize("mounts", [[], ["/proc", "/usr/libx", "/usr/lib/python3", "/etc/hosts"]])
def test_in_the_root(mounts: list[str], bundle: Path) -> None:
    """Where no mount covers what is written, the wrapper does it and no hook is needed."""
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
    """A directory where a link should be is told, and stops nobody."""
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
    """Where the container's root may not write from here, the hook tries from inside."""
    linux = {
        "namespaces": [{"type": "user"}],
        "uidMappings": [{"containerID": 0, "hostID": 100000, "size": 65536}],
        "gidMappings": [{"containerID": 0, "hostID": 100000, "size": 65536}],
    }
    (hook,) = done(bundle, linux=linux).hooks
    assert "--library" in hook["args"]
    assert os.geteuid() == 0
