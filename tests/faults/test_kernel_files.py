# SPDX-License-Identifier: Apache-2.0
"""The kernel's files about GPUs, full of what they should not have: a skip or a fault."""

from __future__ import annotations

import os
import random
from pathlib import Path

import pytest

from gpuhook.cdi import spec_file as spec_files
from gpuhook.errors import GpuhookError
from gpuhook.vendors.nvidia.devices import driver_nodes, mig_nodes
from gpuhook.vendors.nvidia.hot.mig_capabilities import MINORS
from tests.faults.generating import generate
from tests.simulated.node import SimulatedNode, make_node

pytestmark = [
    pytest.mark.usefixtures("no_settings"),
    pytest.mark.skipif(os.geteuid() != 0, reason="device nodes are made by root"),
    pytest.mark.timeout(60),
]
GPUS = "proc/driver/nvidia/gpus"
NOISE = random.Random(7).randbytes(1 << 20)
DIGITS = "9" * 5000


@pytest.fixture
def two(tmp_path: Path) -> SimulatedNode:
    return make_node(tmp_path / "node", "h100x8")


@pytest.fixture
def mig(tmp_path: Path) -> SimulatedNode:
    return make_node(tmp_path / "node", "a100-mig")


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\0" * 4096,
        NOISE,
        "Character devices:\n² nvidia\n".encode(),
        "٣ nvidia\n".encode(),
        f"{DIGITS} nvidia\n".encode(),
        b"-1 nvidia\n",
        b"4096 nvidia\n",
        b"195 nvidia\n" * 100_000,
        b"Block devices:\n1 nvidia\n",
    ],
    ids=range(10),
)
@pytest.mark.parametrize("mode", ["nvml", "proc"])
def test_proc_devices(node: SimulatedNode, content: bytes, mode: str) -> None:
    """Lines that are no majors say nothing; the nodes that are there count."""
    path = Path(node.host_root, "proc/devices")
    before = path.read_bytes()
    path.write_bytes(content)
    try:
        assert generate(node, "--mode", mode).exit_code == 0
    finally:
        path.write_bytes(before)


@pytest.mark.parametrize(
    ("line", "minor", "uuid"),
    [
        ("Device Minor: ²", None, None),
        (f"Device Minor: {DIGITS}", None, None),
        ("Device Minor: 1048576", None, None),
        ("Device Minor: -1", None, None),
        ("Device Minor: 3", 3, None),
        ("GPU UUID: GPU-\x1b[31m", None, None),
        ("GPU UUID: GPU-a/b", None, None),
        ("GPU UUID: GPU-" + "x" * 1000, None, None),
        ("GPU UUID: GPU-", None, None),
        ("GPU UUID: GPU-5c9a1f7e", None, "GPU-5c9a1f7e"),
        ("\0" * 100, None, None),
    ],
)
def test_information(line: str, minor: int | None, uuid: str | None) -> None:
    found = driver_nodes.parse_gpu("0000:1b:00.0", [line])
    assert (found.minor, found.uuid) == (minor, uuid)


@pytest.mark.parametrize("content", [b"", NOISE, b"Device Minor: " + b"9" * 5000])
def test_a_gpu_without_a_minor_is_left_out(node: SimulatedNode, content: bytes) -> None:
    """The only GPU belongs to no driver then: a fault, or a warning with the reason."""
    (path,) = Path(node.host_root, GPUS).glob("*/information")
    before = path.read_bytes()
    path.write_bytes(content)
    try:
        assert "unknown" in generate(node, "--mode", "proc").stderr
    finally:
        path.write_bytes(before)


@pytest.mark.parametrize(
    "name",
    ["zz", "0000:zz:00.0", "-1:00:00.0", "f" * 18 + ":00:00.0", "é:1", "a b", ":", "\udcff:1"],
)
def test_names_that_are_no_bus_ids(node: SimulatedNode, name: str) -> None:
    place = Path(node.host_root, GPUS, name)
    place.mkdir()
    (place / "information").write_text("Device Minor: 0\nGPU UUID: GPU-0\n")
    try:
        done = generate(node, "--mode", "proc")
        assert done.exit_code == 0
        assert "is not a PCI bus id; left out" in done.stderr
        assert generate(node, "--mode", "nvml").exit_code == 0
    finally:
        (place / "information").unlink()
        place.rmdir()


def test_two_gpus_of_one_minor_are_nobodys(two: SimulatedNode) -> None:
    """Neither is assigned: the node belongs to one of them, and it is unknown to which."""
    first, second = _informations(two)
    given = driver_nodes.parse_gpu("0000:1b:00.0", first.read_text().splitlines())
    _say(second, "Device Minor", str(given.minor))
    done = generate(two, "--mode", "proc", "--device-name-strategy", "index")
    assert done.exit_code == 0
    assert f"has the minor number {given.minor} in" in done.stderr
    devices = spec_files.parse_yaml(done.stdout.encode(), "x")["devices"]
    assert {device["name"] for device in devices} == {*"234567", "all"}


def test_two_gpus_of_one_uuid(two: SimulatedNode) -> None:
    """They have numbers still; the UUID names neither."""
    first, second = _informations(two)
    given = driver_nodes.parse_gpu("0000:1b:00.0", first.read_text().splitlines())
    _say(second, "GPU UUID", str(given.uuid))
    done = generate(two, "--mode", "proc")
    assert done.exit_code == 0
    assert f"has the UUID {given.uuid} in" in done.stderr
    devices = spec_files.parse_yaml(done.stdout.encode(), "x")["devices"]
    assert given.uuid not in {device["name"] for device in devices}


def _informations(made: SimulatedNode) -> list[Path]:
    return sorted(Path(made.host_root, GPUS).glob("*/information"))[:2]


def _say(path: Path, key: str, value: str) -> None:
    lines = [line for line in path.read_text().splitlines() if not line.startswith(key)]
    path.write_text("\n".join([*lines, f"{key}: {value}\n"]))


@pytest.mark.parametrize("content", [b"\0x", b"/\0x", b"/" + b"x" * 5000, b"/../..", NOISE])
def test_the_kernels_directory_of_firmware(node: SimulatedNode, content: bytes) -> None:
    path = Path(node.host_root, "sys/module/firmware_class/parameters/path")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    try:
        assert generate(node).exit_code == 0
    finally:
        path.unlink()


def test_drm_directories_with_strange_names(node: SimulatedNode) -> None:
    """What is no node's name is passed over, a node that is not there or lies is a warning."""
    (bus,) = Path(node.host_root, "sys/bus/pci/devices").iterdir()
    drm = bus / "drm"
    strange = ["card", "card-1", "renderD", "renderD٣", "card1\n", "cardx", "\udcff", "card0-HDMI"]
    for name in [*strange, "card99999999999999", "card7", "card8"]:
        (drm / name).mkdir(parents=True)
    (drm / "card7/dev").write_bytes(b"226:-7\n")
    (drm / "card8/dev").write_bytes(b"9" * 60 + b":\xb2")
    done = generate(node)
    assert done.exit_code == 0
    assert done.stderr.count("/dev/dri/card") == 3


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\0" * 4096,
        NOISE,
        b"a b c\n" * 200_000,
        b"gpu0/gi1/access " + b"9" * 6000,
        "gpu0/gi1/access ²\n".encode(),
        b"gpu0/gi1/access 1048575\n",
        b"gpu0/gi1/access -1\n",
    ],
    ids=range(8),
)
@pytest.mark.parametrize("mode", ["nvml", "proc"])
def test_mig_minors_that_are_garbage(mig: SimulatedNode, content: bytes, mode: str) -> None:
    Path(mig.host_root + MINORS).write_bytes(content)
    assert generate(mig, "--mode", mode).exit_code == 0


def _troubles(mig: SimulatedNode) -> dict[str, str]:
    found = mig_nodes.find(mig.host_root, mig.dev_root, mig.node.majors, mig.node.gpus)
    return {
        f"{gpu.index}:{one.index}": one.trouble or ""
        for gpu in found.gpus
        for one in gpu.instances
        if one.trouble
    }


def test_an_instance_with_the_minor_of_another(mig: SimulatedNode) -> None:
    """It would open its neighbour: both are left out, and the sentence names the other."""
    gpu, other = mig.node.gpus[0], mig.node.gpus[1]
    one, its = gpu.instances[0], other.instances[0]
    name = f"gpu{gpu.minor}/gi{one.gpu_instance}/ci{one.compute_instance}/access"
    path = Path(mig.host_root + MINORS)
    old, new = f"{name} {one.compute_instance_minor}\n", f"{name} {its.compute_instance_minor}\n"
    assert old in path.read_text()
    assert _troubles(mig) == {}
    path.write_text(path.read_text().replace(old, new))
    troubles = _troubles(mig)
    assert set(troubles) == {"0:0", "1:0"}
    assert name in troubles["1:0"]


def test_an_instance_that_two_files_tell_differently(mig: SimulatedNode) -> None:
    one = mig.node.gpus[0].instances[0]
    minor = mig.node.gpus[0].minor
    name = f"gpu{minor}/gi{one.gpu_instance}/access"
    path = Path(mig.host_root + MINORS)
    path.write_text(
        path.read_text().replace(f"{name} {one.gpu_instance_minor}\n", f"{name} 9999\n")
    )
    troubles = _troubles(mig)
    assert "0:0" in troubles
    assert "9999" in troubles["0:0"]
    assert "one of them is wrong" in troubles["0:0"]


def test_instances_without_minors(mig: SimulatedNode) -> None:
    """Neither list nor file: each instance says so, and none is given."""
    Path(mig.host_root + MINORS).unlink()
    for path in Path(mig.host_root, "proc/driver/nvidia/capabilities").rglob("access"):
        path.unlink()
    assert all("does not exist any more" in said for said in _troubles(mig).values())
    assert len(_troubles(mig)) == sum(len(gpu.instances) for gpu in mig.node.gpus)
    with pytest.raises(GpuhookError):
        driver_nodes.find(mig.dev_root, {"nvidia": 1}, mig.node.gpus, require=True)
