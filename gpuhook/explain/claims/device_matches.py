# SPDX-License-Identifier: Apache-2.0
"""Which devices match a request by themselves: selectors, capacity, taints.

Source: the scheduler's allocator, k8s.io/dynamic-resource-allocation/structured.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from math import ceil

from gpuhook.explain.claims.cel import cel_selectors
from gpuhook.explain.claims.cel.cel_selectors import EXCLUDES, MATCHES
from gpuhook.host.quantity import quantity

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from gpuhook.dra.pool.pool_device import Capacity, Pool, PoolDevice, Taint
    from gpuhook.explain.claims.cel.cel_selectors import SelectorVerdict
    from gpuhook.explain.claims.claim_objects import ClassObject, ClassRequest, TaintToleration

_PREVENTING = ("NoSchedule", "NoExecute")


@dataclass(frozen=True, slots=True)
class NodeDevice:
    """A device of a pool of the node."""

    pool: Pool
    device: PoolDevice

    @property
    def key(self) -> tuple[str, str]:
        return self.pool.driver, self.device.name

    def attribute(self, name: str) -> object | None:
        """Return an attribute by its full name; one without a domain is the driver's."""
        domain, _, own = name.partition("/")
        found = self.device.attributes.get(name)
        if found is None and domain == self.pool.driver:
            return self.device.attributes.get(own)
        return found


@dataclass(frozen=True, slots=True)
class DeviceMatch:
    """The verdict on one device for one request, by what, where that is written, and why.

    A match `consumes` these capacities of a shared device.
    """

    node_device: NodeDevice
    verdict: str = MATCHES
    by: str = ""  # "selector 0 of class gpu.nvidia.com", "capacity memory", "taint gpu-lost"
    where: str = ""
    reason: str = ""
    consumes: Mapping[str, int] = field(default_factory=dict)


class DeviceJudge:
    """Judges the devices of some pools for requests; each expression is evaluated once."""

    def __init__(self, pools: Iterable[Pool], expressions: Iterable[str]) -> None:
        self.devices = [NodeDevice(pool, one) for pool in pools for one in pool.devices]
        offered = [cel_selectors.cel_device(one.pool.driver, one.device) for one in self.devices]
        self._verdicts = cel_selectors.judged(expressions, offered)

    def matches(self, request: ClassRequest, its_class: ClassObject) -> list[DeviceMatch]:
        """Return the verdict on each device, in the order in which the scheduler tries them."""
        return [
            self._match(number, one, request, its_class) for number, one in enumerate(self.devices)
        ]

    def _match(
        self, number: int, one: NodeDevice, request: ClassRequest, its_class: ClassObject
    ) -> DeviceMatch:
        selectors = [(f"class {its_class.name}", selector) for selector in its_class.selectors]
        selectors += [(f"request {request.name}", selector) for selector in request.selectors]
        for owner, selector in selectors:
            found: SelectorVerdict = self._verdicts[selector.expression][number]
            if found.verdict != MATCHES:
                by = f"selector {selector.number} of {owner}"
                return DeviceMatch(one, found.verdict, by, selector.where, found.reason)
        for name in request.capacity:
            if reason := _lacks(one.device, name, request.capacity[name]):
                return DeviceMatch(one, EXCLUDES, f"capacity {name}", request.where, reason)
        taint = next(untolerated(one.device.taints, request.tolerations), None)
        if taint is not None:
            reason = f"the device has the taint {taint.key}={taint.value}:{taint.effect}"
            return DeviceMatch(one, EXCLUDES, f"taint {taint.key}", request.where, reason)
        return DeviceMatch(one, consumes=_consumption(one.device, request.capacity))


def untolerated(taints: Iterable[Taint], tolerations: Sequence[TaintToleration]) -> Iterator[Taint]:
    """Yield the taints that prevent an allocation with these tolerations."""
    for taint in taints:
        if taint.effect in _PREVENTING and not any(_tolerates(one, taint) for one in tolerations):
            yield taint


def _tolerates(one: TaintToleration, taint: Taint) -> bool:
    if one.effect not in ("", taint.effect):
        return False
    if one.operator == "Exists":
        return one.key in ("", taint.key)
    return one.operator in ("", "Equal") and (one.key, one.value) == (taint.key, taint.value)


def _lacks(device: PoolDevice, name: str, text: str) -> str:
    """Return why a device cannot satisfy a requested capacity, "" if it can."""
    capacity = device.capacity.get(name)
    if capacity is None:
        known = ", ".join(device.capacity) or "none"
        return f"the device does not have this capacity; it has {known}"
    amount = _amount(text)
    if amount is None:
        return f"{text!r} is not a quantity"
    consumed = rounded(capacity, amount) if device.is_shared else amount
    most = capacity.most or capacity.value
    if consumed <= min(most, capacity.value):
        return ""
    rest = f", {consumed} with the device's steps" if consumed != amount else ""
    return f"{text} is requested ({amount}{rest}); the device allows {min(most, capacity.value)}"


def _amount(text: str) -> int | None:
    number = quantity(text)
    return None if number is None or number < 0 else ceil(number)


def has_policy(capacity: Capacity) -> bool:
    """Return whether a capacity has a request policy; without one, a claim consumes all of it."""
    return any((capacity.default, capacity.least, capacity.step, capacity.most))


def rounded(capacity: Capacity, amount: int) -> int:
    """Return what a request for an amount consumes of a shared device."""
    above = max(0, amount - capacity.least)
    steps = -(-above // capacity.step) * capacity.step if capacity.step else above
    return capacity.least + steps


def _consumption(device: PoolDevice, requested: Mapping[str, str]) -> dict[str, int]:
    if not device.is_shared:
        return {}
    found = {}
    for name, capacity in device.capacity.items():
        amount = _amount(requested[name]) if name in requested else None
        if amount is not None:
            found[name] = rounded(capacity, amount)
        else:
            found[name] = capacity.default if has_policy(capacity) else capacity.value
    return found
