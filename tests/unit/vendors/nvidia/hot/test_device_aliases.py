# SPDX-License-Identifier: Apache-2.0
"""Other names of GPUs and MIG instances on a node whose notes are gone, out of specs and /proc."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from gpuhook.vendors.nvidia.hot import vocabulary
from gpuhook.vendors.nvidia.hot.device_names import device_aliases
from gpuhook.vendors.nvidia.spec import device_selection
from tests.simulated.node import SimulatedNode, make_node


@pytest.fixture(scope="module")
def mig(tmp_path_factory: pytest.TempPathFactory) -> SimulatedNode:
    """Give a node with MIG instances on two GPUs and a third that is whole."""
    return make_node(tmp_path_factory.mktemp("mig"), "a100-mig")


def nodes_by_name(node: SimulatedNode, *strategies: str) -> dict[str, list[str]]:
    """Return what a spec with these names gives: for each name the paths of its nodes."""
    found: dict[str, list[str]] = {"all": []}
    for gpu in node.node.gpus:
        for one in device_selection.offered(gpu):
            paths = device_selection.node_paths(gpu, one)
            found["all"] += paths
            for name in device_selection.names(gpu, strategies, one):
                found[name] = paths
    return found


def asked(node: SimulatedNode, name: str, *strategies: str) -> str | None:
    known = nodes_by_name(node, *strategies)
    return device_aliases.alias(name, node.host_root, list(known), lambda device: known[device])


def names(node: SimulatedNode) -> list[tuple[str, str, str]]:
    """Return (index, UUID, old form or bus id) of all that the node offers."""
    found = []
    for gpu in node.node.gpus:
        for one in device_selection.offered(gpu):
            index, uuid = device_selection.names(gpu, ("index", "uuid"), one)
            third = device_selection.every_name(gpu, one)[-1] if one else str(gpu.pci_bus_id)
            found.append((index, uuid, third))
    return found


def test_old_forms_and_bus_ids(mig: SimulatedNode) -> None:
    """They lead to the device with the very nodes of what they name, whatever its name is."""
    for index, uuid, third in names(mig):
        for name in (third, third.upper(), third.lower()):
            assert asked(mig, name, "uuid") == uuid
            assert asked(mig, name, "index") == index
    short = str(mig.node.gpus[2].pci_bus_id).lower()[-12:]
    assert asked(mig, short, "uuid") == mig.node.gpus[2].uuid


def test_spellings(mig: SimulatedNode) -> None:
    """UUIDs in any case, and indices with and without their type."""
    for index, uuid, _ in names(mig):
        typed = ("mig" if ":" in index else "gpu") + index
        assert asked(mig, uuid.upper(), "uuid") == uuid
        assert asked(mig, typed, "index") == index
        assert asked(mig, typed.upper(), "index") == index
        assert asked(mig, index, "type-index") == typed


def test_a_whole_gpu_by_what_the_kernel_tells(mig: SimulatedNode) -> None:
    gpu = mig.node.gpus[2]
    assert asked(mig, "2", "uuid") == gpu.uuid
    assert asked(mig, str(gpu.uuid), "index") == "2"


@pytest.mark.parametrize(
    "name",
    ["mig0", "gpu0:1", "mig", "", "9", "0:1", "GPU-1", "MIG-GPU-1/1/0", "MIG-GPU-x", "0:1:2", "::"],
)
def test_what_nobody_can_tell(name: str, mig: SimulatedNode) -> None:
    """A spec with UUIDs only does not show which instance is NVML's first."""
    assert asked(mig, name, "uuid") is None


@pytest.mark.parametrize("rest", ["/99/0", "/7", "/7/0/0", "/../0", "/-1/0", "/7/x"])
def test_old_forms_of_no_instance(rest: str, mig: SimulatedNode) -> None:
    assert asked(mig, f"MIG-{mig.node.gpus[0].uuid}{rest}", "uuid") is None


def test_a_gpu_in_mig_mode_is_no_device(mig: SimulatedNode) -> None:
    """Each instance's device has its node; none of them is the whole GPU."""
    assert asked(mig, str(mig.node.gpus[0].uuid), "index") is None
    assert asked(mig, str(mig.node.gpus[0].pci_bus_id), "index", "uuid") is None


def test_the_capabilities_own_file_where_the_list_is_gone(tmp_path: Path) -> None:
    node = make_node(tmp_path, "a100-mig")
    (_, uuid, old) = names(node)[0]
    listed = Path(node.host_root, "proc/driver/nvidia-caps/mig-minors")
    assert asked(node, old, "uuid") == uuid
    listed.unlink()
    assert asked(node, old, "uuid") == uuid
    shutil.rmtree(Path(node.host_root, "proc/driver/nvidia/capabilities"))
    assert asked(node, old, "uuid") is None


def test_excluded_gpus_have_no_index(tmp_path: Path) -> None:
    """NVML gives them no index."""
    node = make_node(tmp_path, "h100x8")
    first = min(Path(node.host_root, "proc/driver/nvidia/gpus").iterdir()) / "information"
    assert asked(node, "0", "uuid") == node.node.gpus[0].uuid
    first.write_text(first.read_text().replace("No", "Yes"))
    assert asked(node, "0", "uuid") == node.node.gpus[1].uuid


def test_the_device_all_of_one_gpu_is_not_that_gpu(tmp_path: Path) -> None:
    node = make_node(tmp_path, "t4")
    assert asked(node, str(node.node.gpus[0].pci_bus_id), "index") == "0"
    assert vocabulary.is_whole_gpu(nodes_by_name(node, "index")["all"][0])


def test_a_node_that_tells_nothing(tmp_path: Path) -> None:
    assert device_aliases.alias("GPU-1", str(tmp_path), ["0"], lambda _: ["/dev/nvidia0"]) is None
