# SPDX-License-Identifier: Apache-2.0
"""Which devices claims get: capacity, count, All, firstAvailable, constraints, taints, admin."""

from __future__ import annotations

import pytest

from gpuhook.dra.pool.pool_device import Capacity, PoolDevice, Taint
from gpuhook.explain.claims import claim_allocation
from gpuhook.explain.claims.cel.cel_selectors import BROKEN, NOT_JUDGED
from gpuhook.explain.claims.claim_allocation import ALLOCATED, PENDING
from gpuhook.explain.claims.device_matches import rounded
from gpuhook.explain.pods.pod_requests import REFUSED
from tests.unit.explain.claims.pools import (
    DRIVER,
    GIB,
    answer,
    answers,
    chosen,
    claim,
    device,
    pool,
)
from tests.unit.explain.claims.test_cel_selectors import with_library

pytestmark = with_library
ANY = "apiVersion: resource.k8s.io/v1\nkind: DeviceClass\nmetadata: {name: any}\nspec: {}\n---\n"


def request(name: str = "a", fields: str = "") -> str:
    more = f", {fields}" if fields else ""
    return f"- {{name: {name}, exactly: {{deviceClassName: any{more}}}}}\n"


def selector(expression: str) -> str:
    return f'selectors: [{{cel: {{expression: "{expression}"}}}}]'


INDEX = f"device.attributes['{DRIVER}'].index"


def test_the_first_devices_that_fit_are_chosen() -> None:
    found = answer(
        ANY + claim(request("a", selector(f"{INDEX} > 0")) + request("b", "count: 2")),
        *map(device, range(4)),
    )
    assert chosen(found) == [("a", "gpu-1"), ("b", "gpu-0"), ("b", "gpu-2")]


def test_an_earlier_choice_is_taken_back_for_a_later_request() -> None:
    later = request("b", selector(f"{INDEX} == 0"))
    found = answer(ANY + claim(request("a") + later), *map(device, range(2)))
    assert chosen(found) == [("a", "gpu-1"), ("b", "gpu-0")]


def test_the_reason_names_what_excludes_the_devices() -> None:
    found = answer(ANY + claim(request("a", "count: 3")), device(0), device(1))
    assert found.outcome.result == PENDING
    assert found.outcome.reason == "request a, 3 devices: request a has the device (2 devices)"
    found = answer(ANY + claim(request("a", selector(f"{INDEX} > 5"))), device(0), device(1))
    assert found.outcome.reason == "request a: excluded by selector 0 of request a (2 devices)"
    match = found.matches[0, "a"][1]
    assert (match.by, match.where) == ("selector 0 of request a", "claim.yaml:12")
    assert match.reason == f"{INDEX} > 5 is false"


def test_a_selector_of_the_class_is_named_with_its_class() -> None:
    own = ANY.replace("spec: {}", f"spec: {{{selector('false')}}}")
    match = answer(own + claim(request()), device()).matches[0, "a"][0]
    assert (match.by, match.where) == ("selector 0 of class any", "claim.yaml:4")


@pytest.mark.parametrize(
    ("amount", "consumed"),
    [("1", GIB), ("1Gi", GIB), ("1025Mi", 2 * GIB), ("4.5Gi", 5 * GIB), ("16Gi", 16 * GIB)],
)
def test_a_request_of_a_shared_device_is_rounded_up(amount: str, consumed: int) -> None:
    found = answer(
        ANY + claim(request("a", f"capacity: {{requests: {{memory: {amount}}}}}")),
        device(shared=True),
    )
    assert found.outcome.chosen[0].match.consumes == {"memory": consumed, "slots": 1}


def test_rounding_starts_at_the_least_amount() -> None:
    capacity = Capacity(100, default=10, least=7, step=5)
    assert [rounded(capacity, n) for n in (0, 7, 8, 12, 13)] == [7, 7, 12, 12, 17]
    assert rounded(Capacity(100, default=10), 13) == 13


@pytest.mark.parametrize(
    ("amount", "reason"),
    [
        ("17Gi", "the device allows"),
        ("15.5Gi", None),
        ("x", "is not a quantity"),
        ("-1", "is not a quantity"),
    ],
)
def test_capacity_that_a_device_lacks_excludes_it(amount: str, reason: str | None) -> None:
    for shared in (True, False):
        found = answer(
            ANY + claim(request("a", f"capacity: {{requests: {{memory: '{amount}'}}}}")),
            device(shared=shared),
        )
        match = found.matches[0, "a"][0]
        assert found.outcome.result == (PENDING if reason else ALLOCATED)
        assert (reason or "") in match.reason
        assert match.by == ("capacity memory" if reason else "")


def test_an_unknown_capacity_excludes_a_device() -> None:
    found = answer(ANY + claim(request("a", "capacity: {requests: {cores: 1}}")), device())
    assert "it has memory" in found.matches[0, "a"][0].reason


def test_slots_and_memory_of_a_shared_device_run_out() -> None:
    four = "".join(request(f"r{n}") for n in range(4))
    assert answer(ANY + claim(four), device(shared=True)).outcome.result == ALLOCATED
    fifth = answer(ANY + claim(four + request("r4")), device(shared=True))
    assert fifth.outcome.result == PENDING
    assert "no memory is left" in fifth.outcome.reason
    large = "capacity: {requests: {memory: 7Gi}}"
    both = request("a", large) + request("b", large)
    assert answer(ANY + claim(both), device(shared=True)).outcome.result == ALLOCATED
    third = answer(ANY + claim(both + request("c", large)), device(shared=True))
    assert third.outcome.reason == "request c: no memory is left"


def test_a_shared_device_without_a_policy_is_consumed_as_a_whole() -> None:
    from dataclasses import replace

    own = replace(device(shared=True), capacity={"memory": Capacity(16 * GIB)})
    two = ANY + claim(request("a") + request("b"))
    assert answer(two, own).outcome.result == PENDING
    assert answer(two, replace(own, capacity={})).outcome.result == ALLOCATED  # no limit


def test_one_request_has_different_devices() -> None:
    found = answer(ANY + claim(request("a", "count: 2")), device(shared=True))
    assert found.outcome.result == PENDING


def test_all_devices_are_the_matching_ones() -> None:
    fields = f"allocationMode: All, {selector(f'{INDEX} != 1')}"
    found = answer(ANY + claim(request("a", fields)), *map(device, range(3)))
    assert chosen(found) == [("a", "gpu-0"), ("a", "gpu-2")]
    none = answer(ANY + claim(request("a", f"allocationMode: All, {selector('false')}")), device())
    assert none.outcome.reason == "request a: no device of the node matches"


def test_all_devices_cannot_be_allocated_if_one_is_in_use_or_tainted() -> None:
    both = request("first") + request("a", "allocationMode: All")
    found = answer(ANY + claim(both), device(0), device(1))
    assert found.outcome.result == PENDING
    assert "request first has the device" in found.outcome.reason
    tainted = device(1, taints=(Taint("bad"),))
    found = answer(ANY + claim(request("a", "allocationMode: All")), device(0), tainted)
    assert found.outcome.reason == "request a: gpu-1: excluded by taint bad"


def test_more_devices_than_a_claim_can_have() -> None:
    found = answer(ANY + claim(request("a", "allocationMode: All")), *map(device, range(33)))
    assert found.outcome.reason == "a claim can have 32 devices at most"
    found = answer(ANY + claim(request("a", "count: 40")), *map(device, range(64)))
    assert found.outcome.result == PENDING


@pytest.mark.parametrize(("number", "expected"), [(3, ["gpu-0", "gpu-1", "gpu-2"]), (2, ["gpu-0"])])
def test_the_first_available_choice_applies(number: int, expected: list[str]) -> None:
    choices = """
        - name: a
          firstAvailable:
          - {name: big, deviceClassName: any, count: 3}
          - {name: small, deviceClassName: any}
    """
    found = answer(ANY + claim(choices), *map(device, range(number)))
    name = "a/big" if number == 3 else "a/small"
    assert chosen(found) == [(name, one) for one in expected]


@pytest.mark.parametrize(
    ("constraint", "expected"),
    [
        ("matchAttribute: {d}/brand", ["gpu-1", "gpu-2"]),
        ("matchAttribute: resource.kubernetes.io/pcieRoot", ["gpu-0", "gpu-2"]),
        ("distinctAttribute: {d}/brand", ["gpu-0", "gpu-1"]),
        ("matchAttribute: {d}/brand, requests: [b]", ["gpu-0", "gpu-1"]),
        ("matchAttribute: {d}/missing", []),
        ("distinctAttribute: {d}/missing", []),
        ("matchAttribute: other.example.com/brand", []),
    ],
)
def test_constraints_combine_devices(constraint: str, expected: list[str]) -> None:
    root = "resource.kubernetes.io/pcieRoot"
    devices = [
        device(0, brand="A", extra={root: "pci1"}),
        device(1, brand="B"),
        device(2, brand="B", extra={root: "pci1"}),
    ]
    text = claim(request("a") + request("b"), f"constraints: [{{{constraint.format(d=DRIVER)}}}]")
    found = answer(ANY + text, *devices)
    assert [name for _, name in chosen(found)] == expected
    if not expected:
        assert "lacks the attribute" in found.outcome.reason


def test_a_constraint_does_not_compare_different_types() -> None:
    text = claim(request("a", "count: 2"), f"constraints: [{{matchAttribute: {DRIVER}/x}}]")
    assert answer(ANY + text, device(0, x=1), device(1, x=True)).outcome.result == PENDING


@pytest.mark.parametrize(
    ("toleration", "result"),
    [
        ("", PENDING),
        ("{key: bad, operator: Exists}", ALLOCATED),
        ("{operator: Exists}", ALLOCATED),
        ("{key: bad, operator: Exists, effect: NoExecute}", PENDING),
        ("{key: bad, operator: Exists, effect: NoSchedule}", ALLOCATED),
        ("{key: bad, operator: Equal, value: '79'}", ALLOCATED),
        ("{key: bad, value: '79'}", ALLOCATED),
        ("{key: bad, operator: Equal, value: '80'}", PENDING),
        ("{key: other, operator: Exists}", PENDING),
    ],
)
def test_taints_need_a_toleration(toleration: str, result: str) -> None:
    own = device(taints=(Taint("bad", "79"), Taint("note", effect="None")))
    found = answer(ANY + claim(request("a", f"tolerations: [{toleration}]")), own)
    assert found.outcome.result == result
    if result == PENDING:
        assert found.matches[0, "a"][0].reason == "the device has the taint bad=79:NoSchedule"


def test_admin_access_uses_no_device() -> None:
    admin = "allocationMode: All, adminAccess: true"
    text = ANY + claim(request("used") + request("seen", admin), name="mine")
    found = answer(text, device(0), device(1))
    # The claim itself has gpu-0 already.
    assert found.outcome.result == PENDING
    pod = """
---
apiVersion: v1
kind: Pod
metadata: {name: p}
spec:
  resourceClaims: [{name: x, resourceClaimName: c}, {name: y, resourceClaimName: d}]
  containers: [{name: c}]
"""
    text = ANY + claim(request()) + "---\n" + claim(request("seen", admin), name="d") + pod
    found = answer(text, device(0), device(1))
    assert chosen(found) == [("a", "gpu-0"), ("seen", "gpu-0"), ("seen", "gpu-1")]
    assert "default" in found.notes[0]
    for label, result in (("true", ALLOCATED), ("false", REFUSED)):
        labels = f"labels: {{resource.kubernetes.io/admin-access: '{label}'}}"
        space = f"---\nkind: Namespace\nmetadata: {{name: default, {labels}}}\n"
        assert answer(text + space, device(0), device(1)).outcome.result == result


def test_counters_of_partitions_run_out() -> None:
    def part(number: int, slices: int) -> PoolDevice:
        return device(number, counters={"gpu-counters": {"slices": slices}})

    sets = {"gpu-counters": {"slices": 4}}
    parts = [part(0, 4), part(1, 2), part(2, 2), part(3, 1)]
    found = answer(ANY + claim(request("a", "count: 2")), *parts, sets=sets)
    assert [name for _, name in chosen(found)] == ["gpu-1", "gpu-2"]
    found = answer(ANY + claim(request("a", "count: 3")), *parts, sets=sets)
    assert "no slices of gpu-counters is left" in found.outcome.reason
    lost = answer(ANY + claim(request()), part(0, 1))
    assert lost.outcome.result == PENDING  # the pool does not have the set


def test_a_selector_that_fails_ends_the_search_as_in_the_scheduler() -> None:
    """The scheduler evaluates a selector only for the devices that it tries."""
    text = ANY + claim(request("a", selector(f"device.attributes['{DRIVER}'].x == 1")))
    found = answer(text, device(0, x=2), device(1), device(2, x=1))
    assert found.outcome.result == BROKEN
    assert found.outcome.reason == 'selector 0 of request a on gpu-1: no such key: "x"'
    assert answer(text, device(0, x=1), device(1)).outcome.result == ALLOCATED
    everything = text.replace("selectors:", "allocationMode: All, selectors:")
    assert answer(everything, device(0, x=1), device(1)).outcome.result == BROKEN


def test_what_was_not_judged_is_never_a_match() -> None:
    text = ANY + claim(request("a", selector("[1].sum() == 1")))
    found = answer(text, device(0))
    assert found.outcome.result == NOT_JUDGED
    assert found.outcome.chosen == ()
    first = selector("[1].sum() == 1").replace(
        "[{", f'[{{cel: {{expression: "{INDEX} == 1"}}}}, {{'
    )
    found = answer(ANY + claim(request("a", first)), device(0), device(1))
    assert found.outcome.reason.startswith("selector 1 of request a on gpu-1")


def test_a_missing_class_or_claim_is_not_judged() -> None:
    found = answer(claim("- {name: a, exactly: {deviceClassName: other}}"), device())
    assert (found.outcome.result, found.outcome.reason) == (
        NOT_JUDGED,
        "the manifest does not have DeviceClass other",
    )
    pod = (
        "apiVersion: v1\nkind: Pod\nmetadata: {name: p}\nspec:\n"
        "  resourceClaims: [{name: g, resourceClaimTemplateName: t}]\n  containers: [{name: c}]\n"
    )
    found = answer(pod, device())
    assert found.outcome.reason == ("the manifest does not have ResourceClaimTemplate t in default")


def test_a_node_without_devices() -> None:
    (found,) = answers(ANY + claim(request()), [pool()])
    assert found.outcome.reason == "request a: the node has no device"


def test_too_many_combinations_are_not_judged(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(claim_allocation, "_MOST_STEPS", 500)
    requests = "".join(request(f"r{n}", f"count: {2 + n % 2}") for n in range(8))
    text = ANY + claim(requests, f"constraints: [{{matchAttribute: {DRIVER}/brand}}]")
    devices = [device(number, brand=str(number // 19)) for number in range(60)]
    found = answer(text, *devices)
    assert found.outcome.result == NOT_JUDGED
    assert "combinations" in found.outcome.reason


def test_a_pod_with_very_many_claims() -> None:
    names = "".join(f"{{name: c{n}, resourceClaimName: c}}, " for n in range(400))
    pod = f"---\nkind: Pod\nmetadata: {{name: p}}\nspec: {{resourceClaims: [{names}]}}\n"
    found = answer(ANY + claim(request("a", "allocationMode: All")) + pod, device(shared=True))
    assert found.outcome.result in (NOT_JUDGED, PENDING)


def test_a_class_alone_is_explained_with_a_claim_for_it() -> None:
    found = answer(
        ANY.replace("spec: {}", f"spec: {{{selector(f'{INDEX} == 1')}}}"), device(0), device(1)
    )
    assert chosen(found) == [("one", "gpu-1")]


def test_claims_of_the_first_beta_version() -> None:
    text = claim(f"- {{name: a, deviceClassName: any, count: 2, {selector(f'{INDEX} > 0')}}}")
    found = answer(ANY + text.replace("/v1\n", "/v1beta1\n"), *map(device, range(3)))
    assert chosen(found) == [("a", "gpu-1"), ("a", "gpu-2")]
