# SPDX-License-Identifier: Apache-2.0
"""Wrong content in the kernel's files about GPUs: it is skipped, or a fault."""

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
def eight_gpus(tmp_path: Path) -> SimulatedNode:
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
def test_malformed_proc_devices_is_ignored(node: SimulatedNode, content: bytes, mode: str) -> None:
    """The existing device nodes are used."""
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
def test_information_line_is_parsed_or_ignored(
    line: str, minor: int | None, uuid: str | None
) -> None:
    found = driver_nodes.parse_gpu("0000:1b:00.0", [line])
    assert (found.minor, found.uuid) == (minor, uuid)


@pytest.mark.parametrize("content", [b"", NOISE, b"Device Minor: " + b"9" * 5000])
def test_gpu_without_a_minor_is_omitted_with_a_reason(node: SimulatedNode, content: bytes) -> None:
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
def test_directory_name_that_is_no_bus_id_is_omitted(node: SimulatedNode, name: str) -> None:
    place = Path(node.host_root, GPUS, name)
    place.mkdir()
    (place / "information").write_text("Device Minor: 0\nGPU UUID: GPU-0\n")
    try:
        done = generate(node, "--mode", "proc")
        assert done.exit_code == 0
        assert "is not a PCI bus id; skipped" in done.stderr
        assert generate(node, "--mode", "nvml").exit_code == 0
    finally:
        (place / "information").unlink()
        place.rmdir()


def test_two_gpus_with_one_minor_are_omitted(eight_gpus: SimulatedNode) -> None:
    """It is unknown which of them has the device node."""
    first, second = _first_two_information_files(eight_gpus)
    parsed = driver_nodes.parse_gpu("0000:1b:00.0", first.read_text().splitlines())
    _set_value(second, "Device Minor", str(parsed.minor))
    done = generate(eight_gpus, "--mode", "proc", "--device-name-strategy", "index")
    assert done.exit_code == 0
    assert f"has the minor number {parsed.minor} in" in done.stderr
    devices = spec_files.parse_yaml(done.stdout.encode(), "x")["devices"]
    assert {device["name"] for device in devices} == {*"234567", "all"}


def test_duplicate_uuid_names_no_gpu(eight_gpus: SimulatedNode) -> None:
    """Both GPUs have their indices."""
    first, second = _first_two_information_files(eight_gpus)
    parsed = driver_nodes.parse_gpu("0000:1b:00.0", first.read_text().splitlines())
    _set_value(second, "GPU UUID", str(parsed.uuid))
    done = generate(eight_gpus, "--mode", "proc")
    assert done.exit_code == 0
    assert f"has the UUID {parsed.uuid} in" in done.stderr
    devices = spec_files.parse_yaml(done.stdout.encode(), "x")["devices"]
    assert parsed.uuid not in {device["name"] for device in devices}


def _first_two_information_files(made: SimulatedNode) -> list[Path]:
    return sorted(Path(made.host_root, GPUS).glob("*/information"))[:2]


def _set_value(path: Path, key: str, value: str) -> None:
    lines = [line for line in path.read_text().splitlines() if not line.startswith(key)]
    path.write_text("\n".join([*lines, f"{key}: {value}\n"]))


@pytest.mark.parametrize("content", [b"\0x", b"/\0x", b"/" + b"x" * 5000, b"/../..", NOISE])
def test_malformed_firmware_path_is_ignored(node: SimulatedNode, content: bytes) -> None:
    path = Path(node.host_root, "sys/module/firmware_class/parameters/path")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    try:
        assert generate(node).exit_code == 0
    finally:
        path.unlink()


def test_malformed_drm_directories_are_skipped_or_warnings(node: SimulatedNode) -> None:
    """A missing or wrong device number is a warning."""
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
def test_malformed_mig_minors_are_no_crash(mig: SimulatedNode, content: bytes, mode: str) -> None:
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


def test_two_instances_with_one_minor_are_omitted(mig: SimulatedNode) -> None:
    """Each could open the other; the reason names the other instance."""
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


def test_contradicting_minors_of_an_instance_are_reported(mig: SimulatedNode) -> None:
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


def test_instances_without_minors_are_omitted_with_a_reason(mig: SimulatedNode) -> None:
    Path(mig.host_root + MINORS).unlink()
    for path in Path(mig.host_root, "proc/driver/nvidia/capabilities").rglob("access"):
        path.unlink()
    assert all("no longer exists" in trouble for trouble in _troubles(mig).values())
    assert len(_troubles(mig)) == sum(len(gpu.instances) for gpu in mig.node.gpus)
    with pytest.raises(GpuhookError):
        driver_nodes.find(mig.dev_root, {"nvidia": 1}, mig.node.gpus, require=True)
