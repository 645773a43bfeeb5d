# SPDX-License-Identifier: Apache-2.0
"""Allocate for any request: an answer that names exactly the requested devices, or a fault."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from gpuhook.device_plugin.allocate.allocate import allocate
from gpuhook.device_plugin.allocate.allocation_context import Context
from gpuhook.device_plugin.allocate.container_allocation import (
    AllocatedMount,
    Allocation,
    DeviceSpec,
)
from gpuhook.device_plugin.config.configuration import ID_STRATEGIES, LIST_STRATEGIES
from gpuhook.device_plugin.offer.offered_devices import Device, Resource, Unit
from tests.refusal import refused

GPUS, REPLICAS = 4, 3
VENDOR = "k8s.device-plugin.nvidia.com"


def _device(index: int) -> Device:
    path = f"/dev/nvidia{index}"
    return Device(f"GPU-{index}", str(index), f"GPU-{index}", index, (path,), ("/host" + path,))


DEVICES = [_device(index) for index in range(GPUS)]
UNITS = tuple(Unit(f"{d.uuid}::{n}", d, n) for d in DEVICES for n in range(REPLICAS))
CONTEXTS = st.builds(
    Context,
    strategies=st.sets(st.sampled_from(LIST_STRATEGIES), min_size=1).map(
        lambda chosen: tuple(name for name in LIST_STRATEGIES if name in chosen)
    ),
    id_strategy=st.sampled_from(ID_STRATEGIES),
    cdi_names=st.just(frozenset(f"{VENDOR}/gpu={device.uuid}" for device in DEVICES)),
    pass_device_specs=st.booleans(),
    control_nodes=st.just((DeviceSpec("/dev/nvidiactl", "/host/dev/nvidiactl"),)),
    host_files=st.just(
        Allocation({"LD_LIBRARY_PATH": "/x"}, (AllocatedMount("/x/libcuda.so.1", "/c"),))
    ),
)
RESOURCES = st.builds(
    Resource,
    st.just("nvidia.com/gpu"),
    st.just(UNITS),
    st.just("time-slicing"),
    refuses_more_than_one=st.booleans(),
)
KNOWN = st.lists(st.sampled_from([unit.id for unit in UNITS]), max_size=8)


@given(RESOURCES, st.lists(st.text() | st.sampled_from([u.id for u in UNITS])), CONTEXTS)
def test_any_request_is_answered_or_refused(
    resource: Resource, ids: list[str], context: Context
) -> None:
    unknown = not set(ids) <= {unit.id for unit in UNITS}
    is_refused = resource.refuses_more_than_one and len(set(ids)) > 1
    if unknown or is_refused:
        with refused("GH1850" if unknown else "GH1852"):
            allocate(resource, ids, context)
        return
    allocation = allocate(resource, ids, context)
    assert allocation.envs or allocation.annotations or allocation.cdi_devices


@given(KNOWN, CONTEXTS)
def test_order_of_the_ids_has_no_effect(ids: list[str], context: Context) -> None:
    resource = Resource("nvidia.com/gpu", UNITS, "time-slicing")
    assert allocate(resource, ids[::-1] + ids, context) == allocate(resource, ids, context)


@given(KNOWN.filter(bool), CONTEXTS)
def test_allocation_names_exactly_the_requested_gpus(ids: list[str], context: Context) -> None:
    """Nothing occurs twice."""
    allocation = allocate(Resource("nvidia.com/gpu", UNITS, "time-slicing"), ids, context)
    requested = {unit.device for unit in UNITS if unit.id in ids}
    others = [device for device in DEVICES if device not in requested]
    assert allocation.envs["GPUHOOK_REPLICAS"] == ",".join(u.id for u in UNITS if u.id in ids)
    mounted = [mount.container_path for mount in allocation.mounts]
    nodes = [spec.container_path for spec in allocation.devices]
    cdi_names = [*allocation.cdi_devices, *",".join(allocation.annotations.values()).split(",")]
    for paths in (mounted, nodes, list(allocation.cdi_devices)):
        assert len(paths) == len(set(paths))
    for device in others:
        assert device.paths[0] not in nodes
        assert f"{VENDOR}/gpu={device.uuid}" not in cdi_names
        assert not any(path.endswith("/" + device.uuid) for path in mounted)
    if "host-files" in context.strategies:
        assert {device.paths[0] for device in requested} <= set(nodes)
    if "cdi-cri" in context.strategies:
        assert allocation.cdi_devices == tuple(
            f"{VENDOR}/gpu={device.uuid}" for device in DEVICES if device in requested
        )
    if "volume-mounts" in context.strategies:
        key = "index" if context.id_strategy == "index" else "uuid"
        ends = {path.rpartition("/")[2] for path in mounted}
        assert {getattr(device, key) for device in requested} <= ends
