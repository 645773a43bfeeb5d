# SPDX-License-Identifier: Apache-2.0
"""Shared devices, their units, and warnings."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gpuhook.device_plugin.config.sharing_section import SharedResource
from gpuhook.device_plugin.offer.resources import MAX_MESSAGE, unusable
from gpuhook.vendors.nvidia.inventory.inventory import Gpu
from tests.unit.offering import (
    GPU,
    H100,
    T4,
    changed,
    divided,
    ids,
    indices,
    offer,
    only_warning,
    with_gpus,
)

FOUR = replace(H100, gpus=H100.gpus[:4])


def test_four_replicas_are_four_units() -> None:
    uuid = T4.gpus[0].uuid
    offered = offer(T4, SharedResource(GPU, 4))
    assert ids(offered) == {GPU: [f"{uuid}::0", f"{uuid}::1", f"{uuid}::2", f"{uuid}::3"]}
    (resource,) = offered.resources
    assert [unit.replica for unit in resource.units] == [0, 1, 2, 3]
    assert (resource.sharing, resource.refuses_more_than_one) == ("time-slicing", False)
    assert [device.uuid for device in resource.devices] == [uuid]
    assert offered.warnings == ()


def test_units_are_listed_by_device() -> None:
    offered = offer(replace(H100, gpus=H100.gpus[:2]), SharedResource(GPU, 2))
    assert indices(offered) == {GPU: ["0/0", "0/1", "1/0", "1/1"]}


def test_one_replica_is_not_shared() -> None:
    offered = offer(T4, SharedResource(GPU, 1), by_default=True, refuses=True)
    assert ids(offered) == {GPU: [T4.gpus[0].uuid]}
    assert offered.resources[0].sharing == "none"
    assert not offered.resources[0].refuses_more_than_one


def test_shared_resource_is_renamed_if_configured() -> None:
    assert list(ids(offer(T4, SharedResource(GPU, 2), by_default=True))) == [GPU + ".shared"]
    named = SharedResource(GPU, 2, rename="nvidia.com/slice")
    assert list(ids(offer(T4, named, by_default=True))) == ["nvidia.com/slice"]
    named = SharedResource(GPU, 1, rename="nvidia.com/special")
    assert list(ids(offer(T4, named))) == ["nvidia.com/special"]


def test_name_of_two_resources_is_a_warning() -> None:
    """Only the node shows that unshared GPUs already have the default name."""
    node = divided(FOUR, 0, "1g.10gb")
    entry = SharedResource("nvidia.com/mig-1g.10gb", 2, rename=GPU)
    (warning,) = offer(node, entry, mig="mixed").warnings
    assert warning.startswith(f"{GPU} has the devices of {GPU} and of nvidia.com/mig-1g.10gb: ")
    alone = with_gpus(node, node.gpus[0])
    assert offer(alone, entry, mig="mixed").warnings == ()


def test_more_than_one_unit_is_refused_for_shared_resources_only() -> None:
    entry = SharedResource(GPU, 2, rename="nvidia.com/slice", devices=("0",))
    offered = offer(FOUR, entry, refuses=True)
    refusing = {resource.name: resource.refuses_more_than_one for resource in offered.resources}
    assert refusing == {GPU: False, "nvidia.com/slice": True}


def test_mps_has_replicas_and_refuses_more_than_one() -> None:
    (resource,) = offer(T4, SharedResource(GPU, 2), strategy="mps").resources
    assert (resource.sharing, resource.refuses_more_than_one) == ("mps", True)
    assert [unit.replica for unit in resource.units] == [0, 1]


@pytest.mark.parametrize(
    ("devices", "shared"),
    [
        ("all", "0123"),
        (2, "01"),
        (("1", "3"), "13"),
        ((H100.gpus[2].uuid or "",), "2"),
        (("NVIDIA H100 80GB HBM3",), "0123"),
        (("00000000:43:00.0",), "1"),
    ],
)
def test_devices_key_selects_the_shared_devices(
    devices: str | int | tuple[str, ...], shared: str
) -> None:
    entry = SharedResource(GPU, 2, rename="nvidia.com/slice", devices=devices)
    found = indices(offer(FOUR, entry))
    assert found["nvidia.com/slice"] == [f"{index}/{n}" for index in shared for n in (0, 1)]
    assert found.get(GPU, []) == [index for index in "0123" if index not in shared]


def test_entries_of_one_resource_can_select_by_model() -> None:
    node = changed(replace(H100, gpus=H100.gpus[:3]), 1, name="Tesla T4")
    offered = offer(
        node,
        SharedResource(GPU, 4, devices=("Tesla T4",)),
        SharedResource(GPU, 1, devices=("0",)),
        SharedResource(GPU, 2),
    )
    assert indices(offered) == {GPU: ["0", "1/0", "1/1", "1/2", "1/3", "2/0", "2/1"]}
    assert offered.warnings == ()
    assert offered.resources[0].sharing == "time-slicing"


def test_mig_instances_can_be_shared() -> None:
    node = divided(divided(FOUR, 0, "1g.10gb", "1g.10gb"), 1, "1g.10gb")
    small = "nvidia.com/mig-1g.10gb"
    offered = offer(node, SharedResource(small, 2, devices=("0:1",)), mig="mixed")
    assert indices(offered)[small] == ["0:0", "0:1/0", "0:1/1", "1:0"]
    offered = offer(node, SharedResource(small, 2, devices=("0",)), mig="mixed")
    assert indices(offered)[small] == ["0:0/0", "0:0/1", "0:1/0", "0:1/1", "1:0"]


def test_first_matching_entry_applies_to_a_device() -> None:
    offered = offer(
        FOUR,
        SharedResource(GPU, 2, devices=("0", "1")),
        SharedResource(GPU, 3, devices=("1", "2")),
        SharedResource(GPU, 4),
        SharedResource(GPU, 5),
    )
    assert [len(offered.resources[0].units), len(offered.resources[0].devices)] == [11, 4]
    assert offered.warnings == (
        f"sharing.timeSlicing.resources[1]: earlier entries of {GPU} have device 1",
        f"sharing.timeSlicing.resources[3]: earlier entries of {GPU} have device 0, 1, 2, 3",
    )


def test_unknown_resource_is_a_warning_with_the_known_ones() -> None:
    node = divided(H100, 0, "1g.10gb")
    offered = offer(node, SharedResource("nvidia.com/gpus", 4), mig="mixed")
    assert only_warning(offered) == (
        "sharing.timeSlicing.resources[0]: this node has no resource nvidia.com/gpus, only "
        "nvidia.com/gpu, nvidia.com/mig-1g.10gb; did you mean nvidia.com/gpu?"
    )
    offered = offer(T4, SharedResource("example.org/x", 4), strategy="mps")
    assert offered.warnings == (
        "sharing.mps.resources[0]: this node has no resource example.org/x, only nvidia.com/gpu",
    )
    offered = offer(replace(T4, gpus=()), SharedResource(GPU, 4))
    assert offered.warnings == (
        f"sharing.timeSlicing.resources[0]: {GPU} is not shared: this node has no device to offer",
    )


def test_unknown_devices_are_a_warning() -> None:
    offered = offer(T4, SharedResource(GPU, 2, devices=("0", "3", "Tesla K80")))
    assert indices(offered) == {GPU: ["0/0", "0/1"]}
    assert offered.warnings == (
        f"sharing.timeSlicing.resources[0]: no device of {GPU} has the name '3'",
        f"sharing.timeSlicing.resources[0]: no device of {GPU} has the name 'Tesla K80'",
    )
    offered = offer(T4, SharedResource(GPU, 2, devices=3))
    assert only_warning(offered) == (
        f"sharing.timeSlicing.resources[0]: it selects the first 3 devices of {GPU}, but this node "
        "has 1"
    )


def test_two_replicas_of_24_gib_have_no_warning() -> None:
    node = changed(T4, 0, name="NVIDIA GeForce RTX 4090", memory_bytes=24 << 30)
    offered = offer(node, SharedResource(GPU, 2))
    (resource,) = offered.resources
    assert len(resource.units) == 2
    assert (resource.units[0].device.memory_bytes or 0) // len(resource.units) > 7 << 30
    assert offered.warnings == ()


def test_sharing_a_gpu_before_pascal_is_a_warning() -> None:
    node = changed(T4, 0, name="GeForce GTX 980", compute_capability="5.2")
    assert only_warning(offer(node, SharedResource(GPU, 4))) == (
        f"{GPU}: GeForce GTX 980 (compute capability 5.2) is older than Pascal: it has no compute "
        "preemption, so a long kernel of one container blocks the others on its 4 replicas"
    )
    assert offer(node, SharedResource(GPU, 1)).warnings == ()
    assert offer(node).warnings == ()
    for newer in ("6.0", "10.0", None, "unknown"):
        node = changed(T4, 0, compute_capability=newer)
        assert offer(node, SharedResource(GPU, 4)).warnings == ()


def test_little_memory_per_replica_is_a_warning_per_model() -> None:
    offered = offer(changed(FOUR, 3, name="Other"), SharedResource(GPU, 90))
    assert [text for text in offered.warnings if "MiB" in text] == [
        f"{GPU}: 90 replicas of NVIDIA H100 80GB HBM3 have 906 MiB of memory each, less than 1 GiB",
        f"{GPU}: 90 replicas of Other have 906 MiB of memory each, less than 1 GiB",
    ]
    assert offer(changed(T4, 0, memory_bytes=None), SharedResource(GPU, 40)).warnings == ()
    node = divided(T4, 0, "1g.10gb")
    (text,) = offer(node, SharedResource("nvidia.com/mig-1g.10gb", 16), mig="mixed").warnings
    assert "16 replicas of Tesla T4 1g.10gb have 640 MiB" in text


def test_many_replicas_are_a_warning() -> None:
    assert offer(FOUR, SharedResource(GPU, 48)).warnings == ()
    assert only_warning(offer(FOUR, SharedResource(GPU, 49))) == (
        f"{GPU}: 49 replicas are many: each gets 1/49 of the time of a NVIDIA H100 80GB HBM3 when "
        "all are busy"
    )
    assert only_warning(offer(FOUR, SharedResource(GPU, 49), strategy="mps")) == (
        f"{GPU}: 49 replicas are many: the MPS server of a NVIDIA H100 80GB HBM3 serves at most "
        "48 clients"
    )
    pascal = changed(T4, 0, compute_capability="6.1", memory_bytes=24 << 30)
    (text,) = offer(pascal, SharedResource(GPU, 17), strategy="mps").warnings
    assert text.endswith("serves at most 16 clients")
    volta = changed(T4, 0, compute_capability="7.0", memory_bytes=24 << 30)
    assert offer(volta, SharedResource(GPU, 17), strategy="mps").warnings == ()


def test_too_long_ids_are_a_warning() -> None:
    offered = offer(changed(T4, 0, uuid="GPU-" + "a" * 56), SharedResource(GPU, 11))
    assert only_warning(offered) == (
        f"{GPU}: 1 of 11 device ids are longer than the maximum of 63 characters, "
        f"such as GPU-{'a' * 56}::10"
    )


@pytest.mark.parametrize("replicas", [100_000, 10**12])
def test_units_are_limited_by_the_message_size(replicas: int) -> None:
    offered = offer(FOUR, SharedResource(GPU, 3, devices=("0",)), SharedResource(GPU, replicas))
    (resource,) = offered.resources
    per_device = [
        sum(unit.device.index == index for unit in resource.units) for index in ("0", "1", "2", "3")
    ]
    assert per_device[0] == 3
    assert len(set(per_device[1:])) == 1
    size = sum(len(unit.id) + 24 for unit in resource.units)
    assert MAX_MESSAGE * 0.9 < size <= MAX_MESSAGE
    (text,) = (text for text in offered.warnings if "fit" in text)
    assert f"at most {per_device[1]} replicas of a device are offered" in text


def test_lost_gpu_remains_offered_and_unusable() -> None:
    node = changed(FOUR, 1, lost="fallen off the bus")
    assert indices(offer(node)) == {GPU: ["0", "1", "2", "3"]}
    assert unusable(node) == {node.gpus[1].uuid: "it is lost (fallen off the bus)"}


def test_gpu_without_its_device_node_is_unusable() -> None:
    node = replace(T4, device_nodes=())
    assert unusable(node) == {T4.gpus[0].uuid: "/dev/nvidia0 is missing"}
    nameless = Gpu(index=3, lost="fallen off the bus")
    assert unusable(with_gpus(T4, nameless)) == {}
    assert unusable(H100) == {}


def test_instances_of_an_unusable_gpu_are_unusable() -> None:
    node = divided(divided(FOUR, 0, "1g.10gb", "1g.10gb"), 1, "1g.10gb", trouble="no node")
    lost = changed(node, 0, lost="fallen off the bus")
    first, second = (part.uuid for part in node.gpus[0].instances)
    (third,) = (part.uuid for part in node.gpus[1].instances)
    assert unusable(node) == {third: "no node"}
    assert unusable(lost) == {
        lost.gpus[0].uuid: "it is lost (fallen off the bus)",
        first: "its GPU 0: it is lost (fallen off the bus)",
        second: "its GPU 0: it is lost (fallen off the bus)",
        third: "no node",
    }


def test_instance_without_capability_nodes_is_unusable() -> None:
    """No CDI spec describes it, or no container can open it."""
    node = divided(T4, 0, "1g.10gb", "1g.10gb")
    first, second = node.gpus[0].instances
    kept = tuple(one for one in node.device_nodes if not one.path.endswith("-cap51"))
    assert unusable(replace(node, device_nodes=kept)) == {
        second.uuid: "/dev/nvidia-caps/nvidia-cap51 is missing"
    }
    unknown = changed(node, 0, instances=(replace(first, gpu_instance_minor=None), second))
    assert unusable(unknown) == {first.uuid: "the minor numbers of its capabilities are unknown"}
