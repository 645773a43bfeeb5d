# SPDX-License-Identifier: Apache-2.0
"""The clock of the node jumps, ten years forward or a year back: between runs, and in the plugin.

What the commands do depends on no difference of two times of the clock, and no age is negative.
"""

from __future__ import annotations

import json
import os
import time

import pytest

from tests.contract.bundles import Bundles
from tests.contract.conftest import apart, as_root, bindir, bundle_of, machine, node8, root_of
from tests.contract.installation import Installation, asks
from tests.contract.runtimes import Result, run_command
from tests.depth import cases
from tests.kubelet.kubelet import Kubelet
from tests.kubelet.process import GPU
from tests.kubelet.running import Run
from tests.simulated import build

__all__ = ["apart", "as_root", "bindir", "bundle_of", "machine", "node8", "root_of"]

DAY = 24 * 3600
JUMPS = {"forward": 3650, "back": -365}  # in days


def clock(name: str) -> dict[str, str]:
    """Return the variables of a program whose clock has jumped; CLOCK_MONOTONIC has not."""
    return {"LD_PRELOAD": str(build.clock_jump()), "CLOCK_JUMP": str(JUMPS[name] * DAY)}


@pytest.mark.parametrize("name", cases(JUMPS, ["back"]))
def test_commands(name: str, apart: Installation, bundle_of: Bundles) -> None:
    """A spec and an entry of before the jump are current, and those of after it before it."""

    def gpuhook(*words: str, jumped: bool = True) -> Result:
        env = {**os.environ, **apart.env, **(clock(name) if jumped else {})}
        return run_command([str(apart.bindir / "gpuhook"), *words], env)

    def create(identity: str, *, jumped: bool) -> None:
        made = bundle_of("debian", ["/probe"], asks("0"))
        env = {**os.environ, **apart.on("/bin/true"), **(clock(name) if jumped else {})}
        words = ["--root", str(made.path / "state"), "create", "--bundle", str(made.path)]
        done = run_command([apart.runtime, *words, identity], env)
        assert done.rc == 0, done
        assert "nvidia0" in made.file.read_text("utf-8")

    before = apart.spec.read_bytes()
    create("before", jumped=False)
    create("after", jumped=True)
    assert apart.spec.read_bytes() == before
    entries = {
        entry["id"]: entry["since"]
        for path in (apart.state / "containers").iterdir()
        if "since" in (entry := json.loads(path.read_text("utf-8")))
    }
    assert abs(entries["after"] - entries["before"] - JUMPS[name] * DAY) < DAY
    for jumped in (True, False):
        assert gpuhook("refresh", jumped=jumped).rc == 0
        assert apart.spec.read_bytes() == before
        done = gpuhook("ps", "--recorded", jumped=jumped)
        assert done.rc == 0, done
        assert "-" not in "".join(line.split()[-2] for line in done.stdout.splitlines()[1:]), done
    words = ["generate-cdi", *apart.node.options, "--output-file", str(apart.specs / "again.yaml")]
    assert gpuhook(*words).rc == 0
    usual = gpuhook("doctor", "-o", "json", jumped=False)
    later = gpuhook("doctor", "-o", "json")
    assert _verdicts(usual) == _verdicts(later)


def _verdicts(done: Result) -> dict[str, str]:
    return {one["id"]: one["status"] for one in json.loads(done.stdout)["results"]}


@pytest.mark.parametrize("name", cases(JUMPS, []))
def test_plugin(name: str, run: Run, kubelet: Kubelet) -> None:
    """It starts, offers, allocates and ends."""
    running = run(**clock(name))
    kubelet.wait_for_devices(GPU, 4)
    kubelet.allocate(GPU, 1)
    assert running.metrics()
    assert running.stop() == 0
    stamps = [line["time"] for line in running.log() if "time" in line]
    assert not stamps or str(time.gmtime(time.time() + JUMPS[name] * DAY).tm_year) in str(stamps[0])
