# SPDX-License-Identifier: Apache-2.0
"""Groups the offered devices of a node for labels: those of one model or kind together. Pure.

The numbers come from the offered resources, so a label never promises more than containers can
request.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TypeVar

from gpuhook.request.memory_request import MIB
from gpuhook.vendors.device_isolation import BY_NOBODY
from gpuhook.vendors.labels import label_text
from gpuhook.vendors.labels.vendor_labels import NOT_SHARED

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from gpuhook.vendors.labels.vendor_labels import OfferedDevice

T = TypeVar("T")
UNNAMED = "unknown"
_MAX_MODEL = 42  # of a model in a key: gpu-<model>.sharing-strategy has at most 63

# The labels of OfferedGroup.labels().
FIELDS = (
    "count", "replicas", "sharing-strategy", "memory", "replica-memory", "memory-limit-by",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class OfferedGroup:
    """Devices that share labels."""

    key: str  # the model or kind in names of labels
    model: str
    count: int
    replicas: int  # of each device; 0: not offered
    is_shared: bool = False
    memory_bytes: int | None = None
    limit_bytes: int | None = None  # of one replica; None: no limit
    memory_by: str = BY_NOBODY  # what enforces the limit of a replica
    sharing: str = NOT_SHARED

    def labels(self) -> dict[str, str]:
        """Return the values by name, without prefix and subject."""
        values = {
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
        return values


def usual(devices: Sequence[OfferedDevice]) -> OfferedDevice:
    """Return the first one with the number of replicas that most of the devices have."""
    replicas = Counter(one.replicas for one in devices).most_common(1)[0][0]
    return next(one for one in devices if one.replicas == replicas)


def offered_group(key: str, devices: Sequence[OfferedDevice]) -> OfferedGroup:
    """Return the group of `devices`."""
    first = usual(devices)
    return OfferedGroup(
        key=key,
        model=first.device.model or UNNAMED,
        count=len(devices),
        replicas=first.replicas,
        is_shared=first.is_shared,
        memory_bytes=first.device.memory_bytes,
        limit_bytes=first.limit_bytes,
        memory_by=first.memory_by,
        sharing=first.sharing,
    )


def grouped(items: Iterable[T], key: Callable[[T], str]) -> dict[str, list[T]]:
    """Return the items by key, keys and items in their order."""
    groups: dict[str, list[T]] = {}
    for item in items:
        groups.setdefault(key(item), []).append(item)
    return groups


def model_key(model: str | None) -> str:
    """Return a model in the form of names of labels."""
    return label_text.value(model or UNNAMED, limit=_MAX_MODEL) or UNNAMED
