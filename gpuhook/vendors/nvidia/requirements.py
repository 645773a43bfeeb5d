# SPDX-License-Identifier: Apache-2.0
"""NVIDIA_REQUIRE_*: what an image wants of the driver and the GPU, read and judged term by term.

Source: libnvidia-container, which NVIDIA's runtime asks in its legacy mode. A variable's value is
alternatives between spaces, an alternative is terms between commas, a term is a property, an
operator and an operand: `cuda>=12.4 brand=tesla,driver>=535,driver<536`. All variables must hold.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

PREFIX = "NVIDIA_REQUIRE_"
DISABLE = "NVIDIA_DISABLE_REQUIRE"
CUDA_VERSION = "CUDA_VERSION"
MET, UNMET, UNKNOWN, INVALID = "met", "unmet", "unknown", "invalid"

_NOT_OURS = "NVIDIA_REQUIRE_JETPACK"  # of Tegra: it names files, and requires nothing
_CUDA = "NVIDIA_REQUIRE_CUDA"
_TRUE = ("1", "t", "T", "TRUE", "true", "True")  # Go's strconv.ParseBool
_TERM = re.compile(r"([A-Za-z]+)(!=|<=|>=|=|<|>)([^=<>!]+)")
_VERSION = re.compile(r"[0-9]+(\.[0-9]+)*")
_VERSIONS = ("cuda", "driver", "arch")
_MAX_TERM = 128
_MAX_TERMS = 1024


@dataclass(frozen=True, slots=True)
class Facts:
    """What requirements are judged by: of the driver, and of one GPU. None: nobody told.

    `cuda` is the highest CUDA version of the driver, `arch` the compute capability, "9.0".
    """

    gpu: str  # whose facts they are: an index or UUID; "" for the driver's alone
    cuda: str | None = None
    driver: str | None = None
    arch: str | None = None
    brand: str | None = None


@dataclass(frozen=True, slots=True)
class Term:
    """One comparison. `trouble` says why it is none: NVIDIA's runtime refuses the container."""

    text: str
    name: str = ""  # cuda, driver, arch, brand
    operator: str = ""
    operand: str = ""
    trouble: str = ""


@dataclass(frozen=True, slots=True)
class Requirement:
    """One variable's: `alternatives`, one of which must hold, each with all of its terms."""

    variable: str
    text: str
    alternatives: tuple[tuple[Term, ...], ...]


def disabled(environment: Mapping[str, str]) -> bool:
    """Return whether the container waives its requirements: NVIDIA_DISABLE_REQUIRE is true."""
    return environment.get(DISABLE, "") in _TRUE


def asked(environment: Mapping[str, str]) -> tuple[Requirement, ...]:
    """Return what the variables require, by their names; also where that is disabled.

    An image with CUDA_VERSION and without NVIDIA_REQUIRE_CUDA requires the first two parts of it.
    """
    found = [
        _read(name, environment[name])
        for name in sorted(environment)
        if name.startswith(PREFIX) and not name.startswith(_NOT_OURS)
    ]
    version = environment.get(CUDA_VERSION, "")
    if version and _CUDA not in environment:
        found.append(_read(CUDA_VERSION, "cuda>=" + ".".join(version.split(".")[:2])))
    return tuple(requirement for requirement in found if requirement.alternatives)


def _read(variable: str, text: str) -> Requirement:
    alternatives = [part.split(",") for part in text.split()][:_MAX_TERMS]
    read = tuple(tuple(_term(word) for word in words[:_MAX_TERMS]) for words in alternatives)
    return Requirement(variable, text, read)


def _term(text: str) -> Term:
    found = _TERM.fullmatch(text)
    if len(text) > _MAX_TERM:
        return Term(text, trouble=f"it is longer than {_MAX_TERM} characters")
    if found is None:
        return Term(text, trouble="it is no property, operator and operand, such as cuda>=12.4")
    name, operator, operand = found[1].lower(), found[2], found[3]
    trouble = ""
    if name not in (*_VERSIONS, "brand"):
        trouble = f"there is no property {found[1]}; known are cuda, driver, arch, brand"
    elif name == "brand" and operator not in ("=", "!="):
        trouble = "brands can be compared by = and != only"
    elif name != "brand" and not _VERSION.fullmatch(operand):
        trouble = f"{operand} is no version"
    return Term(text, name, operator, operand, trouble)


def of_term(term: Term, facts: Facts) -> str:
    """Return the verdict on one term: MET, UNMET, UNKNOWN where the fact is, or INVALID."""
    if term.trouble:
        return INVALID
    fact = fact_of(term, facts)
    if fact is None:
        return UNKNOWN
    if term.name == "brand":
        is_same = _plain(fact) == _plain(term.operand)
        return MET if is_same == (term.operator == "=") else UNMET
    if not _VERSION.fullmatch(fact):
        return UNKNOWN
    return MET if _holds(_numbers(fact), term.operator, _numbers(term.operand)) else UNMET


def fact_of(term: Term, facts: Facts) -> str | None:
    """Return the fact that a valid term is about, None where it is not known."""
    by_name = {"cuda": facts.cuda, "driver": facts.driver, "arch": facts.arch}
    return by_name.get(term.name, facts.brand)


def of_requirement(requirement: Requirement, facts: Facts) -> str:
    """Return the verdict on a variable: one alternative must hold, and nothing be INVALID."""
    verdicts = [of_alternative(terms, facts) for terms in requirement.alternatives]
    for verdict in (INVALID, MET, UNKNOWN):
        if verdict in verdicts:
            return verdict
    return UNMET


def of_alternative(terms: tuple[Term, ...], facts: Facts) -> str:
    """Return the verdict on terms that must all hold."""
    verdicts = [of_term(term, facts) for term in terms]
    for verdict in (INVALID, UNMET, UNKNOWN):
        if verdict in verdicts:
            return verdict
    return MET


def _plain(brand: str) -> str:
    return brand.lower().replace(" ", "").replace("-", "")


def _numbers(version: str) -> list[int]:
    return [int(part) for part in version.split(".")]


def _holds(one: list[int], operator: str, other: list[int]) -> bool:
    """Compare two versions by their parts; what is missing of the shorter one is 0."""
    length = max(len(one), len(other))
    left, right = (part + [0] * (length - len(part)) for part in (one, other))
    return {
        "=": left == right,
        "!=": left != right,
        "<": left < right,
        "<=": left <= right,
        ">": left > right,
        ">=": left >= right,
    }[operator]
