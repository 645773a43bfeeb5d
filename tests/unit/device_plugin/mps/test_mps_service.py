# SPDX-License-Identifier: Apache-2.0
"""The MPS control daemons through changes of the configuration and restarts of the plugin."""

from __future__ import annotations

import os
import shutil
import signal
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest

from gpuhook.device_plugin.mps import mps_service
from gpuhook.device_plugin.mps.mps_service import MpsService
from gpuhook.device_plugin.node_snapshot import NodeSnapshot
from gpuhook.device_plugin.offer.offered_devices import Resource
from gpuhook.errors import fault
from gpuhook.vendors.nvidia.driver import driver_locations
from gpuhook.vendors.nvidia.gpu import compute_mode
from gpuhook.vendors.nvidia.inventory.inventory import Driver, Node
from gpuhook.vendors.nvidia.plugin import nvidia_part
from tests.unit.device_plugin.mps.test_mps_plan import STAND_IN, shared_resource

GPU = "nvidia.com/gpu"


class Daemons:
    """Simulated daemons below `root`, and the compute modes that they set."""

    def __init__(self, place: Path, root: str) -> None:
        self.root = root
        self.program = place / "nvidia-cuda-mps-control"
        shutil.copy(STAND_IN, self.program)
        self.modes: dict[str, str] = {}
        self.snapshot = NodeSnapshot()

    def set_mode(self, library: tuple[str, str | None], uuid: str, mode: str) -> None:
        """Replace compute_mode.set_compute_mode."""
        if library[1] != nvidia_part.own_part(self.snapshot.parts).seen.driver.module_version:
            raise fault("GH1877", uuid=uuid, mode=mode, reason="this library has gone")
        self.modes[uuid] = mode

    def upgrade(self) -> None:
        seen = Node(Driver(nvml="/lib/libnvidia-ml.so.590.1", module_version="590.1"))
        self.snapshot = NodeSnapshot(parts=(nvidia_part.part(seen),))

    def update(self, service: MpsService, *resources: Resource) -> mps_service.MpsState:
        """Update the service with these resources."""
        return service.update(resources, self.root, self.snapshot)

    def pid(self, name: str = "gpu") -> int | None:
        """Return the pid of a running daemon, None without one."""
        if not Path(self.root, name, "pipe/control").exists():
            return None
        return int(Path(self.root, name, "pipe/nvidia-cuda-mps-control.pid").read_text())


@pytest.fixture
def node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Daemons]:
    made = Daemons(tmp_path, f"/dev/shm/gpuhook-test-keeping-{os.getpid()}")
    monkeypatch.setattr(driver_locations, "program_path", lambda _node, _name: str(made.program))
    monkeypatch.setattr(compute_mode, "set_compute_mode", made.set_mode)
    yield made
    for file in Path(made.root).glob("*/pipe/*.pid"):
        with suppress(ProcessLookupError):
            os.kill(int(file.read_text()), signal.SIGKILL)
    shutil.rmtree(made.root)


def test_renamed_resource_keeps_the_compute_modes_of_its_gpus(node: Daemons) -> None:
    """The old daemon stops first, since it resets the modes at its end."""
    service = MpsService()
    node.update(service, shared_resource(4, 4))
    state = node.update(service, replace(shared_resource(4, 4), name=f"{GPU}.shared"))
    assert not state.unready
    assert node.pid() is None
    assert node.pid("gpu.shared")
    assert set(node.modes.values()) == {"exclusive-process"}


def test_change_to_time_slicing_stops_the_daemon(node: Daemons) -> None:
    service = MpsService()
    node.update(service, shared_resource(4))
    state = node.update(service, replace(shared_resource(4), sharing="time-slicing"))
    assert state == mps_service.MpsState()
    assert node.pid() is None
    assert node.modes == {"GPU-0": "default"}
    assert not service.is_needed


def test_changed_limits_keep_the_daemon(node: Daemons) -> None:
    service = MpsService()
    node.update(service, shared_resource(4))
    before = node.pid()
    state = node.update(service, shared_resource(2))
    assert (state.started, state.changed) == ([], [GPU])
    assert node.update(service, shared_resource(2)).changed == []
    assert node.update(MpsService(), shared_resource(2)).changed == []
    assert node.pid() == before
    commands = Path(node.root, "gpu/pipe/told").read_text().splitlines()
    assert commands[-1] == "set_default_active_thread_percentage 50"


def test_next_plugin_keeps_the_daemon(node: Daemons) -> None:
    node.update(MpsService(), shared_resource(4))
    before = node.pid()
    assert node.update(MpsService(), shared_resource(4)).started == []
    assert node.pid() == before
    assert node.modes == {"GPU-0": "exclusive-process"}


def test_next_plugin_stops_an_unused_daemon(node: Daemons) -> None:
    """Its GPUs would remain in exclusive-process mode."""
    node.update(MpsService(), shared_resource(4, 4))
    node.update(MpsService(), replace(shared_resource(4, 4), sharing="time-slicing"))
    assert node.pid() is None
    assert set(node.modes.values()) == {"default"}


def test_next_plugin_restarts_a_daemon_with_other_gpus(node: Daemons) -> None:
    node.update(MpsService(), shared_resource(4, 4))
    state = node.update(MpsService(), shared_resource(4))
    assert state.started == [GPU]
    assert Path(node.root, "gpu/pipe/devices").read_text() == "GPU-0"
    assert node.modes == {"GPU-0": "exclusive-process", "GPU-1": "default"}


def test_impossible_limits_do_not_stop_a_daemon_with_clients(node: Daemons) -> None:
    service = MpsService()
    node.update(service, shared_resource(4))
    before = node.pid()
    state = node.update(service, shared_resource(49))
    assert "serves at most 48 clients" in state.unready["GPU-0"]
    assert node.pid() == before


def test_missing_program_makes_the_devices_unready(node: Daemons) -> None:
    node.program.unlink()
    state = node.update(MpsService(), shared_resource(4))
    assert "does not exist" in state.unready["GPU-0"]
    assert not state.given


@pytest.mark.parametrize("part", ["gpu/pipe", "gpu/log", "shm"])
def test_uncreatable_directory_is_a_fault(node: Daemons, part: str) -> None:
    path = Path(node.root, part)
    path.parent.mkdir(parents=True)
    path.symlink_to("/proc/none")  # no file can be created below
    state = node.update(MpsService(), shared_resource(4))
    (error,) = state.faults
    assert error.code == "GH1878"
    assert str(node.root) in error.message
    assert state.unready == {"GPU-0": error.message}
    assert not state.given


def test_faults_of_a_daemon_have_codes(node: Daemons) -> None:
    node.program.unlink()
    assert [error.code for error in node.update(MpsService(), shared_resource(4)).faults] == [
        "GH1873"
    ]
    impossible = replace(shared_resource(2), is_mig=True)
    assert [error.code for error in node.update(MpsService(), impossible).faults] == ["GH1872"]


def test_killed_daemon_is_restarted(node: Daemons) -> None:
    service = MpsService()
    node.update(service, shared_resource(4))
    before = node.pid()
    assert before is not None
    os.kill(before, signal.SIGKILL)
    Path(node.root, "gpu/pipe/control").unlink()  # the real daemon removes a stale socket
    assert node.update(service, shared_resource(4)).started == [GPU]
    commands = Path(node.root, "gpu/pipe/told").read_text().splitlines()
    assert commands.count("set_default_active_thread_percentage 25") == 2


def test_upgraded_driver_is_called_by_its_own_library(node: Daemons) -> None:
    """The compute mode is set when the daemon restarts and when it stops."""
    service = MpsService()
    node.update(service, shared_resource(4))
    before = node.pid()
    assert before is not None
    os.kill(before, signal.SIGKILL)
    Path(node.root, "gpu/pipe/control").unlink()
    node.upgrade()
    assert not node.update(service, shared_resource(4)).unready
    node.snapshot = NodeSnapshot()
    node.update(service, replace(shared_resource(4), sharing="time-slicing"))
    assert node.modes == {"GPU-0": "default"}


def test_daemon_with_open_output_does_not_block_the_start(node: Daemons) -> None:
    node.program.write_text(
        '#!/bin/sh\nif [ "$1" = -d ]; then sleep 15 & touch "$0.up"; exit; fi\n'
        '[ -e "$0.up" ] && echo 100.0\n'
    )
    assert node.update(MpsService(), shared_resource(4)).started == [GPU]


def test_dump_neither_starts_nor_stops_a_daemon(node: Daemons) -> None:
    """A configuration can be tried next to a running plugin."""
    node.update(MpsService(), shared_resource(4))
    pid, modes = node.pid(), dict(node.modes)
    tried = MpsService()
    other = replace(shared_resource(4, 4), name="nvidia.com/other")
    state = tried.update((other,), node.root, NodeSnapshot(is_dump=True))
    assert list(state.given) == ["nvidia.com/other"]
    assert not state.unready
    assert not tried.is_needed
    assert node.pid() == pid
    assert node.pid("other") is None
    assert node.modes == modes
