# SPDX-License-Identifier: Apache-2.0
"""Whose devices the names of an attach or a detach are, on a node with GPUs of several vendors."""

from __future__ import annotations

from gpuhook.errors import GpuhookError
from gpuhook.request.resolve import resolve_names

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from gpuhook.entry.plan_context import PlanContext, VendorContext


def names_by_vendor(
    names: Iterable[str], context: PlanContext, likely: Sequence[VendorContext] = ()
) -> list[tuple[VendorContext, list[str]]]:
    """Return the names of each vendor that has some, the first vendor first.

    A CDI name and the path of a device node have a vendor. Any other name is of the first of
    `likely` that knows it; without `likely`, of the vendors whose driver is loaded.
    """
    every = context.every()
    chosen = likely or [one for one in every if one.node.has_driver()] or every
    found: dict[int, list[str]] = {}
    for name in names:
        found.setdefault(every.index(_vendor_of(name, every, chosen)), []).append(name)
    return [(every[place], found[place]) for place in sorted(found)]


def _vendor_of(
    name: str, every: list[VendorContext], likely: Sequence[VendorContext]
) -> VendorContext:
    if name.startswith("/"):
        return next((one for one in every if one.node.is_node(name)), likely[0])
    if "=" in name:
        return next(one for one in every if one.node.serves(name))
    if len(likely) == 1:
        return likely[0]
    return next((one for one in likely if _is_known(name, one)), likely[0])


def _is_known(name: str, context: VendorContext) -> bool:
    try:
        resolve_names([name], frozenset(context.node.capability_words), context.node)
    except GpuhookError:
        return False
    return True
