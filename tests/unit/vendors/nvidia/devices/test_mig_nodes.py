# SPDX-License-Identifier: Apache-2.0
"""The capability nodes of MIG instances: found, missing, wrong and created."""

from __future__ import annotations

import os
import stat
from dataclasses import replace
from pathlib import Path

import pytest

from gpuhook.host.hot import files
from gpuhook.vendors.nvidia import discover
from gpuhook.vendors.nvidia.devices import mig_nodes
from gpuhook.vendors.nvidia.hot import host_fingerprint
from gpuhook.vendors.nvidia.nvml import nvml_inventory
from tests.simulated.node import SimulatedNode, make_node

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gpuhook.vendors.nvidia.devices.mig_nodes import InstancesFound
    from gpuhook.vendors.nvidia.inventory.inventory import Gpu, Node

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="device nodes are made by root")


@pytest.fixture
def simulated(tmp_path: Path) -> SimulatedNode:
    return make_node(tmp_path, "a100-mig")


def described_node(simulated: SimulatedNode, *, create: bool = False, require: bool = True) -> Node:
    where = discover.roots(simulated.driver_root, simulated.dev_root, simulated.host_root)
    return discover.node(where, create_nodes=create, require_nodes=require)


def instances_found(simulated: SimulatedNode, *, create: bool = False) -> InstancesFound:
    """Search for facts that NVML does not report: the minors."""
    gpus = tuple(
        replace(
            gpu,
            instances=tuple(
                replace(one, gpu_instance_minor=None, compute_instance_minor=None)
                for one in gpu.instances
            ),
        )
        for gpu in simulated.node.gpus
    )
    return mig_nodes.find(
        simulated.host_root, simulated.dev_root, simulated.node.majors, gpus, create=create
    )


def troubles(gpus: InstancesFound | Node) -> dict[str, str]:
    """Return the trouble of each instance that has one, by its index."""
    return {
        f"{gpu.index}:{one.index}": one.trouble
        for gpu in gpus.gpus
        for one in gpu.instances
        if one.trouble
    }


def cap(simulated: SimulatedNode, minor: int) -> Path:
    return Path(simulated.dev_root, "dev/nvidia-caps", f"nvidia-cap{minor}")


def proc(simulated: SimulatedNode, name: str) -> Path:
    return Path(simulated.host_root, "proc/driver", name)


def test_instances_have_the_minors_of_their_gpu(simulated: SimulatedNode) -> None:
    """By the GPU's minor, not by its index."""
    node = described_node(simulated)
    assert node.gpus == simulated.node.gpus
    assert set(node.device_nodes) == set(simulated.node.device_nodes)
    third = node.gpus[1].instances[2]
    assert (third.gpu_instance_minor, third.compute_instance_minor) == (300, 302)


def test_instance_created_during_the_search_is_not_recorded(
    simulated: SimulatedNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Instances that NVML lacks are not in the fingerprint: the next comparison is stale."""
    answers = nvml_inventory.Nvml.gpus

    def late(library: nvml_inventory.Nvml) -> tuple[Gpu, ...]:
        gpus = answers(library)
        proc(simulated, "nvidia/capabilities/gpu1/mig/gi1/ci0").mkdir(parents=True)
        return gpus

    monkeypatch.setattr(nvml_inventory.Nvml, "gpus", late)
    node = described_node(simulated)
    libcuda = next(file.host_path for file in node.files if file.soname == "libcuda.so.1")
    assert host_fingerprint.fingerprint(simulated.host_root, libcuda) != node.fingerprint


def test_shared_node_is_listed_once(simulated: SimulatedNode) -> None:
    """Two compute instances of one GPU instance share its node."""
    paths = [node.path for node in instances_found(simulated).nodes]
    assert paths.count("/dev/nvidia-caps/nvidia-cap300") == 1
    assert len(paths) == 7 * 2 + 7


def test_minors_without_mig_minors(simulated: SimulatedNode) -> None:
    """Without mig-minors, each capability's own file has its minor."""
    proc(simulated, "nvidia-caps/mig-minors").unlink()
    assert instances_found(simulated).gpus == simulated.node.gpus


def test_minors_with_mig_minors_alone(simulated: SimulatedNode) -> None:
    """With mig-minors no other file is needed to find the nodes."""
    proc(simulated, "nvidia/capabilities").rename(proc(simulated, "elsewhere"))
    assert instances_found(simulated).gpus == simulated.node.gpus


def test_unknown_capability_is_the_trouble_of_its_instance(simulated: SimulatedNode) -> None:
    """Other instances are not affected."""
    proc(simulated, "nvidia-caps/mig-minors").unlink()
    proc(simulated, "nvidia/capabilities/gpu2/mig/gi3/ci1/access").unlink()
    ((name, trouble),) = troubles(instances_found(simulated)).items()
    assert name == "1:2"
    assert trouble.startswith("gpu2/gi3/ci1/access is neither in /proc/driver/nvidia-caps/mig-min")


def test_missing_node_is_the_trouble_of_its_instance(simulated: SimulatedNode) -> None:
    """The text has the node and the command that makes it."""
    cap(simulated, 76).unlink()
    node = described_node(simulated)
    ((name, trouble),) = troubles(node).items()
    assert name == "0:1"
    assert trouble == (
        f"{cap(simulated, 76)} is missing: run nvidia-modprobe -f "
        "/proc/driver/nvidia/capabilities/gpu0/mig/gi8/ci0/access, "
        "or gpuhook generate-cdi with --create-device-nodes"
    )
    assert "/dev/nvidia-caps/nvidia-cap76" not in {device.path for device in node.device_nodes}
    assert not cap(simulated, 76).exists()


def test_missing_node_of_two_instances(simulated: SimulatedNode) -> None:
    """The node of a GPU instance is required by each of its compute instances."""
    cap(simulated, 300).unlink()
    assert set(troubles(instances_found(simulated))) == {"1:1", "1:2"}


def test_missing_nodes_are_both_named(simulated: SimulatedNode) -> None:
    """Without nodes, each instance has a trouble with both of its nodes."""
    for path in cap(simulated, 1).parent.iterdir():
        path.unlink()
    cap(simulated, 1).parent.rmdir()
    told = troubles(described_node(simulated))
    assert len(told) == 11
    assert "nvidia-cap66 is missing" in told["0:0"]
    assert "nvidia-cap67 is missing" in told["0:0"]


@pytest.mark.parametrize("mode", [0o444, 0o600])
def test_missing_nodes_are_created(simulated: SimulatedNode, mode: int) -> None:
    """With their directory, and the driver's mode whatever the umask is."""
    for path in cap(simulated, 1).parent.iterdir():
        path.unlink()
    cap(simulated, 1).parent.rmdir()
    for path in proc(simulated, "nvidia/capabilities").rglob("access"):
        text = path.read_text(encoding="utf-8")
        path.write_text(text.replace("Mode: 292", f"Mode: {mode}"), encoding="utf-8")
    old = os.umask(0o077)
    try:
        node = described_node(simulated, create=True)
    finally:
        os.umask(old)
    assert node.gpus == simulated.node.gpus
    status = cap(simulated, 302).stat()
    assert status.st_rdev == os.makedev(506, 302)
    assert stat.S_ISCHR(status.st_mode)
    assert stat.S_IMODE(status.st_mode) == mode
    names = sorted(path.name for path in cap(simulated, 1).parent.iterdir())
    assert len(names) == 21
    assert not [name for name in names if name.startswith(".")]


def test_unknown_mode_is_open_to_all(simulated: SimulatedNode) -> None:
    """Without the capability's file, a node is created that every user may open."""
    proc(simulated, "nvidia/capabilities").rename(proc(simulated, "elsewhere"))
    cap(simulated, 66).unlink()
    assert troubles(instances_found(simulated, create=True)) == {}
    assert stat.S_IMODE(cap(simulated, 66).stat().st_mode) == 0o666


def test_existing_nodes_are_kept(simulated: SimulatedNode) -> None:
    """They keep their mode."""
    cap(simulated, 66).chmod(0o640)
    before = cap(simulated, 66).stat()
    described_node(simulated, create=True)
    assert cap(simulated, 66).stat() == before


def test_node_created_by_another_process_is_kept(simulated: SimulatedNode) -> None:
    """No temporary file remains."""
    mig_nodes.make(str(cap(simulated, 66)), 1, 3, 0o666)
    assert cap(simulated, 66).stat().st_rdev == os.makedev(506, 66)
    assert not list(cap(simulated, 66).parent.glob(".*"))


def test_temporary_file_of_a_killed_process_is_removed(simulated: SimulatedNode) -> None:
    """A pod's pid is mostly 1, so that the name is used again."""
    cap(simulated, 66).unlink()
    left = cap(simulated, 66).with_name(files.temporary_name("nvidia-cap66"))
    left.touch()
    assert troubles(instances_found(simulated, create=True)) == {}
    assert stat.S_ISCHR(cap(simulated, 66).stat().st_mode)
    assert not list(cap(simulated, 66).parent.glob(".*"))


def test_node_that_cannot_be_created(simulated: SimulatedNode) -> None:
    """Its instance has the reason, and the others are usable."""
    cap(simulated, 66).unlink()
    directory = cap(simulated, 66).parent
    directory.rename(directory.with_name("elsewhere"))
    directory.symlink_to("/proc/self/fdinfo")
    told = troubles(instances_found(simulated, create=True))
    assert "GH1246: " in told["0:0"]
    assert "nvidia-cap66 is missing and cannot be created: " in told["0:0"]
    assert "MKNOD" in told["0:0"]
    directory.unlink()
    directory.with_name("elsewhere").rename(directory)
    assert set(troubles(instances_found(simulated))) == {"0:0"}


@pytest.mark.parametrize("number", [(506, 5), (505, 66), None])
def test_wrong_node_is_not_replaced(
    simulated: SimulatedNode, number: tuple[int, int] | None
) -> None:
    """A node with another number, or a file with its name, is refused."""
    cap(simulated, 66).unlink()
    if number is None:
        cap(simulated, 66).touch()
    else:
        os.mknod(cap(simulated, 66), stat.S_IFCHR | 0o666, os.makedev(*number))
    before = cap(simulated, 66).stat()
    told = troubles(instances_found(simulated, create=True))
    assert set(told) == {"0:0"}
    assert "is not the character device 506:66" in told["0:0"]
    assert cap(simulated, 66).stat() == before


def test_missing_major_refuses_all_nodes(simulated: SimulatedNode) -> None:
    """Without nvidia-caps in /proc/devices no node is valid, and none is created."""
    file = Path(simulated.host_root, "proc/devices")
    file.write_text(file.read_text("utf-8").replace("nvidia-caps", "other"), encoding="utf-8")
    cap(simulated, 66).unlink()
    told = troubles(described_node(simulated, create=True))
    assert len(told) == 11
    assert all("/proc/devices has no nvidia-caps" in trouble for trouble in told.values())
    assert not cap(simulated, 66).exists()


def test_node_without_mig_is_not_changed(tmp_path: Path) -> None:
    """Without GPUs with instances, nothing is read or created."""
    simulated = make_node(tmp_path, "h100x8")
    gpus = simulated.node.gpus
    assert mig_nodes.find("/nowhere", "/nowhere", {}, gpus, create=True).gpus is gpus
