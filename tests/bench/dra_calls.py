# SPDX-License-Identifier: Apache-2.0
"""The DRA driver's speed and size: a real process, a simulated kubelet, an API server with TLS.

Times are the kubelet's, for all claims of a call.
"""

from __future__ import annotations

import itertools
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from gpuhook.dra.claims.claim import ClaimName
from tests.bench import process_usage
from tests.bench.figure import Figure, milliseconds, percentiles
from tests.cluster_api.cluster_server import Cluster, node, serving
from tests.kubelet.allocated_claims import result, stored, uid_of
from tests.kubelet.dra_kubelet import DraKubelet
from tests.kubelet.dra_process import NODE, DraProcess, dra_process
from tests.kubelet.pod_resources import PodResources, claiming_pod
from tests.simulated.node import make_node

_DRIVER = "gpu.nvidia.com"
_CLAIMS, _GPUS = 200, 8
_BATCH, _BATCHES = 64, 10
_STATUS = 3  # runs
# Each GPU can have all claims at once: what is measured is the driver, not the scheduler.
_CONFIG = """\
version: v1
sharing: {timeSlicing: {resources: [{name: nvidia.com/gpu, replicas: 128}]}}
"""


def figures(place: Path) -> Iterator[Figure]:
    """Measure all, with files below `place`."""
    account = place / "account"
    account.mkdir()
    with (
        serving(account, secure=True) as cluster,
        DraKubelet(place / "kubelet") as kubelet,
        dra_process(
            place / "driver", make_node(place / "node", "h100x8"), kubelet, cluster, _CONFIG
        ) as driver,
    ):
        cluster.store.add(node(NODE))
        kubelet.plugin(_DRIVER)
        yield from _one_by_one(kubelet, cluster)
        yield from _batches(kubelet, cluster)
        yield _status(driver, kubelet)
        yield _resident(driver)


def _one_by_one(kubelet: DraKubelet, cluster: Cluster) -> Iterator[Figure]:
    claims = [_claim(cluster, f"one-{number}", number) for number in range(_CLAIMS)]
    for what, call in (
        ("prepare a claim", "prepare"),
        ("prepare it again", "prepare"),
        ("unprepare it", "unprepare"),
    ):
        names = iter(claims)
        took = milliseconds(len(claims), lambda: _call(kubelet, call, next(names)))  # noqa: B023
        yield from percentiles(what, took)


def _batches(kubelet: DraKubelet, cluster: Cluster) -> Iterator[Figure]:
    numbers = itertools.count()
    batches = [
        [_claim(cluster, f"batch-{n}", n) for n in itertools.islice(numbers, _BATCH)]
        for _ in range(_BATCHES)
    ]
    left = iter(batches)
    took = milliseconds(_BATCHES, lambda: _call(kubelet, "prepare", *next(left)))
    yield Figure(f"prepare {_BATCH} claims in one call, median", sorted(took)[len(took) // 2], "ms")


def _status(driver: DraProcess, kubelet: DraKubelet) -> Figure:
    """Measure `gpuhook dra status` beside the claims of the batches, and a pod for each."""
    socket = kubelet.root / "pod-resources/kubelet.sock"
    socket.parent.mkdir()
    command = [sys.executable, "-m", "gpuhook", "dra", "status"]
    count, took = _BATCH * _BATCHES, []
    with PodResources(socket) as pods:
        pods.pods = [
            claiming_pod("default", f"train-{n}", f"batch-{n}", _DRIVER, f"gpu-{n % _GPUS}")
            for n in range(count)
        ]
        for _ in range(_STATUS):
            before = process_usage.of_children()
            text = subprocess.check_output(command, env=driver.env)
            took.append(process_usage.of_children() - before)
            if text.count(b"default/train-") != count:
                raise RuntimeError(text.decode())
    return Figure(f"gpuhook dra status, {count} claims and pods, CPU time", min(took), "ms", 1000)


def _resident(driver: DraProcess) -> Figure:
    return Figure("resident memory after all of that", process_usage.resident(driver.pid), "MB")


def _claim(cluster: Cluster, name: str, number: int) -> ClaimName:
    share: dict[str, Any] = {"shareID": uid_of(name), "consumedCapacity": {"slots": "1"}}
    return stored(cluster, name, result(f"gpu-{number % _GPUS}", **share))


def _call(kubelet: DraKubelet, call: str, *names: ClaimName) -> None:
    for uid, answer in getattr(kubelet, call)(_DRIVER, *names).items():
        if answer.error:
            raise RuntimeError(f"{call} {uid}: {answer.error}")
