# SPDX-License-Identifier: Apache-2.0
"""`python -m tests.fuzz`: run targets with coverage-guided inputs, and print what they did.

Each target has its own process. An input that a target does not handle is made smaller, and
kept in findings, which the everyday tests run again.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

from tests import figures
from tests.fuzz import input_files
from tests.fuzz.fuzz_target import SCRATCH, FuzzTarget, scratch_directory, targets

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).parents[2]
BUILD = ROOT / "build/fuzz"
COVERAGE = re.compile(rb"cov: (\d+)")
HEAD = ("target", "inputs", "inputs/s", "branches", "findings", "slowest", "memory")


@dataclass
class TargetResult:
    """What the process of a target reported."""

    target: FuzzTarget
    inputs: int = 0
    seconds: float = 0.0
    coverage: int = 0
    slowest: float = 0.0
    memory: int = 0
    faults: dict[str, str] = field(default_factory=dict)

    def row(self) -> tuple[str, ...]:
        """Return the line of the table."""
        rate = self.inputs / self.seconds if self.seconds else 0.0
        return (
            self.target.name,
            f"{self.inputs:,}",
            f"{rate:,.0f}",
            str(self.coverage),
            str(len(self.faults)),
            f"{self.slowest * 1000:,.0f} ms",
            f"{self.memory} MiB",
        )


def fuzz(target: FuzzTarget, inputs: int, seconds: float) -> TargetResult:
    """Run a target in its process."""
    place = BUILD / target.name
    shutil.rmtree(place / "kept", ignore_errors=True)
    place.mkdir(parents=True, exist_ok=True)
    (place / "result.json").unlink(missing_ok=True)
    words = ["-m", "tests.fuzz.fuzz_worker", target.name, str(inputs), str(seconds), str(place)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONHASHSEED": "0"}
    with (place / "log").open("wb") as log, scratch_directory() as environment[SCRATCH]:
        done = subprocess.run(
            [sys.executable, *words], stdout=log, stderr=log, env=environment, cwd=ROOT, check=False
        )
    result = TargetResult(target)
    said = (place / "log").read_bytes()
    result.coverage = int((COVERAGE.findall(said) or [b"0"])[-1])
    _take_artifacts(target, place, result)
    if not (place / "result.json").exists():
        end = said[-3000:].decode("utf-8", "replace")
        result.faults.setdefault(f"the process ended with {done.returncode}", end)
        return result
    found = json.loads((place / "result.json").read_text())
    for key in ("inputs", "seconds", "slowest", "memory"):
        setattr(result, key, found[key])
    for key, one in found["faults"].items():
        result.faults[key] = one["text"]
        input_files.add(input_files.findings(target.name), [bytes.fromhex(one["input"])])
    return result


def _take_artifacts(target: FuzzTarget, place: Path, result: TargetResult) -> None:
    """Keep the input that ended the process: a hang, a crash, or too much memory."""
    for path in [*place.glob("timeout-*"), *place.glob("crash-*"), *place.glob("oom-*")]:
        result.faults[path.name.partition("-")[0]] = f"{len(path.read_bytes())} bytes"
        input_files.add(input_files.findings(target.name), [path.read_bytes()])
        path.unlink()


def keep_corpus(target: FuzzTarget) -> None:
    """Keep a few of the inputs that reached new code."""
    kept = input_files.corpus(target.name)
    new = [path.read_bytes() for path in (BUILD / target.name).glob("corpus/*")]
    input_files.write(kept, input_files.small([*input_files.read(kept), *new]))


def table(results: list[TargetResult]) -> Iterator[str]:
    """Yield the lines of the table."""
    rows = [HEAD, *(one.row() for one in results)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(HEAD))]
    for row in rows:
        name, *numbers = (text.rjust(width) for text, width in zip(row, widths, strict=True))
        yield "  ".join([name.strip().ljust(widths[0]), *numbers])


def record(result: TargetResult, command: str) -> None:
    """Write the figures of a target for the documentation."""
    _, inputs, rate, coverage, count, slowest, memory = result.row()
    value = f"{inputs} inputs, {rate}/s, {coverage} branches, {count} findings, {slowest}, {memory}"
    limit = f"{result.target.seconds:g} s, {result.target.memory} MiB"
    figures.write(figures.PLACE / "fuzz.json", result.target.name, value, limit, command)


def command(chosen: argparse.Namespace) -> str:
    """Return the command of this run, as the documentation shows it."""
    limits = f"--inputs {chosen.inputs} --seconds {chosen.seconds:g}"
    return f"python -m tests.fuzz {limits} --figures"


def main() -> int:
    """Fuzz the chosen targets; exit status 1 with findings."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("target", nargs="*", help="TARGET or AREA; all without one")
    parser.add_argument("--inputs", type=int, default=1_000_000, help="most inputs of a target")
    parser.add_argument("--seconds", type=float, default=3600.0, help="most seconds of a target")
    parser.add_argument("--workers", type=int, default=os.cpu_count(), help="targets at once")
    parser.add_argument("--figures", action="store_true", help="write figures to docs/reference")
    parser.add_argument("--keep", action="store_true", help="keep inputs in tests/fuzz/corpus")
    chosen = parser.parse_args()
    wanted = [
        one
        for name, one in targets().items()
        if not chosen.target or name in chosen.target or name.partition("/")[0] in chosen.target
    ]
    if not wanted:
        parser.error(f"no such target; there are: {' '.join(targets())}")
    if importlib.util.find_spec("atheris") is None:
        parser.error(
            "atheris is not installed: pip install --group fuzz. It is for CPython 3.11 to 3.13 on "
            "x86-64; elsewhere, `make test-all` runs the targets without it"
        )
    results = []
    with ThreadPoolExecutor(chosen.workers) as pool:
        for result in pool.map(lambda one: fuzz(one, chosen.inputs, chosen.seconds), wanted):
            results.append(result)
            print("  ".join(result.row()), flush=True)
            if not result.coverage:
                print(f"{result.target.name}: no coverage-guided inputs: it needs more --seconds")
            for key, said in result.faults.items():
                print(f"{result.target.name}: {key}\n{said}", flush=True)
            if chosen.figures:
                record(result, command(chosen))
            if chosen.keep:
                keep_corpus(result.target)
    print("\n" + "\n".join(table(results)))
    return int(any(one.faults for one in results))


if __name__ == "__main__":
    sys.exit(main())
