# SPDX-License-Identifier: Apache-2.0
"""Sharing by MPS through the device plugin as a process, with a simulated control daemon."""

from __future__ import annotations

import os
import shutil
import signal
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path

import pytest

from tests.kubelet.kubelet import Kubelet
from tests.kubelet.process import GPU, TIME_SLICING, PluginProcess
from tests.kubelet.running import Run
from tests.simulated import stub_events
from tests.simulated.node import SimulatedNode
from tests.waiting import eventually

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="makes device nodes")

MPS = TIME_SLICING.replace("timeSlicing", "mps")
STAND_IN = Path(__file__).parent.parent / "simulated/mps_control.py"


@pytest.fixture
def root() -> Iterator[Path]:
    """Yield the MPS root, in memory as on a node; its daemons end with the test."""
    made = Path(f"/dev/shm/gpuhook-test-plugin-mps-{os.getpid()}")
    yield made
    for file in made.glob("*/pipe/*.pid"):
        with suppress(ProcessLookupError):
            os.kill(int(file.read_text()), signal.SIGKILL)
    shutil.rmtree(made, ignore_errors=True)


@pytest.fixture
def run_mps(run: Run, tmp_path: Path, root: Path) -> Run:
    """Return a function: configuration, whether the daemon is installed -> a running plugin."""

    def start(
        text: str = MPS, *, has_program: bool = True, prefix: Sequence[str] = ()
    ) -> PluginProcess:
        programs = tmp_path / "bin"
        programs.mkdir()
        if has_program:
            shutil.copy(STAND_IN, programs / "nvidia-cuda-mps-control")
        env = {"MPS_ROOT": str(root), "PATH": f"{programs}:{os.environ['PATH']}"}
        return run("t4", text, change=without_daemon, prefix=prefix, **env)

    return start


def without_daemon(node: SimulatedNode) -> None:
    """Remove the driver's own control daemon, and set a known compute mode."""
    stub_events.say(node, str(node.node.gpus[0].uuid), "compute_mode 0")
    for file in node.node.files:
        if os.path.basename(file.container_path) == "nvidia-cuda-mps-control":
            Path(file.host_path).unlink()


def _pid(root: Path) -> int | None:
    """Return the pid of the daemon, None if none runs."""
    try:
        pid = int((root / "gpu/pipe/nvidia-cuda-mps-control.pid").read_text())
        os.kill(pid, 0)
    except (OSError, ValueError):
        return None
    return pid if (root / "gpu/pipe/control").exists() else None


def test_allocation_mounts_the_pipes_of_the_daemon(
    run_mps: Run, kubelet: Kubelet, root: Path
) -> None:
    run_mps()
    kubelet.wait_for_devices(GPU, 4)
    assert _pid(root)
    response = kubelet.allocate(GPU, 1).response
    assert response.envs["CUDA_MPS_PIPE_DIRECTORY"] == "/run/nvidia-mps/pipe"
    mounts = {mount.container_path: mount.host_path for mount in response.mounts}
    assert mounts == {"/run/nvidia-mps/pipe": f"{root}/gpu/pipe", "/dev/shm": f"{root}/shm"}
    commands = (root / "gpu/pipe/told").read_text()
    assert "set_default_active_thread_percentage 25" in commands


def test_daemon_that_dies_is_started_again(run_mps: Run, kubelet: Kubelet, root: Path) -> None:
    run_mps()
    kubelet.wait_for_devices(GPU, 4)
    first = _pid(root)
    assert first is not None
    os.kill(first, signal.SIGKILL)
    (root / "gpu/pipe/control").unlink()  # the real daemon removes a stale socket
    eventually(lambda: _pid(root) not in (None, first), "another daemon")
    kubelet.wait_for_devices(GPU, 4)


def test_missing_program_marks_all_devices_unhealthy(run_mps: Run, kubelet: Kubelet) -> None:
    running = run_mps(has_program=False)
    kubelet.wait_for_devices(GPU, 0, 4)
    line = running.wait_for_log(reason="GpuUnhealthy")
    assert "program nvidia-cuda-mps-control does not exist" in line["event"]


def test_read_only_mps_directory_is_reported(run_mps: Run, kubelet: Kubelet, root: Path) -> None:
    """After an edit of the ConfigMap, the pod has no writable MPS directory."""
    root.mkdir()
    mount = f'mount -t tmpfs -o ro none {root} && exec "$@"'
    running = run_mps(TIME_SLICING, prefix=["unshare", "--mount", "sh", "-c", mount, "sh"])
    kubelet.wait_for_devices(GPU, 4)
    running.configure(MPS)
    kubelet.wait_for_devices(GPU, 0, 4)
    line = running.wait_for_log(reason="MpsNotStarted")
    assert line["code"] == "GH1878"
    assert str(root) in line["event"]
    assert "Read-only file system" in line["event"]
    assert "features.mps" in line["hint"]
    running.configure(TIME_SLICING)
    kubelet.wait_for_devices(GPU, 4)


def test_change_to_time_slicing_ends_the_daemon(run_mps: Run, kubelet: Kubelet, root: Path) -> None:
    running = run_mps()
    kubelet.wait_for_devices(GPU, 4)
    assert _pid(root)
    running.configure(TIME_SLICING.replace("replicas: 4", "replicas: 3"))
    kubelet.wait_for_devices(GPU, 3)
    assert _pid(root) is None
    assert not kubelet.allocate(GPU, 1).response.mounts


def test_next_plugin_takes_over_the_daemon(run_mps: Run, kubelet: Kubelet, root: Path) -> None:
    running = run_mps()
    kubelet.wait_for_devices(GPU, 4)
    first = _pid(root)
    assert first is not None
    assert running.stop() == 0
    running.configure(MPS.replace("replicas: 4", "replicas: 2"))
    running.start()
    kubelet.wait_for_devices(GPU, 2)
    assert _pid(root) == first
    commands = (root / "gpu/pipe/told").read_text().splitlines()
    assert "set_default_active_thread_percentage 50" in commands
    assert running.stop() == 0
    running.configure(TIME_SLICING)
    running.start()
    kubelet.wait_for_devices(GPU, 4)
    assert _pid(root) is None
