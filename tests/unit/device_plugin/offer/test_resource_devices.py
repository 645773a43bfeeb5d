# SPDX-License-Identifier: Apache-2.0
"""The devices of a node before sharing, and the names of their resources."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gpuhook.device_plugin.config.configuration import Configuration, Flags, Naming
from gpuhook.device_plugin.offer.resource_devices import resource_devices
from gpuhook.device_plugin.offer.resources import offered
from gpuhook.errors import FileError
from gpuhook.vendors.nvidia.inventory.inventory import DeviceNode, Gpu
from tests.unit.offering import (
    GPU,
    H100,
    T4,
    changed,
    configured,
    divided,
    indices,
    offer,
    only_warning,
)

ALL = [str(index) for index in range(8)]


def test_each_gpu_is_a_unit_with_its_uuid() -> None:
    (resource,) = offer(T4).resources
    (unit,) = resource.units
    assert (resource.name, resource.sharing, resource.is_mig) == (GPU, "none", False)
    assert (unit.id, unit.replica) == (T4.gpus[0].uuid, None)
    device = unit.device
    assert (device.paths, device.host_paths) == (("/dev/nvidia0",), ("/dev/nvidia0",))
    assert (device.model, device.memory_bytes) == ("Tesla T4", 16106127360)


def test_gpus_are_in_the_order_of_their_indices() -> None:
    shuffled = replace(H100, gpus=tuple(reversed(H100.gpus)))
    assert indices(offer(shuffled)) == {GPU: ALL}
    numa = [unit.device.numa_node for unit in offer(shuffled).resources[0].units]
    assert numa == [0, 0, 0, 0, 1, 1, 1, 1]


def test_device_node_has_the_minor_and_not_the_index() -> None:
    device = offer(H100).resources[0].units[2].device
    assert (device.index, device.paths) == ("2", ("/dev/nvidia3",))


def test_host_paths_are_below_the_dev_root() -> None:
    node = replace(
        T4,
        dev_root="/run/driver",
        device_nodes=(DeviceNode("/dev/nvidia0", "/run/elsewhere/dev/nvidia0", 195, 0),),
    )
    node = divided(node, 0, "1g.5gb")
    device = offer(node, mig="mixed").resources[0].units[0].device
    assert device.paths == (
        "/dev/nvidia0",
        "/dev/nvidia-caps/nvidia-cap0",
        "/dev/nvidia-caps/nvidia-cap50",
    )
    assert device.host_paths == (
        "/run/elsewhere/dev/nvidia0",
        "/run/driver/dev/nvidia-caps/nvidia-cap0",
        "/run/driver/dev/nvidia-caps/nvidia-cap50",
    )


def test_gpu_without_a_uuid_is_not_offered() -> None:
    offered = offer(changed(H100, 3, uuid=None, lost="fallen off the bus"))
    assert indices(offered) == {GPU: ["0", "1", "2", "4", "5", "6", "7"]}
    assert offered.warnings == ("GPU 3 has no UUID (fallen off the bus): it is not offered",)


def test_duplicate_uuid_is_offered_once() -> None:
    offered = offer(changed(H100, 1, uuid=H100.gpus[0].uuid))
    assert indices(offered) == {GPU: ["0", *ALL[2:]]}
    assert offered.warnings == (
        f"{H100.gpus[0].uuid} identifies two devices: the first one is offered",
    )


def test_a_node_without_gpus_offers_nothing() -> None:
    assert offer(replace(T4, gpus=())).resources == ()


@pytest.mark.parametrize(
    "name",
    [
        "0",
        "GPU-3d2b7a51-9c0e-4f6d-8b17-52e0c4a6f913",
        "gpu-3D2B7A51-9c0e-4f6d-8b17-52e0c4a6f913",
        "00000000:00:1E.0",
        "0000:00:1e.0",
        "00:1e.0",
        "Tesla T4",
        "Tesla-T4",
    ],
)
def test_gpu_is_excluded_by_each_of_its_names(name: str) -> None:
    offered = offer(T4, exclude=(name,))
    assert (offered.resources, offered.warnings) == ((), ())


def test_excluding_an_unknown_device_is_a_warning() -> None:
    offered = offer(T4, exclude=("7", "Tesla K80"))
    assert indices(offered) == {GPU: ["0"]}
    assert offered.warnings == (
        "gpuhook.excludeDevices: this node has no device '7'",
        "gpuhook.excludeDevices: this node has no device 'Tesla K80'",
    )


def test_mig_instance_is_excluded_alone_or_with_its_gpu() -> None:
    node = divided(divided(H100, 0, "1g.10gb", "1g.10gb"), 1, "1g.10gb")
    assert indices(offer(node, mig="mixed", exclude=("0:1",)))["nvidia.com/mig-1g.10gb"] == [
        "0:0",
        "1:0",
    ]
    offered = offer(node, mig="mixed", exclude=("0",))
    assert indices(offered)["nvidia.com/mig-1g.10gb"] == ["1:0"]
    offered = offer(node, mig="mixed", exclude=("0:0", "0:1"))
    assert (indices(offered)["nvidia.com/mig-1g.10gb"], offered.warnings) == (["1:0"], ())


def test_strategy_none_offers_no_gpu_in_mig_mode() -> None:
    offered = offer(divided(H100, 2, "7g.80gb"))
    assert indices(offered) == {GPU: ["0", "1", *ALL[3:]]}
    assert only_warning(offered) == (
        "GPU 2 is in MIG mode and cannot be assigned as a whole: it is not offered with "
        "migStrategy none; set single or mixed, or disable its MIG mode"
    )


@pytest.mark.parametrize(
    ("profile", "name"),
    [
        ("1g.5gb", "nvidia.com/mig-1g.5gb"),
        ("1g.10gb+me", "nvidia.com/mig-1g.10gb.me"),
        ("1g.24gb+me.all", "nvidia.com/mig-1g.24gb.me.all"),
        ("1g.24gb-me", "nvidia.com/mig-1g.24gb-me"),
        ("1c.3g.20gb", "nvidia.com/mig-1c.3g.20gb"),
        ("3g.20gb:x", "nvidia.com/mig-3g.20gb-x"),
    ],
)
def test_strategy_mixed_names_a_resource_by_the_profile(profile: str, name: str) -> None:
    offered = offer(divided(T4, 0, profile), mig="mixed")
    (resource,) = offered.resources
    assert (resource.name, resource.is_mig) == (name, True)
    device = resource.units[0].device
    assert (device.index, device.profile, device.instance) == ("0:0", profile, (7, 0))
    assert (device.gpu, device.memory_bytes) == (T4.gpus[0].uuid, 10 << 30)


def test_strategy_mixed_offers_instances_and_whole_gpus() -> None:
    offered = offer(divided(divided(H100, 1, "1g.10gb", "3g.40gb"), 4), mig="mixed")
    assert indices(offered) == {
        GPU: ["0", "2", "3", "5", "6", "7"],
        "nvidia.com/mig-1g.10gb": ["1:0"],
        "nvidia.com/mig-3g.40gb": ["1:1"],
    }
    assert offered.warnings == (("GPU 4 is in MIG mode and has no instances: it is not offered"),)


def test_resources_are_in_the_order_of_their_names() -> None:
    offered = offer(divided(H100, 0, "3g.40gb", "1g.10gb"), mig="mixed")
    names = [resource.name for resource in offered.resources]
    assert names == [GPU, "nvidia.com/mig-1g.10gb", "nvidia.com/mig-3g.40gb"]


def test_instance_without_profile_or_uuid_is_not_offered() -> None:
    node = divided(T4, 0, None, "1g.5gb")
    assert offer(node, mig="mixed").warnings == (
        "MIG instance 0:0 has an unknown profile: it is not offered",
    )
    nameless = replace(node.gpus[0].instances[1], uuid="")
    offered = offer(changed(T4, 0, mig_mode="enabled", instances=(nameless,)), mig="mixed")
    assert offered.warnings == ("MIG instance 0:1 has no UUID: it is not offered",)


def test_strategy_single_offers_instances_as_gpus() -> None:
    node = replace(H100, gpus=H100.gpus[:2])
    node = divided(divided(node, 0, "1g.10gb", "1g.10gb"), 1, "1g.10gb")
    offered = offer(node, mig="single")
    assert (indices(offered), offered.warnings) == ({GPU: ["0:0", "0:1", "1:0"]}, ())
    assert offered.resources[0].is_mig


def test_strategy_single_offers_whole_gpus_if_mig_is_off() -> None:
    assert indices(offer(H100, mig="single")) == {GPU: ALL}
    assert not offer(H100, mig="single").resources[0].is_mig


def test_strategy_single_refuses_different_gpus() -> None:
    two = replace(H100, gpus=H100.gpus[:2])
    with pytest.raises(FileError, match=r"MIG mode is on for GPU 1 and off for GPU 0$") as raised:
        offer(divided(two, 1, "1g.10gb"), mig="single")
    assert raised.value.code == "GH1840"
    with pytest.raises(FileError, match="GPU 0 is in MIG mode, but has no instance") as raised:
        offer(divided(divided(two, 0), 1, "1g.10gb"), mig="single")
    assert raised.value.code == "GH1840"
    with pytest.raises(FileError, match=r"0:0 is 1g.10gb, 1:1 is 3g.40gb") as raised:
        offer(divided(divided(two, 0, "1g.10gb"), 1, "1g.10gb", "3g.40gb"), mig="single")
    assert raised.value.code == "GH1840"
    with pytest.raises(FileError, match="of an unknown profile") as raised:
        offer(divided(two, 0, "1g.10gb", None), mig="single", exclude=("1",))
    assert raised.value.code == "GH1840"


def test_strategy_single_ignores_excluded_devices() -> None:
    node = divided(divided(H100, 0, "1g.10gb", "3g.40gb"), 1, "1g.10gb")
    excluded = ("2", "3", "4", "5", "6", "7", "0:1")
    assert indices(offer(node, mig="single", exclude=excluded)) == {GPU: ["0:0", "1:0"]}


def test_strategy_single_accepts_a_lost_gpu() -> None:
    node = divided(replace(H100, gpus=H100.gpus[:2]), 0, "1g.10gb")
    node = changed(node, 1, mig_mode=None, lost="fallen off the bus")
    offered = offer(node, mig="single")
    assert indices(offered) == {GPU: ["0:0"]}
    assert offered.warnings == ("GPU 1 is lost and its MIG mode is unknown: it is not offered",)
    whole = changed(H100, 1, mig_mode=None, lost="fallen off the bus")
    assert indices(offer(whole, mig="single")) == {GPU: ALL}
    emptied = changed(divided(node, 1), 1, lost="fallen off the bus")
    assert indices(offer(emptied, mig="single")) == {GPU: ["0:0"]}


def test_patterns_name_resources_by_model_and_profile() -> None:
    node = divided(changed(H100, 0, name="NVIDIA A100-SXM4-40GB"), 1, "1g.10gb", "1g.10gb+me")
    node = changed(node, 2, name="Quadro")
    configuration = Configuration(
        flags=Flags(mig_strategy="mixed"),
        gpus=(Naming("*A100*", "nvidia.com/a100"), Naming("NVIDIA H100*", "nvidia.com/h100")),
        mig=(Naming("1g.10gb", "nvidia.com/small"),),
    )
    found = offered(node, configuration)
    assert indices(found) == {
        "nvidia.com/a100": ["0"],
        "nvidia.com/h100": ["3", "4", "5", "6", "7"],
        "nvidia.com/small": ["1:0"],
    }
    assert found.warnings == (
        "MIG instance 1:1 (1g.10gb+me) is not offered: no pattern of resources.mig matches",
        "GPU 2 (Quadro) is not offered: no pattern of resources.gpus matches",
    )


def test_only_the_asterisk_of_a_pattern_is_special() -> None:
    node = changed(T4, 0, name="T[4].")
    for pattern, matches in (("T[4].", True), ("T?4??", False), ("T*.", True), ("T[4]", False)):
        configuration = Configuration(gpus=(Naming(pattern, GPU),))
        assert bool(offered(node, configuration).resources) is matches


def test_gpu_with_only_a_uuid_is_offered() -> None:
    node = replace(T4, gpus=(Gpu(index=0, uuid="GPU-1"),))
    (named,), warnings = resource_devices(node, configured())
    assert (named.device.paths, named.device.host_paths, warnings) == ((), (), ())
