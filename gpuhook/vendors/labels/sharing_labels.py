# SPDX-License-Identifier: Apache-2.0
"""The labels on how a vendor's devices are offered: their number, replicas and sharing. Pure.

gpu.<name> describes the most numerous model; with several models, or partitions of several kinds,
each one also has labels under gpu-<model>.
"""

from __future__ import annotations

import re

from gpuhook.vendors.labels.offered_groups import FIELDS, grouped, model_key, offered_group

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

    from gpuhook.vendors.labels.offered_groups import OfferedGroup
    from gpuhook.vendors.labels.vendor_labels import OfferedDevice


def sharing_groups(devices: Iterable[OfferedDevice]) -> tuple[OfferedGroup, ...]:
    """Return the groups of devices, the most numerous first."""
    groups = [offered_group(key, own) for key, own in grouped(devices, _key).items()]
    return tuple(sorted(groups, key=lambda group: -group.count))


def sharing_labels(domain: str, groups: tuple[OfferedGroup, ...]) -> dict[str, str]:
    """Return the labels of a vendor's groups; `domain` is the prefix of the names."""
    values = _named(f"{domain}/gpu", groups[0]) if groups else {}
    for group in groups if len(groups) > 1 else ():
        values |= _named(f"{domain}/gpu-{group.key}", group)
    return values


def sharing_names(domain: str) -> str:
    """Return the pattern of the names that sharing_labels() returns for some node."""
    return rf"{re.escape(domain)}/gpu(?:-.+)?\.(?:{'|'.join(FIELDS)})"


def _key(offered: OfferedDevice) -> str:
    """Return the model and the kind of partition; without a model, the size."""
    device = offered.device
    size = f"unknown {(device.memory_bytes or 0) >> 30}Gi"
    return model_key(" ".join(filter(None, (device.model or size, device.profile))))


def _named(subject: str, group: OfferedGroup) -> dict[str, str]:
    return {f"{subject}.{name}": value for name, value in group.labels().items()}
