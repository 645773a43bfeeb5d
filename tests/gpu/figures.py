# SPDX-License-Identifier: Apache-2.0
"""Figures of a real GPU: what time slicing costs, and what a GPU adds to a container's start.

    python -m tests.gpu.figures

It needs root, a GPU that no other program uses, runc and gcc.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

from gpuhook.host.text_table import table
from tests.bench.figure import Figure
from tests.contract import roots
from tests.contract.bundles import Bundle, bundle
from tests.contract.installation import Installation, asks
from tests.contract.runtimes import run
from tests.demo import demo_node
from tests.waiting import eventually

PROBE = Path(__file__).with_name("compute_probe.c")
SECONDS = 10
STARTS = 30


def main() -> None:
    """Measure and print the figures."""
    with tempfile.TemporaryDirectory() as place:
        installation, is_real = demo_node.demo_installation(Path(place, "gpuhook"))
        if not is_real:
            sys.exit("this machine has no NVIDIA GPU")
        figures = [*starts(installation, Path(place)), *turns(installation, Path(place))]
    print(table(["", "measured", "budget", "met"], [figure.row() for figure in figures]))


def starts(installation: Installation, place: Path) -> list[Figure]:
    """Return the time of `true` in a container: by runc, and with a GPU by gpuhook-runtime."""
    root = roots.copy("debian", place / "start")
    made = bundle(place / "start-bundle", root, ["true"], asks("all"))
    ways: dict[str, Callable[[], object]] = {
        "container without a GPU, runc": lambda: run(made),
        "container with the GPU, gpuhook-runtime and runc": lambda: installation.run(made),
    }
    times: dict[str, list[float]] = {what: [] for what in ways}
    for _ in range(STARTS):
        for what, start in ways.items():
            before = time.monotonic()
            start()
            times[what].append(time.monotonic() - before)
    return [Figure(what, statistics.median(each) * 1000, "ms") for what, each in times.items()]


def turns(installation: Installation, place: Path) -> list[Figure]:
    """Return the kernels per second of containers that share the GPU, as parts of one's alone."""
    figures, alone = [], 0.0
    for count in (1, 2, 4):
        rates = computing(installation, place / f"of-{count}", count)
        alone = alone or sum(rates)
        figures += [
            Figure(f"{count} sharing: kernels of all", 100 * sum(rates) / alone, "%"),
            Figure(f"{count} sharing: kernels of the slowest", 100 * min(rates) / alone, "%"),
        ]
    return figures


def computing(installation: Installation, place: Path, count: int) -> list[float]:
    """Return the kernels per second of each of `count` containers that compute at once."""
    bundles = [_computing_bundle(installation, place / str(n), n) for n in range(count)]
    with ExitStack() as stack:
        containers = [stack.enter_context(installation.lifecycle(made)) for made in bundles]
        for container in containers:
            container.start()
        eventually(lambda: all("ready" in one.output for one in containers), "all contexts", 60)
        for number in range(count):
            (place / str(number) / "root/go").touch()
        eventually(lambda: all("kernels" in one.output for one in containers), "all counts", 60)
        words = [container.output.split() for container in containers]
    return [int(one[2]) / float(one[3]) for one in words]


def _computing_bundle(installation: Installation, place: Path, number: int) -> Bundle:
    root = roots.copy("debian", place / "root")
    program = str(root / "compute_probe")
    subprocess.run(["gcc", "-O2", "-o", program, str(PROBE), "-ldl"], check=True)
    replica = f"{installation.gpu(0).uuid}::{number}"
    return bundle(place / "bundle", root, ["/compute_probe", str(SECONDS)], asks(replica))


if __name__ == "__main__":
    main()
