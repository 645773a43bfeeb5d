# SPDX-License-Identifier: Apache-2.0
"""Claims, templates of claims and device classes, as a manifest has them."""

from __future__ import annotations

from dataclasses import dataclass, field

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

    from gpuhook.explain.pods.manifest_value import Value
    from gpuhook.explain.pods.workloads import Pod

CLAIM, TEMPLATE, CLASS = "ResourceClaim", "ResourceClaimTemplate", "DeviceClass"
KINDS = (CLAIM, TEMPLATE, CLASS)
ALL, EXACT = "All", "ExactCount"
MATCH, DISTINCT = "matchAttribute", "distinctAttribute"
IMPLICIT = "deviceclass.resource.kubernetes.io/"  # and the name of a class: an extended resource


@dataclass(frozen=True, slots=True)
class DeviceSelector:
    """A CEL expression; `number` is its index among those of a class or request."""

    expression: str
    number: int
    where: str


@dataclass(frozen=True, slots=True)
class TaintToleration:
    """A toleration of a taint: without a key or an effect, it tolerates any."""

    key: str
    operator: str
    value: str
    effect: str


@dataclass(frozen=True, slots=True)
class ClassRequest:
    """A request of one class, or one of the choices of `firstAvailable`: "gpu", "gpu/small"."""

    name: str
    device_class: str
    where: str
    mode: str = EXACT
    count: int = 1
    selectors: tuple[DeviceSelector, ...] = ()
    capacity: Mapping[str, str] = field(default_factory=dict)  # as written: "10Gi"
    tolerations: tuple[TaintToleration, ...] = ()
    is_admin: bool = False


@dataclass(frozen=True, slots=True)
class RequestChoices:
    """A request and its `choices`, one without `firstAvailable`."""

    name: str
    choices: tuple[ClassRequest, ...]


@dataclass(frozen=True, slots=True)
class DeviceConstraint:
    """A constraint on the devices of some requests, of all without any."""

    kind: str  # MATCH or DISTINCT
    attribute: str  # "resource.kubernetes.io/pcieRoot"
    requests: tuple[str, ...]
    where: str

    def applies_to(self, request: str) -> bool:
        """Return whether the constraint applies to a request, or a choice of one."""
        named = {request, request.partition("/")[0]}
        return not self.requests or not named.isdisjoint(self.requests)


@dataclass(frozen=True, slots=True)
class ClaimObject:
    """A claim or the template of claims; `spec` is that of the claim, at `path`."""

    kind: str
    name: str
    namespace: str
    where: str
    requests: tuple[RequestChoices, ...] = ()
    constraints: tuple[DeviceConstraint, ...] = ()
    path: str = "spec"

    @property
    def title(self) -> str:
        return f"{self.kind}{'/' if self.kind in KINDS else ' '}{self.name}"


@dataclass(frozen=True, slots=True)
class ClassObject:
    """A device class: `source` is its file and line, or the name of the defaults."""

    name: str
    source: str
    selectors: tuple[DeviceSelector, ...] = ()
    extended_resource: str = ""


@dataclass(frozen=True, slots=True)
class ClaimManifest:
    """The objects of a manifest for claims; `objects` are those of KINDS, `pods` in their order.

    `namespaces` are those of the manifest whose label allows admin access.
    """

    claims: tuple[ClaimObject, ...]
    classes: tuple[ClassObject, ...]
    objects: tuple[Value, ...]
    pods: tuple[Pod, ...]
    namespaces: Mapping[str, bool] = field(default_factory=dict)
    kinds: tuple[str, ...] = ()  # of the objects without pods

    def claim(self, kind: str, namespace: str, name: str) -> ClaimObject | None:
        """Return the claim or template with this name."""
        key = (kind, namespace, name)
        return next((c for c in self.claims if (c.kind, c.namespace, c.name) == key), None)
