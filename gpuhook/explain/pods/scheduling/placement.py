# SPDX-License-Identifier: Apache-2.0
"""Whether a pod may be scheduled to a node: its constraints against what is known of the node.

A requirement on something unknown is not judged: it neither matches nor differs. Sources:
nodeaffinity and corev1 helpers of k8s.io/component-helpers, the validation of NodeSelectorTerm, and
the messages of kube-scheduler's plugins NodeAffinity and TaintToleration.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass

from gpuhook.errors import printable
from gpuhook.explain.pods import constraints as kinds
from gpuhook.explain.pods.pod_requests import (
    KUBELET,
    PENDING,
    REFUSED,
    SCHEDULER,
    Objection,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from gpuhook.explain.pods.constraints import Constraints, NodeRequirement
    from gpuhook.explain.pods.pod_requests import PodRequest
    from gpuhook.explain.pods.scheduling.scheduling_node import NodeTaint, SchedulingNode

MATCHES, DIFFERS, NOT_JUDGED = "matches", "differs", "not-judged"
TAINT, TOLERATION = "taint", "toleration"
_VERDICTS = {True: MATCHES, False: DIFFERS, None: NOT_JUDGED}
_NO_SCHEDULE, _BLOCKING = "NoSchedule", ("NoSchedule", "NoExecute")
_UNMATCHED = "node(s) didn't match Pod's node affinity/selector"
_NO_NODE = "0/1 nodes are available: 1"
_OF_NODES = "node.kubernetes.io/"  # taints that the pods of a DaemonSet tolerate
_MOST_UNMET = 4


@dataclass(frozen=True, slots=True)
class JudgedRequirement:
    """A requirement and the node's value. `term` is the number of the affinity's term, from 1.

    Without `required`, the scheduler only prefers a node that meets it.
    """

    origin: str
    requirement: str
    term: int | None
    required: bool
    node: str | None
    verdict: str
    reason: str
    where: str


@dataclass(frozen=True, slots=True)
class Placement:
    """The verdict on a pod and a node, with the objections of Kubernetes."""

    node: str
    verdict: str
    requirements: tuple[JudgedRequirement, ...]
    objections: tuple[Objection, ...]

    def document(self) -> dict[str, object]:
        """Return the document, without the objections."""
        judged = [asdict(one) for one in self.requirements]
        return {"node": self.node, "verdict": self.verdict, "requirements": judged}


def placement(asked: PodRequest, node: SchedulingNode) -> Placement:
    """Return whether the pod of a container may be scheduled to the node."""
    wanted = asked.constraints
    selector = [_judged(one, node) for one in wanted.selector]
    terms = [
        [_judged(one, node, term=number) for one in term]
        for number, term in enumerate(wanted.terms or (), start=1)
    ]
    preferred = [_judged(one, node, required=False) for term in wanted.preferred for one in term]
    taints = [(one, _judged_taint(one, asked)) for one in node.taints or ()]
    is_met = True if wanted.terms is None else _any(map(_all, terms))
    required = [*selector, *(one for _, one in taints if one.required)]
    verdicts = [*(one.verdict for one in required), _VERDICTS[is_met]]
    objections = (
        *_selector_objections(wanted, selector),
        *(_affinity_objections(wanted, terms) if is_met is False else ()),
        *(_untolerated(taint, asked) for taint, one in taints if _is_unmet(one)),
    )
    return Placement(
        node=node.source,
        verdict=next((one for one in (DIFFERS, NOT_JUDGED) if one in verdicts), MATCHES),
        requirements=(
            *selector,
            *(one for term in terms for one in term),
            *preferred,
            *(one for _, one in taints),
            *(_tolerations(asked) if node.taints is None else ()),
        ),
        objections=objections,
    )


def _is_unmet(one: JudgedRequirement) -> bool:
    return one.required and one.verdict == DIFFERS


def _all(term: Sequence[JudgedRequirement]) -> bool | None:
    """Return whether a term holds: each requirement; a term without one holds for no node."""
    verdicts = [one.verdict for one in term]
    if not term or DIFFERS in verdicts:
        return False
    return None if NOT_JUDGED in verdicts else True


def _any(terms: Iterable[bool | None]) -> bool | None:
    found = [*terms]
    if True in found:
        return True
    return None if None in found else False


def _judged(
    one: NodeRequirement, node: SchedulingNode, *, term: int | None = None, required: bool = True
) -> JudgedRequirement:
    value, is_there = _value(one, node)
    what = "name" if one.is_field else "label"
    if not _is_valid(one):
        verdict, reason = NOT_JUDGED, "the API server refuses this requirement"
    elif is_there is None:
        verdict, reason = NOT_JUDGED, f"gpuhook does not know this {what} of the node"
    else:
        verdict = _VERDICTS[_holds(one, value)]
        reason = f"the node has {printable(value)}" if is_there else f"the node has no such {what}"
    return JudgedRequirement(
        one.origin, str(one), term, required, value, verdict, reason, one.where
    )


def _value(one: NodeRequirement, node: SchedulingNode) -> tuple[str | None, bool | None]:
    """Return (the value of a label or field, whether it exists); None for unknown."""
    if one.is_field:
        return node.name, None if node.name is None else True
    return node.labels.get(one.key), node.has_label(one.key)


def _is_valid(one: NodeRequirement) -> bool:
    """Return whether the API server accepts a requirement."""
    if one.is_field:
        is_known = one.key == kinds.NAME_FIELD and one.operator in (kinds.IN, kinds.NOT_IN)
        return is_known and len(one.values) == 1
    if one.operator in (kinds.IN, kinds.NOT_IN):
        return bool(one.values)
    if one.operator in (kinds.EXISTS, kinds.DOES_NOT_EXIST):
        return not one.values
    return one.operator in (kinds.GREATER, kinds.LESS) and len(one.values) == 1


def _holds(one: NodeRequirement, value: str | None) -> bool:
    """Return whether a valid requirement holds for a value, None without the label."""
    if one.operator == kinds.IN:
        return value in one.values
    if one.operator == kinds.NOT_IN:
        return value not in one.values
    if one.operator == kinds.EXISTS:
        return value is not None
    if one.operator == kinds.DOES_NOT_EXIST:
        return value is None
    number, limit = _integer(value), _integer(one.values[0])
    if number is None or limit is None:
        return False
    return number > limit if one.operator == kinds.GREATER else number < limit


def _integer(text: str | None) -> int | None:
    """Return a decimal integer of 64 bits, as strconv.ParseInt reads it; None for other texts."""
    digits = text[1:] if text and text[0] in "+-" else text or ""
    if text is None or not digits.isascii() or not digits.isdecimal() or len(digits) > 100:
        return None
    number = int(text)
    return number if -(1 << 63) <= number < 1 << 63 else None


def _judged_taint(taint: NodeTaint, asked: PodRequest) -> JudgedRequirement:
    is_covered = _is_tolerated(taint, asked)
    reason = "the pod tolerates it" if is_covered else "the pod does not tolerate it"
    is_hard = taint.effect in _BLOCKING
    verdict = _VERDICTS[is_covered]
    return JudgedRequirement(
        TAINT, str(taint), None, is_hard, str(taint), verdict, reason, asked.where
    )


def _is_tolerated(taint: NodeTaint, asked: PodRequest) -> bool:
    wanted = asked.constraints
    if asked.workload.startswith("DaemonSet/") and taint.key.startswith(_OF_NODES):
        return True
    if wanted.node_name and taint.effect == _NO_SCHEDULE:  # no scheduler places this pod
        return True
    return any(one.covers(taint.key, taint.value, taint.effect) for one in wanted.tolerations)


def _tolerations(asked: PodRequest) -> Iterator[JudgedRequirement]:
    """Yield that the tolerations are not judged."""
    for one in asked.constraints.tolerations:
        if one.key.startswith(_OF_NODES):  # the API server adds these to each pod
            continue
        reason = "gpuhook does not know the taints of the node"
        yield JudgedRequirement(
            TOLERATION, str(one), None, True, None, NOT_JUDGED, reason, one.where
        )


def _selector_objections(
    wanted: Constraints, judged: Sequence[JudgedRequirement]
) -> Iterator[Objection]:
    for one, verdict in zip(wanted.selector, judged, strict=True):
        if verdict.verdict != DIFFERS:
            continue
        if one.origin == kinds.NODE_NAME:
            said = f"nodeName {one.values[0]}: the pod runs on that node; this one is "
            instead = f"nodeName: {verdict.node}, or a nodeSelector"
            yield Objection(
                "node-name", SCHEDULER, PENDING, f"{said}{verdict.node}", instead, one.where
            )
            continue
        instead = f"no {one.key} in the {one.origin}: {verdict.reason}"
        if verdict.node is not None:
            instead = f"{one.key}: {verdict.node}, which this node has"
        yield _unmatched("node-selector", f"{one.origin} {one}", instead, one.where, wanted)


def _affinity_objections(
    wanted: Constraints, terms: Sequence[Sequence[JudgedRequirement]]
) -> Iterator[Objection]:
    unmet = [one for term in terms for one in term if one.verdict == DIFFERS]
    reasons = "; ".join(f"{one.requirement}: {one.reason}" for one in unmet[:_MOST_UNMET])
    instead = f"a term that this node meets ({reasons or 'a term needs a requirement'})"
    yield _unmatched("node-affinity", "nodeAffinity", instead, wanted.terms_where, wanted)


def _unmatched(
    identifier: str, what: str, instead: str, where: str, wanted: Constraints
) -> Objection:
    """Return an objection by the scheduler, or by the kubelet to a pod with a nodeName."""
    if wanted.node_name:
        said = f"Predicate NodeAffinity failed: {_UNMATCHED}: {what}"
        return Objection(identifier, KUBELET, REFUSED, said, instead, where)
    said = f"{_NO_NODE} {_UNMATCHED}: {what}"
    return Objection(identifier, SCHEDULER, PENDING, said, instead, where)


def _untolerated(taint: NodeTaint, asked: PodRequest) -> Objection:
    return Objection(
        "taint",
        SCHEDULER,
        PENDING,
        f"{_NO_NODE} node(s) had untolerated taint {{{taint.key}: {taint.value}}}.",
        f"tolerations: [{{key: {taint.key}, operator: Exists, effect: {taint.effect}}}]",
        asked.where,
    )
