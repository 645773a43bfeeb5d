# SPDX-License-Identifier: Apache-2.0
"""Judges CEL selectors of devices, with the library of the extra gpuhook[cel].

Source: k8s.io/dynamic-resource-allocation/cel. The expressions are a tenant's, and the library is
C++: a child process evaluates them, with a deadline. The cost limit of Kubernetes is not computed.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import partial
from typing import Any

from gpuhook.dra.pool.pool_device import Version
from gpuhook.errors import printable
from gpuhook.explain.claims.cel import cel_values
from gpuhook.host import worker

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from gpuhook.dra.pool.pool_device import PoolDevice

MATCHES, EXCLUDES, BROKEN, NOT_JUDGED = "matches", "excludes", "error", "not-judged"
LONGEST = 10 * 1024  # characters of an expression
NO_LIBRARY = "the CEL library is missing: pip install 'gpuhook[cel]'"
_SECONDS = 3.0  # for one expression on all devices; it takes milliseconds
_MOST_LATE = 3
_MAX_REASON = 300
_LITERAL = re.compile(r"""'([^'\\\n]{1,63})'|"([^"\\\n]{1,63})\"""")
_IN = re.compile(r"\bin\s+device\s*\.\s*(?:attributes|capacity)\b")
# What the API server would refuse, too; it may know a name that the library does not.
_REFUSED = ("Syntax error", "found no matching overload")


@dataclass(frozen=True, slots=True)
class SelectorVerdict:
    """The verdict of a selector on a device: MATCHES, EXCLUDES, BROKEN or NOT_JUDGED, and why."""

    verdict: str
    reason: str = ""


def cel_device(driver: str, device: PoolDevice) -> dict[str, Any]:
    """Return the variable `device` of an expression."""
    attributes: dict[str, dict[str, Any]] = {}
    for name, value in device.attributes.items():
        is_version = isinstance(value, Version)
        held = cel_values.semver(value.text) if is_version else value  # type: ignore[union-attr]
        domain, key = _qualified(name, driver)
        attributes.setdefault(domain, {})[key] = held
    capacity: dict[str, dict[str, Any]] = {}
    for name, one in device.capacity.items():
        domain, key = _qualified(name, driver)
        capacity.setdefault(domain, {})[key] = cel_values.quantity(str(one.value))
    return {
        "driver": driver,
        "allowMultipleAllocations": device.is_shared,
        "attributes": attributes,
        "capacity": capacity,
    }


def _qualified(name: str, driver: str) -> tuple[str, str]:
    domain, slash, key = name.partition("/")
    return (domain, key) if slash else (driver, name)


def judged(
    expressions: Iterable[str], devices: Sequence[Mapping[str, Any]]
) -> dict[str, list[SelectorVerdict]]:
    """Return the verdicts of each expression on the devices of cel_device(), in their order.

    The last verdict is that of the compiler: MATCHES if it accepts the expression. An expression
    that cannot be evaluated is never a match.
    """
    found: dict[str, list[SelectorVerdict]] = {}
    child, late = _Child(devices), 0
    try:
        for expression in dict.fromkeys(expressions):
            reason = "other expressions took too long"
            if late < _MOST_LATE:
                try:
                    found[expression] = child.verdicts(expression)
                    continue
                except worker.NoAnswerError as error:
                    reason, late = error.reason, late + (error.how == worker.LATE)
            found[expression] = _all(devices, NOT_JUDGED, reason)
    finally:
        child.close()
    return found


class _Child:
    """The child process, started on first use and again when it was lost."""

    def __init__(self, devices: Sequence[Mapping[str, Any]]) -> None:
        self._devices = devices
        self._worker: worker.Worker | None = None

    def verdicts(self, expression: str) -> list[SelectorVerdict]:
        """Return the verdicts on the devices; raises NoAnswerError."""
        if self._worker is None:
            self._worker = worker.Worker(lambda: _Evaluator(self._devices), _SECONDS)
        try:
            found: list[SelectorVerdict] = self._worker.call("verdicts", expression)
        except worker.NoAnswerError:
            self.close()
            raise
        return found

    def close(self) -> None:
        if self._worker is not None:
            self._worker.close()
        self._worker = None


def _all(devices: Sequence[object], verdict: str, reason: str) -> list[SelectorVerdict]:
    return [SelectorVerdict(verdict, printable(reason, _MAX_REASON))] * (len(devices) + 1)


class _Evaluator:
    """Evaluates expressions on devices, in the child process."""

    def __init__(self, devices: Sequence[Mapping[str, Any]]) -> None:
        self._devices = devices
        self._environment: Any = None

    def verdicts(self, expression: str) -> list[SelectorVerdict]:
        if not expression or len(expression) > LONGEST:
            reason = f"an expression has 1 to {LONGEST} characters"
            return _all(self._devices, BROKEN, reason)
        try:
            self._environment = self._environment or _environment()
            program = self._environment.compile(expression)
        except ImportError:
            return _all(self._devices, NOT_JUDGED, NO_LIBRARY)
        except Exception as error:  # of a C++ library: RuntimeError, TypeError for surrogates
            return _all(self._devices, *_not_compiled(str(error)))
        kind = program.return_type().name()
        if kind not in ("BOOL", "DYN"):
            return _all(self._devices, BROKEN, f"it must evaluate to bool, not {kind.lower()}")
        evaluate = partial(_evaluated, program)
        found = [_verdict(evaluate, expression, device) for device in self._devices]
        return [*found, SelectorVerdict(MATCHES)]


def _not_compiled(message: str) -> tuple[str, str]:
    first = " ".join(message.partition("\n |")[0].split())
    reason = first.partition("ERROR: ")[2] or message
    is_refused = any(text in message for text in _REFUSED)
    return (BROKEN if is_refused else NOT_JUDGED), f"it does not compile: {reason}"


def _verdict(
    evaluate: Callable[[Mapping[str, Any]], object], expression: str, device: Mapping[str, Any]
) -> SelectorVerdict:
    """Return the verdict on one device: in Kubernetes, a missing domain is an empty map.

    An evaluation without such maps that succeeds has the same result; only `in` differs.
    """
    try:
        value = evaluate(device)
    except ValueError as error:
        completed = _with_domains(device, expression)
        if completed == device:
            return SelectorVerdict(BROKEN, _runtime_error(error))
        if _IN.search(expression):
            return SelectorVerdict(NOT_JUDGED, f"domains and `in` together: {error}")
        try:
            value = evaluate(completed)
        except ValueError as second:
            return SelectorVerdict(BROKEN, _runtime_error(second))
    if not isinstance(value, bool):
        return SelectorVerdict(BROKEN, f"it must evaluate to bool, not {type(value).__name__}")
    if value:
        return SelectorVerdict(MATCHES)
    return SelectorVerdict(EXCLUDES, f"{printable(expression, _MAX_REASON)} is false")


def _evaluated(program: Any, device: Mapping[str, Any]) -> object:
    """Return the value of an expression; raises ValueError for a runtime error."""
    result = program.eval(data={"device": dict(device)})
    value = result.value()
    if result.type().name() == "ERROR":
        raise ValueError(str(value))
    return value


def _with_domains(device: Mapping[str, Any], expression: str) -> dict[str, Any]:
    """Return the device with an empty map for each domain that the expression names."""
    named = dict.fromkeys(one or other for one, other in _LITERAL.findall(expression))
    empty: dict[str, dict[str, Any]] = {name: {} for name in named if "." in name}
    maps = {key: {**empty, **device[key]} for key in ("attributes", "capacity")}
    return {**device, **maps}


def _runtime_error(error: Exception) -> str:
    text = str(error).partition(": ")[2] or str(error)
    return printable(text.replace("Key not found in map : ", "no such key: "), _MAX_REASON)


def _environment() -> Any:
    """Return the environment of selectors; raises ImportError without the library."""
    from cel_expr_python import cel
    from cel_expr_python.ext import ext_bindings, ext_optional, ext_strings

    kinds = {name.lower(): getattr(cel.Type, name) for name in ("BOOL", "DOUBLE", "INT", "STRING")}
    kinds["map"] = cel.Type.Map(cel.Type.STRING, cel.Type.DYN)
    declared = [
        cel.FunctionDecl(
            name,
            [
                cel.Overload(
                    f"{name}_{number}",
                    return_type=kinds[result],
                    parameters=[kinds[one] for one in parameters.split()],
                    is_member=is_member,
                    impl=function,
                )
                for number, (parameters, result, function) in enumerate(overloads)
            ],
        )
        for is_member, functions in ((False, cel_values.FUNCTIONS), (True, cel_values.MEMBERS))
        for name, overloads in functions.items()
    ]
    extensions = [
        ext_bindings.ExtBindings(), ext_optional.ExtOptional(), ext_strings.ExtStrings()
    ]  # fmt: skip
    return cel.NewEnv(variables={"device": kinds["map"]}, extensions=extensions, functions=declared)
