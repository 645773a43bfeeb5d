# SPDX-License-Identifier: Apache-2.0
"""Nothing of a node remains on the machine, also when the test process is killed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from uuid import uuid4

import pytest

from tests.contract.build_cache import CHECKOUT
from tests.contract.runtimes import CGROUPS
from tests.waiting import eventually

# A node with a process of another session in a cgroup, as containers have them; $1 and $2 are its
# directories of cgroups.
NODE = """
set -e
mkdir "$2/own"
for cgroup in "$1" "$2/own"; do
    setsid sh -c 'echo $$ >"$1/cgroup.procs" && exec sleep infinity' sh "$cgroup" &
    until grep -q . "$cgroup/cgroup.procs"; do :; done
done
echo ready
exec sleep infinity
"""
TEST_PROCESS = """
import sys
from pathlib import Path
from tests.engines.node_process import first_process, node_process
place, cgroup, own, script, end = sys.argv[1:]
command = ["unshare", "--pid", "--fork", "sh", "-c", script, "sh", cgroup, own]
with node_process(command, {"PATH": "/usr/bin:/bin"}, Path(place), Path(own)) as (pid, process):
    assert process.stdout.readline() == "ready\\n"
    print(first_process(pid), flush=True)
    sys.stdin.read()
    if end == "error":
        raise ValueError("a failed test")
"""


@pytest.mark.parametrize("end", ["killed", "error", "left"])
def test_nothing_of_a_node_remains(tmp_path: Path, end: str) -> None:
    """Its processes, its directory, and the cgroups of its containers are gone."""
    place = tmp_path / "node"
    (place / "root").mkdir(parents=True)
    hierarchy = CGROUPS if (CGROUPS / "cgroup.controllers").exists() else CGROUPS / "devices"
    cgroup, own = (hierarchy / f"gpuhook-{uuid4().hex}" for _ in range(2))
    cgroup.mkdir()
    own.mkdir()
    words = [str(place), str(cgroup), str(own), NODE, end]
    with subprocess.Popen(
        [sys.executable, "-c", TEST_PROCESS, *words],
        cwd=CHECKOUT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        assert process.stdin is not None
        first = int(process.stdout.readline())
        assert cgroup.exists()
        if end == "killed":
            process.send_signal(signal.SIGKILL)
        else:
            process.stdin.close()
        process.wait(60)
    eventually(lambda: not place.exists(), "the end of the node")
    assert not os.path.exists(f"/proc/{first}")
    assert [path for path in (cgroup, own) if path.exists()] == []
