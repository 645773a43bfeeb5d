# SPDX-License-Identifier: Apache-2.0
"""The constraints of a pod on its node: nodeName, nodeSelector, node affinity, tolerations.

The API server adds the scheduling of the pod's RuntimeClass to the pod; the same is done here with
a RuntimeClass of the same manifest. Sources: NodeSelectorRequirement of k8s.io/api/core/v1, and the
admission plugin RuntimeClass.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import islice

from gpuhook.errors import printable

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

    from gpuhook.explain.pods.manifest_value import Value

IN, NOT_IN, EXISTS, DOES_NOT_EXIST = "In", "NotIn", "Exists", "DoesNotExist"
GREATER, LESS = "Gt", "Lt"
EQUAL = "Equal"
NAME_FIELD = "metadata.name"  # the only field of a node that matchFields may name
# The origin of a requirement.
NODE_NAME, NODE_SELECTOR, RUNTIME_CLASS = "nodeName", "nodeSelector", "RuntimeClass"
_MOST_OF_CLASS = 100  # of a RuntimeClass, which any number of pods may name
AFFINITY, PREFERENCE = "nodeAffinity", "preferred nodeAffinity"
_SCHEDULING = "DuringSchedulingIgnoredDuringExecution"


@dataclass(frozen=True, slots=True)
class NodeRequirement:
    """A requirement on one label or field of the node; `values` are as written."""

    origin: str
    key: str
    operator: str
    values: tuple[str, ...]
    where: str  # "pod.yaml:17"
    is_field: bool = False

    def __str__(self) -> str:
        """Return the requirement in the form of kubectl's selectors."""
        if self.operator == IN and len(self.values) == 1:
            return printable(f"{self.key}={self.values[0]}")
        return printable(" ".join(filter(None, (self.key, self.operator, ", ".join(self.values)))))


Term = tuple[NodeRequirement, ...]


@dataclass(frozen=True, slots=True)
class Toleration:
    """A toleration; an empty key or effect is any."""

    key: str
    operator: str
    value: str
    effect: str
    where: str

    def __str__(self) -> str:
        """Return it as `kubectl describe pod` does."""
        pair = f"{self.key}={self.value}" if self.value else self.key or "all"
        exists = " op=Exists" if self.operator == EXISTS else ""
        return printable(f"{pair}{':' if self.effect else ''}{self.effect}{exists}")

    def covers(self, key: str, value: str, effect: str) -> bool:
        """Return whether it tolerates a taint."""
        if self.key not in ("", key) or self.effect not in ("", effect):
            return False
        if self.operator == EXISTS:
            return True
        return self.operator == EQUAL and bool(self.key) and self.value == value


@dataclass(frozen=True, slots=True)
class Constraints:
    """What a pod requires of its node. `terms` is None without a required node affinity.

    One of the `terms` must hold.
    """

    selector: Term = ()
    terms: tuple[Term, ...] | None = None
    terms_where: str = ""
    preferred: tuple[Term, ...] = ()
    tolerations: tuple[Toleration, ...] = ()
    node_name: str = ""


@dataclass(frozen=True, slots=True)
class ClassScheduling:
    """The handler of a RuntimeClass, and what it adds to its pods."""

    handler: str | None = None
    selector: Term = ()
    tolerations: tuple[Toleration, ...] = ()


def read_class(found: Value) -> ClassScheduling:
    """Return what a RuntimeClass of a manifest adds to its pods."""
    scheduling = found["scheduling"]
    return ClassScheduling(
        found["handler"].text() or None,
        tuple(islice(_selector(scheduling["nodeSelector"], RUNTIME_CLASS), _MOST_OF_CLASS)),
        tuple(islice(_tolerations(scheduling["tolerations"]), _MOST_OF_CLASS)),
    )


def read_constraints(spec: Value, added: ClassScheduling) -> Constraints:
    """Return the constraints of a pod's `spec`, with those that its RuntimeClass adds."""
    affinity = spec.at("affinity", "nodeAffinity")
    required = affinity[f"required{_SCHEDULING}"]
    preferred = affinity[f"preferred{_SCHEDULING}"]
    named = spec["nodeName"]
    own = [*_selector(spec["nodeSelector"], NODE_SELECTOR)]
    name = NodeRequirement(NODE_NAME, NAME_FIELD, IN, (named.text(),), named.where, is_field=True)
    terms = required["nodeSelectorTerms"].items()
    return Constraints(
        selector=(*([name] if named.text() else ()), *own, *added.selector),
        terms=tuple(_term(one, AFFINITY) for one in terms) if required.is_there else None,
        terms_where=required.where,
        preferred=tuple(_term(one["preference"], PREFERENCE) for one in preferred.items()),
        tolerations=(*_tolerations(spec["tolerations"]), *added.tolerations),
        node_name=named.text(),
    )


def _selector(found: Value, origin: str) -> Iterator[NodeRequirement]:
    for key, value in found.members().items():
        yield NodeRequirement(origin, key, IN, (value.text(),), value.where)


def _term(term: Value, origin: str) -> Term:
    return tuple(
        NodeRequirement(
            origin,
            one["key"].text(),
            one["operator"].text(),
            tuple(value.text() for value in one["values"].items()),
            one.where,
            is_field,
        )
        for section, is_field in (("matchExpressions", False), ("matchFields", True))
        for one in term[section].items()
    )


def _tolerations(found: Value) -> Iterator[Toleration]:
    for one in found.items():
        yield Toleration(
            one["key"].text(),
            one["operator"].text() or EQUAL,
            one["value"].text(),
            one["effect"].text(),
            one.where,
        )
