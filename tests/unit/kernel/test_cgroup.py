# SPDX-License-Identifier: Apache-2.0
"""The cgroup that controls a process's devices, from its cgroup file and the mounts."""

from __future__ import annotations

from pathlib import Path

import pytest

from gpuhook.kernel.cgroup import DeviceCgroup, own_cgroups

HYBRID = b"""\
31 23 0:28 / /sys/fs/cgroup rw,relatime - tmpfs tmpfs rw,mode=755
36 31 0:33 / /sys/fs/cgroup/devices rw,relatime shared:9 - cgroup cgroup rw,devices
40 31 0:37 / /sys/fs/cgroup/systemd rw,relatime - cgroup cgroup rw,name=systemd
41 31 0:38 / /sys/fs/cgroup/unified rw,relatime - cgroup2 cgroup2 rw
"""
V2 = b"31 23 0:28 / /sys/fs/cgroup rw,relatime - cgroup2 none rw\n"
INSIDE = b"36 31 0:33 /docker/ab /sys/fs/cgroup/dev\\040ices rw - cgroup cgroup rw,devices\n"
FILE = b"9:name=systemd:/s\n5:devices:/docker/ab/c\n4:memory:/m\n0::/u/x.scope\n"


@pytest.mark.parametrize(
    ("mountinfo", "version", "path", "top"),
    [
        (HYBRID, "v1", "/sys/fs/cgroup/devices/docker/ab/c", "/sys/fs/cgroup/devices"),
        (V2, "v2", "/sys/fs/cgroup/u/x.scope", "/sys/fs/cgroup"),
        (HYBRID + V2, "v2", "/sys/fs/cgroup/u/x.scope", "/sys/fs/cgroup"),
        (INSIDE, "v1", "/sys/fs/cgroup/dev ices/c", "/sys/fs/cgroup/dev ices"),
    ],
    ids=["hybrid", "v2", "v2-over-hybrid", "part-of-a-hierarchy"],
)
def test_hierarchy_that_controls_devices(
    mountinfo: bytes, version: str, path: str, top: str
) -> None:
    """v2 if it is mounted at /sys/fs/cgroup, else v1's devices controller, wherever it is."""
    found = DeviceCgroup.parse(FILE, mounts=mountinfo)
    assert found is not None
    assert (found.version, found.path, found.top) == (version, path, top)


@pytest.mark.parametrize(
    ("cgroup_file", "mountinfo"),
    [(FILE, b""), (b"5:devices:/other\n", INSIDE), (b"0::/../x\n", V2), (b"1:cpu:/\n", V2)],
    ids=["nothing-mounted", "outside-of-the-mount", "above-our-namespace", "not-named"],
)
def test_cgroup_that_is_not_visible(cgroup_file: bytes, mountinfo: bytes) -> None:
    """Without a hierarchy that controls devices, or outside the mount, there is none."""
    assert DeviceCgroup.parse(cgroup_file, mounts=mountinfo) is None


def test_path_that_the_kernel_cannot_show() -> None:
    """It has at most 4 KiB: the cgroups above a longer one are not computed."""
    assert DeviceCgroup.parse(b"0::" + b"/a" * 2048 + b"\n", mounts=V2) is not None
    assert DeviceCgroup.parse(b"0::" + b"/a" * 2049 + b"\n", mounts=V2) is None


def test_cgroups_above() -> None:
    """They end at the mounted one, which may be the process's own."""
    found = DeviceCgroup.parse(b"0::/a/b\n", mounts=V2)
    assert found is not None
    assert found.upwards() == ["/sys/fs/cgroup/a/b", "/sys/fs/cgroup/a", "/sys/fs/cgroup"]
    assert DeviceCgroup("v2", "/", "/sys/fs/cgroup", "/sys/fs/cgroup").upwards() == [
        "/sys/fs/cgroup"
    ]


def test_root_and_own_cgroup_are_no_container() -> None:
    """The root cgroup is no container's, nor is the cgroup of this process."""
    ours = Path("/proc/self/cgroup").read_bytes()
    assert DeviceCgroup.parse(b"0::/\n", mounts=V2) is None
    assert DeviceCgroup.parse(ours, mounts=V2) is None


def test_scope_above_cruns_cgroup() -> None:
    """It belongs to the container, too, and nothing above it; one with a nested container
    does not.
    """
    inside = b"0::/m.slice/libpod-x.scope/container/init.scope\n"
    found = DeviceCgroup.parse(inside, "/m.slice/libpod-x.scope/container", mounts=V2)
    assert found is not None
    scope = "/sys/fs/cgroup/m.slice/libpod-x.scope"
    assert found.own == [f"{scope}/container/init.scope", f"{scope}/container", scope]
    assert found.unit == "/m.slice/libpod-x.scope"
    nested = DeviceCgroup.parse(b"0::/docker-z.scope/inner\n", "/docker-z.scope/inner", mounts=V2)
    assert nested is not None
    assert nested.own == ["/sys/fs/cgroup/docker-z.scope/inner"]


@pytest.mark.parametrize(
    ("recorded", "own"),
    [
        ("/a/b/c", ["/a/b/c"]),
        ("/a/b", ["/a/b/c", "/a/b"]),
        ("/a", ["/a/b/c", "/a/b", "/a"]),
        ("/a/b/other", None),
        ("/a/b/cc", None),
        ("/", None),
        ("", None),
    ],
)
def test_cgroup_in_the_runtimes_state(recorded: str, own: list[str] | None) -> None:
    """The container has that cgroup and those below it on the way to the process."""
    found = DeviceCgroup.parse(b"0::/a/b/c\n", recorded, mounts=V2)
    if own is None:
        assert found is None
        return
    assert found is not None
    assert found.own == [f"/sys/fs/cgroup{path}" for path in own]
    assert found.unit == recorded


@pytest.mark.parametrize(
    ("upwards", "count"),
    [
        (["/c/pods/x", "/c/pods", "/c"], 1),
        (["/c/s.slice/x.scope", "/c/s.slice", "/c"], 1),
        (["/c/x.scope/container", "/c/x.scope", "/c"], 2),
        (["/c/session-1.scope/a/mine", "/c/session-1.scope/a", "/c/session-1.scope", "/c"], 1),
        (["/c"], 1),
    ],
    ids=["cgroupfs", "systemd", "crun", "below-a-session", "root"],
)
def test_cgroups_of_a_container(upwards: list[str], count: int) -> None:
    """They are its scope and the cgroups below, or that of its process."""
    assert own_cgroups(upwards) == upwards[:count]
