# SPDX-License-Identifier: Apache-2.0
"""The kubelet's calls: each claim has an entry, nothing blocks another, late success remains."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path

import pytest

from gpuhook.dra.claims.claim_calls import DEADLINE, ClaimCalls
from gpuhook.errors import GpuhookError
from tests.kubelet.allocated_claims import allocated, named, result
from tests.unit.dra.claims.claims_world import World

A, B = named("a"), named("b")


class Gate:
    """Blocks the reading of a claim until `open` is set."""

    def __init__(self, world: World, name: str) -> None:
        self.open, self.reached, self.reads = threading.Event(), threading.Event(), 0
        self._end = f"/{name}"
        world.server.before = self._before

    def _before(self, path: str) -> None:
        if path.endswith(self._end):
            self.reads += 1
            self.reached.set()
            self.open.wait(60)


@pytest.fixture
def world(tmp_path: Path) -> World:
    made = World(tmp_path)
    made.server.add(allocated(A, result("gpu-0")))
    made.server.add(allocated(B, result("gpu-1")))
    return made


def test_the_deadline_is_before_the_kubelets() -> None:
    assert DEADLINE < 45


def test_each_claim_of_a_batch_has_its_own_answer(world: World) -> None:
    bad, other = named("missing"), named("other")
    world.server.add(allocated(other, result("gpu-7", driver="dra.net")))
    calls = ClaimCalls(world.preparation)
    found = asyncio.run(calls.prepare([A, bad, B, other, A]))
    assert list(found) == [A.uid, bad.uid, B.uid, other.uid]
    codes = {uid: getattr(one, "code", "") for uid, one in found.items()}
    assert codes == {A.uid: "", bad.uid: "GH2600", B.uid: "", other.uid: "GH2602"}
    assert world.prepared() == ["a", "b"]
    assert asyncio.run(calls.unprepare([A, bad, B])) == dict.fromkeys((A.uid, bad.uid, B.uid))
    assert world.prepared() == []


def test_an_empty_batch_has_an_empty_answer(world: World) -> None:
    assert asyncio.run(ClaimCalls(world.preparation).prepare([])) == {}


def test_a_slow_api_server_delays_its_claim_only(world: World) -> None:
    gate = Gate(world, "a")

    async def scenario() -> None:
        calls = ClaimCalls(world.preparation, deadline=0.3)
        found = await calls.prepare([A, B])
        error = found[A.uid]
        assert isinstance(error, GpuhookError)
        assert error.code == "GH2604"
        assert "the claim default/a is not ready after 0.3 s" in error.message
        assert "the API server" in error.message
        assert isinstance(found[B.uid], tuple)
        calls._deadline = 60
        again = asyncio.ensure_future(calls.prepare([A]))  # the kubelet repeats the call
        await asyncio.sleep(0.05)
        gate.open.set()
        assert isinstance((await again)[A.uid], tuple)

    asyncio.run(scenario())
    assert gate.reads == 1


def test_late_success_remains(world: World) -> None:
    gate = Gate(world, "a")

    async def scenario() -> None:
        calls = ClaimCalls(world.preparation, deadline=0.1)
        assert isinstance((await calls.prepare([A]))[A.uid], GpuhookError)
        gate.open.set()
        while world.prepared() != ["a"]:
            await asyncio.sleep(0.01)
        world.server.claims.clear()
        calls._deadline = 60
        assert isinstance((await calls.prepare([A]))[A.uid], tuple)

    asyncio.run(scenario())


def test_the_end_of_a_claim_waits_for_its_preparation(world: World) -> None:
    gate = Gate(world, "a")

    async def scenario() -> None:
        calls = ClaimCalls(world.preparation, deadline=0.2)
        preparing = asyncio.ensure_future(calls.prepare([A]))
        while not gate.reached.is_set():
            await asyncio.sleep(0.01)
        error = (await calls.unprepare([A]))[A.uid]
        assert isinstance(error, GpuhookError)
        assert "the former call" in error.message
        await preparing
        calls._deadline = 60
        ending = asyncio.ensure_future(calls.unprepare([A]))
        await asyncio.sleep(0.05)
        gate.open.set()
        assert await ending == {A.uid: None}

    asyncio.run(scenario())
    assert world.prepared() == []
    assert list(world.specs.uids()) == []


def test_repeated_calls_of_a_blocked_claim_need_one_thread(world: World) -> None:
    gate = Gate(world, "a")

    async def scenario() -> None:
        calls = ClaimCalls(world.preparation, deadline=0.01)
        before = threading.active_count()
        for _ in range(50):
            assert isinstance((await calls.prepare([A]))[A.uid], GpuhookError)
        assert threading.active_count() <= before + 1
        gate.open.set()
        while calls._work:
            await asyncio.sleep(0.01)

    asyncio.run(scenario())
    assert gate.reads == 1


def test_a_bug_is_the_error_of_its_claim(world: World) -> None:
    def broken(path: str) -> None:
        if path.endswith("/a"):
            raise ZeroDivisionError

    world.server.before = broken
    found = asyncio.run(ClaimCalls(world.preparation).prepare([A, B]))
    assert isinstance(found[A.uid], ZeroDivisionError)
    assert isinstance(found[B.uid], tuple)
