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


def whole(count: int = 3) -> Resource:
    return Resource("nvidia.com/gpu", tuple(Unit(f"GPU-{n}", device(n)) for n in range(count)))


def shared(**more: Any) -> Resource:
    units = tuple(Unit(f"GPU-{n}::{r}", device(n), r) for n in range(2) for r in range(3))
    return Resource("nvidia.com/gpu", units, **{"sharing": "time-slicing", **more})


def at_work(*strategies: str, **more: Any) -> Context:
    """Return a context with these strategies, whose CDI specs describe all devices."""
    names = {f"{VENDOR}/gpu={kind}-{n}" for kind in ("GPU", "MIG") for n in range(9)}
    names |= {f"{VENDOR}/gds=all", f"{VENDOR}/imex-channel=0"}
    own = {"control_nodes": CONTROL, "cdi_names": frozenset(names)}
    return Context(strategies, **{**own, **more})


def code(resource: Resource, ids: list[str], context: Context) -> GpuhookError:
    with pytest.raises(GpuhookError) as caught:
        allocate(resource, ids, context)
    return caught.value


def paths(given: Allocation) -> list[str]:
    return [spec.container_path for spec in given.devices]


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
def test_one_strategy(strategy: str, answer: Allocation, ids: list[str]) -> None:
    """Each strategy names each device once, in their order, for any order of the request."""
    assert allocate(whole(), ids, at_work(strategy)) == answer


def test_several_strategies_at_once() -> None:
    """All strategies apply; of the two values of the variable, that of the mounts applies."""
    strategies = ("envvar", "volume-mounts", "cdi-annotations", "cdi-cri")
    given = allocate(whole(), ["GPU-1"], at_work(*strategies))
    assert given.envs == {DEVICES_ENV: DIRECTORY}
    assert given.mounts == (AllocatedMount(f"{DIRECTORY}/GPU-1", "/dev/null"),)
    assert given.cdi_devices == (f"{VENDOR}/gpu=GPU-1",)
    assert list(given.annotations.values()) == [f"{VENDOR}/gpu=GPU-1"]


def test_the_annotation_is_a_valid_one() -> None:
    """The key is that of Kubernetes with a configurable prefix; other devices have another key."""
    context = at_work("cdi-annotations", annotation_prefix="example.com/")
    keys = [next(iter(allocate(whole(), [f"GPU-{n}"], context).annotations)) for n in range(3)]
    assert len(set(keys)) == 3
    for key in keys:
        assert key.startswith("example.com/nvidia-device-plugin_")
        edits = {"containerEdits": {"env": ["A=b"]}}
        document = {"cdiVersion": "0.6.0", "kind": "a/b", "annotations": {key: "x"}}
        spec_rules.check({**document, "devices": [{"name": "c", **edits}]}, "")


@pytest.mark.parametrize("strategy", ["envvar", "volume-mounts"])
def test_indexes(strategy: str) -> None:
    """By index, GPUs are 0, 1 and instances 1:0; CDI names have UUIDs."""
    units = (*whole(1).units, Unit("MIG-3", instance(3)))
    context = at_work(strategy, "cdi-cri", id_strategy="index")
    given = allocate(Resource("nvidia.com/gpu", units), ["MIG-3", "GPU-0"], context)
    if strategy == "envvar":
        assert given.envs == {DEVICES_ENV: "0,1:3"}
    assert [mount.container_path for mount in given.mounts] == (
        [] if strategy == "envvar" else [f"{DIRECTORY}/0", f"{DIRECTORY}/1:3"]
    )
    assert given.cdi_devices == (f"{VENDOR}/gpu=GPU-0", f"{VENDOR}/gpu=MIG-3")


@pytest.mark.parametrize("strategy", ["envvar", "volume-mounts", "cdi-annotations", "cdi-cri"])
def test_replicas(strategy: str) -> None:
    """A variable has the replicas; the devices variable has their device once."""
    ids = ["GPU-1::2", "GPU-0::0", "GPU-1::0"]
    given = allocate(shared(), ids, at_work(strategy))
    assert given.envs[REPLICAS_ENV] == "GPU-0::0,GPU-1::0,GPU-1::2"
    others = {name: value for name, value in given.envs.items() if name != REPLICAS_ENV}
    assert replace(given, envs=others) == allocate(whole(), ["GPU-0", "GPU-1"], at_work(strategy))


def test_device_specs_are_unique() -> None:
    """Two replicas of one GPU have its node once; its host path is below the dev root."""
    context = at_work("envvar", pass_device_specs=True)
    given = allocate(shared(), ["GPU-1::0", "GPU-1::1"], context)
    assert given.devices == (*CONTROL, DeviceSpec("/dev/nvidia1", "/host/dev/nvidia1", "rw"))


def test_device_specs_of_instances() -> None:
    """Two instances of one GPU have their capability nodes, and their GPU's node once."""
    units = (Unit("MIG-3", instance(3)), Unit("MIG-4", instance(4)))
    context = at_work("volume-mounts", pass_device_specs=True)
    given = allocate(Resource("nvidia.com/mig-1g.5gb", units), ["MIG-3", "MIG-4"], context)
    caps = [f"/dev/nvidia-caps/nvidia-cap{n}" for n in (3, 4)]
    assert paths(given) == ["/dev/nvidiactl", "/dev/nvidia1", *caps]


@pytest.mark.parametrize(
    ("strategies", "passed"),
    [
        (("cdi-cri",), False),
        (("cdi-annotations", "cdi-cri"), False),
        (("envvar", "cdi-cri"), True),
        (("volume-mounts",), True),
    ],
)
def test_device_specs_are_for_others_than_cdi(strategies: tuple[str, ...], passed: bool) -> None:
    """If all strategies use CDI, its specs have the nodes."""
    given = allocate(whole(), ["GPU-0"], at_work(*strategies, pass_device_specs=True))
    assert bool(given.devices) is passed


@pytest.mark.parametrize(
    "strategies", [("envvar",), ("volume-mounts",), ("cdi-annotations", "cdi-cri"), ("host-files",)]
)
@pytest.mark.parametrize("pass_device_specs", [False, True])
def test_an_empty_request(strategies: tuple[str, ...], pass_device_specs: bool) -> None:
    """No units mean no GPU, also for an image with `all`."""
    context = at_work(*strategies, pass_device_specs=pass_device_specs, extras=(GDS, IMEX))
    assert allocate(shared(), [], context) == Allocation(envs={DEVICES_ENV: "void"})


def test_extras() -> None:
    """Each strategy passes the present extras in its form."""
    context = at_work("envvar", "cdi-annotations", "cdi-cri", extras=(GDS, IMEX))
    given = allocate(whole(), ["GPU-0"], context)
    assert given.envs == {
        DEVICES_ENV: "GPU-0",
        "NVIDIA_IMEX_CHANNELS": "0",
        "NVIDIA_GDS": "enabled",
    }
    names = [f"{VENDOR}/{name}" for name in ("gpu=GPU-0", "gds=all", "imex-channel=0")]
    assert list(given.cdi_devices) == names
    assert list(given.annotations.values()) == [",".join(names)]
    mounted = allocate(whole(), ["GPU-0"], at_work("volume-mounts", extras=(GDS, IMEX)))
    assert [mount.container_path for mount in mounted.mounts] == [
        f"{DIRECTORY}/GPU-0",
        f"{DIRECTORY}/imex/0",
    ]
    assert "NVIDIA_IMEX_CHANNELS" not in mounted.envs


def test_an_extra_without_a_spec() -> None:
    """A CDI name without a spec would stop the container: it is omitted."""
    only = frozenset({f"{VENDOR}/gpu=GPU-0"})
    given = allocate(whole(), ["GPU-0"], at_work("cdi-cri", extras=(GDS,), cdi_names=only))
    assert given.cdi_devices == (f"{VENDOR}/gpu=GPU-0",)


def test_host_files() -> None:
    """A runtime without GPU support gets nodes, the driver's files and a variable."""
    driver = Allocation(
        {"LD_LIBRARY_PATH": "/x/lib64"}, (AllocatedMount("/x/lib64/libcuda.so.1", "/l"),)
    )
    context = at_work("host-files", host_files=driver, extras=(GDS,))
    given = allocate(shared(), ["GPU-0::0", "GPU-0::1"], context)
    assert given.envs == {
        "LD_LIBRARY_PATH": "/x/lib64",
        DEVICES_ENV: "void",
        "NVIDIA_GDS": "enabled",
        REPLICAS_ENV: "GPU-0::0,GPU-0::1",
    }
    assert paths(given) == ["/dev/nvidiactl", "/dev/nvidia0", "/dev/nvidia-fs0"]
    assert given.mounts == (*driver.mounts, AllocatedMount("/run/udev", "/run/udev"))
    both = at_work("envvar", "host-files", host_files=driver, pass_device_specs=True)
    given = allocate(whole(), ["GPU-0"], both)
    assert given.envs == {"LD_LIBRARY_PATH": "/x/lib64", DEVICES_ENV: "GPU-0"}
    assert paths(given) == ["/dev/nvidiactl", "/dev/nvidia0"]


def test_mps() -> None:
    """Only a resource that MPS shares adds its pipe and its shared memory."""
    part = Allocation(
        {"CUDA_MPS_PIPE_DIRECTORY": "/mps/pipe"},
        (
            AllocatedMount("/mps/pipe", "/run/mps/gpu/pipe", False),
            AllocatedMount("/dev/shm", "/run/mps/shm", False),
        ),
    )
    context = at_work("envvar", mps={"nvidia.com/gpu": part})
    given = allocate(shared(sharing="mps"), ["GPU-0::1"], context)
    assert given.envs["CUDA_MPS_PIPE_DIRECTORY"] == "/mps/pipe"
    assert given.envs[REPLICAS_ENV] == "GPU-0::1"
    assert given.mounts == part.mounts
    assert not allocate(shared(), ["GPU-0::1"], context).mounts
    assert code(shared(sharing="mps"), ["GPU-0::1"], at_work("envvar")).code == "GH1854"


def test_an_unknown_id() -> None:
    """The fault names the resource and similar ids."""
    error = code(shared(), ["GPU-0::0", "GPU-1::7"], at_work("envvar"))
    assert error.code == "GH1850"
    assert error.message == (
        "nvidia.com/gpu has no device GPU-1::7; the nearest are GPU-1::0, GPU-1::1, GPU-1::2"
    )
    assert "nearest are none" in code(whole(0), ["x"], at_work("envvar")).message


def test_an_unhealthy_device() -> None:
    """A unit of an unhealthy device is refused."""
    context = replace(at_work("envvar"), unhealthy={"GPU-1": "XID 79"})
    error = code(shared(), ["GPU-0::0", "GPU-1::2"], context)
    assert error.code == "GH1851"
    assert error.message.endswith("XID 79")
    assert allocate(shared(), ["GPU-0::0"], context).envs[DEVICES_ENV] == "GPU-0"


def test_more_than_one() -> None:
    """The hint explains replicas; a duplicate id is one replica."""
    resource = shared(refuses_more_than_one=True)
    error = code(resource, ["GPU-0::0", "GPU-1::0"], at_work("envvar"))
    assert error.code == "GH1852"
    assert "several replicas of one GPU" in error.hint
    assert allocate(resource, ["GPU-0::0"] * 2, at_work("envvar")).envs[REPLICAS_ENV] == "GPU-0::0"


def test_a_gpu_in_no_spec() -> None:
    """A GPU without a spec is refused: the engine could not find it."""
    error = code(whole(), ["GPU-0"], at_work("cdi-cri", cdi_names=frozenset()))
    assert error.code == "GH1855"


@pytest.fixture(scope="module")
def t4() -> Node:
    return dump_file.load("h100x8")


def configured(*strategies: str, **more: Any) -> Configuration:
    return Configuration(Flags(plugin=PluginFlags(device_list_strategy=strategies, **more)))


def test_the_context_of_a_node(t4: Node) -> None:
    """Strategies have a fixed order; control nodes are those of the node."""
    few = replace(t4, device_nodes=tuple(d for d in t4.device_nodes if "uvm" not in d.path))
    specs = Specs(names=frozenset({"a/b=c"}))
    made = contexts.context(configured("cdi-cri", "envvar", pass_device_specs=True), few, specs)
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
def test_a_driver_in_pieces(strategies: tuple[str, ...], left: tuple[str, ...], t4: Node) -> None:
    """A strategy without driver files is omitted with a warning, and the last one is an error."""
    bare = replace(t4, files=(), links=(), files_trouble="no libcuda.so in /driver-root")
    made = contexts.context(configured(*strategies), bare, Specs(trouble=bare.files_trouble))
    assert made.strategies == left
    lost = [name for name in strategies if name not in left]
    told = "; ".join(made.warnings) or made.blocked
    assert [name for name in lost if f"{name}: no libcuda.so in /driver-root" in told] == lost
    if left:
        assert made.blocked == ""
        assert allocate(whole(), ["GPU-0"], made).envs
    else:
        error = code(whole(), ["GPU-0"], made)
        assert error.code == "GH1853"
        assert "no libcuda.so in /driver-root" in error.message


@pytest.mark.parametrize("place", ["/usr/local/nvidia", "/opt/driver"])
def test_host_files_of_a_driver(place: str, t4: Node) -> None:
    """Libraries are below lib64 with all names, programs below bin, without duplicates."""
    configuration = replace(configured("host-files"), own=Own(host_files_path=place))
    files = contexts.context(configuration, t4, Specs()).host_files
    assert files.envs == {"LD_LIBRARY_PATH": f"{place}/lib:{place}/lib64"}
    held = {mount.container_path: mount for mount in files.mounts}
    assert len(held) == len(files.mounts)
    version = t4.driver.version
    for name in (f"libcuda.so.{version}", "libcuda.so.1", "libcuda.so"):
        assert os.path.basename(held[f"{place}/lib64/{name}"].host_path) == f"libcuda.so.{version}"
    assert held[f"{place}/bin/nvidia-smi"].host_path == "/usr/bin/nvidia-smi"
    assert "/etc/OpenCL/vendors/nvidia.icd" in held
    assert all(mount.read_only for mount in files.mounts)
    assert not [path for path in held if "socket" in path or "firmware" in path]
