# SPDX-License-Identifier: Apache-2.0
"""The device plugin's speed and size, measured from outside: a real process next to a kubelet.

Times are those of a caller on the socket, with gRPC on both sides, and the simulated kubelet on the
same cores.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import cycle
from pathlib import Path

from gpuhook.vendors.nvidia.inventory import dump_file
from gpuhook.vendors.nvidia.inventory.inventory import Node
from tests.bench import process_usage
from tests.bench.figure import Figure, milliseconds, percentiles
from tests.bench.nodes import INSTANCES, doubled, partitioned
from tests.kubelet.endpoint import Endpoint
from tests.kubelet.kubelet import Kubelet
from tests.kubelet.pod_resources import PodResources, pod
from tests.kubelet.process import GPU, TIME_SLICING, PluginProcess, plugin
from tests.simulated.node import make_node

WHOLE = "version: v1\n"
CDI = "cdi-annotations,cdi-cri"
# The plugin's check intervals: the default, and the shortest useful one.
INTERVALS = ("10s", "1s")
_CALLS, _WARM_UP = 1000, 50
_STARTS, _RESTARTS = 9, 15
_IDLE = 10.0  # seconds
_REPLICAS, _PODS, _SCRAPES = 64, 500, 10  # of the full node
_MIG = "nvidia.com/mig-1g.5gb"
_SETTLED = 1.0  # seconds after which a start is complete
_QUIET = 35.0  # seconds after which it waits longer for events of the driver


def figures(place: Path) -> Iterator[Figure]:
    """Measure all, with files below `place`."""
    eight = dump_file.load("h100x8")
    with Kubelet(place / "device-plugins") as kubelet:
        yield from _started(place / "start", eight, kubelet)
        yield from _allocations(place / "shared", eight, kubelet)
        yield from _whole(place / "whole", doubled(eight), kubelet)
        yield from _with_specs(place / "cdi", eight, kubelet)
        yield from _full(place / "full", partitioned(), kubelet)
        for interval in INTERVALS:
            yield from _idle(place / f"idle-{interval}", eight, kubelet, interval)


def _started(place: Path, node: Node, kubelet: Kubelet) -> Iterator[Figure]:
    """Start the plugin, then the kubelet, repeatedly."""
    took, worked = [], []
    with plugin(place, make_node(place / "node", node), kubelet) as running:
        kubelet.wait_for_devices(GPU, 32)
        for _ in range(_STARTS):
            running.stop()
            took.append(_until_registered(kubelet, running.start))
            worked.append(process_usage.cpu(running.pid))
        yield Figure("start to Register, 8 GPUs x 4", statistics.median(took), "ms", 500)
        yield Figure("the CPU time of that", statistics.median(worked), "ms")
        again = []
        for _ in range(_RESTARTS):
            kubelet.stop()
            again.append(_until_registered(kubelet, kubelet.start))
            kubelet.wait_for_devices(GPU, 32)
        yield Figure("kubelet's start to Register", statistics.median(again), "ms", 50)
        yield Figure("the longest of 15", max(again), "ms", 50)


def _until_registered(kubelet: Kubelet, begin: Callable[[], None]) -> float:
    """Return the milliseconds from the start of `begin` to the next registration."""
    before = len(kubelet.registrations)
    begun = time.perf_counter()
    begin()
    kubelet.wait_for(lambda: len(kubelet.registrations) > before, "a registration")
    return (time.perf_counter() - begun) * 1000


def _allocations(place: Path, node: Node, kubelet: Kubelet) -> Iterator[Figure]:
    """Measure Allocate and GetPreferredAllocation for replicas, and the process's memory."""
    text = TIME_SLICING.replace("replicas: 4", "replicas: 64")
    with plugin(place, make_node(place / "node", node), kubelet, text) as running:
        kubelet.wait_for_devices(GPU, 512)
        time.sleep(_SETTLED)
        yield _resident("memory after the start, 512 replicas", running)
        for _ in range(3):
            running.metrics()
        yield _resident("memory after scrapes of the metrics", running)
        endpoint = kubelet.endpoint(GPU)
        units = list(endpoint.devices)
        turns = cycle(units)
        took = _timed(lambda: endpoint.allocate([next(turns)]))
        yield from percentiles("Allocate, a replica of 512", took, 1, 3)
        yield _resident(f"memory after {_CALLS} allocations", running)
        yield from _preferences("8 GPUs x 64", endpoint, units, (1, 8, 500))


def _whole(place: Path, node: Node, kubelet: Kubelet) -> Iterator[Figure]:
    """Measure the same with 16 whole GPUs."""
    with plugin(place, make_node(place / "node", node), kubelet, WHOLE) as running:
        kubelet.wait_for_devices(GPU, 16)
        endpoint = kubelet.endpoint(GPU)
        units = list(endpoint.devices)
        took = _timed(partial(endpoint.allocate, units[:8]))
        yield from percentiles("Allocate, 8 whole GPUs", took, 1, 3)
        yield from _preferences("16 whole GPUs", endpoint, units, (1, 4, 8))
        for _ in range(3):
            running.metrics()
        yield _resident("memory with 16 whole GPUs, after all that", running)


def _with_specs(place: Path, node: Node, kubelet: Kubelet) -> Iterator[Figure]:
    """Measure the same with CDI specs."""
    simulated = make_node(place / "node", node)
    with plugin(place, simulated, kubelet, env={"DEVICE_LIST_STRATEGY": CDI}) as running:
        kubelet.wait_for_devices(GPU, 32)
        for _ in range(3):
            running.metrics()
        endpoint = kubelet.endpoint(GPU)
        units = list(endpoint.devices)
        for _ in range(200):
            endpoint.allocate(units[:1])
        yield _resident("memory with CDI specs, scrapes, allocations", running)


def _full(place: Path, node: Node, kubelet: Kubelet) -> Iterator[Figure]:
    """Measure the scrape of a full node, in the CPU time of the plugin."""
    shared = f"sharing: {{timeSlicing: {{resources: [{{name: {_MIG}, replicas: {_REPLICAS}}}]}}}}\n"
    text = f"version: v1\nflags: {{migStrategy: mixed}}\n{shared}"
    simulated = make_node(place / "node", node)
    socket = place / "pod-resources.sock"
    env = {"GPUHOOK_POD_RESOURCES_SOCKET": str(socket)}
    with PodResources(socket) as pods, plugin(place, simulated, kubelet, text, env) as running:
        count = len(node.gpus) * INSTANCES * _REPLICAS
        kubelet.wait_for_devices(_MIG, count)
        units = list(kubelet.endpoint(_MIG).devices)
        pods.pods = [
            pod("ml", f"train-{number}", "main", _MIG, [unit])
            for number, unit in enumerate(units[:: count // _PODS][:_PODS])
        ]
        took = []
        for _ in range(_SCRAPES):
            before = process_usage.cpu(running.pid)
            text = running.metrics()
            took.append(process_usage.cpu(running.pid) - before)
            if text.count("gpuhook_replica_holder{") != _PODS:
                raise RuntimeError(text)
        of = f"{count:,} replicas, {_PODS} pods"
        yield Figure(f"a scrape of the metrics, {of}, CPU time", min(took), "ms", 1000)
        yield Figure(f"memory after that, {of}", process_usage.resident(running.pid), "MB")


def _idle(place: Path, node: Node, kubelet: Kubelet, interval: str) -> Iterator[Figure]:
    """Measure the CPU time of an idle plugin."""
    simulated = make_node(place / "node", node)
    env = {"GPUHOOK_HEALTH_POLL_INTERVAL": interval}
    with plugin(place, simulated, kubelet, env=env) as running:
        kubelet.wait_for_devices(GPU, 32)
        time.sleep(_QUIET)
        before = process_usage.cpu(running.pid)
        time.sleep(_IDLE)
        used = process_usage.cpu(running.pid) - before
        budget = 10.0 if interval == INTERVALS[0] else None  # a thousandth of a core
        yield Figure(f"CPU in 10 idle seconds, a look every {interval}", used, "ms", budget)


def _preferences(
    name: str, endpoint: Endpoint, units: Sequence[str], sizes: Sequence[int]
) -> Iterator[Figure]:
    for size in sizes:
        took = _timed(partial(endpoint.preferred, units, (), size))
        yield from percentiles(f"GetPreferredAllocation, {size} of {name}", took, 2, None)


def _timed(call: Callable[[], object]) -> list[float]:
    """Return the milliseconds of many calls, without those of the first ones."""
    return milliseconds(_WARM_UP + _CALLS, call)[_WARM_UP:]


def _resident(what: str, running: PluginProcess) -> Figure:
    return Figure(what, process_usage.resident(running.pid), "MB", 55)
