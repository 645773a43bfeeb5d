# SPDX-License-Identifier: Apache-2.0
"""The objections to claims, templates and device classes: of the API server, of the driver, others.

`by` is the component that refuses an object. What the API server accepts and cannot work is also
an objection: the server checks no parameters of drivers, and no names of classes and attributes.
"""

from __future__ import annotations

import re
from collections import defaultdict

from gpuhook.dra.claims.settings import opaque_parameters
from gpuhook.dra.pool.pool_device import MEMORY, RESOURCE, SLOTS
from gpuhook.explain.claims.cel import cel_selectors
from gpuhook.explain.claims.claim_manifests import claim_spec, default_classes, name_of
from gpuhook.explain.claims.claim_objects import CLASS
from gpuhook.explain.claims.rules import claim_schema
from gpuhook.explain.pods.pod_requests import API_SERVER, REFUSED, SCHEDULER, WARNING, Objection
from gpuhook.host.suggestion import nearest
from gpuhook.vendors.catalogue import vendors

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from gpuhook.explain.claims.cel.cel_selectors import SelectorVerdict
    from gpuhook.explain.claims.claim_objects import ClaimManifest, ClassObject
    from gpuhook.explain.pods.manifest_value import Value

DRIVER = "DRA driver"
_ATTRIBUTE = re.compile(r"""device\.attributes\[\s*['"]([^'"]+)['"]\s*\]\s*\.\??\s*(\w+)""")
_DRIVER_NAME = re.compile(r"""device\.driver\s*==\s*['"]([^'"]+)['"]""")
_STANDARD = "resource.kubernetes.io"
_NEARLY = 0.85  # gpu.nvidia.co is a typing error, gpu.example.com is another driver


def title(one: Value) -> str:
    """Return the name of an object: "ResourceClaim/mine"."""
    return f"{one['kind'].text()}/{name_of(one)}"


def claim_objections(
    manifests: Sequence[ClaimManifest], further: Iterable[ClassObject] = ()
) -> Iterator[tuple[str, Objection]]:
    """Yield the title of each object and an objection to it; `further` are classes elsewhere."""
    values = [value for manifest in manifests for value in manifest.objects]
    own = [one for manifest in manifests for one in manifest.classes]
    names = {one.name for one in (*own, *further, *default_classes())}
    verdicts = _compiled(values)
    for value in values:
        document, named = value.plain(), title(value)
        refused = list(claim_schema.schema_objections(document, value))
        # The driver gets no object that the API server refuses.
        for one in refused or _of_driver(document, value):
            yield named, one
        for selector in _expressions(value):
            for one in _of_expression(selector, verdicts[selector.text()]):
                yield named, one
        if value["kind"].text() != CLASS:
            for one in _of_claim(value, names):
                yield named, one
    yield from _same_resource(own)


def _compiled(values: Iterable[Value]) -> Mapping[str, SelectorVerdict]:
    texts = [selector.text() for value in values for selector in _expressions(value)]
    return {text: found[-1] for text, found in cel_selectors.judged(texts, ()).items()}


def _expressions(value: Value) -> Iterator[Value]:
    """Yield the CEL expressions of an object that are not empty."""
    own = [value["spec"]]
    if value["kind"].text() != CLASS:
        requests = claim_spec(value)[0].at("devices", "requests").items()
        own = [one for r in requests for one in (r, r["exactly"], *r["firstAvailable"].items())]
    for one in own:
        for selector in one["selectors"].items():
            if selector.at("cel", "expression").text():
                yield selector.at("cel", "expression")


def _of_driver(document: object, value: Value) -> Iterator[Objection]:
    """Yield what gpuhook's driver refuses when it prepares the claim."""
    for one in opaque_parameters.problems(document if isinstance(document, dict) else {}):
        path = [int(p) if p.isdecimal() else p for p in re.findall(r"[^.\[\]]+", one.path)]
        where = claim_schema.place(value, path).where
        said = f"FailedPrepareDynamicResources: {one}"
        wanted = one.message.partition("must be ")[2].partition(", found ")[0]
        instead = one.hint or wanted or "a valid value"
        yield Objection("parameters", DRIVER, REFUSED, said, instead, where)


def _of_expression(selector: Value, verdict: SelectorVerdict) -> Iterator[Objection]:
    text, where = selector.text(), selector.where
    if verdict.verdict == cel_selectors.BROKEN:
        said = f"Invalid value: {text}: {verdict.reason}"
        yield Objection("expression", API_SERVER, REFUSED, said, "a valid CEL expression", where)
    elif verdict.verdict == cel_selectors.NOT_JUDGED:
        said = f"the expression was not judged: {verdict.reason}"
        yield Objection("not-judged", API_SERVER, WARNING, said, "check it on a cluster", where)
    drivers = [vendor.dra_driver for vendor in vendors()]
    for name in _DRIVER_NAME.findall(text):
        yield from _similar("driver", name, drivers, where)
    for domain, name in _ATTRIBUTE.findall(text):
        known = known_attributes(domain)
        if known and name not in known:
            like = nearest(name, known) or ", ".join(known)
            said = (
                f"no device has the attribute {domain}/{name}: the expression fails, and the "
                "scheduler with it"
            )
            yield Objection("attribute", SCHEDULER, WARNING, said, like, where)
        if not known:
            yield from _similar("driver", domain, drivers, where)


def known_attributes(domain: str) -> tuple[str, ...]:
    """Return the attributes of a domain that gpuhook's drivers publish, () for other domains."""
    if domain == _STANDARD:
        return ("pcieRoot", "pciBusID", "numaNode")
    found = [vendor.dra_attributes for vendor in vendors() if vendor.dra_driver == domain]
    return (*found[0], RESOURCE) if found else ()


def _similar(kind: str, name: str, known: Sequence[str], where: str) -> Iterator[Objection]:
    """Yield a warning for a name that is nearly a known one."""
    like = nearest(name, known, _NEARLY) if name not in known else None
    if like:
        said = f"gpuhook has no {kind} {name}"
        yield Objection(f"{kind}-name", SCHEDULER, WARNING, said, like, where)


def _of_claim(value: Value, classes: Iterable[str]) -> Iterator[Objection]:
    spec, path = claim_spec(value)
    devices, names, known = spec["devices"], dict[str, None](), sorted(classes)
    for number, request in enumerate(devices["requests"].items()):
        name = request["name"].text()
        if name in names:
            said = f'{path}.devices.requests[{number}].name: Duplicate value: "{name}"'
            yield Objection("duplicate", API_SERVER, REFUSED, said, "another name", request.where)
        names[name] = None
        choices = request["firstAvailable"].items()
        names |= dict.fromkeys(f"{name}/{one['name'].text()}" for one in choices)
        for one in choices or (request["exactly"], request):
            yield from _of_request(one, known)
    for section in ("constraints", "config"):
        for number, one in enumerate(devices[section].items()):
            for request in one["requests"].items():
                if request.text() not in names:
                    place = f"{path}.devices.{section}[{number}].requests"
                    said = f'{place}: Invalid value: "{request.text()}": must be a request'
                    instead = nearest(request.text(), list(names)) or f"one of {', '.join(names)}"
                    yield Objection("request", API_SERVER, REFUSED, said, instead, request.where)
    drivers = [vendor.dra_driver for vendor in vendors()]
    for one in devices["config"].items():
        driver = one.at("opaque", "driver")
        yield from _similar("driver", driver.text(), drivers, driver.where)


def _of_request(one: Value, classes: Sequence[str]) -> Iterator[Objection]:
    name = one["deviceClassName"]
    if name.text() and name.text() not in classes:
        like = nearest(name.text(), classes)
        said = f"the files and gpuhook's chart have no DeviceClass {name.text()}"
        instead = like or f"a class of the cluster (with --class-file), or {', '.join(classes)}"
        yield Objection("class", SCHEDULER, WARNING, said, instead, name.where)
    if one["allocationMode"].text() == "All" and one["count"].is_there:
        said = "count: Invalid value: must not be specified when allocationMode is 'All'"
        yield Objection("count", API_SERVER, REFUSED, said, "no count", one["count"].where)
    known = _capacities()
    for capacity, amount in one.at("capacity", "requests").members().items():
        like = nearest(capacity, known) if capacity not in known else None
        if like:
            said = f"gpuhook has no capacity {capacity}"
            yield Objection("capacity", SCHEDULER, WARNING, said, like, amount.where)


def _capacities() -> list[str]:
    """Return the capacities of devices; those of a shared one's chip are attributes."""
    return [MEMORY, SLOTS, *(name for vendor in vendors() for name in vendor.dra_attributes)]


def _same_resource(classes: Iterable[ClassObject]) -> Iterator[tuple[str, Objection]]:
    by_name: dict[str, list[ClassObject]] = defaultdict(list)
    for one in classes:
        if one.extended_resource:
            by_name[one.extended_resource].append(one)
    for name, own in by_name.items():
        first = min(own, key=lambda one: one.name)
        for one in own:
            if one is not first:
                said = (
                    f"DeviceClass {first.name} ({first.source}) has the same extendedResourceName "
                    f"{name}: the younger class applies, and of one age the first by name"
                )
                instead = "the name in one of them"
                objection = Objection(
                    "same-resource", SCHEDULER, WARNING, said, instead, one.source
                )
                yield f"{CLASS}/{one.name}", objection
