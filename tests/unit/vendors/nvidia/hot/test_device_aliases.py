# SPDX-License-Identifier: Apache-2.0
"""Aliases of GPUs and MIG instances on a node without records, from specs and /proc."""

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
    """Give a node with MIG instances on two GPUs and a third, whole GPU."""
    return make_node(tmp_path_factory.mktemp("mig"), "a100-mig")


def nodes_by_name(node: SimulatedNode, *strategies: str) -> dict[str, list[str]]:
    """Return the paths of the nodes of each device in a spec with these names."""
    found: dict[str, list[str]] = {"all": []}
    for gpu in node.node.gpus:
        for one in device_selection.offered(gpu):
            paths = device_selection.node_paths(gpu, one)
            found["all"] += paths
            for name in device_selection.names(gpu, strategies, one):
                found[name] = paths
    return found


def alias(node: SimulatedNode, name: str, *strategies: str) -> str | None:
    known = nodes_by_name(node, *strategies)
    return device_aliases.alias(name, node.host_root, list(known), lambda device: known[device])


def names(node: SimulatedNode) -> list[tuple[str, str, str]]:
    """Return (index, UUID, legacy name or bus id) of each device that the node offers."""
    found = []
    for gpu in node.node.gpus:
        for one in device_selection.offered(gpu):
            index, uuid = device_selection.names(gpu, ("index", "uuid"), one)
            third = device_selection.every_name(gpu, one)[-1] if one else str(gpu.pci_bus_id)
            found.append((index, uuid, third))
    return found


def test_legacy_names_and_bus_ids(mig: SimulatedNode) -> None:
    """They lead to the device with the same nodes, whatever its name in the spec is."""
    for index, uuid, third in names(mig):
        for name in (third, third.upper(), third.lower()):
            assert alias(mig, name, "uuid") == uuid
            assert alias(mig, name, "index") == index
    short = str(mig.node.gpus[2].pci_bus_id).lower()[-12:]
    assert alias(mig, short, "uuid") == mig.node.gpus[2].uuid


def test_spellings_of_names(mig: SimulatedNode) -> None:
    """UUIDs in any case, and indices with and without their type."""
    for index, uuid, _ in names(mig):
        typed = ("mig" if ":" in index else "gpu") + index
        assert alias(mig, uuid.upper(), "uuid") == uuid
        assert alias(mig, typed, "index") == index
        assert alias(mig, typed.upper(), "index") == index
        assert alias(mig, index, "type-index") == typed


def test_whole_gpu_by_the_facts_of_the_kernel(mig: SimulatedNode) -> None:
    gpu = mig.node.gpus[2]
    assert alias(mig, "2", "uuid") == gpu.uuid
    assert alias(mig, str(gpu.uuid), "index") == "2"


@pytest.mark.parametrize(
    "name",
    ["mig0", "gpu0:1", "mig", "", "9", "0:1", "GPU-1", "MIG-GPU-1/1/0", "MIG-GPU-x", "0:1:2", "::"],
)
def test_index_of_an_instance_without_nvml_is_unknown(name: str, mig: SimulatedNode) -> None:
    """A spec with UUIDs only does not show which instance is NVML's first."""
    assert alias(mig, name, "uuid") is None


@pytest.mark.parametrize("rest", ["/99/0", "/7", "/7/0/0", "/../0", "/-1/0", "/7/x"])
def test_legacy_name_of_a_missing_instance(rest: str, mig: SimulatedNode) -> None:
    assert alias(mig, f"MIG-{mig.node.gpus[0].uuid}{rest}", "uuid") is None


def test_gpu_in_mig_mode_is_not_a_device(mig: SimulatedNode) -> None:
    """The devices of its instances contain its node; none of them is the whole GPU."""
    assert alias(mig, str(mig.node.gpus[0].uuid), "index") is None
    assert alias(mig, str(mig.node.gpus[0].pci_bus_id), "index", "uuid") is None


def test_capability_file_without_mig_minors(tmp_path: Path) -> None:
    node = make_node(tmp_path, "a100-mig")
    (_, uuid, old) = names(node)[0]
    listed = Path(node.host_root, "proc/driver/nvidia-caps/mig-minors")
    assert alias(node, old, "uuid") == uuid
    listed.unlink()
    assert alias(node, old, "uuid") == uuid
    shutil.rmtree(Path(node.host_root, "proc/driver/nvidia/capabilities"))
    assert alias(node, old, "uuid") is None


def test_excluded_gpus_have_no_index(tmp_path: Path) -> None:
    """As in NVML."""
    node = make_node(tmp_path, "h100x8")
    first = min(Path(node.host_root, "proc/driver/nvidia/gpus").iterdir()) / "information"
    assert alias(node, "0", "uuid") == node.node.gpus[0].uuid
    first.write_text(first.read_text().replace("No", "Yes"))
    assert alias(node, "0", "uuid") == node.node.gpus[1].uuid


def test_device_all_of_a_single_gpu_is_not_an_alias(tmp_path: Path) -> None:
    node = make_node(tmp_path, "t4")
    assert alias(node, str(node.node.gpus[0].pci_bus_id), "index") == "0"
    assert vocabulary.is_whole_gpu(nodes_by_name(node, "index")["all"][0])


def test_node_without_facts(tmp_path: Path) -> None:
    assert device_aliases.alias("GPU-1", str(tmp_path), ["0"], lambda _: ["/dev/nvidia0"]) is None
