# SPDX-License-Identifier: Apache-2.0
"""Which claims are allocated together: those of a pod; a claim that no pod names is alone."""

from __future__ import annotations

from dataclasses import dataclass

from gpuhook.explain.claims.claim_objects import (
    CLAIM,
    IMPLICIT,
    TEMPLATE,
    ClaimObject,
    ClassRequest,
    RequestChoices,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from gpuhook.explain.claims.claim_objects import ClaimManifest, ClassObject
    from gpuhook.explain.pods.workloads import Pod

EXTENDED = "the extended resources of"  # a pod: the scheduler makes a claim for them
_LISTS = ("initContainers", "containers")  # in the order of the scheduler's claim


@dataclass(frozen=True, slots=True)
class ClaimGroup:
    """Claims that are allocated together, with their `names` in the pod.

    `position` is that of the pod in the manifest, -1 without one. `missing` are objects that the
    manifest does not have.
    """

    claims: tuple[ClaimObject, ...]
    names: tuple[str, ...] = ()
    pod: str = ""
    position: int = -1
    missing: tuple[str, ...] = ()


def extended_classes(
    own: Iterable[ClassObject], every: Iterable[ClassObject]
) -> dict[str, ClassObject]:
    """Return the class of each extended resource; of two with one name, the first by its name.

    The chart's own names apply only if the manifest has their class: a device plugin may have them.
    """
    found = {f"{IMPLICIT}{one.name}": one for one in every}
    for one in sorted(own, key=lambda one: one.name):
        if one.extended_resource:
            found.setdefault(one.extended_resource, one)
    return found


def claim_groups(
    manifest: ClaimManifest, extended: Mapping[str, ClassObject]
) -> Iterator[ClaimGroup]:
    """Yield the claims of each pod, then those that no pod names, then each class without both."""
    used: set[tuple[str, str, str]] = set()
    is_empty = True
    for position, pod in enumerate(manifest.pods):
        group = _of_pod(pod, position, manifest, extended)
        if group.claims or group.missing:
            used |= {(one.kind, one.namespace, one.name) for one in group.claims}
            is_empty = False
            yield group
    for one in manifest.claims:
        is_empty = False
        if (one.kind, one.namespace, one.name) not in used:
            yield ClaimGroup((one,))
    for device_class in manifest.classes if is_empty else ():
        request = ClassRequest("one", device_class.name, device_class.source)
        choices = (RequestChoices("one", (request,)),)
        yield ClaimGroup((ClaimObject("a claim for", device_class.name, "", "", choices),))


def _of_pod(
    pod: Pod, position: int, manifest: ClaimManifest, extended: Mapping[str, ClassObject]
) -> ClaimGroup:
    claims, names, missing = [], [], []
    for one in pod.spec["resourceClaims"].items():
        is_template = one["resourceClaimTemplateName"].is_there
        kind = TEMPLATE if is_template else CLAIM
        name = one["resourceClaimTemplateName" if is_template else "resourceClaimName"].text()
        found = manifest.claim(kind, pod.namespace, name)
        if found is None:
            missing.append(f"{kind} {name} in {pod.namespace}")
        else:
            claims.append(found)
            names.append(one["name"].text())
    requests = tuple(_extended_requests(pod, extended))
    if requests:
        claims.append(ClaimObject(EXTENDED, pod.workload, pod.namespace, pod.spec.where, requests))
        names.append("")
    return ClaimGroup(tuple(claims), tuple(names), pod.workload, position, tuple(missing))


def extended_name(container: int, resource: int) -> str:
    """Return the name of the request that the scheduler makes for a resource of a container."""
    return f"container-{container}-request-{resource}"


def _extended_requests(pod: Pod, extended: Mapping[str, ClassObject]) -> Iterator[RequestChoices]:
    containers = [one for name in _LISTS for one in pod.spec[name].items()]
    for index, container in enumerate(containers):
        amounts = container.at("resources", "limits").members().items()
        named = sorted((name, one) for name, one in amounts if name in extended)
        for number, (name, amount) in enumerate(named):
            count = amount.text()
            if count.isdecimal() and int(count[:9]) > 0:
                request = ClassRequest(
                    extended_name(index, number),
                    extended[name].name,
                    amount.where,
                    count=int(count[:9]),
                )
                yield RequestChoices(request.name, (request,))
