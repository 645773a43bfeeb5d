# SPDX-License-Identifier: Apache-2.0
"""The labels on how a vendor's devices are offered: their number, replicas and sharing. Pure.

gpu.<name> describes the most numerous model; with several models, or partitions of several kinds,
each one also has labels under gpu-<model>.
"""

from __future__ import annotations

import re

from gpuhook.device_plugin.labels.gpu_groups import GPU, UsableDevices, grouped, model_key

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Collection

    from gpuhook.device_plugin.config.configuration import Configuration
    from gpuhook.device_plugin.labels.gpu_groups import Group
    from gpuhook.device_plugin.offer.offered_devices import Device, Resource

FIELDS = (
    "count", "replicas", "sharing-strategy", "memory", "replica-memory", "memory-limit-by",
)  # fmt: skip


def sharing_groups(
    resources: tuple[Resource, ...],
    usable: Collection[str],
    configuration: Configuration,
    *,
    driver_limits: bool = False,
) -> tuple[Group, ...]:
    """Return the groups of the offered devices with the ids `usable`, the most numerous first.

    `driver_limits`: the driver or the kernel can enforce memory limits.
    """
    offered = UsableDevices(resources, usable, configuration, driver_limits=driver_limits)
    by_model = grouped(offered.devices, _key)
    groups = [offered.group(GPU, key, devices) for key, devices in by_model.items()]
    return tuple(sorted(groups, key=lambda group: -group.count))


def sharing_labels(domain: str, groups: tuple[Group, ...]) -> dict[str, str]:
    """Return the labels of a vendor's groups; `domain` is the prefix of the names."""
    values = _named(f"{domain}/gpu", groups[0]) if groups else {}
    for group in groups if len(groups) > 1 else ():
        values |= _named(f"{domain}/gpu-{group.key}", group)
    return values


def owned(domain: str) -> str:
    """Return the pattern of the names that sharing_labels() returns for some node."""
    return rf"{re.escape(domain)}/gpu(?:-.+)?\.(?:{'|'.join(FIELDS)})"


def _key(device: Device) -> str:
    """Return the model and the kind of partition; without a model, the size tells GPUs apart."""
    size = f"unknown {(device.memory_bytes or 0) >> 30}Gi"
    return model_key(" ".join(filter(None, (device.model or size, device.profile))))


def _named(subject: str, group: Group) -> dict[str, str]:
    return {f"{subject}.{name}": v for name, v in group.labels().items() if name in FIELDS}
