# SPDX-License-Identifier: Apache-2.0
"""AMD's device nodes in a container, by sysfs."""

from __future__ import annotations

import shutil

import pytest

from gpuhook.vendors.amd.usage import amd_traces
from gpuhook.vendors.catalogue import vendors
from tests.simulated import amd_tree
from tests.simulated.amd_kfd_tree import Oddities
from tests.simulated.amd_tree import AmdTree

TYPE_CHECKING = False
if TYPE_CHECKING:
    from pathlib import Path

RENDER = "/dev/dri/renderD"


@pytest.fixture
def cpx(tmp_path: Path) -> AmdTree:
    return amd_tree.build(tmp_path, "mi300x-cpx")


def test_nodes_of_the_driver(tmp_path: Path) -> None:
    """/dev/kfd and the DRM nodes of amdgpu, not those of other drivers."""
    root = str(amd_tree.build(tmp_path, "mi300x8", odd=Oddities(bmc_card=0)).root)
    assert amd_traces.is_node("/dev/kfd", (238, 0), root)
    assert amd_traces.is_node(f"{RENDER}128", (226, 128), root)
    assert amd_traces.is_node("/dev/dri/card1", (226, 1), root)
    assert not amd_traces.is_node("/dev/dri/card0", (226, 0), root)  # of the BMC
    assert not amd_traces.is_node(f"{RENDER}128", (10, 229), root)
    assert not amd_traces.is_node("/dev/null", (1, 3), root)
    assert amd_traces.is_device_node(f"{RENDER}128", root)
    for path in ("/dev/kfd", "/dev/dri/card1", f"{RENDER}250", f"{RENDER}x", RENDER):
        assert not amd_traces.is_device_node(path, root), path


@pytest.mark.parametrize("is_dotted", [False, True])
def test_nodes_of_partitions(tmp_path: Path, *, is_dotted: bool) -> None:
    """Kernels spell the platform devices of partitions in two ways."""
    tree = amd_tree.build(tmp_path, "mi300x-cpx", odd=Oddities(is_dotted=is_dotted))
    assert amd_traces.is_device_node(f"{RENDER}131", str(tree.root))


def test_names_and_numbers() -> None:
    """A node that has another device's number is no evidence for the device of its name."""
    assert amd_traces.has_own_number(f"{RENDER}128", (226, 128))
    assert not amd_traces.has_own_number(f"{RENDER}128", (226, 129))
    assert not amd_traces.has_own_number("/dev/dri/card1", (195, 1))
    assert amd_traces.has_own_number("/dev/kfd", (238, 0))
    assert amd_traces.has_own_number("/dev/nvidia0", (195, 0))


def test_departed_devices(cpx: AmdTree) -> None:
    """A partition that KFD does not have any more, and a GPU that the driver lost."""
    root, paths = str(cpx.root), [f"{RENDER}{minor}" for minor in range(128, 140)]
    assert amd_traces.stale(["/dev/kfd", "/dev/nvidia0", *paths], root) == []
    shutil.rmtree(cpx.kfd_node(131))
    assert amd_traces.stale(paths, root) == [f"{RENDER}131"]
    gpu = cpx.node.gpus[1]
    cpx.lose_gpu(gpu.pci_address)
    (cpx.root / f"sys/dev/char/226:{gpu.devices[0].render_minor}").unlink()
    gone = f"{RENDER}{gpu.devices[0].render_minor}"
    assert gone in amd_traces.stale(paths, root)
    assert amd_traces.is_node(gone, (226, gpu.devices[0].render_minor), root)


def test_topology_that_may_not_be_read(tmp_path: Path) -> None:
    """Without KFD's facts no partition is known to be gone."""
    tree = amd_tree.build(tmp_path, "mi300x-cpx", odd=Oddities(is_denied=True))
    assert amd_traces.stale([f"{RENDER}131"], str(tree.root)) == []


def test_version_of_the_driver(cpx: AmdTree, tmp_path: Path) -> None:
    """The version of the module; a driver in the kernel has the kernel's."""
    root = str(cpx.root)
    assert amd_traces.running_driver(root) == "amdgpu 6.16.13"
    (cpx.root / "sys/module/amdgpu/version").unlink()
    assert amd_traces.running_driver(root) == "amdgpu of Linux 6.8.0-79-generic"
    assert amd_traces.running_driver(str(tmp_path / "none")) is None


def test_each_vendor_has_its_words() -> None:
    """No vendor's variable, kind or prefix is another's."""
    several = vendors()
    for word in ("devices_env", "default_kind", "mount_prefix"):
        assert len({getattr(one.vocabulary, word) for one in several}) == len(several)
    assert len({one.traces.VARIABLES for one in several}) == len(several)
    assert all(one.vocabulary.devices_env.startswith(one.traces.VARIABLES) for one in several)
