# SPDX-License-Identifier: Apache-2.0
"""The configuration file of the device plugin says how claims share each device."""

from __future__ import annotations

import pytest

from gpuhook.device_plugin.config import config_reader
from gpuhook.device_plugin.config.configuration import Configuration
from gpuhook.dra.pool.pool_device import MEMORY, SLOTS, Capacity
from gpuhook.dra.pool.sharing_form import SharingForm, SharingForms, sharing_forms
from gpuhook.vendors.amd.inventory import amd_dump
from gpuhook.vendors.nvidia.inventory import dump_file
from tests.refusal import refused

MIB, GIB = 1 << 20, 1 << 30
T4 = 15360 * MIB
# The configurations of the seeds: the GPU Operator's values, and the same with limits.
REPLICAS = """\
version: v1
flags:
  migStrategy: none
sharing:
  timeSlicing:
    resources:
    - name: "nvidia.com/gpu"
      replicas: 4
mps:
  root: "/run/nvidia/mps"
"""
FAIR = REPLICAS.replace("replicas: 4", "replicas: 4\n      memory: fair")


def entries(*texts: str, section: str = "timeSlicing") -> str:
    """Return a configuration with these entries of `sharing`."""
    listed = ", ".join(f"{{{text}}}" for text in texts)
    return f"version: v1\nsharing: {{{section}: {{resources: [{listed}]}}}}\n"


def read(text: str) -> Configuration:
    reading = config_reader.read(text.encode(), "config.yaml")
    assert reading.configuration is not None, reading.findings
    return reading.configuration


def forms(text: str, *profiles: str) -> SharingForms:
    """Return the forms of the nodes of some profiles, of both vendors."""
    found = [
        amd_dump.load(one) if one.startswith("mi") else dump_file.load(one)
        for one in profiles or ("t4",)
    ]
    return sharing_forms(read(text), *found)


def only(text: str, profile: str = "t4") -> SharingForm:
    (form,) = forms(text, profile).forms.values()
    return form


def test_replicas_are_slots_and_equal_parts_of_the_memory() -> None:
    found = forms(REPLICAS)
    (form,) = found.forms.values()
    assert (form.slots, form.resource, form.is_shared) == (4, "nvidia.com/gpu", True)
    assert form.where == "sharing.timeSlicing.resources[0]"
    assert form.capacity == {
        SLOTS: Capacity(4, default=1, least=1, step=1),
        MEMORY: Capacity(T4, default=3840 * MIB, least=256 * MIB, step=MIB),
    }
    assert found.warnings == ()


def test_fair_memory_leaves_the_reserve() -> None:
    form = only(FAIR)
    usable = T4 - 256 * MIB
    assert form.capacity[MEMORY].value == usable
    assert form.default_memory == usable // 4
    large = only(FAIR + "gpuhook: {memoryReserve: 1Gi}\n")
    assert large.default_memory == (T4 - GIB) // 4


@pytest.mark.parametrize(
    ("entry", "slots", "memory"),
    [
        ("replicas: 3", 3, Capacity(T4, T4 // 3 // MIB * MIB, 256 * MIB, MIB)),
        ("replicas: 2, memory: 3Gi", 2, Capacity(T4 - 256 * MIB, 3 * GIB, 256 * MIB, MIB)),
        ("replicas: 2, memory: none", 2, Capacity(T4, step=MIB)),
        ("replicas: {memory: 4Gi}", 3, Capacity(T4 - 256 * MIB, 4 * GIB, 256 * MIB, MIB)),
        ("replicas: 1", 1, Capacity(T4)),
    ],
)
def test_entries_of_time_slicing(entry: str, slots: int, memory: Capacity) -> None:
    form = only(REPLICAS.replace("replicas: 4", entry.replace(", ", "\n      ")))
    assert form.slots == slots
    assert form.capacity[MEMORY] == memory
    assert form.capacity.get(SLOTS) == (Capacity(slots, 1, 1, 1) if slots > 1 else None)


@pytest.mark.parametrize("entry", ["replicas: 4", "replicas: 2, memory: 3Gi", "replicas: 3"])
def test_the_policy_is_one_that_the_api_server_accepts(entry: str) -> None:
    """The default is min + k * step, and min + step is at most the value (types of v1)."""
    form = only(REPLICAS.replace("replicas: 4", entry.replace(", ", "\n      ")))
    for one in form.capacity.values():
        assert (one.default - one.least) % one.step == 0
        assert one.least <= one.default <= one.value
        assert one.least + one.step <= one.value


def test_mps_has_one_limit_for_all_claims() -> None:
    """The server has one default for its clients, so no claim can request another amount."""
    form = only(REPLICAS.replace("timeSlicing", "mps"))
    assert form.strategy == "mps"
    assert form.capacity[MEMORY] == Capacity(T4, T4 // 4, T4 // 4, MIB, T4 // 4)
    unlimited = REPLICAS.replace("timeSlicing", "mps").replace(
        "replicas: 4", "replicas: 4\n      memory: none"
    )
    assert MEMORY not in only(unlimited).capacity


def test_memory_units_are_the_step() -> None:
    text = entries("name: nvidia.com/gpu, unit: 2048Mi", section="memoryUnits")
    found = forms(text)
    (form,) = found.forms.values()
    assert (form.slots, form.resource) == (7, "")
    assert form.capacity[MEMORY] == Capacity(7 * 2 * GIB, 2 * GIB, 2 * GIB, 2 * GIB)
    (warning,) = found.warnings
    assert warning.startswith("sharing.memoryUnits.resources[0].rename: has no effect: ")


def test_entries_select_gpus_by_index_model_and_uuid() -> None:
    node = dump_file.load("h100x8")
    uuid = node.gpus[5].uuid
    text = entries(
        "name: nvidia.com/gpu, replicas: 2, devices: [0]",
        f"name: nvidia.com/gpu, replicas: 3, rename: nvidia.com/gpu.small, devices: [{uuid}]",
    )
    found = list(forms(text, "h100x8").forms.values())
    assert [one.slots for one in found] == [2, 1, 1, 1, 1, 3, 1, 1]
    assert found[5].resource == "nvidia.com/gpu.small"
    assert {one.resource for one in found if one.slots < 3} == {"nvidia.com/gpu"}
    for model, slots in ((node.gpus[0].name, 2), ("Tesla T4", 1)):
        text = entries(f"name: nvidia.com/gpu, replicas: 2, devices: [{model}]")
        assert {one.slots for one in forms(text, "h100x8").forms.values()} == {slots}


def test_a_renamed_resource_is_the_extended_resource_name() -> None:
    assert only(
        REPLICAS.replace("timeSlicing:", "timeSlicing:\n    renameByDefault: true")
    ).resource == ("nvidia.com/gpu.shared")


def test_instances_are_offered_with_any_mig_strategy() -> None:
    """A claim names its device, so that a GPU in MIG mode needs no strategy."""
    text = entries("name: nvidia.com/mig-1g.5gb, replicas: 2")
    found = forms(text, "a100-mig").forms.values()
    shared = [one for one in found if one.is_shared]
    assert {one.device.profile for one in shared} == {"1g.5gb"}
    assert {one.default_memory for one in shared} == {2432 * MIB}


def test_the_gpus_of_both_vendors_have_their_own_entries() -> None:
    text = entries(
        "name: nvidia.com/gpu, replicas: 4", "name: amd.com/gpu, replicas: 2, memory: fair"
    )
    found = forms(text, "t4", "mi300x8")
    by_domain = {one.device.domain: one for one in found.forms.values()}
    assert {name: one.slots for name, one in by_domain.items()} == {"nvidia.com": 4, "amd.com": 2}
    amd = by_domain["amd.com"]
    total = amd.device.memory_bytes
    assert total is not None
    assert amd.default_memory == (total - 256 * MIB) // 2 // MIB * MIB
    assert found.warnings == ()


WITHOUT_MEANING = {
    "flags: {plugin: {passDeviceSpecs: true}}": "flags.plugin.passDeviceSpecs",
    "flags: {plugin: {deviceListStrategy: volume-mounts}}": "flags.plugin.deviceListStrategy",
    "flags: {plugin: {deviceIDStrategy: index}}": "flags.plugin.deviceIDStrategy",
    "flags: {plugin: {sharedDevicesAllocationPolicy: packed}}": (
        "flags.plugin.sharedDevicesAllocationPolicy"
    ),
    "flags: {amd: {deviceListStrategy: cdi-cri}}": "flags.amd.deviceListStrategy",
    "flags: {gdsEnabled: true}": "flags.gdsEnabled",
    "imex: {channelIDs: [0]}": "imex.channelIDs",
    "gpuhook: {preStartCheck: true}": "gpuhook.preStartCheck",
    "gpuhook: {labels: true}": "gpuhook.labels",
    "sharing: {timeSlicing: {failRequestsGreaterThanOne: true, resources: [{name: nvidia.com/gpu, "
    "replicas: 2}]}}": "sharing.timeSlicing.failRequestsGreaterThanOne",
    "sharing: {timeSlicing: {resources: [{name: nvidia.com/gpu, replicas: 2, memory: 12Gi, "
    "oversubscribe: true}]}}": "sharing.timeSlicing.resources[0].oversubscribe",
}


@pytest.mark.parametrize("text", WITHOUT_MEANING)
def test_a_key_without_a_meaning_for_claims_is_a_warning(text: str) -> None:
    warnings = forms(f"version: v1\n{text}\n").warnings
    assert [one.partition(": ")[0] for one in warnings] == [WITHOUT_MEANING[text]]
    assert ": has no effect: " in warnings[0]


def test_limits_above_the_memory_are_refused() -> None:
    with refused("GH1847", "sharing.timeSlicing.resources[0]"):
        forms(REPLICAS.replace("replicas: 4", "replicas: 4\n      memory: 8Gi"))


def test_the_services_of_the_plugin_get_a_unit_for_each_slot() -> None:
    (resource,) = forms(FAIR).resources()
    uuid = resource.devices[0].uuid
    assert [unit.id for unit in resource.units] == [f"{uuid}::{number}" for number in range(4)]
    assert resource.memory[uuid].hard == (T4 - 256 * MIB) // 4
