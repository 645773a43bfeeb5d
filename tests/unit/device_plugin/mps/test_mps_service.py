# SPDX-License-Identifier: Apache-2.0
"""The MPS control daemons of a node, through changes of its configuration and of the plugin."""

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
from tests.unit.device_plugin.mps.test_mps_plan import STAND_IN, shared

GPU = "nvidia.com/gpu"


class Daemons:
    """Daemons of a stand-in below `root`, and the compute modes that GPUs were given."""

    def __init__(self, place: Path, root: str) -> None:
        self.root = root
        self.program = place / "nvidia-cuda-mps-control"
        shutil.copy(STAND_IN, self.program)
        self.modes: dict[str, str] = {}
        self.look = NodeSnapshot()

    def set_mode(self, library: tuple[str, str | None], uuid: str, mode: str) -> None:
        """Replace compute_mode.set_compute_mode on the simulated node."""
        if library[1] != self.look.seen.driver.module_version:
            raise fault("GH1877", uuid=uuid, mode=mode, reason="this library has gone")
        self.modes[uuid] = mode

    def upgrade(self) -> None:
        """Give the node another driver."""
        seen = Node(Driver(nvml="/lib/libnvidia-ml.so.590.1", module_version="590.1"))
        self.look = NodeSnapshot(seen, seen)

    def keep(self, keeping: MpsService, *resources: Resource) -> mps_service.MpsState:
        """Have the daemons of these resources."""
        return keeping.update(resources, self.root, self.look)

    def pid(self, name: str = "gpu") -> int | None:
        """Return the process of a daemon that runs."""
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


def test_renamed_resource_has_a_daemon_that_keeps_its_gpus(node: Daemons) -> None:
    """The old daemon goes first: else it gives the GPUs of the new one back to everyone."""
    keeping = MpsService()
    node.keep(keeping, shared(4, 4))
    state = node.keep(keeping, replace(shared(4, 4), name=f"{GPU}.shared"))
    assert not state.unready
    assert node.pid() is None
    assert node.pid("gpu.shared")
    assert set(node.modes.values()) == {"exclusive-process"}


def test_time_slicing_instead_stops_the_daemon(node: Daemons) -> None:
    keeping = MpsService()
    node.keep(keeping, shared(4))
    state = node.keep(keeping, replace(shared(4), sharing="time-slicing"))
    assert state == mps_service.MpsState()
    assert node.pid() is None
    assert node.modes == {"GPU-0": "default"}
    assert not keeping.is_needed


def test_other_limits_keep_the_daemon(node: Daemons) -> None:
    keeping = MpsService()
    node.keep(keeping, shared(4))
    before = node.pid()
    state = node.keep(keeping, shared(2))
    assert (state.started, state.changed) == ([], [GPU])
    assert node.keep(keeping, shared(2)).changed == []
    assert node.keep(MpsService(), shared(2)).changed == []
    assert node.pid() == before
    told = Path(node.root, "gpu/pipe/told").read_text().splitlines()
    assert told[-1] == "set_default_active_thread_percentage 50"


def test_next_plugin_keeps_the_daemon(node: Daemons) -> None:
    node.keep(MpsService(), shared(4))
    before = node.pid()
    assert node.keep(MpsService(), shared(4)).started == []
    assert node.pid() == before
    assert node.modes == {"GPU-0": "exclusive-process"}


def test_next_plugin_stops_a_daemon_that_nobody_wants(node: Daemons) -> None:
    """Its GPUs would stay with one process each, and time slicing would not work on them."""
    node.keep(MpsService(), shared(4, 4))
    node.keep(MpsService(), replace(shared(4, 4), sharing="time-slicing"))
    assert node.pid() is None
    assert set(node.modes.values()) == {"default"}


def test_next_plugin_restarts_a_daemon_of_other_gpus(node: Daemons) -> None:
    node.keep(MpsService(), shared(4, 4))
    state = node.keep(MpsService(), shared(4))
    assert state.started == [GPU]
    assert Path(node.root, "gpu/pipe/devices").read_text() == "GPU-0"
    assert node.modes == {"GPU-0": "exclusive-process", "GPU-1": "default"}


def test_impossible_limits_do_not_stop_a_daemon_with_clients(node: Daemons) -> None:
    keeping = MpsService()
    node.keep(keeping, shared(4))
    before = node.pid()
    state = node.keep(keeping, shared(49))
    assert "serves at most 48 clients" in state.unready["GPU-0"]
    assert node.pid() == before


def test_missing_program_leaves_the_devices_unready(node: Daemons) -> None:
    node.program.unlink()
    state = node.keep(MpsService(), shared(4))
    assert "does not exist" in state.unready["GPU-0"]
    assert not state.given


@pytest.mark.parametrize("part", ["gpu/pipe", "gpu/log", "shm"])
def test_a_directory_that_cannot_be_made_has_a_code(node: Daemons, part: str) -> None:
    path = Path(node.root, part)
    path.parent.mkdir(parents=True)
    path.symlink_to("/proc/none")  # no file can be created below
    state = node.keep(MpsService(), shared(4))
    (error,) = state.faults
    assert error.code == "GH1878"
    assert str(node.root) in error.message
    assert state.unready == {"GPU-0": error.message}
    assert not state.given


def test_what_is_told_of_a_daemon_has_its_code(node: Daemons) -> None:
    node.program.unlink()
    assert [error.code for error in node.keep(MpsService(), shared(4)).faults] == ["GH1873"]
    impossible = replace(shared(2), is_mig=True)
    assert [error.code for error in node.keep(MpsService(), impossible).faults] == ["GH1872"]


def test_daemon_that_was_killed_is_started_again(node: Daemons) -> None:
    keeping = MpsService()
    node.keep(keeping, shared(4))
    before = node.pid()
    assert before is not None
    os.kill(before, signal.SIGKILL)
    Path(node.root, "gpu/pipe/control").unlink()  # the real one removes what is stale
    assert node.keep(keeping, shared(4)).started == [GPU]
    told = Path(node.root, "gpu/pipe/told").read_text().splitlines()
    assert told.count("set_default_active_thread_percentage 25") == 2


def test_upgraded_driver_is_asked_by_its_own_library(node: Daemons) -> None:
    """For a daemon that is started again, and for one that is to go."""
    keeping = MpsService()
    node.keep(keeping, shared(4))
    before = node.pid()
    assert before is not None
    os.kill(before, signal.SIGKILL)
    Path(node.root, "gpu/pipe/control").unlink()
    node.upgrade()
    assert not node.keep(keeping, shared(4)).unready
    node.look = NodeSnapshot()
    node.keep(keeping, replace(shared(4), sharing="time-slicing"))
    assert node.modes == {"GPU-0": "default"}


def test_daemon_that_keeps_its_output_open_is_not_waited_for(node: Daemons) -> None:
    node.program.write_text(
        '#!/bin/sh\nif [ "$1" = -d ]; then sleep 15 & touch "$0.up"; exit; fi\n'
        '[ -e "$0.up" ] && echo 100.0\n'
    )
    assert node.keep(MpsService(), shared(4)).started == [GPU]


def test_dump_starts_and_stops_no_daemon(node: Daemons) -> None:
    """Who tries a configuration beside a plugin that serves takes no GPU from its clients."""
    node.keep(MpsService(), shared(4))
    pid, modes = node.pid(), dict(node.modes)
    tried = MpsService()
    other = replace(shared(4, 4), name="nvidia.com/other")
    state = tried.update((other,), node.root, NodeSnapshot(is_dump=True))
    assert list(state.given) == ["nvidia.com/other"]
    assert not state.unready
    assert not tried.is_needed
    assert node.pid() == pid
    assert node.pid("other") is None
    assert node.modes == modes
