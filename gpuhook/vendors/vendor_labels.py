# SPDX-License-Identifier: Apache-2.0
"""The labels of a node by one vendor."""

from __future__ import annotations

from dataclasses import dataclass, field

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass(frozen=True, slots=True)
class VendorLabels:
    """The labels that a vendor's hardware and driver give a node.

    `owned` is the pattern of the names that are removed from a node unless they are in `values`,
    also those that the vendor's own labeller has written; "" for a vendor whose labeller may run.
    """

    values: Mapping[str, str] = field(default_factory=dict)
    owned: str = ""
    warnings: tuple[str, ...] = ()
