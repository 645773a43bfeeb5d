# SPDX-License-Identifier: Apache-2.0
"""Time slices and compute modes of GPUs: set, restored, and kept through restarts of the plugin."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pynvml
import pytest

from gpuhook.device_plugin import node_snapshot
from gpuhook.device_plugin.config.configuration import Configuration
from gpuhook.device_plugin.config.launch_options import Launch
from gpuhook.device_plugin.config.sharing_section import SharedResource
from gpuhook.device_plugin.gpu_policies import saved_policies
from gpuhook.device_plugin.gpu_policies.policy_service import PolicyService, PolicyState
from gpuhook.device_plugin.node_snapshot import NodeSnapshot
from gpuhook.device_plugin.offer.offered_devices import Device, Resource, Unit
from gpuhook.vendors.nvidia.gpu import compute_policy
from gpuhook.vendors.nvidia.nvml import nvml_inventory
from tests.simulated import stub_events, time_slices
from tests.simulated.node import SimulatedNode, make_node

GPU = "nvidia.com/gpu"


class Plugin:
    """A PolicyService on a simulated node. The tests use its first two GPUs."""

    def __init__(self, node: SimulatedNode) -> None:
        self.node = node
        self.driver = time_slices.install(node)
        for gpu in node.node.gpus:
            stub_events.say(node, str(gpu.uuid), "compute_mode 0")
        self.snapshot = self.take_snapshot()
        self.service = PolicyService(node.host_root)

    def take_snapshot(self) -> NodeSnapshot:
        """Take a new snapshot of the node."""
        node = self.node
        launch = Launch(
            node_driver_root=node.driver_root, node_dev_root=node.dev_root, host_root=node.host_root
        )
        return node_snapshot.take(launch, Configuration())

    def resource(self, *entries: SharedResource | None, sharing: str = "time-slicing") -> Resource:
        """Return a resource of the first GPUs, one for each entry; None: without an entry."""
        units, own = [], {}
        for index, entry in enumerate(entries):
            uuid = self.uuid(index)
            units.append(Unit(f"{uuid}::0", Device(uuid, str(index), uuid, index, (), ()), 0))
            if entry is not None:
                own[uuid] = entry
        return Resource(GPU, tuple(units), sharing, entries=own)

    def turn(self, *resources: Resource) -> PolicyState:
        """Run a turn with a new snapshot object."""
        self.snapshot = replace(self.snapshot)
        self.service.restore(resources, self.snapshot)
        return self.service.update(resources, self.snapshot)

    def kill(self) -> None:
        """Replace the service, as after a killed process."""
        self.service = PolicyService(self.node.host_root)

    def uuid(self, index: int) -> str:
        return str(self.node.node.gpus[index].uuid)

    def mode(self, index: int) -> int:
        with nvml_inventory.opened(self.node.nvml_library):
            handle = pynvml.nvmlDeviceGetHandleByUUID(self.uuid(index))
            return int(pynvml.nvmlDeviceGetComputeMode(handle))

    @property
    def slices(self) -> list[str]:
        """Return the time slices of the first two GPUs."""
        return self.driver.now()[:2]

    @contextmanager
    def changed_settings(self) -> Iterator[list[str]]:
        """Collect the calls that set a time slice."""
        before = len(self.driver.calls("--set-timeslice"))
        collected: list[str] = []
        yield collected
        collected += self.driver.calls("--set-timeslice")[before:]


def entry(time_slice: str | None = None, mode: str | None = None) -> SharedResource:
    return SharedResource(GPU, 4, time_slice=time_slice, compute_mode=mode)


@pytest.fixture
def plugin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Plugin:
    monkeypatch.setenv("GPUHOOK_STATE_DIR", str(tmp_path / "state"))
    return Plugin(make_node(tmp_path / "node", "h100x8", real_nodes=False))


def codes(state: PolicyState) -> list[str]:
    return [error.code for error in state.faults]


def test_driver_is_not_called_without_policies(plugin: Plugin) -> None:
    assert plugin.turn(plugin.resource(entry(), None)) == PolicyState()
    assert plugin.driver.calls() == []
    assert not plugin.service.is_needed


def test_policies_are_set_and_restored_at_the_end(plugin: Plugin) -> None:
    changed = plugin.turn(
        plugin.resource(entry("short", "exclusive-process"), entry("long"))
    ).changed
    assert plugin.slices == ["short", "long"]
    assert (plugin.mode(0), plugin.mode(1)) == (3, 0)
    assert f"the time slice of {plugin.uuid(0)} is short, it was default" in changed
    assert len(changed) == 3
    assert plugin.service.is_needed
    assert len(plugin.service.end().changed) == 3
    assert plugin.slices == ["default", "default"]
    assert plugin.mode(0) == 0
    assert not Path(saved_policies.path()).exists()


def test_current_value_is_not_set_again(plugin: Plugin) -> None:
    plugin.driver.put(0, "medium")
    with plugin.changed_settings() as settings:
        assert plugin.turn(plugin.resource(entry("medium"))) == PolicyState()
        plugin.service.end()
    assert settings == []
    assert plugin.slices[0] == "medium"


def test_unchanged_policies_are_set_once(plugin: Plugin) -> None:
    plugin.turn(plugin.resource(entry("short")))
    with plugin.changed_settings() as settings:
        assert plugin.turn(plugin.resource(entry("short"))) == PolicyState()
    assert settings == []


def test_same_snapshot_does_not_call_the_driver_again(plugin: Plugin) -> None:
    wanted = plugin.resource(entry("short"))
    plugin.turn(wanted)
    calls = len(plugin.driver.calls())
    plugin.service.restore([wanted], plugin.snapshot)
    assert plugin.service.update([wanted], plugin.snapshot) == PolicyState()
    assert len(plugin.driver.calls()) == calls


def test_time_slices_of_all_gpus_are_read_by_one_call(plugin: Plugin) -> None:
    plugin.turn(plugin.resource(entry("short"), entry("short")))
    assert len(plugin.driver.calls("--list")) == 1


def test_removed_key_restores_the_original_value(plugin: Plugin) -> None:
    plugin.driver.put(0, "medium")
    plugin.turn(plugin.resource(entry("short")))
    plugin.turn(plugin.resource(entry("long")))
    assert plugin.slices[0] == "long"
    assert plugin.turn(plugin.resource(entry())).changed == (
        f"the time slice of {plugin.uuid(0)} is medium again",
    )
    assert plugin.slices[0] == "medium"
    assert not plugin.service.is_needed


def test_withdrawn_device_gets_its_original_value(plugin: Plugin) -> None:
    plugin.turn(plugin.resource(entry("short"), entry("short")))
    plugin.turn(plugin.resource(entry("short")))
    assert plugin.slices == ["short", "default"]


def test_next_plugin_restores_values_of_a_killed_one(plugin: Plugin) -> None:
    plugin.turn(plugin.resource(entry("short", "exclusive-process")))
    plugin.kill()
    plugin.turn(plugin.resource(entry()))
    assert plugin.slices[0] == "default"
    assert plugin.mode(0) == 0


def test_next_plugin_keeps_configured_values_of_a_killed_one(plugin: Plugin) -> None:
    plugin.turn(plugin.resource(entry("short")))
    plugin.kill()
    with plugin.changed_settings() as settings:
        plugin.turn(plugin.resource(entry("short")))
    assert settings == []
    plugin.service.end()
    assert plugin.slices[0] == "default"


def test_saved_values_of_another_boot_are_ignored(plugin: Plugin) -> None:
    plugin.turn(plugin.resource(entry("short")))
    path = Path(saved_policies.path())
    saved = json.loads(path.read_text())
    path.write_text(json.dumps(saved | {"boot": "another"}))
    plugin.kill()
    with plugin.changed_settings() as settings:
        plugin.turn(plugin.resource(entry()))
    assert settings == []


def test_value_set_by_another_program_is_not_restored(plugin: Plugin) -> None:
    plugin.turn(plugin.resource(entry("short")))
    plugin.driver.put(0, "long")
    plugin.turn(plugin.resource(entry()))
    assert plugin.slices[0] == "long"
    assert not plugin.service.is_needed


def test_lost_value_is_set_again(plugin: Plugin) -> None:
    """The driver resets a GPU that no process keeps open."""
    plugin.turn(plugin.resource(entry("short")))
    plugin.driver.put(0, "default")
    plugin.turn(plugin.resource(entry("short")))
    assert plugin.slices[0] == "short"
    plugin.service.end()
    assert plugin.slices[0] == "default"


@pytest.mark.parametrize(
    ("mood", "code"), [("old", "GH1261"), ("forbidden", "GH1263"), ("broken", "GH1264")]
)
def test_refused_policy_is_a_fault_without_saved_values(
    mood: str, code: str, plugin: Plugin
) -> None:
    plugin.driver.mood(mood)
    assert codes(plugin.turn(plugin.resource(entry("short")))) == [code]
    assert not plugin.service.is_needed
    assert not Path(saved_policies.path()).exists()


def test_gpu_without_time_slices_does_not_prevent_others(plugin: Plugin) -> None:
    plugin.driver.put(0, "-")
    assert codes(plugin.turn(plugin.resource(entry("short"), entry("short")))) == ["GH1262"]
    assert plugin.slices == ["-", "short"]


def test_refusal_is_reported_again_for_the_same_snapshot(plugin: Plugin) -> None:
    wanted = plugin.resource(entry("short"))
    plugin.driver.mood("old")
    first = plugin.turn(wanted)
    plugin.service.restore([wanted], plugin.snapshot)
    assert codes(plugin.service.update([wanted], plugin.snapshot)) == codes(first) == ["GH1261"]


def test_failed_restore_is_retried(plugin: Plugin) -> None:
    plugin.turn(plugin.resource(entry("short")))
    plugin.driver.mood("forbidden")
    failed = plugin.turn(plugin.resource(entry()))
    assert codes(failed) == ["GH1881"]
    assert plugin.slices[0] == "short"
    plugin.driver.mood("")
    plugin.turn(plugin.resource(entry()))
    assert plugin.slices[0] == "default"


def test_policy_is_not_set_if_the_original_cannot_be_saved(
    plugin: Plugin, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    blocked = tmp_path / "blocked"
    blocked.write_text("")
    monkeypatch.setenv("GPUHOOK_STATE_DIR", str(blocked / "state"))
    assert codes(plugin.turn(plugin.resource(entry("short")))) == ["GH1880"]
    assert plugin.slices[0] == "default"


@pytest.mark.parametrize(
    "text", ["", "[]", "null", '{"format": 1, "gpus": {"GPU-0": {"time slice": {"before": "x"}}}}']
)
def test_malformed_saved_policies_are_ignored(text: str, plugin: Plugin) -> None:
    Path(saved_policies.path()).parent.mkdir(parents=True, exist_ok=True)
    Path(saved_policies.path()).write_text(text)
    assert plugin.turn(plugin.resource(entry())) == PolicyState()


def test_compute_mode_of_an_mps_resource_is_refused(plugin: Plugin) -> None:
    wanted = plugin.resource(entry("long", "exclusive-process"), sharing="mps")
    (fault,) = plugin.turn(wanted).faults
    assert fault.code == "GH1882"
    assert fault.message.endswith("MPS sets it")
    assert plugin.mode(0) == 0
    assert plugin.slices[0] == "long"


def test_compute_mode_is_restored_before_mps_sets_it(plugin: Plugin) -> None:
    """A later restore would remove the mode that the MPS daemon sets."""
    plugin.turn(plugin.resource(entry(None, "exclusive-process")))
    shared = plugin.resource(entry(), sharing="mps")
    plugin.service.restore([shared], plugin.snapshot)
    assert plugin.mode(0) == 0
    with nvml_inventory.opened(plugin.node.nvml_library):
        pynvml.nvmlDeviceSetComputeMode(pynvml.nvmlDeviceGetHandleByUUID(plugin.uuid(0)), 3)
    plugin.service.update([shared], plugin.snapshot)
    plugin.service.end()
    assert plugin.mode(0) == 3


def test_policy_of_a_mig_instance_is_refused(plugin: Plugin) -> None:
    whole = plugin.resource(entry("long"))
    unit = whole.units[0]
    part = replace(unit, device=replace(unit.device, instance=(1, 0)))
    (fault,) = plugin.turn(replace(whole, units=(part,))).faults
    assert fault.code == "GH1882"
    assert fault.message.endswith("it is a MIG instance")
    assert plugin.slices[0] == "default"


def test_lost_gpu_is_restored_when_it_is_back(plugin: Plugin) -> None:
    plugin.turn(plugin.resource(entry("short"), entry("short")))
    stub_events.lose(plugin.node, plugin.uuid(0))
    plugin.snapshot = plugin.take_snapshot()
    assert plugin.turn(plugin.resource(None, None)).faults == ()
    assert plugin.slices == ["short", "default"]
    stub_events.find(plugin.node, plugin.uuid(0))
    plugin.snapshot = plugin.take_snapshot()
    plugin.turn(plugin.resource(None, None))
    assert plugin.slices == ["default", "default"]


def test_gpu_of_a_dump_is_not_changed(plugin: Plugin) -> None:
    plugin.snapshot = replace(plugin.snapshot, is_dump=True)
    assert plugin.turn(plugin.resource(entry("short"))) == PolicyState()
    assert plugin.driver.calls() == []


def test_update_after_the_end_sets_nothing(plugin: Plugin) -> None:
    plugin.turn(plugin.resource(entry("short")))
    plugin.service.end()
    plugin.turn(plugin.resource(entry("short")))
    assert plugin.slices[0] == "default"


def test_hanging_program_is_called_once_per_turn(
    plugin: Plugin, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compute_policy, "_SECONDS", 0.5)
    plugin.driver.mood("hanging")
    entries = [entry("short") for _ in plugin.node.node.gpus]
    assert codes(plugin.turn(plugin.resource(*entries))) == ["GH1264"] * len(entries)
    assert len(plugin.driver.calls()) <= 1
    plugin.driver.mood("")
    monkeypatch.setattr(compute_policy, "_SECONDS", 10.0)
    assert len(plugin.turn(plugin.resource(*entries)).changed) == len(entries)


def test_hanging_program_at_the_end_leaves_the_saved_values(
    plugin: Plugin, monkeypatch: pytest.MonkeyPatch
) -> None:
    plugin.turn(plugin.resource(entry("short")))
    monkeypatch.setattr(compute_policy, "_SECONDS", 0.2)
    plugin.driver.mood("hanging")
    assert codes(plugin.service.end()) == ["GH1881"]
    assert Path(saved_policies.path()).exists()
