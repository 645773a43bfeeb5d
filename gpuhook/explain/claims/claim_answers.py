# SPDX-License-Identifier: Apache-2.0
"""The answers for the claims of a manifest on a node, and what the containers of pods get."""

from __future__ import annotations

from dataclasses import dataclass, field

from gpuhook.dra.pool.pool_device import MEMORY
from gpuhook.explain.claims.cel.cel_selectors import BROKEN, NOT_JUDGED
from gpuhook.explain.claims.claim_allocation import ALLOCATED, PENDING, ClaimOutcome, allocate
from gpuhook.explain.claims.claim_groups import EXTENDED, claim_groups, extended_classes
from gpuhook.explain.claims.claim_manifests import default_classes
from gpuhook.explain.claims.device_matches import DeviceJudge
from gpuhook.explain.pods import pod_requests
from gpuhook.explain.pods.pod_requests import SCHEDULER, ClaimedDevices, Objection
from gpuhook.request.memory_request import MemoryLimit

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from gpuhook.dra.pool.pool_device import Pool
    from gpuhook.explain.claims.claim_allocation import ChosenDevice
    from gpuhook.explain.claims.claim_groups import ClaimGroup
    from gpuhook.explain.claims.claim_objects import ClaimManifest, ClassObject, ClassRequest
    from gpuhook.explain.claims.device_matches import DeviceMatch

_ADMIN = (
    "admin access to devices requires the `resource.kubernetes.io/admin-access: true` label on the "
    "containing namespace"
)


@dataclass(frozen=True, slots=True)
class ClaimAnswer:
    """The outcome for a group of claims; `matches` are by claim and request."""

    group: ClaimGroup
    outcome: ClaimOutcome
    matches: Mapping[tuple[int, str], Sequence[DeviceMatch]] = field(default_factory=dict)
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ClaimAnswers:
    """The answers for a manifest, the `classes` by name, and the class of extended resources."""

    answers: tuple[ClaimAnswer, ...]
    classes: Mapping[str, ClassObject]
    extended: Mapping[str, ClassObject]


def claim_answers(
    manifest: ClaimManifest, pools: Sequence[Pool], further: Iterable[ClassObject] = ()
) -> ClaimAnswers:
    """Return the answers on a node with these pools; `further` are classes of other files."""
    own = (*manifest.classes, *further)
    defaults = default_classes()
    classes = {one.name: one for one in (*defaults, *reversed(own))}
    extended = extended_classes(own, classes.values())
    groups = list(claim_groups(manifest, extended))
    requests = [request for group in groups for _, request in _requests(group)]
    expressions = [s.expression for one in classes.values() for s in one.selectors]
    expressions += [s.expression for request in requests for s in request.selectors]
    judge = DeviceJudge(pools, expressions if requests else ())
    answers = tuple(_answer(group, judge, classes, manifest.namespaces) for group in groups)
    return ClaimAnswers(answers, classes, extended)


def _requests(group: ClaimGroup) -> list[tuple[int, ClassRequest]]:
    return [
        (index, choice)
        for index, claim in enumerate(group.claims)
        for request in claim.requests
        for choice in request.choices
    ]


def _answer(
    group: ClaimGroup,
    judge: DeviceJudge,
    classes: Mapping[str, ClassObject],
    namespaces: Mapping[str, bool],
) -> ClaimAnswer:
    requests = _requests(group)
    matches = {
        (index, one.name): judge.matches(one, classes[one.device_class])
        for index, one in requests
        if one.device_class in classes
    }
    unknown = sorted({f"DeviceClass {one.device_class}" for _, one in requests} - _titles(classes))
    missing = [*group.missing, *unknown]
    if missing:
        reason = f"the manifest does not have {', '.join(missing)}"
        return ClaimAnswer(group, ClaimOutcome(NOT_JUDGED, reason), matches)
    outcome, notes = allocate(group.claims, matches), []
    spaces = {group.claims[index].namespace for index, one in requests if one.is_admin}
    for name in sorted(spaces):
        if namespaces.get(name) is False:
            outcome = ClaimOutcome(pod_requests.REFUSED, _ADMIN)
        elif name not in namespaces:
            notes.append(f"not checked whether namespace {name} has the label: {_ADMIN}")
    return ClaimAnswer(group, outcome, matches, tuple(notes))


def _titles(classes: Iterable[str]) -> set[str]:
    return {f"DeviceClass {name}" for name in classes}


def claimed_devices(
    answer: ClaimAnswer, container: int, names: Sequence[tuple[str, str]]
) -> ClaimedDevices | None:
    """Return the devices of a container, None if they were not judged.

    `container` is its index in the pod, `names` are its claims and their requests ("" for all).
    """
    outcome, group = answer.outcome, answer.group
    if outcome.result == NOT_JUDGED:
        return None
    if outcome.result != ALLOCATED:
        return ClaimedDevices(objections=(_objection(answer),))
    own = [one.match for one in outcome.chosen if _is_used(one, group, container, names)]
    devices = [one.node_device.device for one in own]
    return ClaimedDevices(
        uuids=tuple(dict.fromkeys(one.device.uuid for one in devices)),
        exclusive=frozenset(
            one.device.uuid for one in devices if not one.is_shared and one.replicas == 1
        ),
        limits=tuple(_limits(own)),
    )


def _is_used(
    one: ChosenDevice, group: ClaimGroup, container: int, names: Sequence[tuple[str, str]]
) -> bool:
    """Return whether a container names the request of a device, or its extended resource."""
    name = one.request.name
    if group.claims[one.claim].kind == EXTENDED and name.startswith(f"container-{container}-"):
        return True
    asked = {request for claim, request in names if claim == group.names[one.claim]}
    return not asked.isdisjoint(("", name, name.partition("/")[0]))


def _limits(matches: Sequence[DeviceMatch]) -> Iterator[MemoryLimit]:
    """Yield the memory limit of each shared device: what all claims of the container consume."""
    consumed: dict[str, int] = {}
    for one in matches:
        uuid = one.node_device.device.device.uuid
        consumed[uuid] = consumed.get(uuid, 0) + one.consumes.get(MEMORY, 0)
    for uuid, size in consumed.items():
        if size:
            yield MemoryLimit(uuid, size, size)


def _objection(answer: ClaimAnswer) -> Objection:
    outcome, where = answer.outcome, answer.group.claims[0].where
    if outcome.result == pod_requests.REFUSED:
        said, instead = f"Forbidden: {outcome.reason}", "add the label to the namespace"
        return Objection(
            "admin-access", pod_requests.API_SERVER, pod_requests.REFUSED, said, instead, where
        )
    said = "0/1 nodes are available: 1 cannot allocate all claims."
    if outcome.result == BROKEN:
        said = f'running "DynamicResources" filter plugin: {outcome.reason}'
    instead = f"claims that this node can satisfy: {outcome.reason}"
    return Objection("claims", SCHEDULER, PENDING, said, instead, where)
