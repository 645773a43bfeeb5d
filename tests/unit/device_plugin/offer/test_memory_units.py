# SPDX-License-Identifier: Apache-2.0
"""Memory units: lists and preferred units for the kubelet, allocations, and labels."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gpuhook.device_plugin.allocate.allocate import allocate
from gpuhook.device_plugin.allocate.allocation_context import Context
from gpuhook.device_plugin.allocate.container_allocation import AllocatedMount, Allocation
from gpuhook.device_plugin.config.configuration import LIST_STRATEGIES, Configuration
from gpuhook.device_plugin.config.sharing_section import (
    MEMORY_UNITS,
    MPS,
    SPREAD,
    SharedResource,
    Sharing,
)
from gpuhook.device_plugin.kubelet import resource_server
from gpuhook.device_plugin.kubelet.kubelet_answers import KnownNode, KubeletAnswers, check_start
from gpuhook.device_plugin.metrics.container_memory import shares
from gpuhook.device_plugin.offer.offered_devices import Device, Resource, Unit, UnitMemory
from gpuhook.device_plugin.offer.preferred_allocation import preferred
from gpuhook.errors import RequestError
from gpuhook.request import memory_request
from gpuhook.request.memory_request import MemoryLimit
from gpuhook.vendors.nvidia.hot.vocabulary import VOCABULARY
from gpuhook.vendors.nvidia.labels.label_facts import LabelFacts
from tests.refusal import refused
from tests.unit.choosing import NO_LINKS
from tests.unit.device_plugin.labels.nvidia_labelling import labels
from tests.unit.offering import GPU, T4, configured, offer

GIB = 1 << 30
NAME = "nvidia.com/gpumem"
VENDOR = "k8s.device-plugin.nvidia.com"
LIMIT, REQUEST = "NVIDIA_GPU_MEMORY_LIMIT", "NVIDIA_GPU_MEMORY_REQUEST"
PREFIX = "/var/run/gpuhook/memory"


def device(index: int, count: int, numa: int | None = None) -> Device:
    path = f"/dev/nvidia{index}"
    uuid = f"GPU-{index}"
    total = count * GIB + (256 << 20)
    return Device(uuid, str(index), uuid, index, (path,), (path,), "T4", total, numa_node=numa)


def resource(*counts: int, sharing: str = MEMORY_UNITS, soft: int = GIB) -> Resource:
    """Return units of 1 GiB of devices with these numbers of units."""
    devices = [device(index, count, index % 2) for index, count in enumerate(counts)]
    units = [Unit(f"{d.uuid}::{n}", d, n) for d in devices for n in range(counts[d.gpu_index])]
    limit = UnitMemory(GIB, soft, is_asked=sharing == MEMORY_UNITS)
    memory = {d.uuid: limit for d in devices}
    return Resource(NAME, tuple(units), sharing=sharing, memory=memory)


def ids(gpu: int, *numbers: int) -> list[str]:
    return [f"GPU-{gpu}::{number}" for number in numbers]


def choose(
    offered: Resource,
    size: int,
    *,
    policy: str = "packed",
    taken: tuple[str, ...] | list[str] = (),
    required: list[str] | None = None,
    unhealthy: tuple[str, ...] = (),
) -> list[str]:
    free = [unit.id for unit in offered.units if unit.id not in taken]
    return preferred(
        offered,
        free,
        required or [],
        size,
        policy=policy,
        topology=NO_LINKS,
        unhealthy=unhealthy,
    )


def test_units_are_listed_without_numa_nodes() -> None:
    """The kubelet would select units of one NUMA node, of any devices."""
    listed = resource_server.listing(resource(2, 2), {"GPU-1"}).devices
    assert [(d.ID, d.health, len(d.topology.nodes)) for d in listed] == [
        ("GPU-0::0", "Healthy", 0),
        ("GPU-0::1", "Healthy", 0),
        ("GPU-1::0", "Unhealthy", 0),
        ("GPU-1::1", "Unhealthy", 0),
    ]
    slices = resource_server.listing(resource(2, 2, sharing="time-slicing"), {}).devices
    assert all(len(d.topology.nodes) == 1 for d in slices)


def test_packed_selects_the_gpu_with_the_fewest_sufficient_units() -> None:
    three = resource(8, 4, 6)
    assert choose(three, 3) == ids(1, 0, 1, 2)
    assert choose(three, 5) == ids(2, 0, 1, 2, 3, 4)
    assert choose(three, 7) == ids(0, *range(7))
    assert choose(three, 3, taken=ids(0, 0, 2, 3, 5, 7)) == ids(0, 1, 4, 6)


def test_spread_selects_the_gpu_with_the_most_free_units() -> None:
    three = resource(8, 4, 6)
    assert choose(three, 3, policy=SPREAD) == ids(0, 0, 1, 2)
    assert choose(three, 3, policy=SPREAD, taken=ids(0, 0, 1, 2)) == ids(2, 0, 1, 2)


def test_too_large_request_is_refused_with_the_free_units() -> None:
    with pytest.raises(RequestError) as caught:
        choose(resource(8, 4), 9)
    assert caught.value.code == "GH1849"
    assert "9 units of nvidia.com/gpumem (9216 MiB)" in caught.value.message
    assert "at most 8 are free" in caught.value.message


def test_required_units_select_the_gpu() -> None:
    """The kubelet assigns the units of init containers to a container of the pod."""
    two = resource(8, 4)
    assert choose(two, 4, required=ids(0, 5)) == ids(0, 0, 1, 2, 5)
    with refused("GH1849"):
        choose(two, 5, required=ids(1, 0))
    with refused("GH1859"):
        choose(two, 5, required=[*ids(0, 0), *ids(1, 0)])


def test_unhealthy_gpu_is_not_preferred() -> None:
    two = resource(8, 4)
    assert choose(two, 2, unhealthy=("GPU-1",)) == ids(0, 0, 1)
    with refused("GH1849"):
        choose(two, 6, unhealthy=("GPU-0",))


def test_policy_of_memory_units_is_used() -> None:
    offered = resource(8, 4)
    free = [unit.id for unit in offered.units]
    for policy, best in (("packed", "GPU-1::0"), (SPREAD, "GPU-0::0")):
        configuration = Configuration(sharing=Sharing(MEMORY_UNITS, policy=policy))
        known = KnownNode(configuration)
        assert KubeletAnswers(known, lambda _: None).preferred(offered, free, [], 1) == [best]


def context_with(*strategies: str) -> Context:
    names = frozenset(f"{VENDOR}/gpu=GPU-{n}" for n in range(3))
    files = Allocation({"LD_LIBRARY_PATH": "/x"}, (AllocatedMount("/x/libcuda.so.1", "/c"),))
    return Context(strategies, cdi_names=names, host_files=files)


@pytest.mark.parametrize("strategy", LIST_STRATEGIES)
def test_units_are_granted_by_one_mount_with_their_sum(strategy: str) -> None:
    allocation = allocate(resource(8, 4), ids(0, 1, 2, 6), context_with(strategy))
    grants = [mount for mount in allocation.mounts if mount.container_path.startswith(PREFIX)]
    path = f"{PREFIX}/GPU-0,hard=3072,soft=3072,asked"
    assert grants == [AllocatedMount(path, "/dev/null", read_only=True)]
    assert allocation.envs[LIMIT] == "3072"
    assert REQUEST not in allocation.envs  # limits within the memory of the device are a guarantee
    assert "GPUHOOK_REPLICAS" not in allocation.envs


def test_runtime_reads_the_grant() -> None:
    allocation = allocate(resource(8), ids(0, 1, 2), context_with("envvar"))
    spec = {
        "mounts": [
            {"destination": m.container_path, "source": m.host_path} for m in allocation.mounts
        ],
        "process": {"env": [f"{name}={value}" for name, value in allocation.envs.items()]},
    }
    found = memory_request.limits(spec, ["GPU-0"], VOCABULARY)
    assert found == [MemoryLimit("GPU-0", 2 * GIB, 2 * GIB, is_asked=True)]


def test_units_of_two_gpus_are_refused() -> None:
    with refused("GH1859") as caught:
        allocate(resource(8, 4), [*ids(1, 0), *ids(0, 1)], context_with("envvar"))
    assert "2 units of nvidia.com/gpumem are on GPU-0 and GPU-1" in caught.value.message


def test_replicas_have_a_grant_for_each_device() -> None:
    two = resource(4, 4, sharing="time-slicing", soft=GIB // 2)
    allocation = allocate(two, [*ids(0, 0, 1), *ids(1, 3)], context_with("envvar"))
    assert [mount.container_path for mount in allocation.mounts] == [
        f"{PREFIX}/GPU-0,hard=2048,soft=1024",
        f"{PREFIX}/GPU-1,hard=1024,soft=512",
    ]
    assert LIMIT not in allocation.envs  # one variable cannot have both
    assert allocation.envs["GPUHOOK_REPLICAS"] == "GPU-0::0,GPU-0::1,GPU-1::3"
    alike = allocate(two, [*ids(0, 0), *ids(1, 3)], context_with("envvar"))
    assert (alike.envs[LIMIT], alike.envs[REQUEST]) == ("1024", "512")


def test_device_without_a_limit_has_no_variables() -> None:
    two = resource(4, 4, sharing="time-slicing")
    half = replace(two, memory={"GPU-0": two.memory["GPU-0"]})
    allocation = allocate(half, [*ids(0, 0), *ids(1, 0)], context_with("envvar"))
    assert len(allocation.mounts) == 1
    assert LIMIT not in allocation.envs
    assert allocate(half, ids(1, 0), context_with("envvar")).mounts == ()


def test_soft_limit_of_0_sets_no_request_variable() -> None:
    """The variable may not be 0."""
    one = resource(4, sharing="time-slicing", soft=0)
    allocation = allocate(one, ids(0, 0), context_with("envvar"))
    assert allocation.envs[LIMIT] == "1024"
    assert REQUEST not in allocation.envs


def test_grant_is_at_most_the_memory_of_the_gpu() -> None:
    one = resource(4, sharing="time-slicing")
    large = replace(one, memory={"GPU-0": UnitMemory(3 * GIB, GIB)})
    allocation = allocate(large, ids(0, 0, 1, 2), context_with("envvar"))
    assert allocation.envs[LIMIT] == str(4 * 1024 + 256)


def test_mps_resource_has_no_grants() -> None:
    mps = resource(4, sharing=MPS)
    context = replace(context_with("envvar"), mps={NAME: Allocation(envs={"PIPE": "/p"})})
    allocation = allocate(mps, ids(0, 0), context)
    assert allocation.mounts == ()
    assert allocation.envs["PIPE"] == "/p"
    assert LIMIT not in allocation.envs


def test_start_is_refused_on_an_unhealthy_gpu_only() -> None:
    two = resource(8, 4)
    check_start(two, ids(0, *range(8)), {"GPU-1": "XID 79"}, 0, lambda _: None)
    with refused("GH1851"):
        check_start(two, ids(1, 0), {"GPU-1": "XID 79"}, 0, lambda _: None)
    # An id of a configuration with smaller units: only its device is checked.
    check_start(two, ids(0, 5000), {}, 0, lambda _: None)


def test_labels_have_the_size_of_a_unit() -> None:
    entry = SharedResource(GPU, rename=NAME, unit=2 * GIB)
    configuration = configured(entry, strategy=MEMORY_UNITS)
    offered = offer(T4, entry, strategy=MEMORY_UNITS).resources
    found = group_labels(offered, configuration)
    assert (found["replicas"], found["replica-memory"], found["memory"]) == (
        "7",
        "2048",
        "15360",
    )
    assert found["sharing-strategy"] == MEMORY_UNITS
    assert found["product"] == "Tesla-T4"  # the name of the resource shows the sharing


def group_labels(offered: tuple[Resource, ...], configuration: Configuration) -> dict[str, str]:
    """Return the labels of the only group of the T4's node."""
    found = labels(T4, offered, configuration, LabelFacts())
    return {name.rpartition(".")[2]: value for name, value in found.items()}


def test_labels_have_the_memory_of_a_single_replica() -> None:
    entry = SharedResource(GPU, replica_memory=10 << 30)
    found = group_labels(offer(T4, entry).resources, configured(entry))
    assert (found["replicas"], found["replica-memory"], found["memory"]) == (
        "1",
        "10240",
        "15360",
    )
    assert (found["sharing-strategy"], found["product"]) == ("time-slicing", "Tesla-T4-SHARED")


def test_fair_share_of_a_unit_is_its_size() -> None:
    fair_shares = {(share.device, share.fair) for share in shares([resource(8, 4)]).values()}
    assert fair_shares == {("GPU-0", GIB), ("GPU-1", GIB)}
    total = 4 * GIB + (256 << 20)
    unlimited = replace(resource(4, sharing="time-slicing"), memory={})
    assert {share.fair for share in shares([unlimited]).values()} == {total // 4}
