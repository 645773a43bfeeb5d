# SPDX-License-Identifier: Apache-2.0
"""The objections to the claims of a pod: references that fail, and pods that cannot have claims."""

from __future__ import annotations

from gpuhook.explain.claims.claim_objects import CLAIM, TEMPLATE
from gpuhook.explain.pods.pod_requests import (
    API_SERVER,
    KUBELET,
    PENDING,
    REFUSED,
    SCHEDULER,
    WARNING,
    Objection,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

    from gpuhook.explain.claims.claim_objects import ClaimManifest
    from gpuhook.explain.pods.manifest_value import Value
    from gpuhook.explain.pods.workloads import Pod

_SOURCE = "kubernetes.io/config.source"
_STATIC = "/etc/kubernetes/manifests/"
_LISTS = ("initContainers", "containers")
_KINDS = {"resourceClaimName": CLAIM, "resourceClaimTemplateName": TEMPLATE}


def pod_claim_objections(pod: Pod, manifest: ClaimManifest) -> Iterator[Objection]:
    """Yield the objections to the claims of a pod; none if it has no claims."""
    names: dict[str, Value] = {}
    for number, one in enumerate(pod.spec["resourceClaims"].items()):
        name, path = one["name"].text(), f"{pod.path}.resourceClaims[{number}]"
        if name in names:
            said = f'{path}.name: Duplicate value: "{name}"'
            yield Objection("claim-name", API_SERVER, REFUSED, said, "another name", one.where)
        if sum(one[key].is_there for key in _KINDS) != 1:
            said = f"{path}: Invalid value: exactly one of {' and '.join(_KINDS)} is required"
            yield Objection("claim-source", API_SERVER, REFUSED, said, "one of them", one.where)
        names[name] = one
    used: set[str] = set()
    for section in _LISTS:
        for number, container in enumerate(pod.spec[section].items()):
            path = f"{pod.path}.{section}[{number}].resources.claims"
            for index, claim in enumerate(container.at("resources", "claims").items()):
                used.add(claim["name"].text())
                yield from _reference(claim, names, f"{path}[{index}]", pod, manifest)
    for name in names.keys() - used:
        said = f"no container of the pod uses the claim {name}: none gets its devices"
        instead = f"resources: {{claims: [{{name: {name}}}]}} in a container"
        yield Objection("unused", KUBELET, WARNING, said, instead, names[name].where)
    if names:
        yield from _unscheduled(pod)
    yield from _ephemeral(pod)


def _reference(
    claim: Value, names: dict[str, Value], path: str, pod: Pod, manifest: ClaimManifest
) -> Iterator[Objection]:
    name, asked = claim["name"].text(), claim["request"].text()
    if name not in names:
        said = f'{path}.name: Not found: "{name}"'
        instead = f"one of {', '.join(names)}" if names else "a claim in spec.resourceClaims"
        yield Objection("claim-reference", API_SERVER, REFUSED, said, instead, claim.where)
        return
    key = next((key for key in _KINDS if names[name][key].is_there), "resourceClaimName")
    found = manifest.claim(_KINDS[key], pod.namespace, names[name][key].text())
    requests = [one.name for one in found.requests] if found else []
    if found and asked and asked not in requests:
        said = f"the claim {found.name} has no request {asked}: the container gets no device"
        instead = f"one of {', '.join(requests)}"
        yield Objection("claim-request", KUBELET, REFUSED, said, instead, claim.where)


def _unscheduled(pod: Pod) -> Iterator[Objection]:
    """Yield the objections to claims of pods that the scheduler does not see."""
    source = pod.metadata["annotations"][_SOURCE].text()
    if source == "file" or _STATIC in pod.spec.where:
        said = "a static pod cannot have resource claims: the kubelet refuses it"
        instead = "a DaemonSet, or a pod that the API server has"
        yield Objection("static-pod", KUBELET, REFUSED, said, instead, pod.spec.where)
    if pod.spec["nodeName"].text():
        said = "nodeName is set: the scheduler does not see the pod, and allocates no claim for it"
        instead = "nodeSelector: {kubernetes.io/hostname: NODE}"
        yield Objection("node-name", SCHEDULER, PENDING, said, instead, pod.spec["nodeName"].where)


def _ephemeral(pod: Pod) -> Iterator[Objection]:
    for number, one in enumerate(pod.spec["ephemeralContainers"].items()):
        claims = one.at("resources", "claims")
        if claims.items():
            path = f"{pod.path}.ephemeralContainers[{number}].resources"
            said = f"{path}: Forbidden: cannot be set for an Ephemeral Container"
            instead = "the claim in a container of the pod"
            yield Objection("ephemeral-claims", API_SERVER, REFUSED, said, instead, claims.where)
