# SPDX-License-Identifier: Apache-2.0
"""Allocations: each strategy, combinations of strategies, and refused requests."""

from __future__ import annotations

import os
from dataclasses import replace
from typing import Any

import pytest

from gpuhook.cdi.hot import spec_rules
from gpuhook.device_plugin.allocate import allocation_context as contexts
from gpuhook.device_plugin.allocate.allocate import allocate
from gpuhook.device_plugin.allocate.allocation_context import Context, Specs
from gpuhook.device_plugin.allocate.auxiliary_devices import AuxiliaryDevice
from gpuhook.device_plugin.allocate.container_allocation import (
    AllocatedMount,
    Allocation,
    DeviceSpec,
)
from gpuhook.device_plugin.config.configuration import Configuration, Flags, PluginFlags
from gpuhook.device_plugin.config.gpuhook_section import Own
from gpuhook.device_plugin.offer.offered_devices import Device, Resource, Unit
from gpuhook.errors import GpuhookError
from gpuhook.vendors.nvidia.inventory import dump_file
from gpuhook.vendors.nvidia.inventory.inventory import Node
from gpuhook.vendors.nvidia.plugin import nvidia_part

VENDOR = "k8s.device-plugin.nvidia.com"
DIRECTORY = "/var/run/nvidia-container-devices"
DEVICES_ENV, REPLICAS_ENV = "NVIDIA_VISIBLE_DEVICES", "GPUHOOK_REPLICAS"
CONTROL = (DeviceSpec("/dev/nvidiactl", "/host/dev/nvidiactl"),)
GDS = AuxiliaryDevice(
    "gds",
    {"all": (DeviceSpec("/dev/nvidia-fs0", "/host/dev/nvidia-fs0"),)},
    "NVIDIA_GDS",
    (AllocatedMount("/run/udev", "/run/udev"),),
)
IMEX = AuxiliaryDevice("imex-channel", {"0": (DeviceSpec("/dev/channel0", "/host/dev/channel0"),)})


def device(index: int) -> Device:
    path = f"/dev/nvidia{index}"
    return Device(f"GPU-{index}", str(index), f"GPU-{index}", index, (path,), (f"/host{path}",))


def instance(index: int) -> Device:
    paths = ("/dev/nvidia1", f"/dev/nvidia-caps/nvidia-cap{index}")
    hosts = tuple(f"/host{path}" for path in paths)
    return Device(f"MIG-{index}", f"1:{index}", "GPU-1", 1, paths, hosts, profile="1g.5gb")


def whole_gpus(count: int = 3) -> Resource:
    return Resource("nvidia.com/gpu", tuple(Unit(f"GPU-{n}", device(n)) for n in range(count)))


def shared_gpus(**more: Any) -> Resource:
    units = tuple(Unit(f"GPU-{n}::{r}", device(n), r) for n in range(2) for r in range(3))
    return Resource("nvidia.com/gpu", units, **{"sharing": "time-slicing", **more})


def context_with(*strategies: str, **more: Any) -> Context:
    """Return a context with these strategies and CDI specs of all devices."""
    names = {f"{VENDOR}/gpu={kind}-{n}" for kind in ("GPU", "MIG") for n in range(9)}
    names |= {f"{VENDOR}/gds=all", f"{VENDOR}/imex-channel=0"}
    own = {"control_nodes": CONTROL, "cdi_names": frozenset(names)}
    return Context(strategies, **{**own, **more})


def refusal(resource: Resource, ids: list[str], context: Context) -> GpuhookError:
    with pytest.raises(GpuhookError) as caught:
        allocate(resource, ids, context)
    return caught.value


def paths(allocation: Allocation) -> list[str]:
    return [spec.container_path for spec in allocation.devices]


@pytest.mark.parametrize(
    ("strategy", "answer"),
    [
        ("envvar", Allocation(envs={DEVICES_ENV: "GPU-0,GPU-2"})),
        (
            "volume-mounts",
            Allocation(
                envs={DEVICES_ENV: DIRECTORY},
                mounts=(
                    AllocatedMount(f"{DIRECTORY}/GPU-0", "/dev/null"),
                    AllocatedMount(f"{DIRECTORY}/GPU-2", "/dev/null"),
                ),
            ),
        ),
        (
            "cdi-annotations",
            Allocation(
                annotations={
                    "cdi.k8s.io/nvidia-device-plugin_f0d04f5e": f"{VENDOR}/gpu=GPU-0,"
                    f"{VENDOR}/gpu=GPU-2"
                }
            ),
        ),
        ("cdi-cri", Allocation(cdi_devices=(f"{VENDOR}/gpu=GPU-0", f"{VENDOR}/gpu=GPU-2"))),
    ],
)
@pytest.mark.parametrize("ids", [["GPU-0", "GPU-2"], ["GPU-2", "GPU-0"], ["GPU-2", "GPU-0"] * 2])
def test_strategy_names_each_device_once_in_order(
    strategy: str, answer: Allocation, ids: list[str]
) -> None:
    """The order of the request has no effect."""
    assert allocate(whole_gpus(), ids, context_with(strategy)) == answer


def test_several_strategies_apply_together() -> None:
    """The variable has the value of the mounts."""
    strategies = ("envvar", "volume-mounts", "cdi-annotations", "cdi-cri")
    allocation = allocate(whole_gpus(), ["GPU-1"], context_with(*strategies))
    assert allocation.envs == {DEVICES_ENV: DIRECTORY}
    assert allocation.mounts == (AllocatedMount(f"{DIRECTORY}/GPU-1", "/dev/null"),)
    assert allocation.cdi_devices == (f"{VENDOR}/gpu=GPU-1",)
    assert list(allocation.annotations.values()) == [f"{VENDOR}/gpu=GPU-1"]


def test_annotation_key_is_valid_and_unique_per_device() -> None:
    """Its prefix is configurable."""
    context = context_with("cdi-annotations", annotation_prefix="example.com/")
    keys = [next(iter(allocate(whole_gpus(), [f"GPU-{n}"], context).annotations)) for n in range(3)]
    assert len(set(keys)) == 3
    for key in keys:
        assert key.startswith("example.com/nvidia-device-plugin_")
        edits = {"containerEdits": {"env": ["A=b"]}}
        document = {"cdiVersion": "0.6.0", "kind": "a/b", "annotations": {key: "x"}}
        spec_rules.check({**document, "devices": [{"name": "c", **edits}]}, "")


@pytest.mark.parametrize("strategy", ["envvar", "volume-mounts"])
def test_id_strategy_index_names_gpus_and_instances_by_index(strategy: str) -> None:
    """GPUs are 0 and 1, instances 1:0; CDI names have UUIDs."""
    units = (*whole_gpus(1).units, Unit("MIG-3", instance(3)))
    context = context_with(strategy, "cdi-cri", id_strategy="index")
    allocation = allocate(Resource("nvidia.com/gpu", units), ["MIG-3", "GPU-0"], context)
    if strategy == "envvar":
        assert allocation.envs == {DEVICES_ENV: "0,1:3"}
    assert [mount.container_path for mount in allocation.mounts] == (
        [] if strategy == "envvar" else [f"{DIRECTORY}/0", f"{DIRECTORY}/1:3"]
    )
    assert allocation.cdi_devices == (f"{VENDOR}/gpu=GPU-0", f"{VENDOR}/gpu=MIG-3")


@pytest.mark.parametrize("strategy", ["envvar", "volume-mounts", "cdi-annotations", "cdi-cri"])
def test_replicas_are_in_their_own_variable(strategy: str) -> None:
    """The devices variable has their device once."""
    ids = ["GPU-1::2", "GPU-0::0", "GPU-1::0"]
    allocation = allocate(shared_gpus(), ids, context_with(strategy))
    assert allocation.envs[REPLICAS_ENV] == "GPU-0::0,GPU-1::0,GPU-1::2"
    others = {name: value for name, value in allocation.envs.items() if name != REPLICAS_ENV}
    assert replace(allocation, envs=others) == allocate(
        whole_gpus(), ["GPU-0", "GPU-1"], context_with(strategy)
    )


def test_device_specs_have_each_node_once() -> None:
    """Host paths are below the dev root."""
    context = context_with("envvar", pass_device_specs=True)
    allocation = allocate(shared_gpus(), ["GPU-1::0", "GPU-1::1"], context)
    assert allocation.devices == (*CONTROL, DeviceSpec("/dev/nvidia1", "/host/dev/nvidia1", "rw"))


def test_device_specs_of_mig_instances_have_capability_nodes() -> None:
    """The node of their GPU is present once."""
    units = (Unit("MIG-3", instance(3)), Unit("MIG-4", instance(4)))
    context = context_with("volume-mounts", pass_device_specs=True)
    allocation = allocate(Resource("nvidia.com/mig-1g.5gb", units), ["MIG-3", "MIG-4"], context)
    caps = [f"/dev/nvidia-caps/nvidia-cap{n}" for n in (3, 4)]
    assert paths(allocation) == ["/dev/nvidiactl", "/dev/nvidia1", *caps]


@pytest.mark.parametrize(
    ("strategies", "passed"),
    [
        (("cdi-cri",), False),
        (("cdi-annotations", "cdi-cri"), False),
        (("envvar", "cdi-cri"), True),
        (("volume-mounts",), True),
    ],
)
def test_device_specs_are_omitted_if_all_strategies_use_cdi(
    strategies: tuple[str, ...], passed: bool
) -> None:
    """The CDI specs then have the nodes."""
    allocation = allocate(
        whole_gpus(), ["GPU-0"], context_with(*strategies, pass_device_specs=True)
    )
    assert bool(allocation.devices) is passed


@pytest.mark.parametrize(
    "strategies", [("envvar",), ("volume-mounts",), ("cdi-annotations", "cdi-cri"), ("host-files",)]
)
@pytest.mark.parametrize("pass_device_specs", [False, True])
def test_empty_request_gets_no_gpu(strategies: tuple[str, ...], pass_device_specs: bool) -> None:
    """An image that requests `all` gets no GPU either."""
    context = context_with(*strategies, pass_device_specs=pass_device_specs, extras=(GDS, IMEX))
    assert allocate(shared_gpus(), [], context) == Allocation(envs={DEVICES_ENV: "void"})


def test_extras_are_passed_by_each_strategy() -> None:
    context = context_with("envvar", "cdi-annotations", "cdi-cri", extras=(GDS, IMEX))
    allocation = allocate(whole_gpus(), ["GPU-0"], context)
    assert allocation.envs == {
        DEVICES_ENV: "GPU-0",
        "NVIDIA_IMEX_CHANNELS": "0",
        "NVIDIA_GDS": "enabled",
    }
    names = [f"{VENDOR}/{name}" for name in ("gpu=GPU-0", "gds=all", "imex-channel=0")]
    assert list(allocation.cdi_devices) == names
    assert list(allocation.annotations.values()) == [",".join(names)]
    mounted = allocate(whole_gpus(), ["GPU-0"], context_with("volume-mounts", extras=(GDS, IMEX)))
    assert [mount.container_path for mount in mounted.mounts] == [
        f"{DIRECTORY}/GPU-0",
        f"{DIRECTORY}/imex/0",
    ]
    assert "NVIDIA_IMEX_CHANNELS" not in mounted.envs


def test_extra_without_a_cdi_spec_is_omitted() -> None:
    """An unknown CDI name would prevent the start of the container."""
    only = frozenset({f"{VENDOR}/gpu=GPU-0"})
    allocation = allocate(
        whole_gpus(), ["GPU-0"], context_with("cdi-cri", extras=(GDS,), cdi_names=only)
    )
    assert allocation.cdi_devices == (f"{VENDOR}/gpu=GPU-0",)


def test_host_files_strategy_passes_nodes_files_and_variable() -> None:
    """A runtime without GPU support needs nothing else."""
    driver = Allocation(
        {"LD_LIBRARY_PATH": "/x/lib64"}, (AllocatedMount("/x/lib64/libcuda.so.1", "/l"),)
    )
    context = context_with("host-files", host_files=driver, extras=(GDS,))
    allocation = allocate(shared_gpus(), ["GPU-0::0", "GPU-0::1"], context)
    assert allocation.envs == {
        "LD_LIBRARY_PATH": "/x/lib64",
        DEVICES_ENV: "void",
        "NVIDIA_GDS": "enabled",
        REPLICAS_ENV: "GPU-0::0,GPU-0::1",
    }
    assert paths(allocation) == ["/dev/nvidiactl", "/dev/nvidia0", "/dev/nvidia-fs0"]
    assert allocation.mounts == (*driver.mounts, AllocatedMount("/run/udev", "/run/udev"))
    both = context_with("envvar", "host-files", host_files=driver, pass_device_specs=True)
    allocation = allocate(whole_gpus(), ["GPU-0"], both)
    assert allocation.envs == {"LD_LIBRARY_PATH": "/x/lib64", DEVICES_ENV: "GPU-0"}
    assert paths(allocation) == ["/dev/nvidiactl", "/dev/nvidia0"]


def test_mps_resource_adds_pipe_and_shared_memory() -> None:
    part = Allocation(
        {"CUDA_MPS_PIPE_DIRECTORY": "/mps/pipe"},
        (
            AllocatedMount("/mps/pipe", "/run/mps/gpu/pipe", False),
            AllocatedMount("/dev/shm", "/run/mps/shm", False),
        ),
    )
    context = context_with("envvar", mps={"nvidia.com/gpu": part})
    allocation = allocate(shared_gpus(sharing="mps"), ["GPU-0::1"], context)
    assert allocation.envs["CUDA_MPS_PIPE_DIRECTORY"] == "/mps/pipe"
    assert allocation.envs[REPLICAS_ENV] == "GPU-0::1"
    assert allocation.mounts == part.mounts
    assert not allocate(shared_gpus(), ["GPU-0::1"], context).mounts
    assert (
        refusal(shared_gpus(sharing="mps"), ["GPU-0::1"], context_with("envvar")).code == "GH1854"
    )


def test_unknown_id_is_refused_with_similar_ids() -> None:
    error = refusal(shared_gpus(), ["GPU-0::0", "GPU-1::7"], context_with("envvar"))
    assert error.code == "GH1850"
    assert error.message == (
        "nvidia.com/gpu has no device GPU-1::7; the nearest are GPU-1::0, GPU-1::1, GPU-1::2"
    )
    assert "nearest are none" in refusal(whole_gpus(0), ["x"], context_with("envvar")).message


def test_unhealthy_device_is_refused() -> None:
    context = replace(context_with("envvar"), unhealthy={"GPU-1": "XID 79"})
    error = refusal(shared_gpus(), ["GPU-0::0", "GPU-1::2"], context)
    assert error.code == "GH1851"
    assert error.message.endswith("XID 79")
    assert allocate(shared_gpus(), ["GPU-0::0"], context).envs[DEVICES_ENV] == "GPU-0"


def test_more_than_one_replica_is_refused_if_configured() -> None:
    """A duplicate id is one replica."""
    resource = shared_gpus(refuses_more_than_one=True)
    error = refusal(resource, ["GPU-0::0", "GPU-1::0"], context_with("envvar"))
    assert error.code == "GH1852"
    assert "several replicas of one GPU" in error.hint
    assert (
        allocate(resource, ["GPU-0::0"] * 2, context_with("envvar")).envs[REPLICAS_ENV]
        == "GPU-0::0"
    )


def test_gpu_without_a_cdi_spec_is_refused() -> None:
    """The engine would not find it."""
    error = refusal(whole_gpus(), ["GPU-0"], context_with("cdi-cri", cdi_names=frozenset()))
    assert error.code == "GH1855"


@pytest.fixture(scope="module")
def h100() -> Node:
    return dump_file.load("h100x8")


def configuration_with(*strategies: str, **more: Any) -> Configuration:
    return Configuration(Flags(plugin=PluginFlags(device_list_strategy=strategies, **more)))


def test_context_has_ordered_strategies_and_control_nodes(h100: Node) -> None:
    few = replace(h100, device_nodes=tuple(d for d in h100.device_nodes if "uvm" not in d.path))
    specs = Specs(names=frozenset({"a/b=c"}))
    made = contexts.context(
        configuration_with("cdi-cri", "envvar", pass_device_specs=True),
        nvidia_part.part(few),
        specs,
    )
    assert made.strategies == ("envvar", "cdi-cri")
    assert made.pass_device_specs
    assert {spec.container_path for spec in made.control_nodes} == {
        "/dev/nvidiactl",
        "/dev/nvidia-modeset",
    }
    assert (made.blocked, made.warnings) == ("", ())
    assert made.host_files == Allocation()


@pytest.mark.parametrize(
    ("strategies", "left"),
    [
        (("envvar", "cdi-cri"), ("envvar",)),
        (("cdi-annotations", "volume-mounts", "host-files"), ("volume-mounts",)),
        (("cdi-cri",), ()),
        (("cdi-cri", "host-files"), ()),
    ],
)
def test_strategy_without_driver_files_is_omitted(
    strategies: tuple[str, ...], left: tuple[str, ...], h100: Node
) -> None:
    """It is a warning; without any remaining strategy, Allocate fails."""
    bare = replace(h100, files=(), links=(), files_trouble="no libcuda.so in /driver-root")
    made = contexts.context(
        configuration_with(*strategies),
        nvidia_part.part(bare),
        Specs(trouble=bare.files_trouble),
    )
    assert made.strategies == left
    omitted = [name for name in strategies if name not in left]
    text = "; ".join(made.warnings) or made.blocked
    assert [name for name in omitted if f"{name}: no libcuda.so in /driver-root" in text] == omitted
    if left:
        assert made.blocked == ""
        assert allocate(whole_gpus(), ["GPU-0"], made).envs
    else:
        error = refusal(whole_gpus(), ["GPU-0"], made)
        assert error.code == "GH1853"
        assert "no libcuda.so in /driver-root" in error.message


@pytest.mark.parametrize("place", ["/usr/local/nvidia", "/opt/driver"])
def test_host_files_are_below_the_configured_directory(place: str, h100: Node) -> None:
    """Libraries are below lib64 with all names, programs below bin, without duplicates."""
    configuration = replace(configuration_with("host-files"), own=Own(host_files_path=place))
    files = contexts.context(configuration, nvidia_part.part(h100), Specs()).host_files
    assert files.envs == {"LD_LIBRARY_PATH": f"{place}/lib:{place}/lib64"}
    mounts = {mount.container_path: mount for mount in files.mounts}
    assert len(mounts) == len(files.mounts)
    version = h100.driver.version
    for name in (f"libcuda.so.{version}", "libcuda.so.1", "libcuda.so"):
        assert (
            os.path.basename(mounts[f"{place}/lib64/{name}"].host_path) == f"libcuda.so.{version}"
        )
    assert mounts[f"{place}/bin/nvidia-smi"].host_path == "/usr/bin/nvidia-smi"
    assert "/etc/OpenCL/vendors/nvidia.icd" in mounts
    assert all(mount.read_only for mount in files.mounts)
    assert not [path for path in mounts if "socket" in path or "firmware" in path]
