# SPDX-License-Identifier: Apache-2.0
"""mountinfo lines as the kernel writes them."""

from __future__ import annotations

import os

from gpuhook.kernel import mountinfo

CONTENT = rb"""36 35 98:0 /mnt1 /mnt/a\040b\134c rw,noatime master:1 - ext3 /dev/root rw
40 36 0:31 /lib/libcuda.so.1//deleted /usr/lib/libcuda.so.1 ro,nosuid - overlay  rw,lowerdir=/a:/b
41 36 0:34 /docker/x /sys/fs/cgroup/cpu ro shared:9 propagate_from:2 - cgroup cgroup rw,cpu,cpuacct
"""


def test_parsed_lines() -> None:
    """Escapes are decoded, optional fields skipped, and removed sources reported."""
    first, second, third = mountinfo.parse(CONTENT)
    assert (first.id, first.root, first.target) == (36, "/mnt1", "/mnt/a b\\c")
    assert (first.options, first.fstype, first.is_deleted) == ("rw,noatime", "ext3", False)
    assert (second.root, second.is_deleted) == ("/lib/libcuda.so.1", True)
    assert second.features == ["rw", "lowerdir=/a:/b"]
    assert (third.fstype, third.root, third.features) == (
        "cgroup",
        "/docker/x",
        ["rw", "cpu", "cpuacct"],
    )


def test_line_of_a_mount() -> None:
    """A mount is found by its id alone, whatever other fields the line has."""
    for mount in mountinfo.parse(CONTENT):
        found = mountinfo.find(CONTENT, mount.id)
        assert found is not None
        assert (found.id, found.target, found.fstype) == (mount.id, mount.target, mount.fstype)
    assert [mountinfo.find(CONTENT, number) for number in (3, 6, 35, 400)] == [None] * 4
    assert mountinfo.find(b"", 36) is None


def test_mounts_of_this_machine() -> None:
    """Every mount is read, with the root among them."""
    with open("/proc/self/mountinfo", "rb") as file:
        content = file.read()
    mounts = mountinfo.parse(content)
    assert len(mounts) == content.count(b"\n")
    assert "/" in {mount.target for mount in mounts}
    assert all(os.path.isabs(mount.target) for mount in mounts)


def test_cache_does_not_mix_contents() -> None:
    """Each content has its own mounts, whatever was read before; the caller owns the list."""
    lines = CONTENT.splitlines(keepends=True)
    contents = [*lines, CONTENT, b"", *lines, CONTENT, lines[1] + lines[0]]
    for content in [*contents, *reversed(contents)]:
        found = mountinfo.parse(content)
        assert [mount.id for mount in found] == [int(line[:2]) for line in content.splitlines()]
        found.clear()
