# SPDX-License-Identifier: Apache-2.0
"""Whether a process is frozen; paused containers of real runtimes are in the contract tests."""

from __future__ import annotations

import pytest

from gpuhook.host.hot import files
from gpuhook.kernel import cgroup, mountinfo


def test_own_process_is_not_frozen() -> None:
    assert not cgroup.is_frozen(files.read("/proc/self/cgroup"))


@pytest.mark.parametrize(
    "line",
    [
        b"0::/../outside\n",
        b"0::/no-such-cgroup\n",
        b"7:freezer:/no/such\n",
        b"3:cpu,cpuacct:/a:b\n",
        b"1:name=systemd:/x\n",
        b"",
    ],
    ids=["outside", "v2", "v1", "controllers", "named", "none"],
)
def test_invisible_cgroup_is_not_frozen(line: bytes) -> None:
    """The state of a cgroup outside the mount is unknown."""
    assert not cgroup.is_frozen(line)


def test_mounts_are_read_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not once for each of the twelve lines that cgroup v1 has."""
    looks = []

    def parse(content: bytes) -> list[mountinfo.Mount]:
        looks.append(content)
        return []

    monkeypatch.setattr(mountinfo, "parse", parse)
    lines = b"".join(b"%d:c%d:/a\n" % (number, number) for number in range(12))
    assert not cgroup.is_frozen(lines)
    assert len(looks) == 1
