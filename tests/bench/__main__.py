# SPDX-License-Identifier: Apache-2.0
"""`make bench`: the cost of a container start, as ratios, and the cost of the device plugin."""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from gpuhook.host.text_table import table
from tests.bench import cases, commands, dra_calls, nri_calls, plugin
from tests.bench.figure import Figure
from tests.bench.measure import Case, interleaved
from tests.bench.stage import stage, unmount_below
from tests.figures import PLACE, write


@dataclass(frozen=True)
class Ratio:
    """One line: the time of `what` as a multiple of the time of `of`, and its budget."""

    what: str
    of: str
    budget: float | None


_INSIDE = "GPUHOOK_BENCH_NAMESPACE"
PYTHON, RUNC, CRUN = "bare interpreter", "bare runc create", "bare crun create"
LINES = (
    Ratio("pass-through", PYTHON, 0.25),
    Ratio("create, no GPU requested", PYTHON, 0.4),
    Ratio("create alone, 8 GPUs", PYTHON, 1.7),
    Ratio("create alone, required", "create alone, 8 GPUs", 1.1),
    Ratio("whole create, runc", RUNC, 1.8),
    Ratio("prestart hook, runc", RUNC, None),
    Ratio("prestart hook, no GPU requested", RUNC, None),
    Ratio("whole create, crun", CRUN, 2.0),
    Ratio("whole create, 0.1 CPU", "bare runc create, 0.1 CPU", 1.9),
    Ratio("create with a limit", "create, cgroup v2", None),
    Ratio("32 creates at once", "32 bare creates at once", 1.9),
    Ratio("create alone, 16 x 7 MIG", "create alone, 1 GPU", 1.1),
    Ratio("create alone, 1,000 other specs", "create alone, 1 GPU", None),
    Ratio("podman, gpuhook's CDI spec", "podman, no device", None),
    Ratio("life of a container", "life under bare runc", None),
)

# Of the services, by the name of the file of figures.
_SERVICES = {
    "bench_plugin": plugin.figures,
    "bench_dra": dra_calls.figures,
    "bench_nri": nri_calls.figures,
}


def main() -> None:
    """Measure and print the tables."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench", description=__doc__)
    parser.add_argument("--rounds", type=int, default=25, help="runs of each case (default 25)")
    parser.add_argument(
        "--plugin", action="store_true", help="the device plugin, DRA driver and NRI plugin alone"
    )
    parser.add_argument("--commands", action="store_true", help="the commands alone")
    parser.add_argument("--figures", action="store_true", help="write them to docs, too")
    options = parser.parse_args()
    is_all = not (options.plugin or options.commands)
    if not options.plugin and os.geteuid() != 0:
        parser.error("real runtimes need root")
    # First: containers are measured in another mount namespace, in which this program starts again.
    if options.commands or (is_all and os.environ.get(_INSIDE) != "1"):
        rows = _figures(commands.figures)
        print(flush=True)
        if options.figures:
            _write("bench_commands", _without_verdict(rows))
    if is_all:
        rows = _containers(options.rounds)
        print()
        if options.figures:
            ratios = [(row[0], f"{row[2]} {row[3]}", *row[4:]) for row in rows]
            _write("bench_containers", _without_verdict(ratios))
    for name, measure in _SERVICES.items():
        if is_all or options.plugin:
            rows = _figures(measure)
            print(flush=True)
            if options.figures:
                _write(name, _without_verdict(rows))


def _without_verdict(rows: Iterable[tuple[str, ...]]) -> list[tuple[str, str, str]]:
    """Return name, figure and limit of each row; a limit that is not met says so."""
    return [
        (what, value, f"{limit}, not met" if met == "NO" else limit)
        for what, value, limit, met in rows
    ]


def _write(name: str, rows: list[tuple[str, str, str]]) -> None:
    """Replace a file of figures for the documentation."""
    path = PLACE / f"{name}.json"
    path.unlink(missing_ok=True)
    for what, value, limit in rows:
        write(path, what, value, limit, "make bench")


def _figures(measure: Callable[[Path], Iterator[Figure]]) -> list[tuple[str, ...]]:
    """Measure, print and return the rows of a table."""
    with tempfile.TemporaryDirectory(prefix="gpuhook-bench-") as place:
        rows: list[tuple[str, ...]] = []
        for figure in measure(Path(place)):
            print(f"measured {figure.what}", file=sys.stderr)
            rows.append(figure.row())
    print(table(("WHAT", "MEASURED", "BUDGET", "MET"), rows), end="")
    return rows


def _containers(rounds: int) -> list[tuple[str, ...]]:
    """Measure, print and return the rows of the table of ratios."""
    if os.environ.get(_INSIDE) != "1":
        # A new mount namespace: the simulated driver is mounted over /proc there.
        os.environ[_INSIDE] = "1"
        os.execvp(
            "unshare", ["unshare", "--mount", sys.executable, "-m", "tests.bench", *sys.argv[1:]]
        )
    with tempfile.TemporaryDirectory(prefix="gpuhook-bench-") as place:
        took: dict[str, float] = {}
        try:
            for group, times in _groups(Path(place), rounds):
                print(f"measuring {', '.join(case.name for case in group)}", file=sys.stderr)
                took.update(interleaved(group, times))
        finally:
            unmount_below(place)
    rows = report(took)
    print(table(("WHAT", "MEDIAN", "RATIO", "OF", "BUDGET", "MET"), rows), end="")
    return rows


def _groups(place: Path, rounds: int) -> Iterator[tuple[list[Case], int]]:
    ready = stage(place)
    yield cases.interpreter(ready), rounds * 4
    yield cases.scaling(ready), rounds * 2
    yield cases.runc(ready), rounds
    yield cases.crun(ready), rounds
    yield cases.limited(ready), max(5, rounds // 3)
    yield cases.of_memory(ready), rounds
    yield cases.crowd(ready), 3
    yield cases.life(ready), max(5, rounds // 3)
    yield cases.podman(ready), max(5, rounds // 4)


def report(took: dict[str, float]) -> list[tuple[str, ...]]:
    """Return the rows of the measured ratios."""
    rows: list[tuple[str, ...]] = []
    for line in LINES:
        if line.what in took and line.of in took:
            ratio = took[line.what] / took[line.of]
            met = "" if line.budget is None else "yes" if ratio <= line.budget else "NO"
            rows.append(
                (
                    line.what,
                    f"{took[line.what]:.1f} ms",
                    f"{ratio:.2f} x",
                    f"{line.of} ({took[line.of]:.1f} ms)",
                    "" if line.budget is None else f"<= {line.budget}",
                    met,
                )
            )
    return rows


if __name__ == "__main__":
    main()
