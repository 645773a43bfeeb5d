# SPDX-License-Identifier: Apache-2.0
"""Groups the GPUs of a node for labels: those of one model, or of one MIG profile, together.

Pure. GPUs in MIG mode, which are not offered as a whole, have 0 replicas.
"""

from __future__ import annotations

from dataclasses import dataclass

from gpuhook.vendors.labels import label_text, offered_groups
from gpuhook.vendors.labels.offered_groups import (
    UNNAMED,
    OfferedGroup,
    grouped,
    model_key,
    offered_group,
)
from gpuhook.vendors.nvidia.gpu.gpu_resources import included
from gpuhook.vendors.nvidia.spec.device_selection import is_divided
from gpuhook.vendors.vendor_device import capability

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gpuhook.vendors.labels.vendor_labels import LabelOffer, OfferedDevice
    from gpuhook.vendors.nvidia.inventory.inventory import Gpu, MigInstance, Node

GPU, MIG = "gpu", "mig"  # subjects of labels: gpu.<name>, mig-<profile>.<name>

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
    "product", *offered_groups.FIELDS, "family", "compute.major", "compute.minor", *_ATTRIBUTES,
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
    offered: OfferedGroup
    compute_capability: str | None = None
    is_renamed: bool = False
    profile: str | None = None
    instance: MigInstance | None = None  # one of them, for their common attributes

    def labels(self) -> dict[str, str]:
        """Return the values by name, without prefix and subject."""
        is_shared = self.offered.is_shared and not self.is_renamed
        values = {"product": self._product(is_shared=is_shared), **self.offered.labels()}
        if self.subject == GPU:
            values |= _architecture(self.compute_capability)
        return values | _attributes(self.instance)

    def _product(self, *, is_shared: bool) -> str:
        suffix = f"-MIG-{label_text.profile(self.profile)}" if self.profile else ""
        return label_text.value(self.offered.model, suffix + ("-SHARED" if is_shared else ""))


def groups(node: Node, offer: LabelOffer) -> tuple[Group, ...]:
    """Return the groups of a node, GPUs before MIG profiles, each in the order of the resources.

    Lost GPUs and instances with trouble are offered as unhealthy. They are in no group, since no
    pod should be scheduled for them.
    """
    usable = offer.of(_usable(node))
    whole = [one for one in usable if one.device.instance is None]
    slices = [one for one in usable if one.device.instance is not None]
    by_model = grouped(whole, lambda one: model_key(one.device.model))
    named = [_group(GPU, key, devices) for key, devices in by_model.items()]
    subject = GPU if offer.strategy == "single" else MIG
    if subject == MIG:
        known = {group.offered.key for group in named}
        of_mode = _in_mig_mode(node, offer)
        named += [group for group in of_mode if group.offered.key not in known]
    by_profile = grouped(slices, lambda one: one.device.profile or UNNAMED)
    instances = {one.uuid: one for gpu in node.gpus for one in gpu.instances}
    named += [
        _group(
            subject,
            label_text.profile(profile),
            devices,
            instances.get(devices[0].device.uuid),
        )
        for profile, devices in by_profile.items()
    ]
    return tuple(named)


def _group(
    subject: str, key: str, devices: list[OfferedDevice], instance: MigInstance | None = None
) -> Group:
    first = offered_groups.usual(devices)
    return Group(
        subject,
        offered_group(key, devices),
        compute_capability=first.device.compute_capability,
        is_renamed=first.is_renamed,
        profile=first.device.profile,
        instance=instance,
    )


def _usable(node: Node) -> set[str]:
    """Return the UUIDs of the GPUs that are not lost, and of their instances without trouble."""
    lost = {gpu.uuid for gpu in node.gpus if gpu.lost is not None}
    working = [gpu for gpu in node.gpus if gpu.lost is None]
    instances = {one.uuid for gpu in working for one in gpu.instances if not one.trouble}
    return {gpu.uuid for gpu in working if gpu.uuid} - lost | instances


def invalid_single(node: Node, offer: LabelOffer) -> dict[str, str]:
    """Return the values of gpu.* for MIG instances that strategy `single` cannot offer, else {}.

    The strategy requires all GPUs in MIG mode and equal instances.
    """
    in_mig_mode = _mig_gpus(node, offer)
    if offer.strategy != "single" or not in_mig_mode:
        return {}
    own = {gpu.uuid for gpu in node.gpus}  # the offer may have devices of other vendors
    devices = [one.device for one in offer.devices if one.device.gpu in own]
    if devices and all(device.instance is not None for device in devices):
        return {}
    product = label_text.value(in_mig_mode[0].name or UNNAMED, "-MIG-INVALID")
    nothing = dict.fromkeys(("count", "replicas", "memory"), "0")
    return {"product": product, "sharing-strategy": "", **nothing}


def _in_mig_mode(node: Node, offer: LabelOffer) -> list[Group]:
    """Return a group for each model of the GPUs in MIG mode, which are not offered as a whole."""
    by_model = grouped(_mig_gpus(node, offer), lambda gpu: model_key(gpu.name))
    return [
        Group(
            GPU,
            OfferedGroup(
                key=key,
                model=gpus[0].name or UNNAMED,
                count=len(gpus),
                replicas=0,
                memory_bytes=gpus[0].memory_bytes,
            ),
            compute_capability=gpus[0].compute_capability,
        )
        for key, gpus in by_model.items()
    ]


def _mig_gpus(node: Node, offer: LabelOffer) -> list[Gpu]:
    gpus, _ = included(node.gpus, offer.excluded)
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
