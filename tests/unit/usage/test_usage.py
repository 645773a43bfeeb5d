# SPDX-License-Identifier: Apache-2.0
"""The usage of GPUs by processes and containers, with the kubelet and the driver."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml
from click.testing import CliRunner, Result

import gpuhook
from gpuhook.cli import main
from gpuhook.containers.warm import state_roots
from gpuhook.device_plugin.kubelet import device_checkpoint
from gpuhook.usage import container_sharing, plugin_containers
from gpuhook.vendors.usage import usage_worker
from tests.simulated import stub_events
from tests.simulated.node import SimulatedNode, make_node
from tests.simulated.running import Running
from tests.unit.table_rows import printed_rows

MIB = 1 << 20
UIDS = (
    "0a1b2c3d-0000-4000-8000-00000000000a",
    "0a1b2c3d-0000-4000-8000-00000000000b",
    "0123456789abcdef0123456789abcdef",
)
SCHEMA = json.loads(
    Path(gpuhook.__file__).with_name("schemas").joinpath("ps.json").read_text("utf-8")
)
pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="makes mount namespaces: needs root")


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Give the command an empty state directory, and hide the rest of this machine."""
    monkeypatch.setenv("GPUHOOK_STATE_DIR", str(tmp_path / "state"))
    monkeypatch.delenv("XDG_RUNTIME_DIR", raising=False)
    monkeypatch.setattr(state_roots, "PLACES", (str(tmp_path / "runc"),))
    monkeypatch.setattr(device_checkpoint, "ROOTS", ())
    return tmp_path


@pytest.fixture
def running(tmp_path: Path) -> Iterator[Running]:
    with Running(tmp_path) as containers:
        yield containers


@pytest.fixture
def node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> SimulatedNode:
    made = make_node(tmp_path / "node", "t4", real_nodes=False)
    monkeypatch.setenv("GPUHOOK_HOST_ROOT", made.host_root)
    return made


def uuid(node: SimulatedNode, gpu: int = 0) -> str:
    return str(node.node.gpus[gpu].uuid)


def ps(node: SimulatedNode, *words: str) -> Result:
    command = ["ps", "--nvml-library", node.nvml_library, *words]
    return CliRunner().invoke(main, command, prog_name="gpuhook")


def document(node: SimulatedNode, *words: str) -> dict[str, Any]:
    shown = ps(node, "-o", "json", *words)
    assert shown.exit_code == 0, shown.output
    found: dict[str, Any] = json.loads(shown.stdout)
    jsonschema.validate(found, SCHEMA)
    return found


def rows(shown: Result) -> dict[str, dict[str, str]]:
    """Return the cells of the table by the id of the container and by header."""
    return {row["CONTAINER"]: row for row in printed_rows(shown.stdout)}


def usage(row: dict[str, str]) -> list[str]:
    return [row[header] for header in ("MEMORY", "SHARE", "BUSY")]


def test_memory_and_processes_by_container(node: SimulatedNode, running: Running) -> None:
    """A process belongs to the container whose mounts it sees; a process on the host to none."""
    gpu = uuid(node)
    train = running.start("train", ["/dev/nvidia0"], pod=("train-0", "ml", "main"))
    running.start("idle", ["/dev/nvidia0"])
    own = os.getpid()
    stub_events.say(
        node,
        gpu,
        f"used {5000 * MIB}",
        f"process compute {train} {3000 * MIB}",
        "busy 40",
        f"works {train} 35",
    )
    with open(node.nvml_profile, "a", encoding="utf-8") as profile:
        profile.write(f"process graphics {own} {100 * MIB}\n")
    found = document(node)
    by_id = {one["id"]: one for one in found["containers"]}
    (use,) = by_id["train"]["usage"]
    total = 15360 * MIB
    assert (use["gpu"], use["used"], use["total"], use["percent"]) == (gpu, 3000 * MIB, total, 35)
    assert use["share"] == {"bytes": total // 2, "by": "holders"}
    assert [one["pid"] for one in use["processes"]] == [train]
    assert use["processes"][0]["name"] == "sleep"
    assert (by_id["train"]["pod"], by_id["train"]["route"]) == ("train-0", "unknown")
    assert not by_id["train"]["recorded"]
    assert by_id["idle"]["usage"][0]["used"] == 0
    (host,) = found["processes"]
    assert (host["pid"], host["host"], host["used"]) == (own, True, 100 * MIB)
    assert found["gpus"][0]["unattributed"] == 1900 * MIB
    assert found["gpus"][0]["percent"] == 40
    table = rows(ps(node))
    assert usage(table["train"]) == ["3000Mi/15Gi", "39%", "35%"]
    assert usage(table["idle"]) == ["0Mi/15Gi", "0%", "0%"]
    assert table["(host)"]["MEMORY"] == "100Mi/15Gi"
    assert table["(unknown)"]["MEMORY"] == "1900Mi/15Gi"
    assert {row["GPUS"] for row in table.values()} == {"0 (Tesla T4)"}
    wide = rows(ps(node, "-o", "wide"))
    assert usage(wide["train"]) == ["3000Mi/15Gi", "39% of 7680Mi", "35%"]
    assert wide["train"]["PROCESSES"] == f"{train}:sleep"
    assert {row["UUIDS"] for row in wide.values()} == {gpu}
    assert sorted(ps(node, "-o", "name").stdout.split()) == ["idle", "train"]
    assert yaml.safe_load(ps(node, "-o", "yaml").stdout) == document(node)


@pytest.mark.parametrize(
    ("config", "route"),
    [
        ({"hooks": {"prestart": [{"path": "/usr/bin/nvidia-container-runtime-hook"}]}}, "legacy"),
        ({"hooks": {"createContainer": [{"path": "/usr/bin/nvidia-cdi-hook"}]}}, "cdi"),
    ],
)
def test_injector_of_a_container(
    config: dict[str, Any], route: str, node: SimulatedNode, running: Running
) -> None:
    running.start("one", ["/dev/nvidia0"], config=config, env=["NVIDIA_VISIBLE_DEVICES=all"])
    (one,) = document(node)["containers"]
    assert (one["route"], one["gpus"]) == (f"nvidia-{route}", [uuid(node)])
    assert (one["requested"], one["source"]) == (["all"], "NVIDIA_VISIBLE_DEVICES")
    assert document(node, "--recorded")["containers"] == []


def test_containers_that_hold_no_gpu(node: SimulatedNode, running: Running) -> None:
    """An image whose request was not handled, and a privileged container."""
    running.start("asks", env=["NVIDIA_VISIBLE_DEVICES=all"])
    everything = {"linux": {"resources": {"devices": [{"allow": True, "access": "rwm"}]}}}
    privileged = running.start("privileged", config=everything)
    assert document(node)["containers"] == []
    stub_events.say(node, uuid(node), f"process compute {privileged} {MIB}")
    (one,) = document(node)["containers"]
    assert (one["id"], one["gpus"], one["usage"][0]["used"]) == ("privileged", [uuid(node)], MIB)


def test_nodes_mounted_by_the_legacy_hook(node: SimulatedNode, running: Running) -> None:
    """NVIDIA's legacy hook mounts nodes that no config.json has."""
    running.start("one", mounted=["/dev/nvidia0"])
    (one,) = document(node)["containers"]
    assert (one["route"], one["gpus"]) == ("nvidia-legacy", [uuid(node)])


def test_recorded_containers_have_their_limit_as_share(
    node: SimulatedNode, running: Running
) -> None:
    gpu = uuid(node)
    pid = running.start("one", ["/dev/nvidia0"])
    limit = {"device": gpu, "hard": 2000 * MIB, "soft": 0, "asked": False, "by": "driver"}
    entry = {"devices": [f"nvidia.com/gpu={gpu}"], "route": "wrapper"}
    running.record("one", **entry, memory=[{**limit, "trouble": "", "cgroups": []}])
    stub_events.say(node, gpu, f"process compute {pid} {1000 * MIB}")
    (one,) = document(node)["containers"]
    assert (one["recorded"], one["route"], one["pid"]) == (True, "wrapper", pid)
    assert one["usage"][0]["share"] == {"bytes": 2000 * MIB, "by": "limit"}
    for words in ((), ("--recorded",)):
        assert rows(ps(node, *words))["one"]["SHARE"] == "50%"
        assert rows(ps(node, "-o", "wide", *words))["one"]["SHARE"] == "50% of 2000Mi"


def test_two_containers_of_a_pod(node: SimulatedNode, running: Running) -> None:
    """The table has the names that other commands accept."""
    running.start("one", ["/dev/nvidia0"], pod=("train-0", "ml", "main"))
    running.start("two", pod=("train-0", "ml", "side"))
    entry = {"pod": "train-0", "namespace": "ml", "container": "side", "route": "wrapper"}
    running.record("two", **entry, devices=[f"nvidia.com/gpu={uuid(node)}"])
    found = rows(ps(node))
    assert [found[name]["NAME"] for name in ("one", "two")] == ["train-0/main", "train-0/side"]


def test_gpu_used_without_a_request(node: SimulatedNode, running: Running) -> None:
    """The container is listed with the GPU, which it does not hold."""
    pid = running.start("one")
    running.record("one", devices=[], nodes=[], route="wrapper")
    stub_events.say(node, uuid(node), f"process compute {pid} {MIB}")
    (one,) = document(node)["containers"]
    assert one["gpus"] == []
    assert [(use["gpu"], use["held"]) for use in one["usage"]] == [(uuid(node), False)]
    assert rows(ps(node))["one"]["GPUS"] == "0 (Tesla T4)"


def _plugin_config(kubelet_root: Path, source: str = "") -> dict[str, Any]:
    place = source or str(kubelet_root / "device-plugins")
    mount = {"destination": "/var/lib/kubelet/device-plugins", "type": "bind", "source": place}
    return {"mounts": [mount], "linux": {"devices": [{"path": "/dev/nvidia0"}]}}


@pytest.mark.parametrize("is_recorded", [True, False])
def test_device_plugin_is_listed_without_a_share(
    node: SimulatedNode, running: Running, place: Path, is_recorded: bool
) -> None:
    root = place / "kubelet"
    (root / "device-plugins").mkdir(parents=True)
    running.start("plugin", config=_plugin_config(root))
    running.start("train", ["/dev/nvidia0"])
    if is_recorded:
        bundle = str(running.place / "bundles/plugin")
        device = f"nvidia.com/gpu={uuid(node)}"
        entry = {"devices": [device], "requested": ["all"], "route": "wrapper", "bundle": bundle}
        running.record("plugin", **entry)
    words = ["--kubelet-root", str(root)]
    by_id = {one["id"]: one for one in document(node, *words)["containers"]}
    assert by_id["plugin"]["device_plugin"]
    assert by_id["plugin"]["usage"][0]["share"] is None
    assert not by_id["train"]["device_plugin"]
    assert by_id["train"]["usage"][0]["share"] == {"bytes": 15360 * MIB, "by": "holders"}
    table = rows(ps(node, "-o", "wide", *words))
    assert table["plugin"]["ROUTE"].endswith(" (device plugin)")
    assert "(device plugin)" not in table["train"]["ROUTE"]


@pytest.mark.parametrize(
    "source",
    [
        "{}/pods/1/volumes/kubernetes.io~empty-dir/device-plugins",
        "{}/pods/1/volume-subpaths/device-plugins/main/0",
        "{}",
        "device-plugins",
        "",
    ],
)
def test_volume_of_a_tenant_is_no_device_plugin(
    node: SimulatedNode, running: Running, place: Path, source: str
) -> None:
    """The name of the mount and its path in the container do not matter."""
    root = place / "kubelet"
    (root / "device-plugins").mkdir(parents=True)
    config = _plugin_config(root, source.format(root) or "/nowhere/device-plugins")
    running.start("tenant", config=config)
    running.start("train", ["/dev/nvidia0"])
    found = document(node, "--kubelet-root", str(root))["containers"]
    assert not any(one["device_plugin"] for one in found)
    shares = [one["usage"][0]["share"]["bytes"] for one in found]
    assert shares == [7680 * MIB, 7680 * MIB]


def test_link_in_place_of_a_tenants_volume(
    node: SimulatedNode, running: Running, place: Path
) -> None:
    """A tenant can replace the directory behind its mount when the container runs."""
    root = place / "kubelet"
    (root / "device-plugins").mkdir(parents=True)
    (place / "volume").symlink_to(root / "device-plugins")
    running.start("tenant", config=_plugin_config(root, str(place / "volume")))
    (tenant,) = document(node, "--kubelet-root", str(root))["containers"]
    assert not tenant["device_plugin"]


def test_kubelet_directory_with_two_names(
    node: SimulatedNode, running: Running, place: Path
) -> None:
    """An engine mounts the directory by the name that it got, or without links."""
    root = place / "kubelet"
    (root / "device-plugins").mkdir(parents=True)
    (place / "link").symlink_to(root)
    for name, source in (("one", place / "link"), ("two", root)):
        running.start(name, config=_plugin_config(root, f"{source}/device-plugins/"))
    found = document(node, "--kubelet-root", str(place / "link"))["containers"]
    assert [one["device_plugin"] for one in found] == [True, True]


@pytest.mark.parametrize("mounts", [None, {}, [None], [{}], [{"source": 1}], [{"source": ""}]])
def test_malformed_mounts_are_no_device_plugin(mounts: object) -> None:
    assert not plugin_containers.is_plugin({"mounts": mounts}, "/var/lib/kubelet")


def test_mig_instances(place: Path, running: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    """An instance has its own memory and processes; NVML does not report its utilization."""
    node = make_node(place / "node", "a100-mig", real_nodes=False)
    monkeypatch.setenv("GPUHOOK_HOST_ROOT", node.host_root)
    gpu = node.node.gpus[1]
    instance = gpu.instances[1]
    cap = f"/dev/nvidia-caps/nvidia-cap{instance.compute_instance_minor}"
    pid = running.start("one", [f"/dev/nvidia{gpu.minor}", cap])
    place_in = f"{instance.gpu_instance} {instance.compute_instance}"
    stub_events.say(node, instance.uuid, f"process compute {pid} {700 * MIB} {place_in}")
    found = document(node)
    (one,) = found["containers"]
    assert one["gpus"] == [instance.uuid]
    (use,) = one["usage"]
    assert (use["used"], use["percent"], use["total"]) == (700 * MIB, None, instance.memory_bytes)
    indices = {told["gpu"]: (told["index"], told["of"], told["split"]) for told in found["gpus"]}
    assert indices[instance.uuid] == (f"1:{instance.index}", gpu.uuid, False)
    assert indices[str(gpu.uuid)] == ("1", gpu.uuid, True)


def test_hanging_driver_is_a_warning(
    node: SimulatedNode, running: Running, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The rest is listed."""
    running.start("one", ["/dev/nvidia0"])
    os.mkfifo(place / "profile")  # a FIFO without a writer blocks the driver
    monkeypatch.setenv("NVML_STUB_PROFILE", str(place / "profile"))
    monkeypatch.setattr(usage_worker, "SECONDS", 0.3)
    shown = ps(node)
    assert shown.exit_code == 0
    assert shown.stdout.splitlines()[1].startswith("one ")
    assert "GH1256: the driver did not answer within 0.3 seconds" in shown.stderr
    assert document(node)["driver"]["code"] == "GH1256"
    without = ps(node, "--no-nvml")
    assert without.stderr == ""
    assert document(node, "--no-nvml")["driver"] == {"asked": False, "trouble": "", "code": ""}


def test_missing_driver(node: SimulatedNode, running: Running, place: Path) -> None:
    running.start("one", ["/dev/nvidia0"])
    os.unlink(node.nvml_profile)
    assert "GH1204" in ps(node).stderr
    os.unlink(node.nvml_library)
    assert "GH1201" in ps(node).stderr
    (place / "empty").mkdir()
    command = ["ps", "--driver-root", str(place / "empty")]
    shown = CliRunner().invoke(main, command, prog_name="gpuhook")
    assert shown.exit_code == 0
    assert "GH1200" not in shown.stderr  # without a driver there is nothing to read


def test_pids_of_another_namespace_have_no_container(
    node: SimulatedNode, running: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    from gpuhook.device_plugin.guard import container_processes

    pid = running.start("one", ["/dev/nvidia0"])
    stub_events.say(node, uuid(node), f"process compute {pid} {MIB}")
    monkeypatch.setattr(container_processes, "_FIRST_PID_NAMESPACE", 1)
    found = document(node)
    assert found["processes"][0]["reason"] == "permission denied"
    assert not found["processes"][0]["host"]
    assert "GH1953" in ps(node).stderr
    assert rows(ps(node))["(unknown)"]["MEMORY"] == "0Mi/15Gi"


def test_unknown_memory_of_a_process(node: SimulatedNode, running: Running) -> None:
    """It is unknown, not 0, and so is the unattributed memory."""
    pid = running.start("one", ["/dev/nvidia0"])
    stub_events.say(node, uuid(node), f"used {900 * MIB}", f"process compute {pid} -")
    found = document(node)
    assert found["containers"][0]["usage"][0]["used"] is None
    assert found["gpus"][0]["unattributed"] is None
    assert usage(rows(ps(node))["one"])[:2] == ["-", "-"]
    assert "(unknown)" not in rows(ps(node))


def test_control_characters_are_escaped(node: SimulatedNode, running: Running) -> None:
    pid = running.start("one", ["/dev/nvidia0"], pod=("a\x1b[31mb", "ns\r\n", "c"))
    running.start("two", ["/dev/nvidia0"], env=["NVIDIA_VISIBLE_DEVICES=\x07"])
    stub_events.say(node, uuid(node), f"process compute {pid} {MIB}")
    for words in ((), ("-o", "wide"), ("--isolation",), ("-o", "name")):
        shown = ps(node, *words).stdout
        assert all(line.isprintable() for line in shown.splitlines()), words
    assert "a\\x1b[31mb" in ps(node).stdout


def test_shares() -> None:
    container = {"memory": [{"gpu": "GPU-1", "limit": None}], "replicas": ["GPU-1::0", "GPU-2::0"]}
    units = ["GPU-1::0", "GPU-1::1"]
    assert container_sharing.fair_share("GPU-1", 100, container, units, 7) == {
        "bytes": 50,
        "by": "replicas",
    }
    assert container_sharing.fair_share("GPU-1", 100, container, (), 4) == {
        "bytes": 25,
        "by": "holders",
    }
    assert container_sharing.fair_share("GPU-1", None, container, units, 1) is None
    limited = {**container, "memory": [{"gpu": "GPU-1", "limit": 30}]}
    assert container_sharing.fair_share("GPU-1", None, limited, units, 1) == {
        "bytes": 30,
        "by": "limit",
    }
    assert container_sharing.is_over(31, {"bytes": 30})
    assert not container_sharing.is_over(None, {"bytes": 30})
