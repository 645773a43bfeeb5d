# SPDX-License-Identifier: Apache-2.0
"""A driver in a child process: its answers, and the end of one that does not answer."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from threading import Event
from types import SimpleNamespace
from typing import Any

import pytest

from gpuhook.containers.warm.driver_limit import MISC, DriverLimit
from gpuhook.errors import GpuhookError, fault
from gpuhook.memory_limits import limit_changes, limit_plan, restore_limits
from gpuhook.memory_limits.limit_changes import Wish
from gpuhook.memory_limits.limit_worker import LimitWorker, answered
from gpuhook.memory_limits.warm import cgroup_limits, limit_records
from gpuhook.request.memory_request import MIB, NO_LIMIT, MemoryLimit
from tests.simulated import stub_limits
from tests.simulated.node import SimulatedNode, make_node

GPU = "GPU-1"
AS_ROOT = pytest.mark.skipif(os.geteuid() != 0, reason="the driver takes limits of root alone")


def code_of(call: Callable[[], object]) -> str:
    with pytest.raises(GpuhookError) as caught:
        call()
    return caught.value.code


def test_child_of_the_hook_inherits_no_descriptor() -> None:
    reader, writer = os.pipe()
    ours = os.readlink(f"/proc/self/fd/{writer}")

    def held() -> list[dict[str, Any]]:
        names = [f"/proc/self/fd/{number}" for number in range(100)]
        return [{"open": [os.readlink(name) for name in names if os.path.islink(name)]}]

    found = cgroup_limits._answers(held)[0]["open"]
    assert found.count("/dev/null") >= 3
    assert ours not in found
    os.close(reader)
    os.close(writer)


def test_missing_answer_is_a_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    """A child that is late, has exited, or raises an exception."""
    assert answered(lambda: {"all": "well"}) == {"all": "well"}
    assert code_of(lambda: answered(lambda: 1 // 0)) == "GH1257"
    assert code_of(lambda: answered(lambda: os._exit(0))) == "GH1257"
    monkeypatch.setattr(cgroup_limits, "SECONDS", 0.1)
    assert code_of(lambda: answered(lambda: Event().wait())) == "GH1256"


@AS_ROOT
class TestDriver:
    """Limits through a real library, a stub of the driver's."""

    @pytest.fixture
    def node(self, tmp_path: Path) -> SimulatedNode:
        made = make_node(tmp_path / "node", "t4", real_nodes=False)
        stub_limits.take_for_cgroups(made, str(made.node.gpus[0].uuid), tmp_path)
        return made

    def test_set_get_clear(self, node: SimulatedNode, tmp_path: Path) -> None:
        gpu, cgroup = str(node.node.gpus[0].uuid), tmp_path / "container"
        cgroup.mkdir()
        with closing(LimitWorker("nvidia.com", lambda: node.nvml_library)) as driver:
            assert driver.set(gpu, str(cgroup), 9 * MIB, MIB) == DriverLimit(9 * MIB, MIB, 0)
            assert driver.get(gpu, str(cgroup)) == DriverLimit(9 * MIB, MIB, 0)
            driver.clear(gpu, str(cgroup))
            now = driver.get(gpu, str(cgroup))
            assert now is None or not now.is_limited
            assert code_of(lambda: driver.get("MIG-1", str(cgroup))) == "GH1253"

    def test_hanging_driver_is_a_fault(
        self, node: SimulatedNode, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        gpu = str(node.node.gpus[0].uuid)
        stub_limits.take_long(node, gpu, 900_000)
        monkeypatch.setattr(cgroup_limits, "SECONDS", 0.3)
        with closing(LimitWorker("nvidia.com", lambda: node.nvml_library)) as driver:
            assert code_of(lambda: driver.get(gpu, str(tmp_path))) == "GH1256"


class Hanging:
    """A driver that hangs while it sets a limit, and afterwards."""

    def __init__(self, *, hangs_at: int = 1, held: dict[str, DriverLimit] | None = None) -> None:
        self.held = held or {}
        self.left = hangs_at

    def get(self, uuid: str, cgroup: str) -> DriverLimit | None:
        """Return the stored limit."""
        self._answer()
        return self.held.get(uuid)

    def set(self, uuid: str, cgroup: str, hard: int, soft: int) -> DriverLimit:
        """Set, or hang."""
        self.left -= 1
        self._answer()
        self.held[uuid] = DriverLimit(hard, soft, 0)
        return self.held[uuid]

    def clear(self, uuid: str, cgroup: str) -> None:
        """Clear, or hang."""
        self.set(uuid, cgroup, NO_LIMIT, 0)

    def driver(self, uuid: str) -> Hanging:
        """Return itself, the driver of all devices."""
        return self

    def backend_of(self, cgroup: str) -> str:
        """Return the driver's own account."""
        return MISC

    def within(self, uuid: str, hard: int) -> int:  # a driver's signature
        """Return the limit: the card is large enough."""
        return hard

    def _answer(self) -> None:
        if self.left <= 0:
            raise fault("GH1256", seconds=20)


class Trainer:
    """A container, as far as a change of its limits reads it."""

    def __init__(self, *records: limit_records.LimitRecord) -> None:
        self.entry: dict[str, Any] = {"memory": [one.document() for one in records]}
        self.recorded = self.entry
        self.spec: dict[str, Any] = {}
        self.found = SimpleNamespace(id="trainer")
        process = SimpleNamespace(pid=1, require_alive=lambda: None)
        signals = SimpleNamespace(hold=lambda: None, check=lambda: None)
        self.held = SimpleNamespace(process=process, signals=signals)
        self.kept = dict(self.entry)

    def note(self, change: Callable[[dict[str, Any]], None]) -> None:
        """Change the ledger's entry."""
        change(self.kept)

    @property
    def records(self) -> dict[str, limit_records.LimitRecord]:
        """Return the ledger's records."""
        return limit_records.records_of(self.kept)


@pytest.fixture
def cgroups(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limit_plan, "directories", lambda _target: ["/sys/fs/cgroup/trainer"])


def code_of_change(trainer: Any, driver: Any, *gpus: str) -> str:
    """Return the code of the fault of a change to 64 MiB."""
    asked: Any = [SimpleNamespace(id=gpu, memory_bytes=None) for gpu in gpus]
    wish = Wish(64 * MIB)
    return code_of(lambda: limit_changes.set_limits(trainer, driver, asked, wish, is_dry=False))


@pytest.mark.usefixtures("cgroups")
class TestLedger:
    """The record of a limit whose state in the driver is unknown."""

    def record(self) -> limit_records.LimitRecord:
        limit = MemoryLimit(GPU, 32 * MIB)
        return limit_records.LimitRecord(limit, limit)

    def test_unknown_limit_is_enforced_by_no_driver(self) -> None:
        """The guard watches it then, and a repair sets the earlier limit again."""
        trainer = Trainer(self.record())
        driver = Hanging(held={GPU: DriverLimit(32 * MIB, 0, 0)})
        assert code_of_change(trainer, driver, GPU) == "GH1751"
        (record,) = trainer.records.values()
        assert (record.limit.hard, record.by) == (32 * MIB, "")
        assert record.trouble.startswith("GH1256")
        trainer.entry = dict(trainer.kept)
        again: Any = Hanging(hangs_at=9, held={GPU: DriverLimit(64 * MIB, 0, 0)})
        plan = restore_limits.again(
            trainer,  # type: ignore[arg-type]
            again,
            [GPU],
            is_refused=True,
            guarantee="auto",
        )[0]
        plan.execute(trainer.held)  # type: ignore[arg-type]
        assert again.held[GPU].hard == 32 * MIB
        assert trainer.records[GPU].by == "driver"

    def test_repair_of_a_first_limit_clears_it(self) -> None:
        trainer = Trainer()
        assert code_of_change(trainer, Hanging(), GPU) == "GH1751"
        (record,) = trainer.records.values()
        assert (record.is_limited, record.by, record.granted) == (False, "", None)
        trainer.entry = dict(trainer.kept)
        again: Any = Hanging(hangs_at=9, held={GPU: DriverLimit(64 * MIB, 0, 0)})
        plan = restore_limits.again(
            trainer,  # type: ignore[arg-type]
            again,
            [GPU],
            is_refused=True,
            guarantee="auto",
        )[0]
        plan.execute(trainer.held)  # type: ignore[arg-type]
        assert again.held[GPU].hard == NO_LIMIT
        assert trainer.records == {}

    def test_both_of_two_gpus_are_unknown(self) -> None:
        """The first one was limited and could not be restored."""
        trainer = Trainer()
        assert code_of_change(trainer, Hanging(hangs_at=2), GPU, "GPU-2") == "GH1751"
        assert [record.by for record in trainer.records.values()] == ["", ""]

    def test_driver_that_hangs_before_any_change(self) -> None:
        """The ledger does not change."""
        trainer = Trainer(self.record())
        before = dict(trainer.kept)
        driver: Any = Hanging(held={GPU: DriverLimit(32 * MIB, 0, 0)})
        driver.left = 0
        with pytest.raises(GpuhookError):
            limit_changes.set_limits(
                trainer,  # type: ignore[arg-type]
                driver,
                [SimpleNamespace(id=GPU, memory_bytes=None)],  # type: ignore[list-item]
                Wish(64 * MIB),
                is_dry=False,
            )
        assert trainer.kept == before
