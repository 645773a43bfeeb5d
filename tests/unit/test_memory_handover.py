# SPDX-License-Identifier: Apache-2.0
"""Limits handed to the driver: what is recorded, what is told, and how long anybody waits."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from gpuhook.container import memory_cgroup
from gpuhook.container.process import Process
from gpuhook.engine_log import EngineLog
from gpuhook.errors import GpuhookError, fault
from gpuhook.grant.memory import MIB, MemoryLimit
from gpuhook.programs import hook_limit
from gpuhook.programs.memory import granted, handover
from tests.simulated import stub_limits
from tests.simulated.node import SimulatedNode, make_node


@pytest.fixture
def node(tmp_path: Path) -> SimulatedNode:
    """Give a node with one GPU, for which directories below the test's own are cgroups."""
    made = make_node(tmp_path / "node", "t4", real_nodes=False)
    stub_limits.take_for_cgroups(made, gpu(made), tmp_path)
    return made


def gpu(node: SimulatedNode) -> str:
    return str(node.node.gpus[0].uuid)


def cgroups(place: Path, *names: str) -> list[str]:
    paths = [place / name for name in names]
    for path in paths:
        path.mkdir()
    return [str(path) for path in paths]


@pytest.mark.skipif(os.geteuid() != 0, reason="the driver takes limits of root alone")
class TestApply:
    """What apply() does with a driver."""

    def test_every_cgroup_is_told(self, node: SimulatedNode, tmp_path: Path) -> None:
        own = cgroups(tmp_path, "container", "scope")
        limit = MemoryLimit(gpu(node), 100 * MIB, 50 * MIB, is_asked=True)
        (record,) = handover.apply([limit], node.nvml_library, own)
        assert record == {
            "device": gpu(node),
            "hard": 100 * MIB,
            "soft": 50 * MIB,
            "asked": True,
            "by": "driver",
            "trouble": "",
            "cgroups": own,
        }
        kept = {one.path: (one.hard, one.soft) for one in stub_limits.kept(node)}
        assert kept == dict.fromkeys(own, (100 * MIB, 50 * MIB))

    def test_one_bad_device_leaves_the_others(self, node: SimulatedNode, tmp_path: Path) -> None:
        own = cgroups(tmp_path, "container")
        limits = [MemoryLimit(name, MIB * 9) for name in ("GPU-gone", "MIG-1", gpu(node))]
        told: list[GpuhookError] = []
        records = handover.apply(limits, node.nvml_library, own, told)
        assert [one["by"] for one in records] == ["", "", "driver"]
        assert [error.code for error in told] == ["GH1255", "GH1253"]
        assert records[0]["trouble"] == f"GH1255: {told[0].message}"
        assert told[0].hint == fault("GH1255", uuid="GPU-gone", reason="x").hint

    def test_a_driver_that_hangs(self, node: SimulatedNode, tmp_path: Path) -> None:
        stub_limits.take_long(node, gpu(node), 60_000)
        own = cgroups(tmp_path, "container")
        told: list[GpuhookError] = []
        (record,) = handover.apply([MemoryLimit(gpu(node), MIB)], node.nvml_library, own, told, 0.2)
        assert [error.code for error in told] == ["GH1256"]
        assert record["trouble"].startswith("GH1256: ")


def test_a_library_that_cannot_be_loaded(tmp_path: Path) -> None:
    told: list[GpuhookError] = []
    library = tmp_path / "libnvidia-ml.so.1"
    library.write_bytes(b"none")
    limits = [MemoryLimit("GPU-1", MIB), MemoryLimit("GPU-2", MIB)]
    records = handover.apply(limits, str(library), [], told)
    assert [error.code for error in told] == ["GH1202", "GH1202"]
    assert [one["by"] for one in records] == ["", ""]


def test_a_library_that_crashes(monkeypatch: pytest.MonkeyPatch) -> None:
    """The hook goes on: it is another process that has died."""
    monkeypatch.setattr(handover, "Driver", lambda _: os.kill(os.getpid(), 9))
    told: list[GpuhookError] = []
    handover.apply([MemoryLimit("GPU-1", MIB)], "", [], told)
    assert [error.code for error in told] == ["GH1257"]
    assert "signal 9" in told[0].message


def test_an_error_of_our_own_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(_: str) -> None:
        raise KeyError("oops")

    monkeypatch.setattr(handover, "Driver", broken)
    told: list[GpuhookError] = []
    handover.apply([MemoryLimit("GPU-1", MIB)], "", [], told)
    assert [error.code for error in told] == ["GH1257"]
    assert "KeyError: 'oops'" in told[0].message


@pytest.mark.parametrize(
    "error",
    [fault("GH1312"), FileNotFoundError(2, "No such file or directory", "/sys/fs/cgroup/x")],
)
def test_without_a_cgroup_no_driver_is_asked(error: Exception) -> None:
    def gone() -> list[str]:
        raise error

    told: list[GpuhookError] = []
    (record,) = handover.held([MemoryLimit("GPU-1", MIB)], pytest.fail, gone, told)
    assert record["by"] == ""
    (known,) = told
    assert record["trouble"] == f"{known.code}: {known.message}"
    assert known.code in ("GH1312", "GH1313")
    if isinstance(error, OSError):
        assert "/sys/fs/cgroup/x: No such file" in known.message


def test_the_policy() -> None:
    answers = {
        (policy, asked): granted.is_required(policy, is_asked=asked)
        for policy in ("auto", "refuse", "start")
        for asked in (False, True)
    }
    assert [key for key, is_required in answers.items() if is_required] == [
        ("auto", True),
        ("refuse", False),
        ("refuse", True),
    ]


def test_judging(tmp_path: Path) -> None:
    log = EngineLog("test", str(tmp_path / "log"))
    records = [handover.record(MemoryLimit("GPU-1", MIB), fault("GH1312"))]
    handover.judge(records, [fault("GH1312")], log, required=False)
    assert "GH1647: GPU GPU-1" in (tmp_path / "log").read_text(encoding="utf-8")
    with pytest.raises(GpuhookError) as caught:
        handover.judge(records, [fault("GH1312")], log, required=True)
    assert caught.value.code == "GH1312"
    handover.judge([], [], log, required=True)


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
    ],
)
def test_words_that_nobody_understands(words: list[str], tmp_path: Path) -> None:
    with pytest.raises(GpuhookError) as caught:
        hook_limit.run(words, EngineLog("test", str(tmp_path / "log")))
    assert caught.value.code == "GH1645"


HYBRID = b"36 31 0:33 / /sys/fs/cgroup/devices rw - cgroup cgroup rw,devices\n"
V2 = b"31 23 0:28 / /sys/fs/cgroup rw,relatime - cgroup2 none rw\n"


@pytest.mark.parametrize(
    ("mounts", "recorded", "code"),
    [(HYBRID, None, "GH1312"), (b"", None, "GH1313"), (V2, "", "GH1313"), (V2, None, "GH1313")],
    ids=["v1", "nothing", "none-recorded", "our-own"],
)
def test_no_cgroup(
    mounts: bytes, recorded: str | None, code: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def read(path: str, limit: int = 0) -> bytes:
        return mounts if path == "/proc/self/mountinfo" else b"0::/u/x.scope\n"

    monkeypatch.setattr("gpuhook.kernel.cgroup.files.read", read)
    monkeypatch.setattr(Process, "read", lambda *_: b"0::/u/x.scope\n")
    with Process(os.getpid(), None) as process, pytest.raises(GpuhookError) as caught:
        memory_cgroup.directories(process, recorded)
    assert caught.value.code == code


def test_who_is_in_the_cgroup(tmp_path: Path) -> None:
    """Children of the container's first process may be there, and nobody else."""
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
def test_who_is_below_the_cgroup(populated: bool, tmp_path: Path) -> None:
    """An empty cgroup below is nobody's, and one with processes is somebody else's."""
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
