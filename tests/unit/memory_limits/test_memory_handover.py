# SPDX-License-Identifier: Apache-2.0
"""Limits set in the driver: records, faults, and deadlines."""

from __future__ import annotations

import inspect
import os
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from gpuhook.containers.warm.process_handle import Process
from gpuhook.entry.hooks import limit_hook
from gpuhook.entry.hooks.hook import USAGE
from gpuhook.errors import GpuhookError, fault
from gpuhook.host.hot.engine_log import EngineLog
from gpuhook.memory_limits.hot import container_limits
from gpuhook.memory_limits.limit_worker import LimitWorker
from gpuhook.memory_limits.warm import cgroup_limits, limit_records, memory_cgroup
from gpuhook.request.memory_request import MIB, NO_LIMIT, MemoryLimit
from gpuhook.vendors.nvidia.warm.nvml_limits import NvmlDriver
from gpuhook.vendors.warm import limit_drivers
from tests.simulated import stub_limits
from tests.simulated.node import SimulatedNode, make_node


@pytest.fixture
def node(tmp_path: Path) -> SimulatedNode:
    """Give a node with one GPU, for which directories below the test's own are cgroups."""
    made = make_node(tmp_path / "node", "t4", real_nodes=False)
    stub_limits.take_for_cgroups(made, gpu(made), tmp_path)
    return made


def nvml(node: SimulatedNode) -> Callable[[], str]:
    """Return what finds the node's NVML."""
    return lambda: node.nvml_library


def gpu(node: SimulatedNode) -> str:
    return str(node.node.gpus[0].uuid)


def cgroups(place: Path, *names: str) -> list[str]:
    paths = [place / name for name in names]
    for path in paths:
        path.mkdir()
    return [str(path) for path in paths]


def use_dmem(node: SimulatedNode, enabled: list[str]) -> None:
    """Let the kernel enforce limits of the cgroups in which its controller is enabled."""
    stub_limits.use_dmem(node, gpu(node))
    for cgroup in enabled:
        Path(cgroup, "dmem.max").touch()


def limits_in_the_driver(node: SimulatedNode) -> dict[str, tuple[int, int]]:
    return {one.path: (one.hard, one.soft) for one in stub_limits.recorded(node)}


@pytest.mark.skipif(os.geteuid() != 0, reason="the driver takes limits of root alone")
class TestApply:
    """The effects of apply() in a driver."""

    def test_limit_is_set_in_the_highest_cgroup(self, node: SimulatedNode, tmp_path: Path) -> None:
        """The nearest limit applies: one in a cgroup below would allow twice the memory."""
        scope, container = own = cgroups(tmp_path, "scope", "scope/container")
        limit = MemoryLimit(gpu(node), 100 * MIB, 50 * MIB, is_asked=True)
        (record,) = cgroup_limits.apply([limit], nvml(node), own[::-1])
        assert record == {
            "device": gpu(node),
            "hard": 100 * MIB,
            "soft": 50 * MIB,
            "asked": True,
            "by": "driver",
            "trouble": "",
            "cgroups": [scope],
        }
        assert limits_in_the_driver(node) == {scope: (100 * MIB, 50 * MIB)}
        with NvmlDriver(node.nvml_library) as driver:
            assert driver.get(gpu(node), container) == driver.get(gpu(node), scope)

    def test_limit_is_set_in_every_cgroup_of_the_kernel(
        self, node: SimulatedNode, tmp_path: Path
    ) -> None:
        """If limits nest, a process reads that of its innermost cgroup."""
        scope, container = own = cgroups(tmp_path, "scope", "scope/container")
        use_dmem(node, own)
        limit = MemoryLimit(gpu(node), 100 * MIB, 50 * MIB, is_asked=True)
        (record,) = cgroup_limits.apply([limit], nvml(node), [container, scope])
        assert (record["trouble"], record.get("cgroups")) == ("", [container, scope])
        assert limits_in_the_driver(node) == dict.fromkeys(own, (100 * MIB, 0))

    @pytest.mark.parametrize(
        ("backend", "guarantee", "soft"),
        [
            ("misc", "auto", 50),
            ("misc", "always", 50),
            ("misc", "never", 0),
            ("dmem", "auto", 0),
            ("dmem", "always", 50),
            ("dmem", "never", 0),
        ],
    )
    def test_guarantees(
        self, backend: str, guarantee: str, soft: int, node: SimulatedNode, tmp_path: Path
    ) -> None:
        """A guarantee that is skipped is in the record, with the reason and the granted one."""
        own = cgroups(tmp_path, "container")
        if backend == "dmem":
            use_dmem(node, own)
        limit = MemoryLimit(gpu(node), 100 * MIB, 50 * MIB)
        (record,) = cgroup_limits.apply([limit], nvml(node), own, guarantee=guarantee)
        assert (record["trouble"], record["by"], record["soft"]) == ("", "driver", soft * MIB)
        assert limits_in_the_driver(node) == {own[0]: (100 * MIB, soft * MIB)}
        known = limit_records.records_of({"memory": [record]})[gpu(node)]
        assert known.granted == limit
        assert (f"limits.guarantee: {guarantee}" in known.guarantee) == (not soft)
        assert known.document() == record

    def test_guarantee_alone(self, node: SimulatedNode, tmp_path: Path) -> None:
        """If it cannot be enforced, nothing is set, and no cgroup needs the controller."""
        own = cgroups(tmp_path, "container")
        use_dmem(node, [])
        (tmp_path / "cgroup.controllers").write_text("cpu dmem\n", encoding="ascii")
        limit = MemoryLimit(gpu(node), NO_LIMIT, 50 * MIB, is_asked=True)
        told: list[GpuhookError] = []
        (record,) = cgroup_limits.apply([limit], nvml(node), own, told)
        assert (told, record["trouble"], record["soft"], record["cgroups"]) == ([], "", 0, [])
        assert record["guarantee"]

    def test_bad_device_does_not_affect_the_others(
        self, node: SimulatedNode, tmp_path: Path
    ) -> None:
        own = cgroups(tmp_path, "container")
        limits = [MemoryLimit(name, MIB * 9) for name in ("GPU-gone", "MIG-1", gpu(node))]
        told: list[GpuhookError] = []
        records = cgroup_limits.apply(limits, nvml(node), own, told)
        assert [one["by"] for one in records] == ["", "", "driver"]
        assert [error.code for error in told] == ["GH1255", "GH1253"]
        assert records[0]["trouble"] == f"GH1255: {told[0].message}"
        assert told[0].hint == fault("GH1255", uuid="GPU-gone", reason="x").hint

    def test_limit_above_the_card(self, node: SimulatedNode, tmp_path: Path) -> None:
        """A limit above the card is the card; a guarantee of that size is refused."""
        own = cgroups(tmp_path, "container")
        whole = node.node.gpus[0].memory_bytes
        assert whole is not None
        great = MemoryLimit(gpu(node), 999_999 * MIB, 5 * MIB)
        (record,) = cgroup_limits.apply([great], nvml(node), own)
        assert (record["by"], record["hard"], record["soft"]) == ("driver", whole, 5 * MIB)
        assert [one.hard for one in stub_limits.recorded(node)] == [whole]
        told: list[GpuhookError] = []
        for hard in (NO_LIMIT, 999_999 * MIB):
            guaranteed = MemoryLimit(gpu(node), hard, 999_999 * MIB)
            (record,) = cgroup_limits.apply([guaranteed], nvml(node), own, told)
            assert (record["by"], record["hard"]) == ("", hard)
        assert [error.code for error in told] == ["GH1251", "GH1251"]

    def test_refused_narrowed_limit_falls_back_to_the_grant(
        self, node: SimulatedNode, tmp_path: Path
    ) -> None:
        """A request that is too small does not remove the grant."""
        own = cgroups(tmp_path, "container")
        whole = node.node.gpus[0].memory_bytes
        assert whole is not None
        grant = MemoryLimit(gpu(node), 100 * MIB, 50 * MIB)
        # The stub refuses a guarantee above the card's memory, whatever the limit is.
        narrowed = MemoryLimit(gpu(node), NO_LIMIT, whole + MIB, is_asked=True)
        told: list[GpuhookError] = []
        (record,) = cgroup_limits.apply([narrowed], nvml(node), own, told, grants=[grant])
        assert [error.code for error in told] == ["GH1251"]
        assert limits_in_the_driver(node) == {own[0]: (100 * MIB, 50 * MIB)}
        known = limit_records.records_of({"memory": [record]})[gpu(node)]
        assert (known.by, known.limit.hard, known.limit.soft) == ("driver", 100 * MIB, 50 * MIB)
        assert known.trouble.startswith("GH1251: ")
        log = EngineLog("test", str(tmp_path / "log"))
        cgroup_limits.judge([record], told, log, required=False)
        text = (tmp_path / "log").read_text(encoding="utf-8")
        assert "GH1648" in text
        assert "GH1647" not in text

    def test_refused_grant_sets_no_limit(self, node: SimulatedNode, tmp_path: Path) -> None:
        own = cgroups(tmp_path, "container")
        whole = node.node.gpus[0].memory_bytes
        assert whole is not None
        limits = [MemoryLimit(gpu(node), NO_LIMIT, whole + size * MIB) for size in (1, 2)]
        told: list[GpuhookError] = []
        (record,) = cgroup_limits.apply(limits[:1], nvml(node), own, told, grants=limits[1:])
        assert (record["by"], limits_in_the_driver(node)) == ("", {})

    def test_hanging_driver_is_a_fault(
        self, node: SimulatedNode, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(cgroup_limits, "SECONDS", 0.2)
        stub_limits.take_long(node, gpu(node), 60_000)
        own = cgroups(tmp_path, "container")
        told: list[GpuhookError] = []
        (record,) = cgroup_limits.apply([MemoryLimit(gpu(node), MIB)], nvml(node), own, told)
        assert [error.code for error in told] == ["GH1256"]
        assert record["trouble"].startswith("GH1256: ")


def test_library_that_cannot_be_loaded_is_a_fault(tmp_path: Path) -> None:
    told: list[GpuhookError] = []
    library = tmp_path / "libnvidia-ml.so.1"
    library.write_bytes(b"none")
    limits = [MemoryLimit("GPU-1", MIB), MemoryLimit("GPU-2", MIB)]
    records = cgroup_limits.apply(limits, lambda: str(library), [], told)
    assert [error.code for error in told] == ["GH1202", "GH1202"]
    assert [one["by"] for one in records] == ["", ""]


def test_library_that_crashes_is_a_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    """The hook continues: only the child process ends."""
    monkeypatch.setattr(limit_drivers, "NvmlDriver", lambda _: os.kill(os.getpid(), 9))
    told: list[GpuhookError] = []
    cgroup_limits.apply([MemoryLimit("GPU-1", MIB)], lambda: "libnvidia-ml.so.1", [], told)
    assert [error.code for error in told] == ["GH1257"]
    assert "signal 9" in told[0].message


def test_internal_error_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(_: str) -> None:
        raise KeyError("oops")

    monkeypatch.setattr(limit_drivers, "NvmlDriver", broken)
    told: list[GpuhookError] = []
    cgroup_limits.apply([MemoryLimit("GPU-1", MIB)], lambda: "libnvidia-ml.so.1", [], told)
    assert [error.code for error in told] == ["GH1257"]
    assert "KeyError: 'oops'" in told[0].message


@pytest.mark.parametrize(
    "error",
    [fault("GH1312"), FileNotFoundError(2, "No such file or directory", "/sys/fs/cgroup/x")],
)
def test_without_a_cgroup_no_driver_is_called(error: Exception) -> None:
    def gone() -> list[str]:
        raise error

    told: list[GpuhookError] = []
    (record,) = cgroup_limits.set_or_report([MemoryLimit("GPU-1", MIB)], pytest.fail, gone, told)
    assert record["by"] == ""
    (known,) = told
    assert record["trouble"] == f"{known.code}: {known.message}"
    assert known.code in ("GH1312", "GH1313")
    if isinstance(error, OSError):
        assert "/sys/fs/cgroup/x: No such file" in known.message


def test_policies_that_require_a_limit() -> None:
    answers = {
        (policy, asked): container_limits.is_required(policy, is_asked=asked)
        for policy in ("auto", "refuse", "start")
        for asked in (False, True)
    }
    assert [key for key, is_required in answers.items() if is_required] == [
        ("auto", True),
        ("refuse", False),
        ("refuse", True),
    ]


def test_required_limit_raises_and_others_warn(tmp_path: Path) -> None:
    log = EngineLog("test", str(tmp_path / "log"))
    records = [cgroup_limits.refused(MemoryLimit("GPU-1", MIB), fault("GH1312")).document()]
    cgroup_limits.judge(records, [fault("GH1312")], log, required=False)
    assert "GH1647: GPU GPU-1" in (tmp_path / "log").read_text(encoding="utf-8")
    with pytest.raises(GpuhookError) as caught:
        cgroup_limits.judge(records, [fault("GH1312")], log, required=True)
    assert caught.value.code == "GH1312"
    cgroup_limits.judge([], [], log, required=True)


@pytest.mark.parametrize(
    "words",
    [
        [],
        ["--required"],
        ["--gpu"],
        ["--gpu", "GPU-1"],
        ["--gpu", "GPU-1=1"],
        ["--gpu", "GPU-1=1,2,3"],
        ["--gpu", "GPU-1=1,-2"],
        ["--gpu", "=1,2"],
        ["--gpu", "GPU-1=1,\u0662"],
        ["--other", "1"],
        ["--guarantee", "sometimes"],
    ],
)
def test_unknown_arguments_are_a_fault(words: list[str], tmp_path: Path) -> None:
    with pytest.raises(GpuhookError) as caught:
        limit_hook.run(words, EngineLog("test", str(tmp_path / "log")))
    assert caught.value.code == "GH1640"


def test_help_has_every_option() -> None:
    """An option that the wrapper may write must be documented."""
    options = re.findall(r'"(--[a-z]+)"', inspect.getsource(limit_hook))
    assert len(options) >= 6
    told = USAGE.partition("\nlimit: ")[2]
    assert [option for option in options if f"  {option}" not in told] == []


HYBRID = b"36 31 0:33 / /sys/fs/cgroup/devices rw - cgroup cgroup rw,devices\n"
V2 = b"31 23 0:28 / /sys/fs/cgroup rw,relatime - cgroup2 none rw\n"


@pytest.mark.parametrize(
    ("mounts", "recorded", "code"),
    [(HYBRID, None, "GH1312"), (b"", None, "GH1313"), (V2, "", "GH1313"), (V2, None, "GH1313")],
    ids=["v1", "nothing", "none-recorded", "our-own"],
)
def test_missing_cgroup_is_a_fault(
    mounts: bytes, recorded: str | None, code: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def read(path: str, limit: int = 0) -> bytes:
        return mounts if path == "/proc/self/mountinfo" else b"0::/u/x.scope\n"

    monkeypatch.setattr("gpuhook.kernel.cgroup.files.read", read)
    monkeypatch.setattr(Process, "read", lambda *_: b"0::/u/x.scope\n")
    with Process(os.getpid(), None) as process, pytest.raises(GpuhookError) as caught:
        memory_cgroup.directories(process, recorded)
    assert caught.value.code == code


def test_other_processes_in_the_cgroup_are_a_fault(tmp_path: Path) -> None:
    """Only children of the container's first process may be there."""
    path = tmp_path / "own"
    path.mkdir()
    with Process(os.getppid()) as parent, Process(os.getpid()) as mine:
        (path / "cgroup.procs").write_text(f"{os.getpid()}\n{os.getppid()}\n", encoding="ascii")
        memory_cgroup.require_alone([str(path)], parent)
        with pytest.raises(GpuhookError) as caught:
            memory_cgroup.require_alone([str(path)], mine)
        assert caught.value.code == "GH1314"
        assert str(os.getppid()) in caught.value.message
        (path / "cgroup.procs").write_text("0\n", encoding="ascii")
        with pytest.raises(GpuhookError):
            memory_cgroup.require_alone([str(path)], mine)


@pytest.mark.parametrize("populated", [False, True])
def test_other_processes_below_the_cgroup_are_a_fault(populated: bool, tmp_path: Path) -> None:
    """An empty cgroup below is ignored; one with processes belongs to another program."""
    below = tmp_path / "below"
    below.mkdir()
    (tmp_path / "cgroup.procs").write_text("", encoding="ascii")
    (below / "cgroup.procs").write_text("", encoding="ascii")
    events = f"populated {int(populated)}\nfrozen 0\n"
    (below / "cgroup.events").write_text(events, encoding="ascii")
    with Process(os.getpid()) as mine:
        memory_cgroup.require_alone([str(below), str(tmp_path)], mine)
        if populated:
            with pytest.raises(GpuhookError) as caught:
                memory_cgroup.require_alone([str(tmp_path)], mine)
            assert caught.value.code == "GH1314"
        else:
            memory_cgroup.require_alone([str(tmp_path)], mine)


def test_host_without_free_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    """That is not a fault of the driver: the hint does not say to reinstall it."""

    def fails() -> int:
        raise OSError(11, "Resource temporarily unavailable")

    monkeypatch.setattr(os, "fork", fails)
    told: list[GpuhookError] = []
    cgroup_limits.apply([MemoryLimit("GPU-1", MIB)], lambda: "libnvidia-ml.so.1", [], told)
    assert [error.code for error in told] == ["GH1258"]
    assert "pids.max" in told[0].hint
    with pytest.raises(GpuhookError, match="Resource temporarily"):
        LimitWorker("nvidia.com", str)
