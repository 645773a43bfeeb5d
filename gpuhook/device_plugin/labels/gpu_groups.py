# SPDX-License-Identifier: Apache-2.0
"""Groups the GPUs of a node for labels: those of one model, or of one MIG profile, together.

Pure. The numbers come from the offered resources, so a label never promises more than containers
can request; GPUs in MIG mode, which are not offered as a whole, have 0 replicas.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from typing import TypeVar

from gpuhook.device_plugin.config.sharing_section import NOT_SHARED
from gpuhook.device_plugin.labels import label_text
from gpuhook.device_plugin.offer.offered_devices import capability
from gpuhook.device_plugin.offer.sharing_notes import limit_enforcer
from gpuhook.request.memory_request import MIB
from gpuhook.vendors.device_isolation import BY_NOBODY
from gpuhook.vendors.nvidia.gpu.gpu_resources import included
from gpuhook.vendors.nvidia.spec.device_selection import is_divided

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable

    from gpuhook.device_plugin.config.configuration import Configuration
    from gpuhook.device_plugin.offer.offered_devices import Device, Resource
    from gpuhook.vendors.nvidia.inventory.inventory import Gpu, MigInstance, Node

T = TypeVar("T")
GPU, MIG = "gpu", "mig"  # subjects of labels: gpu.<name>, mig-<profile>.<name>
_MAX_MODEL = 42  # of a model in a key: gpu-<model>.sharing-strategy has at most 63
_UNNAMED = "unknown"

# The label of each attribute of MIG instances, and its field in MigInstance.
_ATTRIBUTES = {
    "multiprocessors": "multiprocessors",
    "slices.gi": "gpu_slices",
    "slices.ci": "compute_slices",
    "engines.copy": "copy_engines",
    "engines.decoder": "decoders",
    "engines.encoder": "encoders",
    "engines.jpeg": "jpegs",
    "engines.ofa": "ofas",
}

# The labels of Group.labels().
FIELDS = (
    "product", "count", "replicas", "sharing-strategy", "memory", "replica-memory",
    "memory-limit-by", "family", "compute.major", "compute.minor", *_ATTRIBUTES,
)  # fmt: skip

# The first and last compute capability of each family. Gaps have no name.
_FAMILIES = (
    ((1, 0), (1, 9), "tesla"),
    ((2, 0), (2, 9), "fermi"),
    ((3, 0), (3, 9), "kepler"),
    ((5, 0), (5, 9), "maxwell"),
    ((6, 0), (6, 9), "pascal"),
    ((7, 0), (7, 4), "volta"),
    ((7, 5), (7, 9), "turing"),
    ((8, 0), (8, 8), "ampere"),
    ((8, 9), (8, 9), "ada-lovelace"),
    ((9, 0), (9, 9), "hopper"),
    ((10, 0), (10, 9), "blackwell"),
    ((12, 0), (12, 9), "blackwell"),
    ((13, 0), (13, 9), "rubin"),
)


@dataclass(frozen=True, slots=True)
class Group:
    """GPUs or MIG instances that share labels."""

    subject: str  # GPU or MIG
    key: str  # the model or profile in names of labels
    model: str
    count: int
    replicas: int  # per GPU or instance; 0: not offered
    is_shared: bool = False  # also with one replica, if the memory is too small for more
    memory_bytes: int | None = None
    limit_bytes: int | None = None  # of one replica; None: no limit
    memory_by: str = BY_NOBODY  # what enforces the limit of a replica
    compute_capability: str | None = None
    sharing: str = NOT_SHARED
    is_renamed: bool = False  # the name of its resource shows that it is shared
    profile: str | None = None
    instance: MigInstance | None = None  # one of them, for their common attributes

    def labels(self) -> dict[str, str]:
        """Return the values by name, without prefix and subject."""
        values = {
            "product": self._product(is_shared=self.is_shared and not self.is_renamed),
            "count": str(self.count),
            "replicas": str(self.replicas),
            "sharing-strategy": self.sharing if self.is_shared else NOT_SHARED,
        }
        if self.memory_bytes:
            values["memory"] = str(self.memory_bytes // MIB)
            if self.replicas:
                share = self.limit_bytes or self.memory_bytes // self.replicas
                values["replica-memory"] = str(share // MIB)
        if self.is_shared or self.limit_bytes:
            values["memory-limit-by"] = self.memory_by
        if self.subject == GPU:
            values |= _architecture(self.compute_capability)
        return values | _attributes(self.instance)

    def _product(self, *, is_shared: bool) -> str:
        suffix = f"-MIG-{label_text.profile(self.profile)}" if self.profile else ""
        return label_text.value(self.model, suffix + ("-SHARED" if is_shared else ""))


def groups(
    node: Node,
    resources: tuple[Resource, ...],
    configuration: Configuration,
    *,
    driver_limits: bool = False,
) -> tuple[Group, ...]:
    """Return the groups of a node, GPUs before MIG profiles, each in the order of the resources.

    Lost GPUs and instances with trouble are offered as unhealthy. They are in no group, since no
    pod should be scheduled for them. `driver_limits`: the driver can enforce memory limits.
    """
    usable = UsableDevices(resources, _usable(node), configuration, driver_limits=driver_limits)
    whole = [device for device in usable.devices if device.instance is None]
    slices = [device for device in usable.devices if device.instance is not None]
    by_model = grouped(whole, lambda device: model_key(device.model))
    named = [usable.group(GPU, key, devices) for key, devices in by_model.items()]
    subject = GPU if configuration.flags.mig_strategy == "single" else MIG
    if subject == MIG:
        known = {group.key for group in named}
        named += [group for group in _in_mig_mode(node, configuration) if group.key not in known]
    by_profile = grouped(slices, lambda device: device.profile or _UNNAMED)
    instances = {one.uuid: one for gpu in node.gpus for one in gpu.instances}
    named += [
        replace(
            usable.group(subject, label_text.profile(profile), devices),
            instance=instances.get(devices[0].uuid),
        )
        for profile, devices in by_profile.items()
    ]
    return tuple(named)


def _usable(node: Node) -> set[str]:
    """Return the UUIDs of the GPUs that are not lost, and of their instances without trouble."""
    lost = {gpu.uuid for gpu in node.gpus if gpu.lost is not None}
    working = [gpu for gpu in node.gpus if gpu.lost is None]
    instances = {one.uuid for gpu in working for one in gpu.instances if not one.trouble}
    return {gpu.uuid for gpu in working if gpu.uuid} - lost | instances


def invalid_single(
    node: Node, resources: tuple[Resource, ...], configuration: Configuration
) -> dict[str, str]:
    """Return the values of gpu.* for MIG instances that strategy `single` cannot offer, else {}.

    The strategy requires all GPUs in MIG mode and equal instances.
    """
    in_mig_mode = _mig_gpus(node, configuration)
    if configuration.flags.mig_strategy != "single" or not in_mig_mode:
        return {}
    own = {gpu.uuid for gpu in node.gpus}  # the resources may have devices of other vendors
    devices = [one for resource in resources for one in resource.devices if one.gpu in own]
    if devices and all(device.instance is not None for device in devices):
        return {}
    product = label_text.value(in_mig_mode[0].name or _UNNAMED, "-MIG-INVALID")
    nothing = dict.fromkeys(("count", "replicas", "memory"), "0")
    return {"product": product, "sharing-strategy": "", **nothing}


class UsableDevices:
    """The offered devices whose ids are in `usable`."""

    def __init__(
        self,
        resources: tuple[Resource, ...],
        usable: Collection[str],
        configuration: Configuration,
        *,
        driver_limits: bool = False,
    ) -> None:
        self._driver_limits = driver_limits
        self._guard = configuration.own.guard.ends_processes
        self._of: dict[str, Resource] = {}
        self._replicas: Counter[str] = Counter()
        self._renamed = _renamed(configuration)
        devices: dict[str, Device] = {}
        for resource in resources:
            for unit in resource.units:
                uuid = unit.device.uuid
                if uuid in usable and self._of.setdefault(uuid, resource) is resource:
                    self._replicas[uuid] += 1
                    devices[uuid] = unit.device
        self.devices = tuple(devices.values())

    def group(self, subject: str, key: str, devices: list[Device]) -> Group:
        """Return the group of `devices`, with the number of replicas that most of them have."""
        replicas = Counter(self._replicas[device.uuid] for device in devices).most_common(1)[0][0]
        first = next(d for d in devices if self._replicas[d.uuid] == replicas)
        resource = self._of[first.uuid]
        limit, own = resource.memory.get(first.uuid), resource.index.ids[first.uuid][0]
        by = limit_enforcer(resource, first, driver=self._driver_limits, guard=self._guard)
        return Group(
            subject=subject,
            key=key,
            model=first.model or _UNNAMED,
            count=len(devices),
            replicas=replicas,
            is_shared=resource.units[resource.index.positions[own]].replica is not None,
            memory_bytes=first.memory_bytes,
            limit_bytes=limit.hard if limit else None,
            memory_by=by,
            compute_capability=first.compute_capability,
            sharing=resource.sharing,
            is_renamed=resource.name in self._renamed,
            profile=first.profile,
        )


def _renamed(configuration: Configuration) -> set[str]:
    """Return the resource names that the configuration uses only for shared devices."""
    sharing = configuration.sharing
    names = (
        (entry.name, entry.offered_name(by_default=sharing.rename_by_default))
        for entry in sharing.resources
    )
    return {after for before, after in names if after != before}


def grouped(items: Iterable[T], key: Callable[[T], str]) -> dict[str, list[T]]:
    """Return the items by key, keys and items in their order."""
    groups: dict[str, list[T]] = {}
    for item in items:
        groups.setdefault(key(item), []).append(item)
    return groups


def model_key(model: str | None) -> str:
    """Return a model in the form of names of labels."""
    return label_text.value(model or _UNNAMED, limit=_MAX_MODEL) or _UNNAMED


def _in_mig_mode(node: Node, configuration: Configuration) -> list[Group]:
    """Return a group for each model of the GPUs in MIG mode, which are not offered as a whole."""
    by_model = grouped(_mig_gpus(node, configuration), lambda gpu: model_key(gpu.name))
    return [
        Group(
            subject=GPU,
            key=key,
            model=gpus[0].name or _UNNAMED,
            count=len(gpus),
            replicas=0,
            memory_bytes=gpus[0].memory_bytes,
            compute_capability=gpus[0].compute_capability,
        )
        for key, gpus in by_model.items()
    ]


def _mig_gpus(node: Node, configuration: Configuration) -> list[Gpu]:
    gpus, _ = included(node.gpus, configuration.own.exclude_devices)
    return [gpu for gpu in gpus if is_divided(gpu) and gpu.lost is None]


def _architecture(compute_capability: str | None) -> dict[str, str]:
    pair = capability(compute_capability)
    if pair is None:
        return {}
    family = next((name for low, high, name in _FAMILIES if low <= pair <= high), "undefined")
    return {"family": family, "compute.major": str(pair[0]), "compute.minor": str(pair[1])}


def _attributes(instance: MigInstance | None) -> dict[str, str]:
    if instance is None:
        return {}
    values = {name: getattr(instance, field) for name, field in _ATTRIBUTES.items()}
    return {name: str(value) for name, value in values.items() if value is not None}
