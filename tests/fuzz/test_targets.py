# SPDX-License-Identifier: Apache-2.0
"""The targets of the fuzzer without the fuzzer: known inputs, and some changed ones."""

from __future__ import annotations

import zlib

import pytest

from tests.depth import depth
from tests.fuzz import input_files, input_mutator, large_inputs
from tests.fuzz.fuzz_target import FuzzTarget, scratch, targets

TARGETS = targets()


@pytest.fixture(autouse=True)
def _state(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GPUHOOK_STATE_DIR", str(scratch() / "state"))


def known_inputs(target: FuzzTarget) -> list[bytes]:
    """Return the seeds of a target, its corpus, and the inputs that it once did not handle."""
    return [
        *target.seeds(),
        *input_files.read(input_files.corpus(target.name)),
        *input_files.read(input_files.findings(target.name)),
    ]


# No spec has a name; a connection is always closed at the end.
REFUSED = {"cdi/device-name", "oci/ttrpc-frames"}


def test_seeds_are_read() -> None:
    """A target whose seeds are all refused runs little of its parser."""
    refused = {name for name, one in TARGETS.items() if all(map(one.is_refused, one.seeds()))}
    assert refused == REFUSED


@pytest.mark.parametrize("name", TARGETS)
def test_any_bytes(name: str) -> None:
    target = TARGETS[name]
    inputs = known_inputs(target)
    count = depth(1, 20) * target.everyday
    seed = zlib.crc32(name.encode())
    deep = large_inputs.deep(target.seeds()) if depth(0, 1) else ()
    for data in [*inputs, *deep, *input_mutator.changed(inputs, count, seed, target.size)]:
        error = target.fault(data)
        if error is not None:
            raise AssertionError(f"{name}: {data!r}") from error


@pytest.mark.thorough
@pytest.mark.parametrize("name", TARGETS)
def test_large_inputs(name: str) -> None:
    """The time of an input does not grow with the square of its size."""
    target = TARGETS[name]
    for quarter, data in large_inputs.pairs(target.seeds()):
        error, took = target.timed(data)
        error = error or target.growth_fault(quarter, data, took)
        if error is not None:
            raise AssertionError(f"{name}: {data[:200]!r}") from error
