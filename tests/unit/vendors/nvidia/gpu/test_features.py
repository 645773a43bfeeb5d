# SPDX-License-Identifier: Apache-2.0
"""Facts for node labels: the fabric, vGPU, the PCI class, the machine."""

from __future__ import annotations

from pathlib import Path

import pytest

from gpuhook.vendors.nvidia.gpu import features
from gpuhook.vendors.nvidia.gpu.fabric import Fabric, fabric
from gpuhook.vendors.nvidia.gpu.features import Vgpu
from gpuhook.vendors.nvidia.nvml import nvml_inventory
from tests.simulated import build, stub_events
from tests.simulated.node import SimulatedNode, make_node

BUS = "00000000:00:1E.0"
PCI = "sys/bus/pci/devices/0000:00:1e.0"


def configuration(*capabilities: bytes, has_list: bool = True) -> bytes:
    """Return a PCI configuration space with a chain of capabilities (without their next byte)."""
    space = bytearray(256)
    space[:4] = b"\xde\x10\xb8\x1e"
    space[6] = 0x10 if has_list else 0
    link, at = 0x34, 0x40
    for capability in capabilities:
        space[link] = at
        space[at : at + len(capability) + 1] = capability[:1] + b"\0" + capability[1:]
        link, at = at + 1, (at + len(capability) + 4) & ~3
    return bytes(space)


def vendor(records: bytes, *, signature: bytes = b"VF") -> bytes:
    return bytes([9, 5 + len(records)]) + signature + records


def record(version: bytes, branch: bytes, number: int = 0) -> bytes:
    return bytes([number, 22]) + version.ljust(10, b"\0") + branch.ljust(10, b"\0")


MSI = b"\x05" + b"\0" * 20
HOST = record(b"460.16", b"r460_00")


def test_vgpu_has_the_version_of_its_host_driver() -> None:
    """The vendor-specific capability has the driver and branch of the host."""
    assert features.parsed_vgpu(configuration(MSI, vendor(HOST))) == Vgpu("460.16", "r460_00")


def test_other_records_are_skipped() -> None:
    """By their length."""
    records = bytes([3, 6, 1, 2, 3, 4]) + bytes([7, 2]) + HOST
    assert features.parsed_vgpu(configuration(vendor(records))) == Vgpu("460.16", "r460_00")


@pytest.mark.parametrize(
    "space",
    [
        b"",
        configuration(MSI, vendor(HOST))[:64],  # the part for readers without privileges
        configuration(),
        configuration(MSI),
        configuration(vendor(HOST, signature=b"XX")),
        configuration(vendor(HOST), has_list=False),
        b"\xff" * 256,  # a removed device
    ],
)
def test_whole_gpu_is_not_a_vgpu(space: bytes) -> None:
    """Without the signature in the capability, the GPU is whole."""
    assert features.parsed_vgpu(space) is None


@pytest.mark.parametrize(
    "records",
    [b"", bytes([1, 0]), bytes([1]), bytes([1, 200]), bytes([0]), record(b"\x01\x02", b"")],
)
def test_vgpu_with_malformed_records(records: bytes) -> None:
    """Records that end early, or have length 0, leave the host unknown."""
    assert features.parsed_vgpu(configuration(vendor(records))) == Vgpu()


def test_circular_chain_of_capabilities_ends() -> None:
    """Capabilities that point at each other are read once."""
    space = bytearray(configuration(MSI))
    space[0x41] = 0x40
    assert features.parsed_vgpu(bytes(space)) is None


def test_facts_are_read_below_the_host_root(tmp_path: Path) -> None:
    """All files are read below the host root, by the address in NVML's form."""
    assert features.vgpu(str(tmp_path), BUS) is None
    assert features.mode(str(tmp_path), BUS) is None
    assert features.machine(str(tmp_path)) is None
    (tmp_path / PCI).mkdir(parents=True)
    (tmp_path / PCI / "config").write_bytes(configuration(vendor(HOST)))
    (tmp_path / PCI / "class").write_text("0x030200\n")
    (tmp_path / "sys/class/dmi/id").mkdir(parents=True)
    (tmp_path / "sys/class/dmi/id/product_name").write_text("g4dn.xlarge\n")
    assert features.vgpu(str(tmp_path), BUS) == Vgpu("460.16", "r460_00")
    assert features.mode(str(tmp_path), BUS) == "compute"
    assert features.machine(str(tmp_path)) == "g4dn.xlarge"
    assert features.vgpu(str(tmp_path), None) is None


@pytest.mark.parametrize(
    ("text", "mode"),
    [
        ("0x030000\n", "graphics"),
        ("0x030200\n", "compute"),
        ("0x060400\n", None),
        ("", None),
        ("garbage", None),
    ],
)
def test_pci_classes(tmp_path: Path, text: str, mode: str | None) -> None:
    """Display and 3D controllers differ; all other classes are unknown."""
    (tmp_path / PCI).mkdir(parents=True)
    (tmp_path / PCI / "class").write_text(text)
    assert features.mode(str(tmp_path), BUS) == mode


@pytest.mark.parametrize("content", [b"", b"  \n"])
def test_empty_machine_name_is_unknown(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "name").write_bytes(content)
    assert features.machine(str(tmp_path), "/name") is None


@pytest.fixture
def node(tmp_path: Path) -> SimulatedNode:
    return make_node(tmp_path, "h100x8", real_nodes=False)


CLUSTER = "0123456789abcdef0011223344556677"


@pytest.mark.parametrize(
    ("line", "found"),
    [
        (f"fabric {CLUSTER} 3 7", Fabric("01234567-89ab-cdef-0011-223344556677", 7)),
        (f"fabric {CLUSTER} 2 7", None),  # still joining
        (f"fabric {'0' * 32} 3 0", None),  # the switches of one machine
        ("fail fabric 3", None),
        ("lost_after 0", None),
    ],
)
def test_fabric_and_clique(node: SimulatedNode, line: str, found: Fabric | None) -> None:
    """A GPU that has joined a fabric of several machines reports the fabric and its clique."""
    uuid = str(node.node.gpus[0].uuid)
    stub_events.say(node, uuid, line)
    with nvml_inventory.opened(node.nvml_library):
        assert fabric(uuid) == found


def test_old_library_has_no_fabric(node: SimulatedNode) -> None:
    library = Path(node.nvml_library)
    library.unlink()
    library.write_bytes(build.nvml_stub(old=True).read_bytes())
    with nvml_inventory.opened(node.nvml_library):
        assert fabric(str(node.node.gpus[0].uuid)) is None
