# SPDX-License-Identifier: Apache-2.0
"""CEL selectors with the real library: what Kubernetes would say, or "not judged".

The cases are those of k8s.io/dynamic-resource-allocation/cel, as far as they need no feature gate.
"""

from __future__ import annotations

import sys
import time
from typing import Any

import pytest

from gpuhook.explain.claims.cel import cel_selectors
from gpuhook.explain.claims.cel.cel_selectors import (
    BROKEN,
    EXCLUDES,
    MATCHES,
    NOT_JUDGED,
    cel_device,
    judged,
)
from tests.unit.explain.claims.pools import DRIVER, device

OWN = f"device.attributes['{DRIVER}']"
MEMORY = f"device.capacity['{DRIVER}'].memory"
DEVICE = cel_device(
    DRIVER,
    device(0, on=True, shared=True, extra={"resource.kubernetes.io/pcieRoot": "pci0000:15"}),
)

try:
    import cel_expr_python  # noqa: F401
except ImportError:
    HAS_LIBRARY = False
else:
    HAS_LIBRARY = True
with_library = pytest.mark.skipif(not HAS_LIBRARY, reason="the extra gpuhook[cel] is missing")


def verdict(expression: str) -> tuple[str, str]:
    found = judged([expression], [DEVICE])[expression][0]
    return found.verdict, found.reason


@with_library
@pytest.mark.parametrize(
    "expression",
    [
        "true",
        f"device.driver == '{DRIVER}'",
        f"{OWN}.on",
        f"{OWN}['on']",
        f"{OWN}.index < 5 && {OWN}.index >= 0",
        f"{OWN}.type.matches('^g.u$') && {OWN}.type.lowerAscii() == 'gpu'",
        "device.attributes['resource.kubernetes.io'].pcieRoot.startsWith('pci')",
        "device.allowMultipleAllocations",
        # an optional attribute, and a domain that the device does not have
        f"{OWN}.?nope.orValue('') == ''",
        f"!{OWN}[?'nope'].hasValue()",
        "device.attributes['no.such.domain'].?x.orValue(1) == 1",
        "!has(device.attributes['no.such.domain'].x)",
        f"'{DRIVER}' in device.attributes && !('no.such.domain' in device.attributes)",
        f"cel.bind(own, {OWN}, own.on && own.type == 'gpu')",
        f"['a', 'gpu'].exists(one, one == {OWN}.type)",
        # an error in one side of || and && is no error if the other side decides
        f"{OWN}.nope == 1 || {OWN}.on",
        f"!({OWN}.nope == 1 && !{OWN}.on)",
        # quantities
        f"{MEMORY}.compareTo(quantity('16Gi')) == 0 && {MEMORY} == quantity('16384Mi')",
        f"{MEMORY}.isGreaterThan(quantity('10G')) && quantity('1').isLessThan({MEMORY})",
        f"{MEMORY}.sub(quantity('1Gi')).add(quantity('2Gi')) == quantity('17Gi')",
        "quantity('5').add(7).sub(2).asInteger() == 10",
        "quantity('-1m').sign() == -1 && quantity('0').sign() == 0",
        "!quantity('500m').isInteger() && quantity('500m').asApproximateFloat() == 0.5",
        "isQuantity('1.5Gi') && !isQuantity('1.5 GB')",
        # versions
        f"{OWN}.driverVersion.isGreaterThan(semver('570.9.9'))",
        f"{OWN}.driverVersion.major() == 580 && {OWN}.driverVersion.patch() == 2",
        "semver('1.2.3-alpha').isLessThan(semver('1.2.3-alpha.1'))",
        "semver('1.2.3-alpha.1').isLessThan(semver('1.2.3-alpha.beta'))",
        "semver('1.2.3-beta.2').isLessThan(semver('1.2.3-beta.11'))",
        "semver('1.2.3-rc.1').isLessThan(semver('1.2.3'))",
        "semver('1.2.3+a').compareTo(semver('1.2.3+b')) == 0",
        "semver('v01.02', true) == semver('1.2.0') && semver('1', true).minor() == 0",
        "!isSemver('1.2') && !isSemver('01.2.3') && isSemver('1.2', true)",
    ],
)
def test_expression_matches(expression: str) -> None:
    assert verdict(expression) == (MATCHES, "")


@with_library
@pytest.mark.parametrize(
    "expression",
    ["false", f"{OWN}.type == 'mig'", f"{MEMORY}.compareTo(quantity('17Gi')) >= 0"],
)
def test_expression_excludes(expression: str) -> None:
    assert verdict(expression) == (EXCLUDES, f"{expression} is false")


@with_library
@pytest.mark.parametrize(
    ("expression", "reason"),
    [
        (f"{OWN}.nope == 'x'", "no such key"),
        ("device.attributes['no.such.domain'].x == 1", "no such key"),
        (f"{OWN}.type > 5", "overload"),
        (f"{OWN}.type.isGreaterThan(quantity('1'))", "overload"),
        (f"{OWN}.driverVersion.isGreaterThan(quantity('1'))", "overload"),
        (f"{MEMORY} > quantity('1')", "overload"),
        ("quantity('x') == quantity('1')", "quantities must match"),
        ("quantity('500m').asInteger() == 0", "cannot convert"),
        ("semver('1.2') == semver('1.2.0')", "not a semantic version"),
        ("?!", "Syntax error"),
        ("1", "must evaluate to bool, not int"),
        (f"{OWN}.type", "must evaluate to bool, not str"),
        ("", "1 to 10240 characters"),
        ("true || " * 2000 + "true", "1 to 10240 characters"),
    ],
)
def test_expression_is_an_error(expression: str, reason: str) -> None:
    found = verdict(expression)
    assert found[0] == BROKEN
    assert reason in found[1]


@with_library
@pytest.mark.parametrize(
    "expression",
    [
        "[1, 2].sum() == 3",  # functions that Kubernetes has, and the library does not
        "ip('10.0.0.1').family() == 4",
        f"{OWN}.type.find('g') == 'g'",
        "devices.x == 1",
        # the default of a missing domain and `in` contradict each other here
        "'no.such.domain' in device.attributes || has(device.attributes['no.such.domain'].x)",
        f"{OWN}.type == '\ud800'",
        "(" * 3000 + "true" + ")" * 3000,
        "".join(f"[1,2,3,4,5,6,7,8].all(x{n}, " for n in range(9)) + "x0 > 0" + ")" * 9,
    ],
)
def test_what_cannot_be_evaluated_is_not_judged(expression: str) -> None:
    found = verdict(expression)
    assert found[0] == NOT_JUDGED
    assert found[1]


@with_library
def test_expressions_are_judged_apart_from_each_other() -> None:
    """A device has the verdict of its own values, and a bad expression does not affect another."""
    devices = [cel_device(DRIVER, device(number)) for number in range(3)]
    chosen, bad = f"{OWN}.index == 1", "?!"
    found = judged([bad, chosen, bad], devices)
    assert [one.verdict for one in found[chosen]] == [EXCLUDES, MATCHES, EXCLUDES, MATCHES]
    assert {one.verdict for one in found[bad]} == {BROKEN}


def test_missing_library_is_a_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cel_expr_python", None)
    assert verdict("true") == (NOT_JUDGED, cel_selectors.NO_LIBRARY)


def test_expressions_that_never_end_are_not_judged(monkeypatch: pytest.MonkeyPatch) -> None:
    """The deadline is for one expression; after three of them, no other one is tried."""
    started: list[str] = []

    class Endless(cel_selectors._Evaluator):
        def verdicts(self, expression: str) -> Any:
            if expression.startswith("endless"):
                time.sleep(60)
            return super().verdicts(expression)

    call = cel_selectors._Child.verdicts

    def counted(self: cel_selectors._Child, expression: str) -> Any:
        started.append(expression)
        return call(self, expression)

    monkeypatch.setattr(cel_selectors, "_Evaluator", Endless)
    monkeypatch.setattr(cel_selectors._Child, "verdicts", counted)
    monkeypatch.setattr(cel_selectors, "_SECONDS", 0.3)
    found = judged(["endless1", "", "endless2", "endless3", "endless4", "true"], [DEVICE])
    assert started == ["endless1", "", "endless2", "endless3"]
    assert found["endless1"][0].verdict == NOT_JUDGED
    assert found[""][0].verdict == BROKEN
    assert found["true"][0].reason == "other expressions took too long"


def test_library_that_ends_its_process_is_not_judged(monkeypatch: pytest.MonkeyPatch) -> None:
    class Crashing(cel_selectors._Evaluator):
        def verdicts(self, expression: str) -> Any:
            import os

            os.abort()

    monkeypatch.setattr(cel_selectors, "_Evaluator", Crashing)
    found = judged(["true"], [DEVICE])["true"]
    assert [one.verdict for one in found] == [NOT_JUDGED, NOT_JUDGED]
    assert "signal 6" in found[0].reason
