# SPDX-License-Identifier: Apache-2.0
"""The child process of one target: `python -m tests.fuzz.fuzz_worker TARGET INPUTS SECONDS PLACE`.

atheris calls the target with inputs that reach more and more of the code. What the target does not
allow is recorded by its place in the code, and the run continues. libFuzzer ends the process at an
input that hangs, crashes the interpreter or needs too much memory.
"""

from __future__ import annotations

import json
import os
import resource
import sys
import time
import traceback
from itertools import chain
from pathlib import Path

import atheris

from tests.fuzz import input_files, input_mutator, large_inputs
from tests.fuzz.large_inputs import SlowInputError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from tests.fuzz.fuzz_target import FuzzTarget

HANG = 60  # seconds of a clock, on a busy machine
_PACKAGE = f"{Path(__file__).parents[2]}/gpuhook/"
_ADDRESSES = 3 << 30  # bytes of address space, of which most is never used


class FuzzRun:
    """The inputs of one process, and what they did."""

    def __init__(self, target: FuzzTarget, inputs: int, seconds: float, place: Path) -> None:
        self._target = target
        self._most = inputs
        self._began = time.monotonic()
        self._end = self._began + seconds
        self._place = place
        self._count = 0
        self._slowest = (0.0, b"")
        self._faults: dict[str, tuple[str, bytes]] = {}

    def one_input(self, data: bytes, quarter: bytes | None = None) -> None:
        """Run the target; the last input ends the process. `quarter` has fewer of its parts."""
        error, took = self._target.timed(data)
        if took > self._slowest[0]:
            self._slowest = (took, data)
            if took > self._target.seconds and error is None:
                error = SlowInputError(f"{took:.1f} s of CPU time for {len(data)} bytes")
        if quarter is not None and error is None:
            error = self._target.growth_fault(quarter, data, took)
        if error is not None:
            self._record(data, error)
        self._count += 1
        if self._count >= self._most or time.monotonic() > self._end:
            self._finish()

    def large_inputs(self) -> None:
        """Run inputs of many equal parts, for at most half of the time."""
        end = self._began + (self._end - self._began) / 2
        seeds = self._target.seeds()
        pairs = chain(((None, one) for one in large_inputs.deep(seeds)), large_inputs.pairs(seeds))
        for quarter, data in pairs:
            if time.monotonic() > end:
                return
            self.one_input(data, quarter)

    def _record(self, data: bytes, error: Exception) -> None:
        key = _key(error)
        if key in self._faults:
            return
        if not isinstance(error, SlowInputError):
            data = input_mutator.smaller(data, lambda one: self._is_same(one, key))
        told = "".join(traceback.format_exception(error))
        self._faults[key] = (told, data)

    def _is_same(self, data: bytes, key: str) -> bool:
        error = self._target.fault(data)
        return error is not None and _key(error) == key

    def _finish(self) -> None:
        used = resource.getrusage(resource.RUSAGE_SELF)
        document = {
            "inputs": self._count,
            "seconds": time.monotonic() - self._began,
            "slowest": self._slowest[0],
            "slowest_input": self._slowest[1].hex(),
            "memory": used.ru_maxrss >> 10,
            "faults": {
                key: {"text": told, "input": data.hex()}
                for key, (told, data) in self._faults.items()
            },
        }
        (self._place / "result.json").write_text(json.dumps(document))
        sys.stderr.flush()
        os._exit(0)


def _key(error: Exception) -> str:
    """Return the kind of an exception and its place in gpuhook, or in the target."""
    frames = traceback.extract_tb(error.__traceback__)
    own = [one for one in frames if one.filename.startswith(_PACKAGE)]
    if not frames:
        return type(error).__name__
    place = (own or frames)[-1]
    return f"{type(error).__name__} {Path(place.filename).name}:{place.lineno}"


def main() -> None:
    """Fuzz the target until it has had its inputs or its time."""
    name, inputs, seconds, place = sys.argv[1], int(sys.argv[2]), float(sys.argv[3]), sys.argv[4]
    with atheris.instrument_imports(include=["gpuhook"]):  # before anything else imports them
        from tests.fuzz.fuzz_target import prepare_environment, targets

        prepare_environment()
        target = targets([name.partition("/")[0]])[name]
    resource.setrlimit(resource.RLIMIT_AS, (_ADDRESSES, _ADDRESSES))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    run = FuzzRun(target, inputs, seconds, Path(place))
    run.large_inputs()
    arguments = [sys.argv[0], *_options(target, Path(place))]
    atheris.Setup(arguments, run.one_input)
    atheris.Fuzz()


def _options(target: FuzzTarget, place: Path) -> list[str]:
    """Return libFuzzer's options; the first directory gets the new inputs."""
    new, kept = place / "corpus", place / "kept"
    for directory in (new, kept):
        directory.mkdir(parents=True, exist_ok=True)
    inputs = [
        *target.seeds(),
        *input_files.read(input_files.corpus(target.name)),
        *input_files.read(input_files.findings(target.name)),
    ]
    for number, one in enumerate(inputs):
        (kept / str(number)).write_bytes(one)
    dictionary = place / "dictionary"
    words = input_mutator.words(inputs)
    dictionary.write_text("".join(f'"{word.decode()}"\n' for word in words))
    return [
        f"-timeout={HANG}",
        f"-rss_limit_mb={target.memory}",
        f"-max_len={target.size}",
        *([f"-dict={dictionary}"] if words else []),
        f"-artifact_prefix={place}/",
        "-print_final_stats=1",
        str(new),
        str(kept),
    ]


if __name__ == "__main__":
    main()
