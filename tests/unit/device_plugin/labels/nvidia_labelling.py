# SPDX-License-Identifier: Apache-2.0
"""The labels of a node with NVIDIA's GPUs only, whose facts the test chooses."""

from __future__ import annotations

from unittest import mock

from gpuhook.device_plugin.config.configuration import Configuration
from gpuhook.device_plugin.labels.label_parts import label_parts, merged
from gpuhook.device_plugin.offer.offered_devices import Resource
from gpuhook.vendors.nvidia.inventory.inventory import Node
from gpuhook.vendors.nvidia.labels import label_facts
from gpuhook.vendors.nvidia.labels.label_facts import LabelFacts
from gpuhook.vendors.nvidia.nvidia_vendor import NvidiaVendor
from gpuhook.vendors.nvidia.plugin import nvidia_part
from gpuhook.vendors.usage.limit_device import LimitSupport


def labels(
    node: Node,
    resources: tuple[Resource, ...],
    configuration: Configuration,
    facts: LabelFacts,
    timestamp: int | None = None,
    *,
    driver_limits: bool = False,
) -> dict[str, str]:
    """Return the labels of this machine; `driver_limits`: its driver enforces memory limits."""
    support = LimitSupport("driver") if driver_limits else LimitSupport(reason="too old")
    with (
        mock.patch.object(label_facts, "facts", return_value=facts),
        mock.patch.object(NvidiaVendor, "limit_support", return_value=support),
    ):
        parts = label_parts(
            (nvidia_part.part(node),),
            resources,
            configuration,
            host_root="/",
            call=lambda _, read: read(),
            timestamp=timestamp,
        )
    (part,) = parts.values()
    assert part.error is None
    return merged(parts.values())
