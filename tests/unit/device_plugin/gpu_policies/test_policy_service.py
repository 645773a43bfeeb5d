# SPDX-License-Identifier: Apache-2.0
"""Time slices and compute modes of GPUs: set, put back, and kept through the plugin's ends."""

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
    """A plugin's keeping, on a simulated node with two GPUs that matter."""

    def __init__(self, node: SimulatedNode) -> None:
        self.node = node
        self.driver = time_slices.install(node)
        for gpu in node.node.gpus:
            stub_events.say(node, str(gpu.uuid), "compute_mode 0")
        self.look = self.seen()
        self.keeping = PolicyService(node.host_root)

    def seen(self) -> NodeSnapshot:
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
        """Take a turn with another look at the node."""
        self.look = replace(self.look)
        self.keeping.restore(resources, self.look)
        return self.keeping.update(resources, self.look)

    def killed(self) -> None:
        """Let the process end at once, and another one begin."""
        self.keeping = PolicyService(self.node.host_root)

    def uuid(self, index: int) -> str:
        """Return the UUID of a GPU."""
        return str(self.node.node.gpus[index].uuid)

    def mode(self, index: int) -> int:
        """Return the compute mode of a GPU."""
        with nvml_inventory.opened(self.node.nvml_library):
            handle = pynvml.nvmlDeviceGetHandleByUUID(self.uuid(index))
            return int(pynvml.nvmlDeviceGetComputeMode(handle))

    @property
    def slices(self) -> list[str]:
        """The time slices of the first two GPUs."""
        return self.driver.now()[:2]

    @contextmanager
    def changed_settings(self) -> Iterator[list[str]]:
        """Collect the calls that set something."""
        held = len(self.driver.calls("--set-timeslice"))
        collected: list[str] = []
        yield collected
        collected += self.driver.calls("--set-timeslice")[held:]


def entry(time_slice: str | None = None, mode: str | None = None) -> SharedResource:
    return SharedResource(GPU, 4, time_slice=time_slice, compute_mode=mode)


@pytest.fixture
def plugin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Plugin:
    monkeypatch.setenv("GPUHOOK_STATE_DIR", str(tmp_path / "state"))
    return Plugin(make_node(tmp_path / "node", "h100x8", real_nodes=False))


def codes(state: PolicyState) -> list[str]:
    return [error.code for error in state.faults]


def test_nothing_is_asked_where_nobody_wants_anything(plugin: Plugin) -> None:
    assert plugin.turn(plugin.resource(entry(), None)) == PolicyState()
    assert plugin.driver.calls() == []
    assert not plugin.keeping.is_needed


def test_entry_s_values_are_set_and_put_back_at_the_end(plugin: Plugin) -> None:
    said = plugin.turn(plugin.resource(entry("short", "exclusive-process"), entry("long"))).changed
    assert plugin.slices == ["short", "long"]
    assert (plugin.mode(0), plugin.mode(1)) == (3, 0)
    assert f"the time slice of {plugin.uuid(0)} is short, it was default" in said
    assert len(said) == 3
    assert plugin.keeping.is_needed
    assert len(plugin.keeping.end().changed) == 3
    assert plugin.slices == ["default", "default"]
    assert plugin.mode(0) == 0
    assert not Path(saved_policies.path()).exists()


def test_what_already_is_so_is_not_set(plugin: Plugin) -> None:
    plugin.driver.put(0, "medium")
    with plugin.changed_settings() as settings:
        assert plugin.turn(plugin.resource(entry("medium"))) == PolicyState()
        plugin.keeping.end()
    assert settings == []
    assert plugin.slices[0] == "medium"


def test_next_turn_sets_nothing_again(plugin: Plugin) -> None:
    plugin.turn(plugin.resource(entry("short")))
    with plugin.changed_settings() as settings:
        assert plugin.turn(plugin.resource(entry("short"))) == PolicyState()
    assert settings == []


def test_same_look_at_the_node_is_not_asked_about_again(plugin: Plugin) -> None:
    wanted = plugin.resource(entry("short"))
    plugin.turn(wanted)
    calls = len(plugin.driver.calls())
    plugin.keeping.restore([wanted], plugin.look)
    assert plugin.keeping.update([wanted], plugin.look) == PolicyState()
    assert len(plugin.driver.calls()) == calls


def test_several_gpus_are_asked_at_once(plugin: Plugin) -> None:
    plugin.turn(plugin.resource(entry("short"), entry("short")))
    assert len(plugin.driver.calls("--list")) == 1


def test_key_that_goes_away_puts_back_what_was_there(plugin: Plugin) -> None:
    plugin.driver.put(0, "medium")
    plugin.turn(plugin.resource(entry("short")))
    plugin.turn(plugin.resource(entry("long")))
    assert plugin.slices[0] == "long"
    assert plugin.turn(plugin.resource(entry())).changed == (
        f"the time slice of {plugin.uuid(0)} is medium again",
    )
    assert plugin.slices[0] == "medium"
    assert not plugin.keeping.is_needed


def test_device_that_is_no_longer_offered_gets_its_own_back(plugin: Plugin) -> None:
    plugin.turn(plugin.resource(entry("short"), entry("short")))
    plugin.turn(plugin.resource(entry("short")))
    assert plugin.slices == ["short", "default"]


def test_killed_plugin_s_settings_are_put_back_by_the_next(plugin: Plugin) -> None:
    plugin.turn(plugin.resource(entry("short", "exclusive-process")))
    plugin.killed()
    plugin.turn(plugin.resource(entry()))
    assert plugin.slices[0] == "default"
    assert plugin.mode(0) == 0


def test_killed_plugin_s_settings_are_kept_where_they_are_still_wanted(plugin: Plugin) -> None:
    plugin.turn(plugin.resource(entry("short")))
    plugin.killed()
    with plugin.changed_settings() as settings:
        plugin.turn(plugin.resource(entry("short")))
    assert settings == []
    plugin.keeping.end()
    assert plugin.slices[0] == "default"


def test_other_boot_has_nothing_to_put_back(plugin: Plugin) -> None:
    plugin.turn(plugin.resource(entry("short")))
    path = Path(saved_policies.path())
    noted = json.loads(path.read_text())
    path.write_text(json.dumps(noted | {"boot": "another"}))
    plugin.killed()
    with plugin.changed_settings() as settings:
        plugin.turn(plugin.resource(entry()))
    assert settings == []


def test_value_that_somebody_else_set_is_theirs(plugin: Plugin) -> None:
    plugin.turn(plugin.resource(entry("short")))
    plugin.driver.put(0, "long")
    plugin.turn(plugin.resource(entry()))
    assert plugin.slices[0] == "long"
    assert not plugin.keeping.is_needed


def test_driver_that_forgot_is_told_again(plugin: Plugin) -> None:
    """A GPU that no process kept open, or that was reset, has its defaults."""
    plugin.turn(plugin.resource(entry("short")))
    plugin.driver.put(0, "default")
    plugin.turn(plugin.resource(entry("short")))
    assert plugin.slices[0] == "short"
    plugin.keeping.end()
    assert plugin.slices[0] == "default"


@pytest.mark.parametrize(
    ("mood", "code"), [("old", "GH1261"), ("forbidden", "GH1263"), ("broken", "GH1264")]
)
def test_driver_that_refuses_is_told_and_leaves_nothing_to_put_back(
    mood: str, code: str, plugin: Plugin
) -> None:
    plugin.driver.mood(mood)
    assert codes(plugin.turn(plugin.resource(entry("short")))) == [code]
    assert not plugin.keeping.is_needed
    assert not Path(saved_policies.path()).exists()


def test_gpu_without_a_time_slice_does_not_keep_others_from_theirs(plugin: Plugin) -> None:
    plugin.driver.put(0, "-")
    assert codes(plugin.turn(plugin.resource(entry("short"), entry("short")))) == ["GH1262"]
    assert plugin.slices == ["-", "short"]


def test_refusal_is_still_told_of_in_a_turn_without_a_look(plugin: Plugin) -> None:
    wanted = plugin.resource(entry("short"))
    plugin.driver.mood("old")
    first = plugin.turn(wanted)
    plugin.keeping.restore([wanted], plugin.look)
    assert codes(plugin.keeping.update([wanted], plugin.look)) == codes(first) == ["GH1261"]


def test_gpu_that_cannot_be_put_back_is_tried_again(plugin: Plugin) -> None:
    plugin.turn(plugin.resource(entry("short")))
    plugin.driver.mood("forbidden")
    failed = plugin.turn(plugin.resource(entry()))
    assert codes(failed) == ["GH1881"]
    assert plugin.slices[0] == "short"
    plugin.driver.mood("")
    plugin.turn(plugin.resource(entry()))
    assert plugin.slices[0] == "default"


def test_nothing_is_set_that_cannot_be_noted(
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
def test_file_that_is_no_note_is_ignored(text: str, plugin: Plugin) -> None:
    Path(saved_policies.path()).parent.mkdir(parents=True, exist_ok=True)
    Path(saved_policies.path()).write_text(text)
    assert plugin.turn(plugin.resource(entry())) == PolicyState()


def test_mode_of_an_mps_resource_is_its_daemon_s(plugin: Plugin) -> None:
    wanted = plugin.resource(entry("long", "exclusive-process"), sharing="mps")
    (fault,) = plugin.turn(wanted).faults
    assert fault.code == "GH1882"
    assert fault.message.endswith("MPS sets it")
    assert plugin.mode(0) == 0
    assert plugin.slices[0] == "long"


def test_gpu_has_its_own_mode_back_before_mps_gets_it(plugin: Plugin) -> None:
    """The daemon sets the same mode: putting it back later would take that away from it."""
    plugin.turn(plugin.resource(entry(None, "exclusive-process")))
    shared = plugin.resource(entry(), sharing="mps")
    plugin.keeping.restore([shared], plugin.look)
    assert plugin.mode(0) == 0
    with nvml_inventory.opened(plugin.node.nvml_library):
        pynvml.nvmlDeviceSetComputeMode(pynvml.nvmlDeviceGetHandleByUUID(plugin.uuid(0)), 3)
    plugin.keeping.update([shared], plugin.look)
    plugin.keeping.end()
    assert plugin.mode(0) == 3


def test_mig_instance_has_nothing_to_set(plugin: Plugin) -> None:
    whole = plugin.resource(entry("long"))
    unit = whole.units[0]
    part = replace(unit, device=replace(unit.device, instance=(1, 0)))
    (fault,) = plugin.turn(replace(whole, units=(part,))).faults
    assert fault.code == "GH1882"
    assert fault.message.endswith("it is a MIG instance")
    assert plugin.slices[0] == "default"


def test_lost_gpu_waits_for_its_return(plugin: Plugin) -> None:
    plugin.turn(plugin.resource(entry("short"), entry("short")))
    stub_events.lose(plugin.node, plugin.uuid(0))
    plugin.look = plugin.seen()
    assert plugin.turn(plugin.resource(None, None)).faults == ()
    assert plugin.slices == ["short", "default"]
    stub_events.find(plugin.node, plugin.uuid(0))
    plugin.look = plugin.seen()
    plugin.turn(plugin.resource(None, None))
    assert plugin.slices == ["default", "default"]


def test_dump_is_nobody_s_gpu(plugin: Plugin) -> None:
    plugin.look = replace(plugin.look, is_dump=True)
    assert plugin.turn(plugin.resource(entry("short"))) == PolicyState()
    assert plugin.driver.calls() == []


def test_nothing_is_set_after_the_end(plugin: Plugin) -> None:
    plugin.turn(plugin.resource(entry("short")))
    plugin.keeping.end()
    plugin.turn(plugin.resource(entry("short")))
    assert plugin.slices[0] == "default"


def test_program_that_hangs_is_waited_for_once_in_a_turn(
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


def test_driver_that_hangs_at_the_end_leaves_the_note(
    plugin: Plugin, monkeypatch: pytest.MonkeyPatch
) -> None:
    plugin.turn(plugin.resource(entry("short")))
    monkeypatch.setattr(compute_policy, "_SECONDS", 0.2)
    plugin.driver.mood("hanging")
    assert codes(plugin.keeping.end()) == ["GH1881"]
    assert Path(saved_policies.path()).exists()
