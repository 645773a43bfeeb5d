# SPDX-License-Identifier: Apache-2.0
"""ps and map on nodes with AMD GPUs, alone and with another vendor's.

The node is a tree of files; the containers, their processes and their mounts are real.
"""

from __future__ import annotations

import json
import shutil
import time
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from click.testing import CliRunner, Result

import gpuhook
from gpuhook.cli import main
from gpuhook.cli.diagnosis import screen
from gpuhook.containers.warm import state_roots
from gpuhook.device_plugin.kubelet import device_checkpoint
from gpuhook.vendors.amd.usage import amd_reading, amd_usage
from gpuhook.vendors.nvidia.usage import nvidia_usage
from gpuhook.vendors.usage import usage_worker
from tests.simulated import amd_tree, amd_users
from tests.simulated.amd_tree import AmdTree
from tests.simulated.node import SimulatedNode, make_node
from tests.simulated.running import Running
from tests.unit.other_user import AS_ROOT
from tests.unit.table_rows import printed_rows

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

GIB = 1 << 30
TOTAL = 196_592 << 20  # bytes of an MI300X in the profiles
SCHEMA = json.loads(
    Path(gpuhook.__file__).with_name("schemas").joinpath("ps.json").read_text("utf-8")
)
pytestmark = AS_ROOT


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Give the commands an empty state directory, and hide the rest of this machine."""
    monkeypatch.setenv("GPUHOOK_STATE_DIR", str(tmp_path / "state"))
    monkeypatch.setenv("GPUHOOK_DRIVER_ROOT", str(tmp_path))  # has no other driver
    monkeypatch.setenv("GPUHOOK_HOST_ROOT", str(tmp_path / "node"))
    monkeypatch.delenv("XDG_RUNTIME_DIR", raising=False)
    monkeypatch.setattr(state_roots, "PLACES", (str(tmp_path / "runc"),))
    monkeypatch.setattr(device_checkpoint, "ROOTS", ())
    return tmp_path


@pytest.fixture
def running(tmp_path: Path) -> Iterator[Running]:
    with Running(tmp_path) as containers:
        yield containers


def tree_of(place: Path, profile: str) -> AmdTree:
    tree = amd_tree.build(place / "node", profile)
    amd_users.host_processes(tree.root)
    return tree


@pytest.fixture
def mixed(place: Path, monkeypatch: pytest.MonkeyPatch) -> SimulatedNode:
    """Return a node with a T4 and two MI210."""
    node = make_node(place / "node", "mixed", real_nodes=False)
    tree_of(place, "mixed")
    monkeypatch.setenv("GPUHOOK_NVML_LIBRARY", node.nvml_library)
    return node


def ps(*words: str) -> Result:
    shown = CliRunner().invoke(main, ["ps", *words], prog_name="gpuhook")
    assert shown.exit_code == 0, shown.output
    return shown


def drawn(*words: str) -> Result:
    shown = CliRunner().invoke(main, ["map", *words], prog_name="gpuhook")
    assert shown.exit_code == 0, shown.output
    return shown


def document(*words: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(ps("-o", "json", *words).stdout)
    jsonschema.validate(found, SCHEMA)
    return found


def rows(*words: str) -> dict[str, dict[str, str]]:
    return {row["CONTAINER"]: row for row in printed_rows(ps(*words).stdout)}


def use(tree: AmdTree, pid: int, index: int, vram: int, occupied: int = 0) -> None:
    """Let a process compute on the device `index` of the node."""
    devices = [device for _, device in tree.node.devices()]
    amd_users.runs(tree.root, pid)
    every = {str(one.kfd_id): vram if one.index == index else 0 for one in devices}
    amd_users.compute(
        tree.root,
        pid,
        {int(one): amount for one, amount in every.items()},
        {devices[index].kfd_id or 0: occupied},
    )


def test_whole_gpus(place: Path, running: Running) -> None:
    """A container has the GPU of its render node; KFD and fdinfo have what it uses."""
    tree = tree_of(place, "mi300x8")
    address = tree.node.gpus[0].pci_address
    train = running.start("train", ["/dev/kfd", "/dev/dri/card1", "/dev/dri/renderD128"])
    running.start("idle", ["/dev/kfd", "/dev/dri/renderD128"], pod=("train-0", "ml", "main"))
    use(tree, train, 0, 48 * GIB, occupied=152)
    amd_users.client(tree.root, train, "7", minor=128, vram=64 * GIB, address=address)
    amd_users.write(tree.gpu(address) / "mem_info_vram_used", str(65 * GIB))
    amd_users.write(tree.gpu(address) / "gpu_busy_percent", "77")
    found = document()
    by_id = {one["id"]: one for one in found["containers"]}
    assert by_id["train"]["gpus"] == by_id["idle"]["gpus"] == [address]
    assert by_id["train"]["route"] == "unknown"
    (mine,) = by_id["train"]["usage"]
    assert (mine["used"], mine["total"], mine["percent"]) == (64 * GIB, TOTAL, 50)
    assert mine["share"] == {"bytes": TOTAL // 2, "by": "holders"}
    assert [(one["pid"], one["used"]) for one in mine["processes"]] == [(train, 64 * GIB)]
    assert by_id["idle"]["usage"][0]["used"] == 0
    gpu = found["gpus"][0]
    assert (gpu["gpu"], gpu["index"], gpu["used"], gpu["percent"]) == (address, "0", 65 * GIB, 77)
    assert found["driver"] == {"asked": True, "trouble": "", "code": ""}
    row = rows()["train"]
    assert row["GPUS"] == "0 (Instinct MI300X OAM)"
    assert [row[name] for name in ("MEMORY", "SHARE", "BUSY")] == ["64Gi/196592Mi", "67%", "50%"]
    assert rows("-o", "wide")["train"]["UUIDS"] == address
    text = drawn("--width", "100").stdout
    assert "GPU 0 (Instinct MI300X OAM)" in text
    assert "65 of 192 GiB in use · busy 77%" in text
    assert "train" in text


def test_partitions(place: Path, running: Running) -> None:
    """A partition has its own row, mode and memory; its GPU is drawn with its partitions."""
    tree = tree_of(place, "mi300x-cpx")
    one = running.start("one", ["/dev/kfd", "/dev/dri/renderD131"])
    running.start("all", [f"/dev/dri/renderD{minor}" for minor in range(128, 136)])
    use(tree, one, 3, 6 * GIB)
    found = document()
    by_id = {one["id"]: one for one in found["containers"]}
    assert by_id["one"]["gpus"] == ["amdgpu_xcp_2"]
    assert by_id["all"]["gpus"] == ["0000:05:00.0", *(f"amdgpu_xcp_{n}" for n in range(7))]
    assert len(found["gpus"]) == 72
    whole, first = found["gpus"][:2]
    assert (whole["split"], whole["index"], whole["of"]) == (True, "0", whole["gpu"])
    assert (first["split"], first["index"], first["of"]) == (False, "0:0", whole["gpu"])
    assert first["profile"] == "CPX/NPS4"
    (sharing,) = by_id["one"]["sharing"]
    assert sharing["sharing"] == "time-slicing"  # with the other container
    assert rows()["one"]["GPUS"] == "0:3 (CPX/NPS4)"
    assert rows()["one"]["MEMORY"] == "6Gi/24574Mi"
    assert rows()["all"]["GPUS"] == "0:0-7 (CPX/NPS4)"
    text = drawn("--width", "160").stdout
    assert "GPU 0 (Instinct MI300X OAM, CPX/NPS4)" in text
    assert "  a 0:0  all  0 MiB of 24 GiB" in text
    assert "  1/2  one  6 of 12 GiB" not in text
    assert "of 65 parts held" in text  # 64 partitions, one of them with two holders


def test_isolation_of_a_partition(place: Path, running: Running) -> None:
    """A partition is not the whole GPU."""
    tree_of(place, "mi300x-cpx")
    running.start("one", ["/dev/dri/renderD131"])
    text = ps("--isolation").stdout
    assert "the partition has its own compute units" in text
    assert "entire memory" not in text


def test_many_partitions_fit(
    place: Path, running: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A container with 64 partitions does not make the table or the picture wider."""
    tree_of(place, "mi300x-cpx")
    running.start("all", [f"/dev/dri/renderD{minor}" for minor in range(128, 192)])
    for width in (40, 80, 120, 200):
        monkeypatch.setenv("COLUMNS", str(width))
        monkeypatch.setattr("gpuhook.host.terminal.terminal_features.width", lambda w=width: w)
        for text in (ps().stdout, drawn().stdout):
            assert max(map(len, text.splitlines())) <= width
    assert len(document()["containers"][0]["gpus"]) == 64


def test_nodes_that_are_no_device(place: Path, running: Running) -> None:
    """/dev/kfd alone, cards, dead partitions and other drivers' nodes are no GPU of AMD."""
    tree_of(place, "mi300x8")
    running.start("kfd", ["/dev/kfd", "/dev/dri/card1"])
    running.start("other", ["/dev/dri/renderD250"])
    running.start("dri", ["/dev/dri/renderD128", "/dev/dri/renderD129"])
    found = document()["containers"]
    assert [(one["id"], one["gpus"]) for one in found] == [("dri", ["0000:05:00.0"])]


def test_ledger_and_processes(place: Path, running: Running) -> None:
    """The ledger has the devices of gpuhook's containers; others are found by their processes."""
    tree = tree_of(place, "mi300x8")
    running.start("ours")
    running.record(
        "ours",
        devices=["amd.com/gpu=0000:27:00.0"],
        nodes=["/dev/kfd", "/dev/dri/renderD136"],
        requested=["1"],
        source="AMD_VISIBLE_DEVICES",
        route="wrapper",
    )
    by_process = running.start("by-process")
    use(tree, by_process, 2, GIB)
    running.start("runtime", ["/dev/dri/renderD152"], env=["AMD_VISIBLE_DEVICES=3, 3"])
    by_id = {one["id"]: one for one in document()["containers"]}
    assert (by_id["runtime"]["requested"], by_id["runtime"]["source"]) == (
        ["3", "3"],
        "AMD_VISIBLE_DEVICES",
    )
    assert by_id["runtime"]["gpus"] == ["0000:65:00.0"]
    assert by_id["ours"]["gpus"] == ["0000:27:00.0"]
    assert by_id["ours"]["route"] == "wrapper"
    assert by_id["by-process"]["gpus"] == ["0000:47:00.0"]
    assert [one["id"] for one in document("--recorded")["containers"]] == ["ours"]


def test_memory_of_an_ended_process(place: Path, running: Running) -> None:
    """Memory that KFD still has for a process which has exited belongs to no one."""
    tree = tree_of(place, "mi300x8")
    running.start("one", ["/dev/dri/renderD128"])
    use(tree, 4_000_000, 0, 5 * GIB)
    amd_users.ended(tree.root, 4_000_000)
    found = document()
    assert found["gpus"][0]["unattributed"] == 5 * GIB
    assert found["processes"] == []
    assert rows()["(unknown)"]["MEMORY"] == "5Gi/196592Mi"
    assert "5 GiB are in use by unknown processes" in drawn("--width", "100").stdout


def test_unreadable_processes_are_unknown(place: Path, running: Running) -> None:
    """Without the host's processes, memory is unknown and not 0; KFD's figures remain."""
    tree = amd_tree.build(place / "node", "mi300x8")
    running.start("idle", ["/dev/dri/renderD128"])
    busy = running.start("busy", ["/dev/dri/renderD136"])
    tree.process(busy, {tree.node.gpus[1].devices[0].kfd_id or 0: 3 * GIB})
    found = {one["id"]: one["usage"][0]["used"] for one in document()["containers"]}
    assert found == {"idle": None, "busy": 3 * GIB}
    assert rows()["idle"]["MEMORY"] == "-"
    assert "could not be read: their use of AMD GPUs is unknown" in ps().stderr


def test_driver_is_not_asked(place: Path, running: Running) -> None:
    """--no-nvml has the devices without their usage."""
    tree = tree_of(place, "mi300x8")
    one = running.start("one", ["/dev/dri/renderD128"])
    use(tree, one, 0, GIB)
    found = document("--no-nvml")
    assert found["containers"][0]["gpus"] == ["0000:05:00.0"]
    assert found["containers"][0]["usage"][0]["used"] is None
    assert not found["driver"]["asked"]


def test_both_vendors(mixed: SimulatedNode, running: Running) -> None:
    """The indices of the second vendor have its word; one container may have GPUs of both."""
    t4 = str(mixed.node.gpus[0].uuid)
    running.start("both", ["/dev/nvidia0", "/dev/dri/renderD130", "/dev/dri/renderD131"])
    running.start("graphics", ["/dev/nvidia0", "/dev/dri/renderD128"])
    found = document()
    by_id = {one["id"]: one for one in found["containers"]}
    assert by_id["both"]["gpus"] == [t4, "0000:c3:00.0", "0000:e3:00.0"]
    assert by_id["graphics"]["gpus"] == [t4]  # renderD128 is the T4's
    assert [gpu["index"] for gpu in found["gpus"]] == ["0", "amd 0", "amd 1"]
    assert rows()["both"]["GPUS"] == "0 (Tesla T4), amd 0,1 (Instinct MI210)"
    text = drawn("--width", "100").stdout
    assert "GPU 0 (Tesla T4)" in text
    assert "GPU amd 1 (Instinct MI210)" in text


def test_one_vendor_hangs(
    mixed: SimulatedNode, running: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The rows of the other one remain, with a warning that names the fault."""
    assert mixed.node.gpus
    monkeypatch.setattr(usage_worker, "SECONDS", 0.5)
    running.start("one", ["/dev/dri/renderD130"])
    with monkeypatch.context() as patch:
        patch.setattr(nvidia_usage, "_reader", lambda *_: time.sleep(60))
        found = document()
        assert found["driver"]["code"] == "GH1256"
        assert found["containers"][0]["gpus"] == ["0000:c3:00.0"]
        assert "GH1256" in ps().stderr
    with monkeypatch.context() as patch:
        patch.setattr(amd_usage, "usage", lambda *_: time.sleep(60))
        found = document()
        assert found["driver"]["code"] == "GH2561"
        assert [gpu["index"] for gpu in found["gpus"]] == ["0"]
        assert "the amdgpu driver did not answer within 0.5 seconds" in ps().stderr


def test_one_vendor_fails(mixed: SimulatedNode, monkeypatch: pytest.MonkeyPatch) -> None:
    """A fault of one vendor's code is not the other's."""
    assert mixed.node.gpus

    def broken(*_: object) -> object:
        raise ValueError("no number")

    for where, name in ((amd_usage, "usage"), (amd_reading, "opened")):
        with monkeypatch.context() as patch:
            patch.setattr(where, name, broken)
            found = document()
            assert found["driver"]["code"] == "GH2560"
            assert [gpu["index"] for gpu in found["gpus"]] == ["0"]


def test_replicas_of_the_kubelet(place: Path, running: Running) -> None:
    """The kubelet's checkpoint has AMD's ids; the PCI address of a network device is not one."""
    tree_of(place, "mi300x-cpx")
    uid = "0a1b2c3d-0000-4000-8000-00000000000a"
    running.start(
        "pod",
        ["/dev/dri/renderD129"],
        pod=("train", "ml", "main"),
        config={
            "linux": {
                "devices": [{"path": "/dev/dri/renderD129", "type": "c"}],
                "cgroupsPath": f"kubepods-pod{uid.replace('-', '_')}.slice:cri-containerd:pod",
            }
        },
    )
    held = ["amdgpu_xcp_0::1"]
    data = {
        "PodDeviceEntries": [
            {"PodUID": uid, "ContainerName": "main", "DeviceIDs": {"0": held}},
            {"PodUID": uid, "ContainerName": "main", "DeviceIDs": {"0": ["0000:99:00.0"]}},
        ],
        "RegisteredDevices": {
            "amd.com/gpu.shared": [f"amdgpu_xcp_0::{number}" for number in range(4)],
            "example.com/nic": ["0000:99:00.0"],
        },
    }
    checkpoint = place / "kubelet/device-plugins/kubelet_internal_checkpoint"
    amd_users.write(checkpoint, json.dumps({"Data": data}))
    (found,) = document("--kubelet-root", str(place / "kubelet"))["containers"]
    assert found["replicas"] == held
    assert found["usage"][0]["share"] == {"bytes": TOTAL // 8 // 4, "by": "replicas"}


def test_partition_mode_changes_while_watching(
    place: Path, running: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each round of --watch reads the devices again."""
    tree = tree_of(place, "mi300x8")
    running.start("one", ["/dev/dri/renderD128"])
    shown: list[str] = []

    def rounds(block: Any, _interval: float) -> None:
        shown.append(block())
        tree.lose_gpu(tree.node.gpus[7].pci_address)
        shown.append(block())

    monkeypatch.setattr(screen, "run", rounds)
    drawn("--watch")
    assert [text.count("Instinct MI300X") for text in shown] == [8, 7]
    shown.clear()
    shutil.rmtree(tree.root / "sys")
    amd_tree.build(tree.root, "mi300x8")
    ps("--watch")
    assert all("0 (Instinct MI300X OAM)" in text for text in shown)


def test_explain_names_the_gpu_of_a_device_node(mixed: SimulatedNode, running: Running) -> None:
    """Its spec was applied by an engine: config.json has only nodes, and gpuhook's variable."""
    assert mixed.node.gpus
    process = {"env": ["AMD_VISIBLE_DEVICES=void"]}
    running.start("one", ["/dev/dri/renderD130"], config={"process": process})
    shown = CliRunner().invoke(main, ["explain", "-o", "json", "one"])
    assert shown.exit_code == 0, shown.output
    (found,) = json.loads(shown.stdout)["containers"]
    assert [one["gpu"] for one in found["gpus"]] == ["0000:c3:00.0"]
    assert "of gpuhook" in found["route"]["note"]
    assert "each process has its own address space" in found["isolation"][0]["isolation"]["crash"]
