# SPDX-License-Identifier: Apache-2.0
"""Properties of the offered resources, for any node and any configuration."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from gpuhook.device_plugin.config.configuration import MIG_STRATEGIES, Configuration, Flags, Naming
from gpuhook.device_plugin.config.gpuhook_section import Own
from gpuhook.device_plugin.config.sharing_section import MEMORY_UNITS, SharedResource, Sharing
from gpuhook.device_plugin.offer.resources import MAX_MESSAGE, offered, unusable
from gpuhook.errors import FileError
from gpuhook.vendors.nvidia.inventory.inventory import Driver, Gpu, MigInstance, Node

MAYBE_TEXT = st.none() | st.text(max_size=4)
NAME = st.sampled_from(["0", "1", "0:0", "GPU-0", "MIG-0", "Tesla T4", "00:1e.0"]) | st.text()
RESOURCE = st.sampled_from(["nvidia.com/gpu", "nvidia.com/mig-1g.5gb"]) | st.text(max_size=4)
INSTANCE = st.builds(
    MigInstance,
    index=st.integers(0, 3),
    uuid=st.sampled_from(["MIG-0", "MIG-1", "MIG-2", ""]),
    gpu_instance=st.integers(0, 7),
    compute_instance=st.integers(0, 7),
    profile=st.sampled_from(["1g.5gb", "1g.5gb+me", None]) | st.text(max_size=4),
    memory_bytes=st.none() | st.integers(0, 1 << 40),
    gpu_instance_minor=st.none() | st.integers(0, 500),
    trouble=MAYBE_TEXT,
)
GPU = st.builds(
    Gpu,
    index=st.integers(0, 9),
    uuid=st.sampled_from(["GPU-0", "GPU-1", "GPU-2", None]) | MAYBE_TEXT,
    minor=st.none() | st.integers(0, 9),
    pci_bus_id=st.sampled_from(["00000000:00:1E.0", None]) | MAYBE_TEXT,
    name=st.sampled_from(["Tesla T4", None]) | MAYBE_TEXT,
    compute_capability=st.sampled_from(["5.2", "7.5", "9.0", None]) | MAYBE_TEXT,
    memory_bytes=st.none() | st.integers(0, 1 << 40),
    mig_mode=st.sampled_from(["enabled", "disabled", "unsupported", None]),
    lost=MAYBE_TEXT,
    instances=st.lists(INSTANCE, max_size=3).map(tuple),
)
NODE = st.builds(Node, driver=st.just(Driver()), gpus=st.lists(GPU, max_size=4).map(tuple))
WORDS = {
    "name": RESOURCE,
    "rename": st.none() | RESOURCE,
    "devices": st.just("all") | st.integers(1, 5) | st.lists(NAME, max_size=3).map(tuple),
}
SIZE = st.integers(1 << 20, 1 << 38)
LIMITED = {"memory": st.sampled_from([None, "fair", "none"]) | SIZE, "oversubscribe": st.booleans()}
ENTRY = st.one_of(
    st.builds(SharedResource, **WORDS, **LIMITED, replicas=st.integers(1, 70)),
    st.builds(SharedResource, **WORDS, **LIMITED, replica_memory=SIZE),
)
UNITS = st.builds(SharedResource, **WORDS, unit=SIZE)
NAMINGS = st.lists(st.builds(Naming, st.text("*1g.T4", max_size=4), RESOURCE), max_size=2)
CONFIGURATION = st.builds(
    Configuration,
    flags=st.builds(Flags, mig_strategy=st.sampled_from(MIG_STRATEGIES)),
    gpus=NAMINGS.map(tuple) | st.just((Naming("*", "nvidia.com/gpu"),)),
    mig=NAMINGS.map(tuple),
    sharing=st.builds(
        Sharing,
        strategy=st.sampled_from(["time-slicing", "mps"]),
        rename_by_default=st.booleans(),
        refuses_more_than_one=st.booleans(),
        resources=st.lists(ENTRY, max_size=3).map(tuple),
    )
    | st.builds(
        Sharing, st.just(MEMORY_UNITS), resources=st.lists(UNITS, min_size=1, max_size=3).map(tuple)
    ),
    own=st.builds(Own, exclude_devices=st.lists(NAME, max_size=2).map(tuple)),
)


@given(NODE, CONFIGURATION)
def test_offered_units_are_unique_and_fit_into_a_message(
    node: Node, configuration: Configuration
) -> None:
    assert set(unusable(node)) <= {
        known for gpu in node.gpus for known in (gpu.uuid, *(i.uuid for i in gpu.instances))
    }
    refused, offer = "", None
    try:
        offer = offered(node, configuration)
    except FileError as error:
        refused = error.code
    if offer is None:
        limited = refused in {"GH1847", "GH1848"}
        assert limited or configuration.flags.mig_strategy == "single"
        return
    units = [unit for resource in offer.resources for unit in resource.units]
    assert len({unit.id for unit in units}) == len(units)
    for resource in offer.resources:
        assert resource.units
        assert sum(len(unit.id) for unit in resource.units) < MAX_MESSAGE
        shared = any(unit.replica is not None for unit in resource.units)
        assert (resource.sharing != "none") == shared
        assert shared or not resource.refuses_more_than_one
    for unit in units:
        replica = "" if unit.replica is None else f"::{unit.replica}"
        assert unit.id == unit.device.uuid + replica
        assert len(unit.device.paths) == len(unit.device.host_paths)
    assert offered(node, configuration) == offer


@given(NODE, CONFIGURATION)
def test_limits_fit_into_the_memory_of_the_device(node: Node, configuration: Configuration) -> None:
    """Oversubscribed devices and devices of unknown memory are excepted."""
    try:
        offer = offered(node, configuration)
    except FileError:
        return
    for resource in offer.resources:
        for device in resource.devices:
            limit, entry = resource.memory.get(device.uuid), resource.entries.get(device.uuid)
            if limit is None:
                continue
            assert entry is not None
            assert limit.hard >= limit.soft
            assert limit.hard >= 1 << 20
            assert limit.hard % (1 << 20) == limit.soft % (1 << 20) == 0
            assert limit.is_asked == (resource.sharing == MEMORY_UNITS)
            count = len(resource.index.ids[device.uuid])
            if device.memory_bytes is not None:
                assert count * limit.soft <= device.memory_bytes
                assert entry.oversubscribe or count * limit.hard <= device.memory_bytes
