# SPDX-License-Identifier: Apache-2.0
"""`make profile`: where the time of a create goes, by phase and by module.

With valgrind, instructions of the user space, which do not depend on the load of the machine;
otherwise and in addition times.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from pathlib import Path

from gpuhook.host.text_table import table
from tests.bench import cases
from tests.bench.measure import Case, interleaved, plain
from tests.bench.profiled_create import MODULES
from tests.bench.stage import fresh, gpu_bundle, stage, unmount_below
from tests.contract.installation import Installation

_MODULE = "tests.bench.create_profile"
_INSIDE = "GPUHOOK_BENCH_NAMESPACE"
_PROGRAM = Path(__file__).with_name("profiled_create.py")
_COMPILE = "import py_compile, sys; py_compile.compile(*sys.argv[1:3], doraise=True)"
_TOTAL = re.compile(r"^totals: (\d+)", re.MULTILINE)

Phases = dict[str, float]


class ProfiledCreate:
    """The creates of a case, each by the interpreter of the wrapper with marked phases."""

    def __init__(self, ready: Installation, case: Case) -> None:
        self._case = case
        self._place = Path(tempfile.mkdtemp(prefix="profile-", dir=ready.place))
        self._parts = self._place / "parts"
        self._program = self._place / "create.pyc"
        compiled = [cases.PYTHON, "-IS", "-c", _COMPILE, str(_PROGRAM), str(self._program)]
        subprocess.run(compiled, check=True)
        library = Path(ready.runtime).parents[1] / "lib/gpuhook"
        self._env = {
            **os.environ,
            **case.env,
            "GPUHOOK_PROFILE_LIB": str(library),
            "GPUHOOK_PROFILE_OUT": str(self._parts),
        }
        self.imported: list[str] = []

    def times(self) -> Phases:
        """Return the milliseconds of each phase of one create. The interpreter's start has none."""
        parts = self._run([], {})
        times: Phases = {}
        for (_, before), (phase, after) in pairwise(parts):
            times[phase] = times.get(phase, 0) + (after - before) / 1e6
        return times

    def instructions(self) -> Phases:
        """Return the instructions of each phase of one create, by callgrind."""
        out = self._place / "callgrind"
        options = ["--tool=callgrind", "--dump-before=sched_yield", f"--callgrind-out-file={out}"]
        parts = self._run(["valgrind", "-q", *options], {"GPUHOOK_PROFILE_YIELDS": "1"})
        counts: Phases = {}
        for number, (phase, _) in enumerate(parts, 1):
            dump = self._place / f"callgrind.{number}"
            found = _TOTAL.search(dump.read_text())
            if found is None:
                raise ValueError(f"{dump}: no totals")
            counts[phase] = counts.get(phase, 0) + int(found[1]) / 1e3
            dump.unlink()
        return counts

    def _run(self, prefix: Sequence[str], more: Mapping[str, str]) -> list[tuple[str, int]]:
        with self._case.around() as command:
            whole = [*prefix, cases.PYTHON, "-ISXutf8", str(self._program), *command]
            subprocess.run(
                whole,
                env={**self._env, **more},
                check=True,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
            )
        *lines, last = self._parts.read_text(encoding="utf-8").splitlines()
        self._parts.unlink()
        self.imported = last.split("\t")[1].split()
        parts = (line.split("\t") for line in lines)
        return [(phase, int(time)) for phase, time in parts]


def main() -> None:
    """Measure one kind of create, and print the tables."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.bench.create_profile", description=__doc__
    )
    parser.add_argument("--rounds", type=int, default=25, help="timed creates (default 25)")
    parser.add_argument("--modules", action="store_true", help="list every module")
    parser.add_argument("--inside", help="modules, with commas: each of their functions is a phase")
    parser.add_argument(
        "--case",
        choices=sorted(CASES),
        default="all",
        help="the container's request (default all)",
    )
    options = parser.parse_args()
    if os.geteuid() != 0:
        parser.error("mounts need root")
    if os.environ.get(_INSIDE) != "1":
        os.environ[_INSIDE] = "1"
        again = [sys.executable, "-m", _MODULE, *sys.argv[1:]]
        os.execvp("unshare", ["unshare", "--mount", *again])
    os.environ["GPUHOOK_PROFILE_INSIDE"] = options.inside or ""
    with tempfile.TemporaryDirectory(prefix="gpuhook-profile-") as place:
        try:
            ready = stage(Path(place))
            _print_phases(ready, CASES[options.case](ready), options.rounds, options.modules)
            if options.rounds:
                _print_runtime(ready, options.rounds)
        finally:
            unmount_below(place)


def _case(ready: Installation, value: str, *variables: str) -> Case:
    made = gpu_bundle(ready, "profiled", value=value)
    config = made.config()
    config["process"]["env"] += variables
    made.write(config)
    env = ready.on(cases.TRUE_PROGRAM)
    return Case("create", lambda: fresh(made, [ready.runtime], cases.TRUE_PROGRAM), env)


CASES = {
    "all": lambda ready: _case(ready, "all"),
    "one": lambda ready: _case(ready, "0"),
    "mig": lambda ready: cases.scaling(ready)[-1],
    "required": lambda ready: _case(ready, "all", f"NVIDIA_REQUIRE_CUDA={cases.REQUIRED}"),
    "limit": lambda ready: _case(ready, "0", "NVIDIA_GPU_MEMORY_LIMIT=4096"),
    "void": lambda ready: _case(ready, "void"),
}


def _print_phases(ready: Installation, case: Case, rounds: int, is_long: bool) -> None:
    profiled = ProfiledCreate(ready, case)
    for _ in range(2):  # they compile the spec, and record the files of the root file system
        profiled.times()
    counts = profiled.instructions() if shutil.which("valgrind") else {}
    found = [profiled.times() for _ in range(rounds)]
    names = list(dict.fromkeys([*counts, *(phase for one in found for phase in one)]))
    times = {name: statistics.median(one.get(name, 0) for one in found) for name in names if found}
    modules = [name for name in names if name.startswith(MODULES) and name != MODULES + "byte code"]
    if not is_long:
        label = f"{MODULES}run {len(modules)} modules"
        counts, times = _joined(counts, modules, label), _joined(times, modules, label)
        names = [label if name == modules[0] else name for name in names if name not in modules[1:]]
    whole = sum(counts.values()) or 1
    rows = [
        (
            name,
            f"{counts.get(name, 0):.0f} K",
            f"{counts.get(name, 0) / whole:.1%}",
            f"{times.get(name, 0):.2f} ms",
        )
        for name in sorted(names, key=lambda one: -(counts or times).get(one, 0))
    ]
    rows.append(("sum", f"{sum(counts.values()):.0f} K", "", f"{sum(times.values()):.2f} ms"))
    print(table(("PHASE", "INSTRUCTIONS", "SHARE", "MEDIAN"), rows))
    if profiled.imported:
        print(f"imported without a bundle: {' '.join(profiled.imported)}\n")


def _joined(values: Phases, names: Iterable[str], label: str) -> Phases:
    rest = {name: value for name, value in values.items() if name not in names}
    return {**rest, label: sum(values.get(name, 0) for name in names)}


def _print_runtime(ready: Installation, rounds: int) -> None:
    """Print the times of the programs around the wrapper: interpreter, launcher, runtime."""
    low = shutil.which("runc") or "runc"
    bare = gpu_bundle(ready, "bare", value="all")
    edited = gpu_bundle(ready, "edited", value="all")
    with fresh(edited, [ready.runtime], cases.TRUE_PROGRAM) as command:
        env = {**os.environ, **ready.on(cases.TRUE_PROGRAM)}
        subprocess.run(command, env=env, check=True, stdout=subprocess.DEVNULL)
        config = edited.config()
    edited.write(config)
    more = len(config["mounts"]) - len(bare.config()["mounts"])
    passed = plain("launcher, pass-through", [ready.runtime, "state", "x"])
    passed.env = ready.on(cases.TRUE_PROGRAM)
    group = [
        plain("bare interpreter", [cases.PYTHON, "-IS", "-c", "pass"]),
        passed,
        Case("runc create", lambda: fresh(bare, [low], low)),
        Case(f"runc create with {more} mounts more", lambda: fresh(edited, [low], low)),
        Case("gpuhook-runtime create", lambda: fresh(bare, [ready.runtime], low), ready.on(low)),
    ]
    took = interleaved(group, rounds)
    print(table(("PROGRAM", "MEDIAN"), [(name, f"{time:.1f} ms") for name, time in took.items()]))


if __name__ == "__main__":
    main()
