# SPDX-License-Identifier: Apache-2.0
"""The targets of the fuzzer: functions that take any bytes.

A target fails if it raises anything but what it allows, or if an input takes longer or more memory
than it allows. Targets check what must hold for any input, too: an edit applied twice equals one,
and keeps what it does not know.
"""

from __future__ import annotations

import gc
import importlib
import os
import tempfile
import time
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from gpuhook.errors import GpuhookError
from tests.fuzz.large_inputs import SlowInputError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

AREAS = tuple(
    path.stem.removesuffix("_targets")
    for path in sorted((Path(__file__).parent / "targets").glob("*_targets.py"))
)
SCRATCH = "GPUHOOK_FUZZ_DIRECTORY"
_NOTICEABLE = 0.2  # seconds of CPU time
_FOUND: dict[str, FuzzTarget] = {}


@dataclass(frozen=True)
class FuzzTarget:
    """A function of bytes, and its limits: CPU seconds and bytes of an input, MiB of the process.

    `everyday` is the number of changed inputs that the everyday tests run.
    """

    name: str
    run: Callable[[bytes], object]
    given_seeds: Iterable[bytes | str] | Callable[[], Iterable[bytes | str]]
    allowed: tuple[type[Exception], ...]
    seconds: float
    size: int
    memory: int
    everyday: int

    def seeds(self) -> list[bytes]:
        """Return the inputs to begin with."""
        given = self.given_seeds() if callable(self.given_seeds) else self.given_seeds
        return [one.encode("utf-8", "surrogateescape") if isinstance(one, str) else one
                for one in given]  # fmt: skip

    def fault(self, data: bytes) -> Exception | None:
        """Return the exception of an input that the target does not allow."""
        try:
            self.run(data)
        except self.allowed:
            return None
        except Exception as error:  # every other one is a finding
            return error
        return None

    def is_refused(self, data: bytes) -> bool:
        """Return whether an input raises an exception that the target allows."""
        try:
            self.run(data)
        except self.allowed:
            return True
        return False

    def timed(self, data: bytes) -> tuple[Exception | None, float]:
        """Return what fault() returns, and the seconds of CPU time."""
        began = time.process_time()
        error = self.fault(data)
        return error, time.process_time() - began

    def growth_fault(self, quarter: bytes, data: bytes, took: float) -> Exception | None:
        """Return the error of an input whose quarter takes less than a tenth of its time.

        The garbage collector is off: its time depends on all other objects of the process. A parser
        may refuse one of the two at its beginning, so both must be read, or both refused.
        """
        if took < _NOTICEABLE or self.is_refused(quarter) != self.is_refused(data):
            return None
        gc.disable()
        try:
            least = min(self.timed(data)[1] for _ in range(2))
            most = max(self.timed(quarter)[1] for _ in range(2))
        finally:
            gc.enable()
        if least < 10 * most:
            return None
        return SlowInputError(f"{least:.1f} s of CPU time, and far less for a quarter of the input")


def fuzz_target(
    seeds: Iterable[bytes | str] | Callable[[], Iterable[bytes | str]],
    *,
    allowed: tuple[type[Exception], ...] = (GpuhookError,),
    seconds: float = 2,
    size: int = 4096,
    memory: int = 512,
    everyday: int = 60,
) -> Callable[[Callable[[bytes], object]], Callable[[bytes], object]]:
    """Make a function of a module of targets a target: AREA/NAME."""

    def register(run: Callable[[bytes], object]) -> Callable[[bytes], object]:
        area = run.__module__.rpartition(".")[2].removesuffix("_targets")
        name = f"{area}/{run.__name__.replace('_', '-')}"
        _FOUND[name] = FuzzTarget(name, run, seeds, allowed, seconds, size, memory, everyday)
        return run

    return register


def targets(areas: Iterable[str] = AREAS) -> dict[str, FuzzTarget]:
    """Return the targets of these areas by name."""
    chosen = tuple(areas)
    for area in chosen:
        importlib.import_module(f"tests.fuzz.targets.{area}_targets")
    return {name: one for name, one in _FOUND.items() if name.partition("/")[0] in chosen}


def text(data: bytes) -> str:
    """Return bytes as Python decodes names and variables of the system."""
    return data.decode("utf-8", "surrogateescape")


def scratch_directory() -> tempfile.TemporaryDirectory[str]:
    """Return a new directory for scratch(), in memory where possible."""
    place = "/dev/shm" if os.path.isdir("/dev/shm") else None  # faster than a disk
    return tempfile.TemporaryDirectory(prefix="gpuhook-fuzz-", dir=place)


@cache
def scratch() -> Path:
    """Return the directory of this process, which the one that started it removes."""
    return Path(os.environ[SCRATCH])


def prepare_environment() -> None:
    """Let gpuhook keep its state in the directory of this process."""
    os.environ["GPUHOOK_STATE_DIR"] = str(scratch() / "state")


def scratch_file(data: bytes, name: str = "input") -> str:
    """Return the path of a file with these bytes; the next call replaces it."""
    path = scratch() / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    return str(path)
