# SPDX-License-Identifier: Apache-2.0
"""Known defects of NVIDIA's device plugin v0.20, one test each: gpuhook's plugin has none."""

from __future__ import annotations

import asyncio
import signal
from dataclasses import replace
from itertools import combinations
from pathlib import Path

import grpc
import pytest
from structlog.testing import capture_logs

from gpuhook.device_plugin import plugin_process
from gpuhook.device_plugin.api import deviceplugin_pb2 as api
from gpuhook.device_plugin.api_server import api_clients
from gpuhook.device_plugin.api_server.node_label import CONFIG_LABEL
from gpuhook.device_plugin.config import config_source
from gpuhook.device_plugin.config.configuration import Configuration
from gpuhook.device_plugin.config.launch_options import Launch
from gpuhook.device_plugin.offer import offered_devices
from gpuhook.device_plugin.offer.offered_devices import Device, Resource, Unit
from gpuhook.device_plugin.offer.preferred_allocation import preferred
from gpuhook.vendors.nvidia.inventory import dump_file
from gpuhook.vendors.nvidia.inventory.inventory import Driver, Gpu, Node
from gpuhook.vendors.nvidia.labels.label_facts import LabelFacts
from tests.kubelet.endpoint import Endpoint
from tests.kubelet.kubelet import Kubelet
from tests.kubelet.process import TIME_SLICING, PluginProcess
from tests.kubelet.running import Run
from tests.simulated import stub_events
from tests.simulated.node import SimulatedNode, make_node
from tests.unit import api_stand_in
from tests.unit.api_stand_in import ApiStandIn, Asked
from tests.unit.choosing import Table, ids, whole
from tests.unit.device_plugin.labels.nvidia_labelling import labels
from tests.waiting import Changes, eventually

GPU, MIG = "nvidia.com/gpu", "nvidia.com/mig-1g.5gb"
VISIBLE = "NVIDIA_VISIBLE_DEVICES"
MPS = """\
  mps:
    resources:
    - name: nvidia.com/gpu
      replicas: 4
"""
UNKNOWN_ERROR = 999


def replicas(count: int) -> str:
    return TIME_SLICING.replace("replicas: 4", f"replicas: {count}")


def first_gpus(profile: str, count: int) -> Node:
    """Return a profile with its first GPUs only."""
    facts = dump_file.load(profile)
    return replace(facts, gpus=facts.gpus[:count])


def uuid_of(running: PluginProcess, index: int) -> str:
    return str(running.node.node.gpus[index].uuid)


def unhealthy(kubelet: Kubelet, resource: str = GPU) -> set[str]:
    return {name for name, one in kubelet.devices(resource).items() if one.health != "Healthy"}


def report_xid(running: PluginProcess, index: int, xid: int = 79) -> None:
    """Let a GPU report an XID that requires a reset, once the plugin offers GPUs."""
    running.kubelet.wait_for(lambda: running.kubelet.capacity(GPU) > 0)
    stub_events.say(running.node, uuid_of(running, index), "recovery 1")
    stub_events.inject_xid(running.node, uuid_of(running, index), xid)


def test_a1_replicas_of_a_failed_gpu_are_reported_in_one_message(
    run: Run, kubelet: Kubelet
) -> None:
    running = run(first_gpus("h100x8", 2), replicas(3))
    kubelet.wait_for_devices(GPU, 6)
    stream = kubelet.endpoint(GPU).stream
    before = len(stream.lists)
    report_xid(running, 0)
    kubelet.wait_for_devices(GPU, 3, 3)
    assert unhealthy(kubelet) == {f"{uuid_of(running, 0)}::{n}" for n in range(3)}
    assert len(stream.lists) == before + 1


def test_a2_one_error_sends_one_message_and_marks_one_gpu(run: Run, kubelet: Kubelet) -> None:
    running = run(first_gpus("h100x8", 4), replicas(100))
    kubelet.wait_for_devices(GPU, 400)
    stream = kubelet.endpoint(GPU).stream
    before = len(stream.lists)
    stub_events.fail_wait(running.node, UNKNOWN_ERROR)
    running.wait_for_log(reason="WatchFailed")
    assert unhealthy(kubelet) == set()
    stub_events.lose(running.node, uuid_of(running, 2))
    kubelet.wait_for_devices(GPU, 300, 100)
    assert {name.partition("::")[0] for name in unhealthy(kubelet)} == {uuid_of(running, 2)}
    assert len(stream.lists) == before + 1


def test_a3_failing_event_wait_is_retried_with_delay(run: Run, kubelet: Kubelet) -> None:
    running = run()
    kubelet.wait_for_devices(GPU, 4)
    stub_events.fail_wait(running.node, UNKNOWN_ERROR, always=True)
    line = running.wait_for_log(event="no events yet", retry=4.0)  # after 1 s and 2 s
    assert "failed" in line["cause"]
    assert sum(line.get("event") == "no events yet" for line in running.log()) <= 3
    assert len(kubelet.endpoint(GPU).stream.lists) <= 2
    assert unhealthy(kubelet) == set()


def test_a4_stale_stream_receives_no_event_of_others(run: Run, kubelet: Kubelet) -> None:
    """A client that does not read its stream receives no event of another stream."""
    running = run("h100x8")
    kubelet.wait_for_devices(GPU, 32)
    socket = kubelet.directory / "nvidia-gpu.sock"
    for _ in range(5):
        kubelet.watch(GPU).cancel()
    stale = Endpoint(socket, api.DevicePluginOptions(), Changes())
    stale.channel.close()  # a connection that closes without a message
    others = [Endpoint(socket, api.DevicePluginOptions(), Changes()) for _ in range(2)]
    for index in range(3):
        report_xid(running, index)
        kubelet.wait_for_devices(GPU, 28 - 4 * index, 4 + 4 * index)
        for other in others:
            eventually(
                lambda other=other, index=index: (  # type: ignore[misc]
                    sum(one.health == "Unhealthy" for one in other.devices.values())
                    == 4 + 4 * index
                )
            )
    for other in others:
        other.close()


def test_a5_enabled_xid_overrides_disabled_health_checks(run: Run, kubelet: Kubelet) -> None:
    running = run(
        first_gpus("h100x8", 2), DP_DISABLE_HEALTHCHECKS="all", DP_ENABLE_HEALTHCHECKS="79"
    )
    kubelet.wait_for_devices(GPU, 8)
    report_xid(running, 1, xid=95)  # disabled
    report_xid(running, 0, xid=79)
    kubelet.wait_for_devices(GPU, 4, 4)
    assert {name.partition("::")[0] for name in unhealthy(kubelet)} == {uuid_of(running, 0)}


@pytest.mark.parametrize("used", [2, 3])
def test_a6_two_replicas_come_from_two_gpus(run: Run, kubelet: Kubelet, used: int) -> None:
    running = run(first_gpus("h100x8", 2))
    kubelet.wait_for_devices(GPU, 8)
    second = uuid_of(running, 1)
    kubelet.in_use[GPU] = {f"{second}::{n}" for n in range(used)}
    response = kubelet.allocate(GPU, 2).response
    assert response.envs[VISIBLE].split(",") == [uuid_of(running, 0), second]


def test_a7_device_specs_are_unique(run: Run, kubelet: Kubelet) -> None:
    run(PASS_DEVICE_SPECS="true")
    kubelet.wait_for_devices(GPU, 4)
    paths = [one.container_path for one in kubelet.allocate(GPU, 2).response.devices]
    assert paths.count("/dev/nvidia0") == 1
    assert len(paths) == len(set(paths))


def test_a8_invalid_configuration_removes_no_device(run: Run, kubelet: Kubelet) -> None:
    running = run()
    kubelet.wait_for_devices(GPU, 4)
    stream = kubelet.endpoint(GPU).stream
    running.config.write_text("version: v2\n", encoding="utf-8")
    running.signal(signal.SIGHUP)
    running.wait_for_log(reason="ConfigRefused")
    kubelet.allocate(GPU, 1)
    assert (stream.ended, kubelet.allocatable(GPU)) == (False, 4)
    running.configure(replicas(2))
    kubelet.wait_for_devices(GPU, 2)


def test_a9_removed_socket_is_created_again(run: Run, kubelet: Kubelet) -> None:
    run()
    kubelet.wait_for_devices(GPU, 4)
    first = kubelet.endpoint(GPU)
    (kubelet.directory / "nvidia-gpu.sock").unlink()
    kubelet.wait_for(lambda: kubelet.endpoint(GPU) is not first, "a registration")
    kubelet.wait_for_devices(GPU, 4)


def test_a10_time_slicing_with_mps_is_refused(run: Run, kubelet: Kubelet) -> None:
    running = run()
    kubelet.wait_for_devices(GPU, 4)
    running.configure(TIME_SLICING + MPS)
    line = running.wait_for_log(reason="ConfigRefused")
    assert "mps" in line["event"]
    assert "timeSlicing" in line["event"]
    assert kubelet.allocatable(GPU) == 4
    assert running.stop() == 0
    running.start()
    assert running.ended() == 1


def test_a11_unknown_keys_and_resources_are_reported(run: Run, kubelet: Kubelet) -> None:
    """Unknown keys and resources cause a warning; a duplicate is an error."""
    other = "    - {name: nvidia.com/foo, replicas: 2}\n"
    running = run("t4", TIME_SLICING + other + "flagz: {}\n")
    kubelet.wait_for_devices(GPU, 4)

    def warnings() -> list[str]:
        return [str(one) for one in running.log() if one.get("level") == "warning"]

    eventually(lambda: any("did you mean flags?" in line for line in warnings()), "the unknown key")
    eventually(lambda: any("nvidia.com/foo" in line for line in warnings()), "the unknown resource")
    running.configure(TIME_SLICING + "    - {name: gpu, replicas: 2}\n")
    assert "duplicate" in running.wait_for_log(reason="ConfigRefused")["event"]


def test_a12_one_replica_has_the_id_of_the_gpu(run: Run, kubelet: Kubelet) -> None:
    running = run("t4", replicas(1))
    kubelet.wait_for_devices(GPU, 1)
    assert set(kubelet.devices(GPU)) == {uuid_of(running, 0)}


def without_libcuda(node: SimulatedNode) -> None:
    for file in Path(node.driver_root).rglob("libcuda.so*"):
        file.unlink()


@pytest.mark.parametrize("cdi", ["cdi-cri", "cdi-annotations"])
def test_a13_missing_library_disables_cdi_strategies_only(
    run: Run, kubelet: Kubelet, cdi: str
) -> None:
    running = run(change=without_libcuda, DEVICE_LIST_STRATEGY=f"envvar,{cdi}")
    kubelet.wait_for_devices(GPU, 4)
    response = kubelet.allocate(GPU, 1).response
    assert response.envs[VISIBLE] == uuid_of(running, 0)
    assert not response.cdi_devices
    assert not response.annotations
    assert any(f"the strategy {cdi}" in str(line.get("event")) for line in running.log())


def test_a13_missing_library_without_other_strategy_marks_devices_unhealthy(
    run: Run, kubelet: Kubelet
) -> None:
    running = run(change=without_libcuda, DEVICE_LIST_STRATEGY="cdi-cri")
    kubelet.wait_for_devices(GPU, 0, 4)
    line = running.wait_for_log(reason="GpuUnhealthy")
    assert "libcuda" in line["event"]
    assert running.process is not None
    assert running.process.poll() is None


def test_a14_missing_extra_devices_are_not_announced(run: Run, kubelet: Kubelet) -> None:
    run(GDRCOPY_ENABLED="true", GDS_ENABLED="true", MOFED_ENABLED="true")
    kubelet.wait_for_devices(GPU, 4)
    response = kubelet.allocate(GPU, 1).response
    assert not {"NVIDIA_GDRCOPY", "NVIDIA_GDS", "NVIDIA_MOFED"} & set(response.envs)


def test_a15_plugin_without_kubelet_logs_no_registration(run: Run, kubelet: Kubelet) -> None:
    running = run(KUBELET_SOCKET="", GPUHOOK_PLUGIN_DIRECTORY=str(kubelet.directory))
    running.wait_for_log(event="not registered: no kubelet socket is configured")
    direct = Endpoint(kubelet.directory / "nvidia-gpu.sock", api.DevicePluginOptions(), Changes())
    eventually(lambda: len(direct.devices) == 4, "the list")
    direct.close()
    assert not [line for line in running.log() if line.get("event") == "registered"]
    assert kubelet.registrations == []


def test_a16_xid_marks_one_mig_instance(run: Run, kubelet: Kubelet) -> None:
    running = run(
        "a100-mig",
        "version: v1\nflags: {migStrategy: mixed}\n",
        GPUHOOK_HEALTH_ASK_DRIVER="false",
    )
    kubelet.wait_for_devices(MIG, 7)
    kubelet.wait_for_devices(GPU, 1)
    gpu = running.node.node.gpus[0]
    failed = set()
    for one in gpu.instances:
        stub_events.inject_xid(running.node, gpu.uuid, 95, (one.gpu_instance, one.compute_instance))
        failed.add(one.uuid)
        kubelet.wait_for_devices(MIG, 7 - len(failed), len(failed))
        assert unhealthy(kubelet, MIG) == failed
    assert unhealthy(kubelet) == set()


def test_a17_best_linked_pair_of_many_gpus_is_preferred() -> None:
    """Fourteen GPUs: unit tests compare up to eight GPUs with brute force."""
    gpus = whole(14)
    for first, second in combinations(range(14), 2):
        links = Table({(first, second): 1800}, other=100)
        chosen = preferred(gpus, ids(gpus), [], 2, policy="distributed", topology=links)
        assert chosen == [f"GPU-{first}", f"GPU-{second}"]


def test_a18_a_v100_has_48_clients() -> None:
    assert offered_devices.most_clients("7.0") == 48
    assert offered_devices.most_clients("6.1") == 16


class Label:
    """The label of a node in a simulated API server, whose watch sends each new value."""

    def __init__(self, server: ApiStandIn, value: str) -> None:
        self._value, self._version = value, 1
        self._changes = Changes()
        self._ended = False
        server.otherwise = self._answer

    def put(self, value: str | None) -> None:
        """Change the label's value; None ends all watches."""
        with self._changes:
            self._version += 1
            self._ended = value is None
            self._value = value or ""

    def _node(self) -> dict[str, object]:
        metadata = {"labels": {CONFIG_LABEL: self._value}, "resourceVersion": str(self._version)}
        return {"metadata": metadata}

    def _answer(self, asked: Asked) -> None:
        if asked.command != "GET":
            api_stand_in.status(403, "no")(asked)
        elif "watch=true" in asked.path:
            asked.begin()
            seen = 1
            while not self._ended:
                self._changes.wait_for(lambda seen=seen: self._version > seen)  # type: ignore[misc]
                seen = self._version
                asked.line({"type": "MODIFIED", "object": self._node()})
            asked.end()
        else:
            asked.reply(self._node())


def test_a19_unknown_label_value_keeps_the_configuration(
    tmp_path: Path, kubelet: Kubelet, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If the node's label names no configuration, the devices remain; the next label applies."""
    configs = tmp_path / "configs"
    configs.mkdir()
    (configs / "few").write_text(replicas(2), encoding="utf-8")
    (configs / "many").write_text(replicas(8), encoding="utf-8")
    node = make_node(tmp_path / "node", "t4")
    launch = Launch(
        source=config_source.ConfigSource(directory=str(configs), default_name="few"),
        kubelet_socket=str(kubelet.socket),
        plugin_directory=str(kubelet.directory),
        node_name="node-1",
        host_root=node.host_root,
        node_driver_root=node.driver_root,
        node_dev_root=node.dev_root,
    )
    monkeypatch.setenv("GPUHOOK_STATE_DIR", str(tmp_path / "state"))
    monkeypatch.setenv("GPUHOOK_METRICS_ADDRESS", "")

    with api_stand_in.serving(tmp_path) as server, capture_logs() as lines:
        monkeypatch.setattr(api_clients, "in_cluster", lambda *_: server.access)
        label = Label(server, "many")

        async def serves(count: int) -> None:
            await asyncio.to_thread(kubelet.wait_for_devices, GPU, count)

        def is_warned() -> bool:
            return any("nothing-of-that-name" in str(line) for line in lines)

        async def scenario() -> None:
            serving = asyncio.create_task(plugin_process._serve(launch))
            await serves(8)
            label.put("nothing-of-that-name")
            await asyncio.to_thread(eventually, is_warned, "a warning")
            await serves(8)
            label.put("few")
            await serves(2)
            assert not serving.done()
            signal.raise_signal(signal.SIGTERM)
            label.put(None)
            await serving

        asyncio.run(scenario())


def test_a20_node_labels_have_valid_lengths() -> None:
    gpu = Gpu(0, "GPU-0", name="NVIDIA " + "Very Long Name " * 10, memory_bytes=16 << 30)
    device = Device("GPU-0", "0", "GPU-0", 0, (), (), model=gpu.name)
    offered = Resource(GPU, tuple(Unit(f"GPU-0::{n}", device, n) for n in range(4)), "time-slicing")
    for version in ("580", "580.95", "580.95.05", "580.95.05.01"):
        node_labels = labels(
            Node(Driver(version), (gpu,)), (offered,), Configuration(), LabelFacts()
        )
        assert node_labels["nvidia.com/gpu.count"] == "1"
        assert all(len(value) <= 63 for value in node_labels.values())


def test_a21_lost_gpu_does_not_break_preferred_allocation(run: Run, kubelet: Kubelet) -> None:
    """Neither a lost GPU nor an NVML that does not answer breaks it: the links were read before."""
    running = run("h100x8", "version: v1\n", GPUHOOK_HEALTH_POLL_INTERVAL="200ms")
    kubelet.wait_for_devices(GPU, 8)
    stub_events.lose(running.node, uuid_of(running, 3))
    kubelet.wait_for_devices(GPU, 7, 1)
    response = kubelet.allocate(GPU, 2).response
    assert uuid_of(running, 3) not in response.envs[VISIBLE]
    stub_events.take_away(running.node)
    kubelet.wait_for_devices(GPU, 0, 8)
    everything = list(kubelet.devices(GPU))
    chosen = kubelet.endpoint(GPU).preferred(everything, [], 4)
    assert len(set(chosen)) == 4
    with pytest.raises(grpc.RpcError, match="does not answer"):  # its own devices are refused
        kubelet.endpoint(GPU).allocate([everything[0]])
