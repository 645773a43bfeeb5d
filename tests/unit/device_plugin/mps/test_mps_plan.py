# SPDX-License-Identifier: Apache-2.0
"""Sharing by MPS: the commands for a daemon, and a daemon that receives them."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest

from gpuhook.device_plugin.config.sharing_section import SharedResource
from gpuhook.device_plugin.mps import mps_plan as mps
from gpuhook.device_plugin.mps.mps_daemon import MpsDaemon
from gpuhook.device_plugin.mps.mps_plan import MpsPlan
from gpuhook.device_plugin.offer import offered_devices
from gpuhook.device_plugin.offer.offered_devices import Device, Resource, Unit, UnitMemory
from gpuhook.errors import GpuhookError

STAND_IN = Path(__file__).parents[3] / "simulated/mps_control.py"


def device(index: int, capability: str | None = "7.5", memory: int | None = 15360 << 20) -> Device:
    path = f"/dev/nvidia{index}"
    return Device(
        uuid=f"GPU-{index}",
        index=str(index),
        gpu=f"GPU-{index}",
        gpu_index=index,
        paths=(path,),
        host_paths=(path,),
        model="Tesla T4",
        memory_bytes=memory,
        compute_capability=capability,
    )


def shared_resource(*replicas: int, **facts: object) -> Resource:
    units = [
        Unit(f"GPU-{index}::{number}", device(index, **facts), number)  # type: ignore[arg-type]
        for index, count in enumerate(replicas)
        for number in range(count)
    ]
    share = (15360 << 20) // max(replicas)
    memory = {unit.device.uuid: UnitMemory(share, share) for unit in units}
    return Resource("nvidia.com/gpu", tuple(units), sharing="mps", memory=memory)


def test_every_client_gets_its_share() -> None:
    plan = mps.plan(shared_resource(4, 4), "/run/nvidia/mps")
    assert plan is not None
    assert plan.commands() == (
        "set_default_device_pinned_mem_limit 0 3840M",
        "set_default_device_pinned_mem_limit 1 3840M",
        "set_default_active_thread_percentage 25",
    )
    assert plan.pipe == "/run/nvidia/mps/gpu/pipe"
    assert plan.shm == "/run/nvidia/mps/shm"
    assert [mount.host_path for mount in plan.allocation.mounts] == [plan.pipe, plan.shm]


def test_limits_use_the_ordinals_of_their_devices() -> None:
    """A device without a limit keeps its ordinal."""
    resource = shared_resource(1, 1)
    plan = mps.plan(replace(resource, memory={"GPU-1": resource.memory["GPU-1"]}), "/run/mps")
    assert plan is not None
    assert plan.commands()[0] == "set_default_device_pinned_mem_limit 1 15360M"
    assert not any(" 0 " in command for command in plan.commands())


def test_thread_percentage_is_configurable() -> None:
    resource = shared_resource(4)
    entry = SharedResource("nvidia.com/gpu", 4, active_thread_percentage=60)
    plan = mps.plan(replace(resource, entries={"GPU-0": entry}), "/run/mps")
    assert plan is not None
    assert plan.percentage == 60
    two = replace(shared_resource(4, 4), entries={"GPU-0": entry})
    with pytest.raises(GpuhookError, match="unequal activeThreadPercentage: 60 % of GPU-0, 25 %"):
        mps.plan(two, "/run/mps")


def test_time_slicing_needs_no_daemon() -> None:
    assert mps.plan(replace(shared_resource(4), sharing="time-slicing"), "/run/mps") is None


def test_memory_is_unlimited_without_a_limit() -> None:
    plan = mps.plan(replace(shared_resource(2), memory={}), "/run/mps")
    assert plan is not None
    assert plan.commands() == ("set_default_active_thread_percentage 50",)


@pytest.mark.parametrize(
    ("capability", "most"),
    [("7.0", 48), ("7.5", 48), ("6.1", 16), ("3.5", 16), ("3.0", 0), ("12.0", 48), (None, None)],
)
def test_number_of_clients_depends_on_the_architecture(
    capability: str | None, most: int | None
) -> None:
    """A V100 (7.0) serves 48 clients."""
    assert offered_devices.most_clients(capability) == most


@pytest.mark.parametrize(
    ("resource", "code"),
    [
        (shared_resource(4, 2), "GH1870"),
        (shared_resource(17, capability="6.1"), "GH1871"),
        (shared_resource(2, capability="3.0"), "GH1871"),
        (replace(shared_resource(2), is_mig=True), "GH1872"),
    ],
)
def test_resource_that_mps_cannot_share_is_refused(resource: Resource, code: str) -> None:
    with pytest.raises(GpuhookError) as refused:
        mps.plan(resource, "/run/mps")
    assert refused.value.code == code


@pytest.fixture
def daemon(tmp_path: Path) -> Iterator[tuple[MpsDaemon, dict[str, str]]]:
    program = tmp_path / "nvidia-cuda-mps-control"
    shutil.copy(STAND_IN, program)
    modes: dict[str, str] = {}
    plan = mps.plan(shared_resource(4, 4), f"/dev/shm/gpuhook-test-mps-{os.getpid()}")
    assert plan is not None
    yield MpsDaemon(plan, str(program), modes.__setitem__), modes
    pid = Path(plan.pipe, "nvidia-cuda-mps-control.pid")
    if pid.exists():
        with suppress(ProcessLookupError):
            os.kill(int(pid.read_text()), signal.SIGKILL)
    remove_files(plan)


def remove_files(plan: MpsPlan) -> None:
    if os.path.ismount(plan.shm):
        subprocess.run(["umount", plan.shm], check=True)
    shutil.rmtree(Path(plan.root).parent)


def test_daemon_is_started_once_and_gets_its_limits(
    daemon: tuple[MpsDaemon, dict[str, str]],
) -> None:
    running, modes = daemon
    assert not running.answers()
    assert running.ensure()
    assert running.answers()
    assert Path(running.plan.pipe, "devices").read_text() == "GPU-0,GPU-1"
    assert modes == {"GPU-0": "exclusive-process", "GPU-1": "exclusive-process"}
    commands = Path(running.plan.pipe, "told").read_text().splitlines()
    assert [line for line in commands if line.startswith("set_")] == list(running.plan.commands())
    assert not running.ensure()
    again = Path(running.plan.pipe, "told").read_text().splitlines()
    # The probe sends one command.
    assert again == [*commands, "get_default_active_thread_percentage"]
    assert not MpsDaemon(running.plan, running._program, modes.__setitem__).ensure()


def test_stopped_daemon_resets_the_compute_modes(daemon: tuple[MpsDaemon, dict[str, str]]) -> None:
    running, modes = daemon
    running.ensure()
    running.quit()
    assert not running.answers()
    assert set(modes.values()) == {"default"}
    running.quit()  # already stopped


def test_failed_daemon_is_reported_with_its_log(daemon: tuple[MpsDaemon, dict[str, str]]) -> None:
    running, _ = daemon
    os.makedirs(running.plan.log)
    Path(running.plan.log, "broken").touch()
    with pytest.raises(GpuhookError) as failed:
        running.ensure()
    assert failed.value.code == "GH1874"
    assert "out of order" in failed.value.message
    assert running.plan.log in failed.value.hint


def test_missing_program_is_a_fault(tmp_path: Path) -> None:
    plan = mps.plan(shared_resource(2), f"/dev/shm/gpuhook-test-mps-{os.getpid()}")
    assert plan is not None
    try:
        with pytest.raises(GpuhookError) as failed:
            MpsDaemon(plan, str(tmp_path / "absent"), lambda _uuid, _mode: None).ensure()
        assert failed.value.code == "GH1873"
    finally:
        remove_files(plan)


@pytest.fixture
def on_disk() -> Iterator[Path]:
    """Yield a directory on disk; tmp_path may be in memory."""
    with tempfile.TemporaryDirectory(dir="/var/tmp") as place:
        yield Path(place)


@pytest.mark.skipif(os.geteuid() != 0, reason="mounts a tmpfs")
def test_shared_memory_directory_on_disk_gets_a_tmpfs(tmp_path: Path, on_disk: Path) -> None:
    plan = mps.plan(shared_resource(2), str(on_disk / "mps"))
    assert plan is not None
    program = tmp_path / "control"
    program.write_text("#!/bin/sh\necho 100.0\n")
    program.chmod(0o755)
    try:
        MpsDaemon(plan, str(program), lambda _uuid, _mode: None).ensure()
        assert os.path.ismount(plan.shm)
        assert os.stat(plan.shm).st_mode & 0o7777 == 0o1777
    finally:
        remove_files(plan)
