# SPDX-License-Identifier: Apache-2.0
"""Time slices and MPS servers of claims, with stubs of the driver's programs."""

from __future__ import annotations

import os
import shutil
import signal
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from gpuhook.device_plugin.config.launch_options import Launch
from gpuhook.dra.node_drivers import driver_drain
from gpuhook.host.hot import state
from gpuhook.usage import ledger_holders
from tests.contract.claim_node import OWN, ClaimNode, install_mps
from tests.refusal import refused
from tests.simulated import stub_events, time_slices
from tests.simulated.node import SimulatedNode, make_node
from tests.simulated.time_slices import TimeSlices

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="makes device nodes")

SHORT, LONG = ({**OWN, "timeSlice": value} for value in ("short", "long"))
MPS: dict[str, Any] = {**OWN, "mps": {"activeThreadPercentage": 30}}
TEXT = """\
version: v1
flags: {{mpsRoot: {root}}}
sharing: {{timeSlicing: {{resources: [{{name: nvidia.com/gpu, replicas: 4}}]}}}}
"""
Start = Callable[..., ClaimNode]


@pytest.fixture
def node(tmp_path: Path) -> SimulatedNode:
    made = make_node(tmp_path / "node", "t4")
    stub_events.say(made, str(made.node.gpus[0].uuid), "compute_mode 0")
    for file in made.node.files:
        if os.path.basename(file.container_path) == "nvidia-cuda-mps-control":
            Path(file.host_path).unlink()
    return made


@pytest.fixture
def driver(node: SimulatedNode) -> TimeSlices:
    return time_slices.install(node)


@pytest.fixture
def root() -> Iterator[Path]:
    """Yield the root of MPS servers, in memory as on a node; they end with the test."""
    made = Path(f"/dev/shm/gpuhook-test-dra-mps-{os.getpid()}")
    yield made
    for file in made.rglob("*.pid"):
        with suppress(ProcessLookupError):
            os.kill(int(file.read_text()), signal.SIGKILL)
    shutil.rmtree(made, ignore_errors=True)


@pytest.fixture
def start(
    tmp_path: Path,
    node: SimulatedNode,
    driver: TimeSlices,
    root: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> Start:
    """Return a function that starts the driver with a configuration on that node."""
    assert driver.now() == ["default"]
    install_mps(tmp_path / "bin")
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:{os.environ['PATH']}")
    monkeypatch.setenv(state.DIRECTORY_ENV, str(tmp_path / "state"))
    launch = Launch(
        host_root=node.host_root,
        node_driver_root=node.driver_root,
        node_dev_root=node.dev_root,
        nvml_library=node.nvml_library,
        cdi_directory=str(tmp_path / "cdi"),
        node_name="node1",
    )
    return lambda text=TEXT: ClaimNode(tmp_path, launch, text.format(root=root))


def saved(tmp_path: Path) -> list[str]:
    return sorted(one.name for one in (tmp_path / "state").glob("*policies.json"))


def test_the_last_claim_with_a_time_slice_restores_it(
    start: Start, driver: TimeSlices, tmp_path: Path
) -> None:
    made = start()
    first = made.prepare("a", of_claim=[SHORT])
    other, second = made.prepare("b"), made.prepare("c", of_class=[SHORT])
    assert driver.now() == ["short"]
    assert saved(tmp_path) == ["dra-policies.json"]  # the plugin would restore its own file
    made.unprepare(first)
    assert driver.now() == ["short"]
    made.unprepare(second)
    assert driver.now() == ["default"]
    assert saved(tmp_path) == []
    made.unprepare(other)


def test_drain_restores_what_a_stopped_driver_has_set(
    start: Start, driver: TimeSlices, tmp_path: Path
) -> None:
    made = start()
    made.prepare("a", of_claim=[SHORT])
    (line,) = driver_drain.restore_modes(made.launch)
    assert line.endswith("is default again")
    assert driver.now() == ["default"]
    assert saved(tmp_path) == []
    assert driver_drain.restore_modes(made.launch) == []


def test_ps_shows_the_time_slice_of_claims(
    start: Start, node: SimulatedNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(state.HOST_ROOT_ENV, node.host_root)
    start().prepare("a", of_claim=[SHORT])
    assert ledger_holders._turns()[str(node.node.gpus[0].uuid)]["time_slice"] == "short"


def test_claims_without_modes_call_no_program(start: Start, driver: TimeSlices) -> None:
    made = start()
    made.unprepare(made.prepare("a"))
    assert driver.calls() == []


def test_conflicting_time_slices_name_both_claims(start: Start, driver: TimeSlices) -> None:
    made = start()
    made.prepare("a", of_claim=[SHORT])
    with refused("GH2621", "default/b", "default/a", "gpu-0", "long", "short"):
        made.prepare("b", of_claim=[LONG])
    assert driver.now() == ["short"]
    assert [one.claim.name for one in made.held()] == ["a"]


@pytest.mark.parametrize("mood", ["forbidden", "old", "broken"])
def test_a_time_slice_that_the_driver_refuses(start: Start, driver: TimeSlices, mood: str) -> None:
    made = start()
    driver.mood(mood)
    with refused("GH2623", "default/a", "time slice", "gpu-0"):
        made.prepare("a", of_claim=[SHORT])
    assert made.held() == []
    assert list(made.specs.uids()) == []
    driver.mood("")
    made.prepare("a", of_claim=[SHORT])
    assert driver.now() == ["short"]


def test_a_killed_driver_keeps_what_its_claims_need(
    start: Start, driver: TimeSlices, tmp_path: Path
) -> None:
    claim = start().prepare("a", of_claim=[SHORT])
    made = start()
    assert driver.now() == ["short"]
    made.unprepare(claim)
    assert driver.now() == ["default"]
    start().prepare("b", of_claim=[SHORT])
    for file in (tmp_path / "plugins").rglob("*"):  # the claim ended without the driver
        if file.is_file():
            file.unlink()
    start()
    assert driver.now() == ["default"]


def test_the_file_sets_the_time_slice_of_all_claims(start: Start, driver: TimeSlices) -> None:
    made = start(TEXT.replace("replicas: 4", "replicas: 4, timeSlice: long"))
    assert driver.now() == ["long"]
    claim = made.prepare("a", of_class=[SHORT])
    assert driver.now() == ["short"]
    made.unprepare(claim)
    assert driver.now() == ["long"]


def server(root: Path) -> Path | None:
    """Return the directory of the running MPS server, None without one."""
    found = [one.parent.parent for one in root.rglob("pipe/control")]
    assert len(found) < 2
    return found[0] if found else None


def client(made: ClaimNode, claim: Any) -> tuple[str, dict[str, str]]:
    """Return the pipe's variable in the edits of a claim, and the mounts by container path."""
    (device,) = made.spec(claim)["devices"]
    edits = device["containerEdits"]
    variables = dict(one.split("=", 1) for one in edits["env"])
    mounts = {one["containerPath"]: one["hostPath"] for one in edits.get("mounts", ())}
    return variables.get("CUDA_MPS_PIPE_DIRECTORY", ""), mounts


def mode(node: SimulatedNode) -> str:
    """Return the compute mode that was set last."""
    name = f"nvml-stub.mode.{node.node.gpus[0].uuid}"
    return Path(node.nvml_library).with_name(name).read_text().strip()


def test_claims_with_mps_share_one_server(start: Start, root: Path, node: SimulatedNode) -> None:
    made = start()
    first = made.prepare("a", of_class=[MPS])
    place = server(root)
    assert place is not None
    assert place.parent == root / "claims"
    assert (place / "pipe/devices").read_text() == node.node.gpus[0].uuid
    told = (place / "pipe/told").read_text()
    assert "set_default_active_thread_percentage 30" in told
    assert "set_default_device_pinned_mem_limit 0 3840M" in told
    assert mode(node) == "3"  # exclusive process: only the server uses the GPU
    pipe, mounts = client(made, first)
    assert pipe == "/run/nvidia-mps/pipe"
    assert mounts == {pipe: f"{place}/pipe", "/dev/shm": f"{root}/claims/shm"}
    second = made.prepare("b", of_class=[MPS])
    assert client(made, second) == (pipe, mounts)
    with refused("GH2621", "default/a", "default/c", "MPS would be none"):
        made.prepare("c")
    made.unprepare(first)
    assert server(root) == place
    made.unprepare(second)
    assert server(root) is None
    assert mode(node) == "0"


def test_a_server_outlives_its_driver(start: Start, root: Path) -> None:
    claim = start().prepare("a", of_class=[MPS])
    pid = next(root.rglob("*.pid")).read_text()
    made = start()
    assert next(root.rglob("*.pid")).read_text() == pid
    made.unprepare(claim)
    assert server(root) is None


def test_a_missing_program_leaves_nothing(start: Start, tmp_path: Path, root: Path) -> None:
    made = start()
    (tmp_path / "bin/nvidia-cuda-mps-control").unlink()
    with refused("GH2623", "MPS server", "nvidia-cuda-mps-control"):
        made.prepare("a", of_claim=[MPS])
    assert made.held() == []
    assert server(root) is None


def test_the_server_of_the_file_serves_all_claims(start: Start, root: Path) -> None:
    made = start(TEXT.replace("timeSlicing", "mps"))
    assert made.faults == ()
    claim = made.prepare("a")
    place = server(root)
    assert place == root / "claims/gpu"
    assert client(made, claim)[1]["/run/nvidia-mps/pipe"] == f"{place}/pipe"
    made.unprepare(claim)
    assert server(root) == place


def test_modes_of_a_device_that_is_new_wait_for_the_next_turn(
    start: Start, driver: TimeSlices, root: Path
) -> None:
    """Before the first turn no server of the file runs, and nothing is restored."""
    made = start(TEXT.replace("timeSlicing", "mps"))
    claim = made.prepare("a")
    made.restart(TEXT.format(root=root).replace("timeSlicing", "mps"), is_used=False)
    with refused("GH2623", "the driver has just found it"):
        made.prepare("b")
    made.unprepare(claim)
    assert server(root) is not None
    made.restart(TEXT.format(root=root), is_used=False)
    with refused("GH2623", "the driver has just found it"):
        made.prepare("b", of_claim=[SHORT])
    assert (made.held(), driver.now()) == ([], ["default"])
    made.unprepare(made.prepare("c"))


def test_a_gpu_without_mps_is_refused(tmp_path: Path, start: Start) -> None:
    """As in the plugin: a device of before Volta serves 16 clients, and one before 3.5 none."""
    text = TEXT.replace("timeSlicing", "mps").replace("replicas: 4", "replicas: 60")
    made = start(text)
    assert "GH1871" in [one.code for one in made.faults]
    with refused("GH2623", "MPS server", "48"):
        made.prepare("a")
