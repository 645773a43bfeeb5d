# SPDX-License-Identifier: Apache-2.0
"""The device plugin of a full node, 7,168 replicas of 112 MIG instances, under many calls."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.bench.nodes import INSTANCES, partitioned
from tests.faults import vitals
from tests.faults.vitals import Vitals
from tests.figures import Figures
from tests.kubelet.kubelet import Kubelet
from tests.kubelet.process import plugin
from tests.kubelet.running import kubelet
from tests.simulated.node import make_node
from tests.waiting import eventually

__all__ = ["kubelet"]
CALLS = 100
REPLICAS = 64
SLICE = "nvidia.com/mig-1g.5gb"
CONFIG = f"""\
version: v1
flags:
  migStrategy: mixed
sharing:
  timeSlicing:
    resources:
    - name: {SLICE}
      replicas: {REPLICAS}
"""


@pytest.mark.thorough
@pytest.mark.soak
def test_calls_at_once(tmp_path: Path, kubelet: Kubelet, figures: Figures) -> None:
    """100 Allocates, 100 GetPreferredAllocations and 100 streams at once are all answered."""
    facts = partitioned()
    count = len(facts.gpus) * INSTANCES * REPLICAS
    node = make_node(tmp_path / "node", facts)
    with plugin(tmp_path / "plugin", node, kubelet, CONFIG) as running:
        kubelet.wait_for_devices(SLICE, count)
        endpoint = kubelet.endpoint(SLICE)
        units = list(endpoint.devices)

        def call(number: int) -> None:
            (answer,) = endpoint.allocate([units[number * 71 % count]]).container_responses
            uuid = units[number * 71 % count].partition("::")[0]
            assert uuid in answer.envs["NVIDIA_VISIBLE_DEVICES"]
            assert len(endpoint.preferred(units, (), 8)) == 8

        def burst() -> Vitals:
            with ThreadPoolExecutor(CALLS) as threads:
                streams = [kubelet.watch(SLICE) for _ in range(CALLS)]
                list(threads.map(call, range(CALLS)))
                eventually(lambda: all(stream.lists for stream in streams))
                assert {len(stream.lists[-1]) for stream in streams} == {count}
                busy = vitals.read(running.pid)
                for stream in streams:
                    stream.cancel()
            return busy

        before = vitals.read(running.pid)
        burst()  # it needs memory, which the process keeps; the next ones need no more
        kept = vitals.read(running.pid)
        for _ in range(2):
            burst()
        busy = burst()
        vitals.check(running, kept)
        after = vitals.read(running.pid)
    figures.record("replicas of the node", str(count))
    figures.record("calls of each kind at once", str(CALLS))
    figures.record("MiB before, meanwhile, after", f"{before.mib}, {busy.mib}, {after.mib}")
    figures.record("threads before, meanwhile", f"{before.threads}, {busy.threads}")
