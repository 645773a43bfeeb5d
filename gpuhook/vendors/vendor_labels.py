# SPDX-License-Identifier: Apache-2.0
"""The labels of a node by one vendor."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class VendorLabels:
    """The labels that a vendor's hardware and driver give a node.

    `owned` is the pattern of the names that are removed from a node unless they are in `values`,
    also if the vendor's labeller has written them; "" for a vendor whose labeller may run, too.
    `devices` are the ids of the devices that a container can get. `unread` is the pattern of names
    whose values need the files of a node that is not this machine.
    """

    values: dict[str, str] = field(default_factory=dict)
    owned: str = ""
    devices: frozenset[str] = frozenset()
    warnings: tuple[str, ...] = ()
    unread: str = ""
