# SPDX-License-Identifier: Apache-2.0
"""Reads claims, templates and device classes of a manifest, of resource.k8s.io v1 to v1beta1.

Wrong values are read as if they were missing: claim_rules.py has the objections to them.
"""

from __future__ import annotations

from gpuhook.explain.claims.claim_objects import (
    ALL,
    CLASS,
    DISTINCT,
    EXACT,
    KINDS,
    MATCH,
    TEMPLATE,
    ClaimManifest,
    ClaimObject,
    ClassObject,
    ClassRequest,
    DeviceConstraint,
    DeviceSelector,
    RequestChoices,
    TaintToleration,
)
from gpuhook.explain.pods import pod_manifests, workloads
from gpuhook.vendors.catalogue import vendors

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from gpuhook.explain.pods.manifest_value import Value

DEFAULTS = "gpuhook's chart"
MOST_REQUESTS = 32
_ADMIN_LABEL = "resource.kubernetes.io/admin-access"
_LARGEST_COUNT = 1 << 20


def read(text: str, where: str) -> ClaimManifest:
    """Return the objects of a manifest; raises GH1930 for a text that is not YAML or JSON."""
    documents = pod_manifests.compose(text, where)
    every, found = list(workloads.objects(documents)), workloads.read_workloads(documents)
    named = [one for one in every if one["kind"].text() in KINDS]
    spaces = [one for one in every if one["kind"].text() == "Namespace"]
    return ClaimManifest(
        claims=tuple(_claim(one) for one in named if one["kind"].text() != CLASS),
        classes=tuple(_class(one) for one in named if one["kind"].text() == CLASS),
        objects=tuple(named),
        pods=found.pods,
        namespaces={
            one.at("metadata", "name").text(): one.at("metadata", "labels", _ADMIN_LABEL).text()
            == "true"
            for one in spaces
        },
        kinds=found.kinds,
    )


def together(manifests: Iterable[ClaimManifest]) -> ClaimManifest:
    """Return the claims of several manifests, for the pods of all of them."""
    claims = tuple(one for manifest in manifests for one in manifest.claims)
    return ClaimManifest(claims, (), (), ())


def default_classes() -> tuple[ClassObject, ...]:
    """Return the device classes that gpuhook's chart creates."""
    return tuple(
        ClassObject(
            name,
            DEFAULTS,
            (DeviceSelector(_selector(vendor.dra_driver, kind), 0, DEFAULTS),),
            f"{vendor.domain}/gpu" if name == vendor.dra_driver else "",
        )
        for vendor in vendors()
        for name, kind in vendor.dra_classes
    )


def _selector(driver: str, kind: str) -> str:
    own = f" && device.attributes['{driver}'].type == '{kind}'" if kind else ""
    return f"device.driver == '{driver}'{own}"


def claim_spec(one: Value) -> tuple[Value, str]:
    """Return the specification of the claim in an object, and its path."""
    is_template = one["kind"].text() == TEMPLATE
    return (one.at("spec", "spec"), "spec.spec") if is_template else (one["spec"], "spec")


def name_of(one: Value) -> str:
    """Return the name of an object, or the first part of a generated one."""
    return one.at("metadata", "name").text() or one.at("metadata", "generateName").text()


def _claim(one: Value) -> ClaimObject:
    spec, path = claim_spec(one)
    devices = spec["devices"]
    requests = devices["requests"].items()[: MOST_REQUESTS + 1]
    return ClaimObject(
        kind=one["kind"].text(),
        name=name_of(one),
        namespace=workloads.namespace(one["metadata"]),
        where=one.where,
        requests=tuple(RequestChoices(r["name"].text(), tuple(_choices(r))) for r in requests),
        constraints=tuple(_constraints(devices)),
        path=path,
    )


def _choices(request: Value) -> Iterator[ClassRequest]:
    name = request["name"].text()
    choices = request["firstAvailable"].items()
    for choice in choices:
        yield _request(choice, f"{name}/{choice['name'].text()}")
    if not choices:
        exact = request["exactly"]  # v1beta1 has no such level
        yield _request(exact if exact.is_there else request, name)


def _request(one: Value, name: str) -> ClassRequest:
    count = one["count"].text()
    return ClassRequest(
        name=name,
        device_class=one["deviceClassName"].text(),
        where=one.where,
        mode=ALL if one["allocationMode"].text() == ALL else EXACT,
        count=min(int(count), _LARGEST_COUNT) if count.isdecimal() and len(count) < 10 else 1,
        selectors=_selectors(one),
        capacity=one.at("capacity", "requests").texts(),
        tolerations=tuple(
            TaintToleration(*(t[key].text() for key in ("key", "operator", "value", "effect")))
            for t in one["tolerations"].items()
        ),
        is_admin=one["adminAccess"].is_true(),
    )


def _selectors(one: Value) -> tuple[DeviceSelector, ...]:
    found = (selector.at("cel", "expression") for selector in one["selectors"].items())
    return tuple(DeviceSelector(e.text(), number, e.where) for number, e in enumerate(found))


def _constraints(devices: Value) -> Iterator[DeviceConstraint]:
    for one in devices["constraints"].items():
        kind = DISTINCT if one[DISTINCT].is_there else MATCH
        requests = tuple(request.text() for request in one["requests"].items())
        yield DeviceConstraint(kind, one[kind].text(), requests, one.where)


def _class(one: Value) -> ClassObject:
    spec = one["spec"]
    return ClassObject(
        name_of(one), one.where, _selectors(spec), spec["extendedResourceName"].text()
    )
