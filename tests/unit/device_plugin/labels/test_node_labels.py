# SPDX-License-Identifier: Apache-2.0
"""The feature labels: a T4, each MIG strategy, several models, unusual names."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from gpuhook.device_plugin.config.configuration import Configuration, Flags
from gpuhook.device_plugin.config.gpuhook_section import (
    KILL,
    NO_ACTION,
    REPORT,
    TERMINATE,
    Guard,
    Own,
)
from gpuhook.device_plugin.config.sharing_section import (
    MEMORY_UNITS,
    MPS,
    TIME_SLICING,
    SharedResource,
    Sharing,
)
from gpuhook.device_plugin.offer.offered_devices import Device, Resource, Unit, UnitMemory
from gpuhook.vendors.labels import label_text
from gpuhook.vendors.nvidia.inventory.inventory import Driver, Gpu, MigInstance, Node
from gpuhook.vendors.nvidia.labels.label_facts import LabelFacts
from gpuhook.vendors.nvidia.labels.nvidia_labels import NAMES
from tests.unit.device_plugin.labels.nvidia_labelling import labels

VALUE = re.compile(r"(?:[A-Za-z0-9](?:[A-Za-z0-9._-]{0,61}[A-Za-z0-9])?)?")
NAME = re.compile(r"(?:[a-z0-9.]+/)?[A-Za-z0-9](?:[A-Za-z0-9._-]{0,61}[A-Za-z0-9])?")
DRIVER = Driver(version="580.95.05", cuda="13.0")
T4 = Gpu(0, "GPU-0", 0, "00000000:00:1E.0", "Tesla T4", compute_capability="7.5",
         memory_bytes=15360 << 20, mig_mode="unsupported")  # fmt: skip


def gpu(index: int, name: str, capability: str, mebibytes: int, **facts: object) -> Gpu:
    """Return a GPU with these fields."""
    known = {"mig_mode": "disabled", **facts}
    return Gpu(index, f"GPU-{index}", index, name=name, compute_capability=capability,
               memory_bytes=mebibytes << 20, **known)  # type: ignore[arg-type]  # fmt: skip


def whole(one: Gpu) -> Device:
    """Return a GPU as an offered device."""
    assert one.uuid
    return Device(
        one.uuid, str(one.index), one.uuid, one.index, (), (), one.name, one.memory_bytes,
        compute_capability=one.compute_capability,
    )  # fmt: skip


def slices(one: Gpu) -> list[Device]:
    """Return the MIG instances of a GPU as offered devices."""
    return [
        replace(
            whole(one),
            uuid=each.uuid,
            index=f"{one.index}:{each.index}",
            profile=each.profile,
            memory_bytes=each.memory_bytes,
            instance=(each.gpu_instance, each.compute_instance),
        )
        for each in one.instances
    ]


def resource(name: str, *devices: Device, replicas: int = 1, sharing: str = "none") -> Resource:
    """Return a resource of these devices, each with this number of units."""
    if replicas == 1:
        units = tuple(Unit(device.uuid, device) for device in devices)
    else:
        units = tuple(
            Unit(f"{device.uuid}::{n}", device, n) for device in devices for n in range(replicas)
        )
    return Resource(name, units, sharing, is_mig=any(d.instance for d in devices))


def shared(
    replicas: int, strategy: str = TIME_SLICING, *, by_default: bool = False,
    rename: str | None = None, mig: str = "none",
) -> Configuration:  # fmt: skip
    """Return a configuration that shares nvidia.com/gpu."""
    entry = SharedResource("nvidia.com/gpu", replicas, rename)
    sharing = Sharing(strategy, rename_by_default=by_default, resources=(entry,))
    return Configuration(flags=Flags(mig_strategy=mig), sharing=sharing)


def short_names(result: dict[str, str], *names: str) -> dict[str, str | None]:
    """Return some of the labels by name without prefix."""
    return {name: result.get(f"nvidia.com/{name}") for name in names}


def check_form(result: dict[str, str]) -> None:
    """Fail if the API server would refuse a label."""
    for name, value in result.items():
        assert NAME.fullmatch(name), name
        assert VALUE.fullmatch(value), (name, value)
        assert re.fullmatch(NAMES, name) or name == "accelerator"


def test_t4_with_four_replicas_has_all_labels() -> None:
    offered = resource("nvidia.com/gpu", whole(T4), replicas=4, sharing=TIME_SLICING)
    facts = LabelFacts(machine="g4dn.xlarge", modes=("compute",))
    result = labels(Node(DRIVER, (T4,)), (offered,), shared(4), facts, 1700000000)
    prefixed = {name.removeprefix("nvidia.com/"): value for name, value in result.items()}
    assert prefixed == {
        "cuda.driver-version.full": "580.95.05",
        "cuda.driver-version.major": "580",
        "cuda.driver-version.minor": "95",
        "cuda.driver-version.revision": "05",
        "cuda.driver.major": "580",
        "cuda.driver.minor": "95",
        "cuda.driver.rev": "05",
        "cuda.runtime-version.full": "13.0",
        "cuda.runtime-version.major": "13",
        "cuda.runtime-version.minor": "0",
        "cuda.runtime.major": "13",
        "cuda.runtime.minor": "0",
        "gfd.timestamp": "1700000000",
        "gpu.compute.major": "7",
        "gpu.compute.minor": "5",
        "gpu.count": "1",
        "gpu.family": "turing",
        "gpu.machine": "g4dn.xlarge",
        "gpu.memory": "15360",
        "gpu.memory-limit-by": "nobody",
        "gpu.mode": "compute",
        "gpu.product": "Tesla-T4-SHARED",
        "gpu.replica-memory": "3840",
        "gpu.replicas": "4",
        "gpu.sharing-strategy": "time-slicing",
        "mig.capable": "false",
        "mps.capable": "false",
        "vgpu.present": "false",
    }
    check_form(result)


@pytest.mark.parametrize(
    ("configuration", "name", "product"),
    [
        (shared(4), "nvidia.com/gpu", "Tesla-T4-SHARED"),
        (shared(4, by_default=True), "nvidia.com/gpu.shared", "Tesla-T4"),
        (shared(4, rename="nvidia.com/slice"), "nvidia.com/slice", "Tesla-T4"),
        (shared(4, rename="nvidia.com/gpu"), "nvidia.com/gpu", "Tesla-T4-SHARED"),
    ],
)
def test_renamed_resource_has_no_shared_suffix(
    configuration: Configuration, name: str, product: str
) -> None:
    """The name of the resource already shows the sharing."""
    offered = resource(name, whole(T4), replicas=4, sharing=TIME_SLICING)
    result = labels(Node(DRIVER, (T4,)), (offered,), configuration, LabelFacts())
    assert short_names(result, "gpu.product", "gpu.replicas") == {
        "gpu.product": product,
        "gpu.replicas": "4",
    }


MIB = 1 << 20


@pytest.mark.parametrize(
    ("sharing", "driver", "action", "by"),
    [
        (TIME_SLICING, True, KILL, "driver"),
        (TIME_SLICING, False, KILL, "guard"),
        (TIME_SLICING, False, TERMINATE, "guard"),
        (TIME_SLICING, False, REPORT, "nobody"),
        (MEMORY_UNITS, True, NO_ACTION, "driver"),
        (MEMORY_UNITS, False, NO_ACTION, "nobody"),
        (MPS, True, KILL, "mps"),
    ],
)
def test_memory_label_of_a_replica_is_its_limit(
    sharing: str, driver: bool, action: str, by: str
) -> None:
    """Another label has what enforces the limit."""
    offered = resource("nvidia.com/gpu", whole(T4), replicas=3, sharing=sharing)
    offered = replace(offered, memory={"GPU-0": UnitMemory(4096 * MIB, 4096 * MIB)})
    configuration = replace(shared(3, sharing), own=Own(guard=Guard(action)))
    result = labels(
        Node(DRIVER, (T4,)), (offered,), configuration, LabelFacts(), driver_limits=driver
    )
    names = ("gpu.replica-memory", "gpu.memory-limit-by", "gpu.sharing-strategy")
    assert list(short_names(result, *names).values()) == ["4096", by, sharing]
    check_form(result)


def test_limit_of_a_mig_instance_is_enforced_by_the_guard() -> None:
    """The driver has no limits for MIG instances."""
    gpus = (a100(0, "1g.5gb"),)
    made = slices(gpus[0])
    offered = resource("nvidia.com/gpu", *made, replicas=2, sharing=TIME_SLICING)
    offered = replace(offered, memory={made[0].uuid: UnitMemory(2048 * MIB, 2048 * MIB)})
    configuration = replace(shared(2, mig="single"), own=Own(guard=Guard(KILL)))
    result = labels(Node(DRIVER, gpus), (offered,), configuration, LabelFacts(), driver_limits=True)
    assert short_names(result, "gpu.replica-memory", "gpu.memory-limit-by") == {
        "gpu.replica-memory": "2048",
        "gpu.memory-limit-by": "guard",
    }


def test_unshared_h100_labels() -> None:
    """Eight GPUs have one replica each, the clique and the memory of a whole GPU."""
    gpus = tuple(gpu(n, "NVIDIA H100 80GB HBM3", "9.0", 81559) for n in range(8))
    offered = resource("nvidia.com/gpu", *map(whole, gpus))
    facts = LabelFacts(machine="ProLiant XL675d Gen10 Plus", clique="c7c0ee6a.32766")
    result = labels(Node(DRIVER, gpus), (offered,), Configuration(), facts)
    names = (
        "gpu.product", "gpu.count", "gpu.replicas", "gpu.sharing-strategy", "gpu.family",
        "gpu.replica-memory", "gpu.clique", "gpu.machine", "mig.capable", "gpu.mode",
    )  # fmt: skip
    assert list(short_names(result, *names).values()) == [
        "NVIDIA-H100-80GB-HBM3", "8", "1", "none", "hopper", "81559", "c7c0ee6a.32766",
        "ProLiant-XL675d-Gen10-Plus", "true", "unknown",
    ]  # fmt: skip
    assert "nvidia.com/gfd.timestamp" not in result
    assert "nvidia.com/gpu.memory-limit-by" not in result
    assert "nvidia.com/mig.strategy" not in result


def instance(parent: int, index: int, profile: str, mebibytes: int) -> MigInstance:
    """Return a MIG instance with one slice's attributes."""
    return MigInstance(
        index, f"MIG-{parent}-{index}", index, 0, profile, mebibytes << 20, gpu_slices=1,
        compute_slices=1, multiprocessors=14, copy_engines=1, decoders=0, encoders=0, jpegs=0,
    )  # fmt: skip


def a100(index: int, *profiles: str, mode: str = "enabled") -> Gpu:
    """Return an A100 with instances of these profiles."""
    instances = tuple(instance(index, n, p, 4864) for n, p in enumerate(profiles))
    name = "NVIDIA A100-SXM4-40GB"
    return gpu(index, name, "8.0", 40960, mig_mode=mode, instances=instances)


def test_mig_single_describes_instances_as_gpus() -> None:
    """The labels gpu.* have the attributes of the instances."""
    gpus = (a100(0, *["1g.5gb"] * 7),)
    offered = resource("nvidia.com/gpu", *slices(gpus[0]), replicas=2, sharing=TIME_SLICING)
    result = labels(Node(DRIVER, gpus), (offered,), shared(2, mig="single"), LabelFacts())
    names = (
        "gpu.product", "gpu.count", "gpu.replicas", "gpu.memory", "gpu.replica-memory",
        "gpu.multiprocessors", "gpu.slices.gi", "gpu.slices.ci", "gpu.engines.copy",
        "gpu.engines.decoder", "gpu.engines.ofa", "gpu.family", "mig.strategy", "mig.capable",
    )  # fmt: skip
    assert list(short_names(result, *names).values()) == [
        "NVIDIA-A100-SXM4-40GB-MIG-1g.5gb-SHARED", "7", "2", "4864", "2432", "14", "1", "1", "1",
        "0", None, "ampere", "single", "true",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("gpus", "offers"),
    [
        ((a100(0, "1g.5gb"), a100(1, mode="disabled")), []),
        ((a100(0, "1g.5gb"), a100(1, mode="disabled")), [1]),
        ((a100(0),), []),
    ],
)
def test_impossible_mig_single_is_mig_invalid(gpus: tuple[Gpu, ...], offers: list[int]) -> None:
    """GPUs that strategy single cannot offer together give no devices."""
    offered = tuple(resource("nvidia.com/gpu", whole(gpus[n])) for n in offers)
    configuration = Configuration(flags=Flags(mig_strategy="single"))
    result = labels(Node(DRIVER, gpus), offered, configuration, LabelFacts())
    names = ("gpu.product", "gpu.count", "gpu.replicas", "gpu.memory", "gpu.sharing-strategy")
    assert list(short_names(result, *names).values()) == [
        "NVIDIA-A100-SXM4-40GB-MIG-INVALID", "0", "0", "0", "",
    ]  # fmt: skip
    assert short_names(result, "gpu.family", "mig.strategy") == {
        "gpu.family": None,
        "mig.strategy": "single",
    }


def test_mig_mixed_has_labels_per_profile() -> None:
    """gpu.* describes whole GPUs, and mig-<profile>.* the instances."""
    gpus = (a100(0, "3g.20gb", "1g.5gb", "1g.5gb", "1g.5gb+me"), a100(1, mode="disabled"))
    made = slices(gpus[0])
    offered = (
        resource("nvidia.com/gpu", whole(gpus[1])),
        resource("nvidia.com/mig-3g.20gb", made[0]),
        resource("nvidia.com/mig-1g.5gb", *made[1:3], replicas=4, sharing=TIME_SLICING),
        resource("nvidia.com/mig-1g.5gb.me", made[3]),
    )
    configuration = Configuration(flags=Flags(mig_strategy="mixed"))
    result = labels(Node(DRIVER, gpus), offered, configuration, LabelFacts())
    names = (
        "gpu.product", "gpu.count", "gpu.replicas", "mig-1g.5gb.product", "mig-1g.5gb.count",
        "mig-1g.5gb.replicas", "mig-1g.5gb.sharing-strategy", "mig-1g.5gb.replica-memory",
        "mig-3g.20gb.sharing-strategy", "mig-1g.5gb.me.product", "mig-1g.5gb.multiprocessors",
        "mig-1g.5gb.family",
    )  # fmt: skip
    assert list(short_names(result, *names).values()) == [
        "NVIDIA-A100-SXM4-40GB", "1", "1", "NVIDIA-A100-SXM4-40GB-MIG-1g.5gb-SHARED", "2", "4",
        "time-slicing", "1216", "none", "NVIDIA-A100-SXM4-40GB-MIG-1g.5gb.me", "14", None,
    ]  # fmt: skip
    assert not any(name.startswith("nvidia.com/gpu-") for name in result)
    check_form(result)


@pytest.mark.parametrize("strategy", ["none", "mixed"])
def test_gpus_in_mig_mode_have_no_replicas(strategy: str) -> None:
    """The node has the label of the model, and no devices."""
    gpus = (a100(0, "7g.40gb"), a100(1, "7g.40gb"), replace(a100(2), lost="fallen off the bus"))
    offered = [resource("nvidia.com/mig-7g.40gb", *slices(gpus[0]), *slices(gpus[1]))]
    configuration = Configuration(flags=Flags(mig_strategy=strategy))
    result = labels(
        Node(DRIVER, gpus),
        tuple(offered if strategy == "mixed" else ()),
        configuration,
        LabelFacts(),
    )
    names = ("gpu.product", "gpu.count", "gpu.replicas", "gpu.replica-memory", "gpu.family")
    assert list(short_names(result, *names).values()) == [
        "NVIDIA-A100-SXM4-40GB", "2", "0", None, "ampere",
    ]  # fmt: skip


@pytest.mark.parametrize("name", ["0", "nvidia-a100-sxm4-40gb", "0:0"])
def test_excluded_gpus_in_mig_mode_have_no_labels(name: str) -> None:
    """A GPU can be excluded by any of its names."""
    configuration = Configuration(own=Own(exclude_devices=(name,)))
    assert labels(Node(DRIVER, (a100(0, "1g.5gb"),)), (), configuration, LabelFacts()) == {
        "nvidia.com/vgpu.present": "false"
    }


def test_most_frequent_model_is_the_model_of_the_node() -> None:
    """Each model also has its own labels."""
    gpus = (
        gpu(0, "Tesla T4", "7.5", 15360),
        gpu(1, "NVIDIA L40S", "8.9", 46068),
        gpu(2, "NVIDIA L40S", "8.9", 46068),
    )
    offered = (
        resource("nvidia.com/gpu", whole(gpus[0]), replicas=2, sharing=TIME_SLICING),
        resource("nvidia.com/l40s", whole(gpus[1]), whole(gpus[2])),
    )
    result = labels(
        Node(DRIVER, gpus), offered, shared(2), LabelFacts(modes=("graphics", "compute", "compute"))
    )
    names = (
        "gpu.product", "gpu.count", "gpu.replicas", "gpu.family", "gpu-Tesla-T4.count",
        "gpu-Tesla-T4.product", "gpu-Tesla-T4.replica-memory", "gpu-NVIDIA-L40S.count",
        "gpu-NVIDIA-L40S.sharing-strategy", "gpu.mode",
    )  # fmt: skip
    assert list(short_names(result, *names).values()) == [
        "NVIDIA-L40S", "2", "1", "ada-lovelace", "1", "Tesla-T4-SHARED", "7680", "2", "none",
        "unknown",
    ]  # fmt: skip
    check_form(result)


def test_most_frequent_number_of_replicas_is_the_label() -> None:
    """GPUs of one model can have different numbers of replicas."""
    gpus = tuple(gpu(n, "Tesla T4", "7.5", 15360) for n in range(3))
    units = resource("nvidia.com/gpu", whole(gpus[0]), replicas=8, sharing=TIME_SLICING).units
    units += resource("nvidia.com/gpu", *map(whole, gpus[1:])).units
    offered = Resource("nvidia.com/gpu", units, TIME_SLICING)
    result = labels(Node(DRIVER, gpus), (offered,), shared(8), LabelFacts())
    assert short_names(
        result, "gpu.count", "gpu.replicas", "gpu.product", "gpu.sharing-strategy"
    ) == {
        "gpu.count": "3",
        "gpu.replicas": "1",
        "gpu.product": "Tesla-T4",
        "gpu.sharing-strategy": "none",
    }


def test_lost_gpus_have_no_labels() -> None:
    """A lost GPU remains in its resource as unhealthy."""
    gpus = (T4, replace(gpu(1, "Tesla T4", "7.5", 15360), lost="fallen off the bus", name=None))
    offered = resource("nvidia.com/gpu", *map(whole, gpus), replicas=4, sharing=TIME_SLICING)
    result = labels(Node(DRIVER, gpus), (offered,), shared(4), LabelFacts())
    assert short_names(result, "gpu.count", "gpu.product") == {
        "gpu.count": "1",
        "gpu.product": "Tesla-T4-SHARED",
    }
    assert not any(name.startswith("nvidia.com/gpu-") for name in result)


def test_unusable_instances_have_no_labels() -> None:
    one = a100(0, "1g.5gb", "1g.5gb", "2g.10gb")
    instances = tuple(
        replace(each, trouble="no capability node") if each.index else each
        for each in one.instances
    )
    one = replace(one, instances=instances)
    offered = tuple(resource(f"nvidia.com/mig-{d.profile}", d) for d in slices(one))
    configuration = Configuration(flags=Flags(mig_strategy="mixed"))
    result = labels(Node(DRIVER, (one,)), offered, configuration, LabelFacts())
    assert short_names(result, "mig-1g.5gb.count", "mig-2g.10gb.count") == {
        "mig-1g.5gb.count": "1",
        "mig-2g.10gb.count": None,
    }


def test_mps_has_its_labels_unless_mig_is_on() -> None:
    offered = resource("nvidia.com/gpu", whole(T4), replicas=3, sharing=MPS)
    node = Node(DRIVER, (T4,))
    result = labels(node, (offered,), shared(3, MPS), LabelFacts())
    assert short_names(result, "mps.capable", "gpu.sharing-strategy", "gpu.replicas") == {
        "mps.capable": "true",
        "gpu.sharing-strategy": "mps",
        "gpu.replicas": "3",
    }
    result = labels(node, (offered,), shared(3, MPS, mig="single"), LabelFacts())
    assert short_names(result, "mps.capable") == {"mps.capable": "false"}


def test_vgpu_has_the_label_of_its_host_driver() -> None:
    facts = LabelFacts(
        is_vgpu=True, vgpu_host_driver_version="570.133.10", vgpu_host_driver_branch="r570_00"
    )
    result = labels(Node(DRIVER), (), Configuration(), facts)
    assert result == {
        "nvidia.com/vgpu.present": "true",
        "nvidia.com/vgpu.host-driver-version": "570.133.10",
        "nvidia.com/vgpu.host-driver-branch": "r570_00",
    }


@pytest.mark.parametrize(
    ("version", "parts"),
    [
        ("580", ("580", "", "", "580")),
        ("580.95", ("580", "95", "", "580.95")),
        ("580.95.05", ("580", "95", "05", "580.95.05")),
        ("580.95.05.01", ("580", "95", "05.01", "580.95.05.01")),
        ("", (None, None, None, None)),
    ],
)
def test_short_driver_versions_have_labels(version: str, parts: tuple[str | None, ...]) -> None:
    node = Node(Driver(version=version), (T4,))
    result = labels(node, (resource("nvidia.com/gpu", whole(T4)),), Configuration(), LabelFacts())
    names = ("major", "minor", "revision", "full")
    assert tuple(result.get(f"nvidia.com/cuda.driver-version.{n}") for n in names) == parts
    assert result["nvidia.com/gpu.product"] == "Tesla-T4"


def test_unknown_facts_have_no_label() -> None:
    """The GPU is in the count, with the model unknown."""
    mute = Gpu(0, "GPU-0")
    result = labels(
        Node(Driver(), (mute,)), (resource("nvidia.com/gpu", whole(mute)),), Configuration(),
        LabelFacts(),
    )  # fmt: skip
    assert result == {
        "nvidia.com/gpu.count": "1",
        "nvidia.com/gpu.machine": "unknown",
        "nvidia.com/gpu.mode": "unknown",
        "nvidia.com/gpu.product": "unknown",
        "nvidia.com/gpu.replicas": "1",
        "nvidia.com/gpu.sharing-strategy": "none",
        "nvidia.com/mig.capable": "false",
        "nvidia.com/mps.capable": "false",
        "nvidia.com/vgpu.present": "false",
    }


@pytest.mark.parametrize(
    ("capability", "family"),
    [
        ("3.5", "kepler"), ("5.2", "maxwell"), ("6.1", "pascal"), ("7.0", "volta"),
        ("7.4", "volta"), ("7.5", "turing"), ("8.0", "ampere"), ("8.6", "ampere"),
        ("8.9", "ada-lovelace"), ("9.0", "hopper"), ("10.0", "blackwell"), ("10.3", "blackwell"),
        ("12.0", "blackwell"), ("13.0", "rubin"), ("11.0", "undefined"), ("14.0", "undefined"),
    ],
)  # fmt: skip
def test_family_follows_from_the_compute_capability(capability: str, family: str) -> None:
    one = gpu(0, "X", capability, 1)
    node = Node(DRIVER, (one,))
    result = labels(node, (resource("nvidia.com/gpu", whole(one)),), Configuration(), LabelFacts())
    assert short_names(result, "gpu.family") == {"gpu.family": family}


def test_invalid_model_names_become_valid_label_values() -> None:
    """A long model is cut before -SHARED, and invalid characters are removed."""
    name = "NVIDIA RTX PRO 6000 Blackwell Max-Q Workstation Edition (rev. a1) with a tail - "
    gpus = (gpu(0, name, "12.0", 97887), gpu(1, "Tesla T4", "7.5", 15360))
    offered = resource("nvidia.com/gpu", *map(whole, gpus), replicas=4, sharing=TIME_SLICING)
    facts = LabelFacts(machine="  _Standard PC (Q35 + ICH9, 2009)_ ")
    result = labels(Node(DRIVER, gpus), (offered,), shared(4), facts)
    check_form(result)
    assert result["nvidia.com/gpu.product"] == (
        "NVIDIA-RTX-PRO-6000-Blackwell-Max-Q-Workstation-Edition-SHARED"
    )
    assert result["nvidia.com/gpu.machine"] == "Standard-PC-Q35-ICH9-2009"
    assert result["nvidia.com/gpu-NVIDIA-RTX-PRO-6000-Blackwell-Max-Q-Workst.count"] == "1"


@pytest.mark.parametrize("text", ["", "()", "---", "日本", " . _ "])
def test_text_without_valid_characters_is_an_empty_value(text: str) -> None:
    """Only the suffix remains."""
    assert label_text.value(text) == ""
    assert label_text.value(text, "-SHARED") == "SHARED"


def test_accelerator_label_has_the_main_model() -> None:
    offered = (resource("nvidia.com/gpu", whole(T4)),)
    node = Node(DRIVER, (T4,))
    assert "accelerator" not in labels(node, offered, Configuration(), LabelFacts())
    own = Own(accelerator_label=True)
    result = labels(node, offered, Configuration(own=own), LabelFacts())
    assert result["accelerator"] == "nvidia-tesla-t4"
