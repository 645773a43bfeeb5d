# SPDX-License-Identifier: Apache-2.0
"""Whether a process is frozen; paused containers of real runtimes are in the contract tests."""

from __future__ import annotations

import pytest

from gpuhook.host.hot import files
from gpuhook.kernel import cgroup


def test_this_process_runs() -> None:
    """Whatever cgroups this machine has, who asks is not frozen."""
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
def test_cgroups_that_we_do_not_see(line: bytes) -> None:
    """A cgroup outside of what is mounted here holds nothing still, as far as we can tell."""
    assert not cgroup.is_frozen(line)
