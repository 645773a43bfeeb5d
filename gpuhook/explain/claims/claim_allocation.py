# SPDX-License-Identifier: Apache-2.0
"""The allocation that the scheduler would make for claims on a node without other claims.

As the scheduler does, it tries the devices in their order and stops at the first solution; a
selector with a runtime error ends the search. So does one that was not judged.
"""

from __future__ import annotations

from collections import Counter
from contextlib import contextmanager
from dataclasses import dataclass, field

from gpuhook.explain.claims.cel.cel_selectors import BROKEN, EXCLUDES, MATCHES, NOT_JUDGED
from gpuhook.explain.claims.claim_objects import ALL, MATCH

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from gpuhook.explain.claims.claim_objects import (
        ClaimObject,
        ClassRequest,
        DeviceConstraint,
    )
    from gpuhook.explain.claims.device_matches import DeviceMatch, NodeDevice

ALLOCATED, PENDING = "allocated", "pending"
MOST_RESULTS = 32  # devices of one claim
_MOST_STEPS = 50_000


@dataclass(frozen=True, slots=True)
class ChosenDevice:
    """A device for a request; `claim` is the index of the claim."""

    claim: int
    request: ClassRequest
    match: DeviceMatch


@dataclass(frozen=True, slots=True)
class ClaimOutcome:
    """The result for claims: ALLOCATED, PENDING, BROKEN or NOT_JUDGED, and why."""

    result: str
    reason: str = ""
    chosen: tuple[ChosenDevice, ...] = ()


class _StopError(Exception):
    def __init__(self, result: str, reason: str) -> None:
        super().__init__(reason)
        self.outcome = ClaimOutcome(result, reason)


@dataclass(slots=True)
class _Search:
    claims: Sequence[ClaimObject]
    matches: Mapping[tuple[int, str], Sequence[DeviceMatch]]  # by claim and request
    chosen: list[ChosenDevice] = field(default_factory=list)
    deepest: tuple[int, str] = (-1, "")
    steps: int = 0

    def claim(self, index: int) -> bool:
        """Allocate the claims from `index` on."""
        return index == len(self.claims) or self.request(index, 0)

    def request(self, index: int, number: int) -> bool:
        """Allocate the requests of a claim from `number` on, and the claims after it."""
        requests = self.claims[index].requests
        if number == len(requests):
            return self.claim(index + 1)
        return any(self._choice(index, number, choice) for choice in requests[number].choices)

    def _choice(self, index: int, number: int, request: ClassRequest) -> bool:
        found = self.matches[index, request.name]
        if request.mode != ALL:
            return self._devices(index, number, request, request.count)
        for match in found:
            _require_verdict(match)
        every = [match for match in found if match.verdict == MATCHES or _is_tainted(match)]
        if not every:
            self._failed(request, Counter({"no device of the node matches": 1}))
            return False
        return self._every_device(index, number, request, every)

    def _devices(self, index: int, number: int, request: ClassRequest, count: int) -> bool:
        if count == 0:
            return self.request(index, number + 1)
        self._count_step(index, count)
        reasons: Counter[str] = Counter()
        for match in self.matches[index, request.name]:
            reason = self._held(index, request, match) or self._obstacle(index, request, match)
            if reason:
                reasons[reason] += 1
                continue
            with self._taking(index, request, match) as taken:
                if self._devices(index, number, request, count - 1):
                    taken.append(match)
                    return True
        self._failed(request, reasons)
        return False

    def _every_device(
        self, index: int, number: int, request: ClassRequest, left: Sequence[DeviceMatch]
    ) -> bool:
        if not left:
            return self.request(index, number + 1)
        self._count_step(index, len(left))
        first = left[0]
        reason = self._held(index, request, first) or self._obstacle(index, request, first)
        if reason:
            self._failed(request, Counter({f"{left[0].node_device.device.name}: {reason}": 1}))
            return False
        with self._taking(index, request, left[0]) as taken:
            if self._every_device(index, number, request, left[1:]):
                taken.append(left[0])
                return True
        return False

    def _count_step(self, index: int, count: int) -> None:
        self.steps += 1
        if self.steps > _MOST_STEPS:
            raise _StopError(NOT_JUDGED, f"there are more than {_MOST_STEPS} combinations")
        held = sum(one.claim == index for one in self.chosen)
        if held + count > MOST_RESULTS:
            raise _StopError(PENDING, f"a claim can have {MOST_RESULTS} devices at most")

    @contextmanager
    def _taking(
        self, index: int, request: ClassRequest, match: DeviceMatch
    ) -> Iterator[list[DeviceMatch]]:
        """Take a device, and give it back unless the block keeps it in the list."""
        kept: list[DeviceMatch] = []
        self.chosen.append(ChosenDevice(index, request, match))
        yield kept
        if not kept:
            self.chosen.pop()

    def _failed(self, request: ClassRequest, reasons: Counter[str]) -> None:
        texts = "; ".join(f"{text} ({n} devices)" if n > 1 else text for text, n in reasons.items())
        if len(self.chosen) > self.deepest[0]:
            count = f", {request.count} devices" if request.count > 1 else ""
            reason = f"request {request.name}{count}: {texts or 'the node has no device'}"
            self.deepest = (len(self.chosen), reason)

    def _held(self, index: int, request: ClassRequest, match: DeviceMatch) -> str:
        """Return which request of now has a device, "" if this one can also have it."""
        for one in self.chosen:
            if one.match.node_device.key != match.node_device.key:
                continue
            is_own = one.claim == index and (one.request is request or request.is_admin)
            is_used = not (request.is_admin or one.request.is_admin)
            if is_own or (is_used and not match.node_device.device.is_shared):
                return f"request {one.request.name} has the device"
        return ""

    def _obstacle(self, index: int, request: ClassRequest, match: DeviceMatch) -> str:
        """Return why a device does not fit next to those of now, "" if it does."""
        _require_verdict(match)
        if match.verdict == EXCLUDES:
            return f"excluded by {match.by}"
        if not request.is_admin:
            device = match.node_device
            using = [one.match for one in self.chosen if not one.request.is_admin]
            for name, amount in match.consumes.items():
                same = (one for one in using if one.node_device.key == device.key)
                consumed = sum(one.consumes.get(name, 0) for one in same)
                if consumed + amount > device.device.capacity[name].value:
                    return f"no {name} is left"
            if reason := _lacking_counter(device, [one.node_device for one in using]):
                return reason
        return self._violated(index, request, match)

    def _violated(self, index: int, request: ClassRequest, match: DeviceMatch) -> str:
        for one in self.claims[index].constraints:
            if one.applies_to(request.name) and (reason := self._against(one, index, match)):
                return reason
        return ""

    def _against(self, constraint: DeviceConstraint, index: int, match: DeviceMatch) -> str:
        value = match.node_device.attribute(constraint.attribute)
        if value is None:
            return f"{constraint.kind} {constraint.attribute}: the device lacks the attribute"
        others = [
            one.match.node_device.attribute(constraint.attribute)
            for one in self.chosen
            if one.claim == index and constraint.applies_to(one.request.name)
        ]
        if constraint.kind == MATCH:
            is_met = all(type(one) is type(value) and one == value for one in others)
        else:
            is_met = value not in others
        return "" if is_met else f"{constraint.kind} {constraint.attribute} is violated"


def _require_verdict(match: DeviceMatch) -> None:
    if match.verdict in (BROKEN, NOT_JUDGED):
        name = match.node_device.device.name
        raise _StopError(match.verdict, f"{match.by} on {name}: {match.reason}")


def _lacking_counter(one: NodeDevice, others: Sequence[NodeDevice]) -> str:
    """Return the counter that is exhausted with the devices in use, "" for none."""
    users = {other.key: other.device for other in others if other.pool is one.pool}
    users[one.key] = one.device
    for name, counters in one.device.counters.items():
        offered = one.pool.counter_sets.get(name, {})
        for counter in counters:
            used = sum(user.counters.get(name, {}).get(counter, 0) for user in users.values())
            if used > offered.get(counter, 0):
                return f"no {counter} of {name} is left"
    return ""


def _is_tainted(match: DeviceMatch) -> bool:
    return match.verdict == EXCLUDES and match.by.startswith("taint ")


def allocate(
    claims: Sequence[ClaimObject],
    matches: Mapping[tuple[int, str], Sequence[DeviceMatch]],
) -> ClaimOutcome:
    """Return the allocation of the claims of one pod; `matches` are by claim and request."""
    search = _Search(claims, matches)
    try:
        if search.claim(0):
            return ClaimOutcome(ALLOCATED, "", tuple(search.chosen))
    except _StopError as stop:
        return stop.outcome
    except RecursionError:
        return ClaimOutcome(NOT_JUDGED, "the pod has too many claims")
    return ClaimOutcome(PENDING, search.deepest[1])
