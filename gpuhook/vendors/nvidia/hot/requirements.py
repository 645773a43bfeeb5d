# SPDX-License-Identifier: Apache-2.0
"""NVIDIA_REQUIRE_*: requirements of an image for the driver and the GPU, judged term by term.

Imported only for a container that requires something. Source: libnvidia-container (src/cli/dsl.c
and configure.c), which NVIDIA's runtime calls in its legacy mode. A variable's value is a list of
alternatives separated by spaces, an alternative a list of terms separated by commas, a term a
property, an operator and an operand: `cuda>=12.4 brand=tesla,driver>=535,driver<536`. All variables
must hold. Terms are judged from left to right and no further than needed: an invalid term after an
alternative that holds has no effect. libnvidia-container treats a term with an unknown fact as met;
here such a term is UNKNOWN. A container starts for MET, UNKNOWN and NEWER. The CUDA compatibility
libraries of an image are ignored: `cuda` is the version that the driver itself supports.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

PREFIX = "NVIDIA_REQUIRE_"
DISABLE = "NVIDIA_DISABLE_REQUIRE"
CUDA_VERSION = "CUDA_VERSION"
MET, UNMET, UNKNOWN, INVALID = "met", "unmet", "unknown", "invalid"
NEWER = "newer"  # CUDA_VERSION above the driver's, of the same major version
MAX_VARIABLES = 32  # as many as NVIDIA's runtime takes
MAX_TERM = 128  # characters with the end, likewise: of "name operator operand"
MAX_TEXT = 16384  # characters, of all variables together: NVIDIA's images have about 500

_NOT_OURS = "NVIDIA_REQUIRE_JETPACK"  # for Tegra: it names files, and requires nothing
_CUDA = "NVIDIA_REQUIRE_CUDA"
_TRUE = ("1", "t", "T", "TRUE", "true", "True")  # Go's strconv.ParseBool
_SIGNS = "<>=!"
# By how a fact compares with the operand (-1, 0, 1). A lone "!" is what NVIDIA's parser takes too.
_HOLDS = {
    "=": (0,),
    "!=": (-1, 1),
    "!": (-1, 1),
    "<": (-1,),
    "<=": (-1, 0),
    ">": (1,),
    ">=": (0, 1),
}
_VERSIONS = ("cuda", "driver", "arch")
_MAX_PART = 2**64 - 1  # of a version: strtoumax(3) returns this for all that is larger
_MAX_DIGITS = 20
_BRAND = "brand"
OF_GPU = ("arch", _BRAND)


class RequirementFacts:
    """The facts of the driver and of one GPU that requirements are judged by; None is unknown.

    `gpu` names the GPU, "" for a container without one. `cuda` is the highest CUDA version of the
    driver, `arch` the compute capability, "9.0".
    """

    __slots__ = ("arch", "brand", "cuda", "driver", "gpu")

    def __init__(
        self,
        gpu: str,
        cuda: str | None = None,
        driver: str | None = None,
        arch: str | None = None,
        brand: str | None = None,
    ) -> None:
        self.gpu = gpu
        self.cuda = cuda
        self.driver = driver
        self.arch = arch
        self.brand = brand


class Term:
    """One comparison of the property `name` (cuda, driver, arch or brand) with `operand`.

    `trouble` is the reason if the text is not a comparison of a known property, else "".
    """

    __slots__ = ("name", "operand", "operator", "text", "trouble")

    def __init__(self, text: str, trouble: str = "") -> None:
        self.text = text
        start = len(text)
        for sign in _SIGNS:
            at = text.find(sign, 0, start)
            start = at if at >= 0 else start
        rest = text[start:].lstrip(_SIGNS)
        self.name = text[:start].lower()
        self.operator = text[start : len(text) - len(rest)]
        self.operand = rest
        self.trouble = trouble or self._trouble()

    def _trouble(self) -> str:
        if not self.name or not self.operand or self.operator not in _HOLDS:
            return "it is not a property, operator and operand, such as cuda>=12.4"
        if self.name not in (*_VERSIONS, _BRAND):
            return f"there is no property {self.name}; known are cuda, driver, arch, brand"
        return ""

    def is_too_long(self) -> bool:
        """Return whether the term exceeds libnvidia-container's buffer for its error message."""
        operator = "!=" if self.operator == "!" else self.operator
        return len(f"{self.name} {operator} {self.operand}") >= MAX_TERM


class Requirement:
    """The alternatives of one variable, one of which must hold, each with all of its terms."""

    __slots__ = ("_read", "_words", "text", "variable")

    def __init__(self, variable: str, text: str, limit: int = MAX_TEXT) -> None:
        """Take a variable's text; a text of more than `limit` characters is INVALID as a whole."""
        self.variable = variable
        self.text = text
        self._words = [word for word in text[:limit].split(" ") if word]
        self._read: dict[str, Term] = {}
        if len(text) > limit:
            start = text[:MAX_TERM].replace(",", "_")
            reason = f"all of them together are longer than {MAX_TEXT} characters"
            self._words, self._read = [start], {start: Term(start, reason)}

    def __bool__(self) -> bool:
        """Return whether it requires anything."""
        return any(word.strip(",") for word in self._words)

    def alternatives(self) -> Iterator[Iterator[Term]]:
        """Yield the terms of each alternative; a term is parsed when the iteration reaches it."""
        for words in self._words:
            yield (self._term(word) for word in words.split(",") if word)

    def _term(self, word: str) -> Term:
        """Return a term; it is parsed once, and judged for each sort of GPU."""
        if word not in self._read:
            self._read[word] = Term(word)
        return self._read[word]


def disabled(environment: Mapping[str, str]) -> bool:
    """Return whether the container waives its requirements: NVIDIA_DISABLE_REQUIRE is true."""
    return environment.get(DISABLE, "") in _TRUE


def required_terms(environment: Mapping[str, str]) -> tuple[Requirement, ...]:
    """Return the requirements by the names of their variables, also if they are waived.

    An image with CUDA_VERSION and without NVIDIA_REQUIRE_CUDA requires the first two parts of it,
    if it is a version: other images use the variable, too.
    """
    found = []
    left = MAX_TEXT
    for name in sorted(environment):
        if name.startswith(PREFIX) and not name.startswith(_NOT_OURS):
            found.append(Requirement(name, environment[name], left))
            left = max(left - len(environment[name]), 0)
    if not environment.get(_CUDA):
        version = ".".join(environment.get(CUDA_VERSION, "").split(".")[:2])
        if len(version) <= MAX_TERM // 2 and _is_version(version):
            found.append(Requirement(CUDA_VERSION, "cuda>=" + version))
    return tuple(requirement for requirement in found if requirement)


def of_term(term: Term, facts: RequirementFacts) -> str:
    """Return the verdict on one term: MET, UNMET, INVALID, or UNKNOWN for an unknown fact.

    A term about a GPU holds for a container without one. Operands are parsed only to be compared: a
    malformed one is not INVALID if there is no fact to compare it with.
    """
    return _judged(term, facts)[0]


def trouble_of(term: Term, facts: RequirementFacts) -> str:
    """Return why a term is INVALID, "" if it is not."""
    return _judged(term, facts)[1]


def _judged(term: Term, facts: RequirementFacts) -> tuple[str, str]:
    """Return the verdict on a term, and the reason if that is INVALID."""
    if term.trouble:
        return INVALID, term.trouble
    if not facts.gpu and term.name in OF_GPU:
        return MET, ""
    fact = fact_of(term, facts)
    if fact is None or (term.name != _BRAND and not _is_version(fact)):
        return UNKNOWN, ""
    order, trouble = _compared(term, fact)
    if order in _HOLDS[term.operator]:
        return MET, ""
    if not trouble and term.is_too_long():
        trouble = f"it has more than {MAX_TERM - 1} characters"
    return INVALID if trouble else UNMET, trouble


def _compared(term: Term, fact: str) -> tuple[int | None, str]:
    """Return how a fact compares with the operand (-1, 0, 1), or None and why it does not."""
    if term.name == _BRAND:
        if term.operator not in ("=", "!=", "!"):
            return None, "brands can be compared only with = and !="
        return int(fact.lower() != term.operand.lower()), ""
    order = _order(fact, term.operand)
    if order is not None:
        return order, ""
    is_large = _is_version(term.operand)
    why = "has a number that is too large" if is_large else "is not a version"
    return None, f"its operand {why}"


def fact_of(term: Term, facts: RequirementFacts) -> str | None:
    """Return the fact that a term of a known property compares, None if it is unknown."""
    found: str | None = getattr(facts, term.name)
    return found


def of_alternative(terms: Iterable[Term], facts: RequirementFacts) -> str:
    """Return the verdict on terms that must all hold: the first one that does not decides.

    "" for no terms.
    """
    verdict = ""
    for term in terms:
        found = of_term(term, facts)
        if found in (UNMET, INVALID):
            return found
        verdict = UNKNOWN if UNKNOWN in (found, verdict) else MET
    return verdict


def of_requirement(requirement: Requirement, facts: RequirementFacts) -> str:
    """Return the verdict on a variable: the first alternative that holds or is INVALID decides.

    An unmet CUDA_VERSION is NEWER if the driver has the same major version.

    After an UNKNOWN alternative, an INVALID one is not reported: it might not be evaluated. An
    alternative without terms, such as ",", ends the evaluation.
    """
    verdict = ""
    for terms in requirement.alternatives():
        found = of_alternative(terms, facts)
        if not found or (found == INVALID and verdict == UNKNOWN):
            break
        if found in (MET, INVALID):
            return found
        verdict = UNKNOWN if UNKNOWN in (found, verdict) else UNMET
    if verdict == UNMET and _is_newer(requirement, facts):
        return NEWER
    return verdict or MET


def _is_newer(requirement: Requirement, facts: RequirementFacts) -> bool:
    """Return whether the unmet requirement is CUDA_VERSION, with the driver's major version.

    Source: CUDA Compatibility, "Minor Version Compatibility". The variable is the version that the
    image was built with, not a requirement by itself.
    """
    if requirement.variable != CUDA_VERSION or facts.cuda is None:
        return False
    version = requirement.text.rpartition("=")[2]
    return _number(version.partition(".")[0]) == _number(facts.cuda.partition(".")[0])


def _is_version(text: str) -> bool:
    return text[:1].isdigit() and not text.strip("0123456789.")


def _order(fact: str, operand: str) -> int | None:
    """Return how two versions compare (-1, 0, 1), None if `operand` cannot be compared.

    Parts are compared up to the first difference, and a missing part is 0. Later parts are not
    parsed, so that a number that is too large has no effect there.
    """
    if not _is_version(operand):
        return None
    ours, theirs = ([part for part in text.split(".") if part] for text in (fact, operand))
    for one, other in zip(ours, theirs):
        numbers = _number(one), _number(other)
        if _MAX_PART in numbers:
            return None
        if numbers[0] != numbers[1]:
            return 1 if numbers[0] > numbers[1] else -1
    both = min(len(ours), len(theirs))
    has_more = [any(part.strip("0") for part in parts[both:]) for parts in (ours, theirs)]
    return int(has_more[0]) - int(has_more[1])


def _number(digits: str) -> int:
    """Return a part of a version as strtoumax(3) does: the maximum for one that is too large."""
    digits = digits.lstrip("0")
    return min(int(digits or "0"), _MAX_PART) if len(digits) <= _MAX_DIGITS else _MAX_PART
