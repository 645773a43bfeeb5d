# SPDX-License-Identifier: Apache-2.0
"""NVIDIA_REQUIRE_*: what an image wants of the driver and the GPU, read and judged term by term.

HOT, but imported only for a container that requires something. Source: libnvidia-container
(src/cli/dsl.c and configure.c), which NVIDIA's runtime asks in its legacy mode. A variable's value
is alternatives between spaces, an alternative is terms between commas, a term is a property, an
operator and an operand: `cuda>=12.4 brand=tesla,driver>=535,driver<536`. All variables must hold.
Everything is judged from left to right and no further than needed, so that what is written badly
behind an alternative that holds does no harm. The CUDA compatibility libraries of an image do not
count: `cuda` is what the driver itself offers.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

PREFIX = "NVIDIA_REQUIRE_"
DISABLE = "NVIDIA_DISABLE_REQUIRE"
CUDA_VERSION = "CUDA_VERSION"
MET, UNMET, UNKNOWN, INVALID = "met", "unmet", "unknown", "invalid"
MAX_VARIABLES = 32  # as many as NVIDIA's runtime takes
MAX_TERM = 128  # characters, likewise
MAX_TEXT = 16384  # characters, of all variables together: NVIDIA's images have about 500

_NOT_OURS = "NVIDIA_REQUIRE_JETPACK"  # of Tegra: it names files, and requires nothing
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
_BRAND = "brand"
OF_GPU = ("arch", _BRAND)


class Facts:
    """What requirements are judged by: of the driver, and of one GPU. None: nobody told.

    `gpu` names the GPU, "" where a container has none. `cuda` is the highest CUDA version of the
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
    """One comparison: `name` is cuda, driver, arch or brand, and `operand` what it is compared to.

    `trouble` says why it is none: such a container is refused, as NVIDIA's runtime does.
    """

    __slots__ = ("name", "numbers", "operand", "operator", "text", "trouble")

    def __init__(self, text: str) -> None:
        self.text = text
        start = len(text)
        for sign in _SIGNS:
            at = text.find(sign, 0, start)
            start = at if at >= 0 else start
        rest = text[start:].lstrip(_SIGNS)
        self.name = text[:start].lower()
        self.operator = text[start : len(text) - len(rest)]
        self.operand = rest
        self.numbers: list[int] | None = None
        self.trouble = self._trouble()

    def _trouble(self) -> str:
        if len(self.text) > MAX_TERM:
            return f"it is longer than {MAX_TERM} characters"
        if not self.name or not self.operand or self.operator not in _HOLDS:
            return "it is no property, operator and operand, such as cuda>=12.4"
        if self.name == _BRAND:
            is_equality = self.operator in ("=", "!=", "!")
            return "" if is_equality else "brands can be compared by = and != only"
        if self.name not in _VERSIONS:
            return f"there is no property {self.name}; known are cuda, driver, arch, brand"
        self.numbers = _numbers(self.operand)
        return f"{self.operand} is no version" if self.numbers is None else ""


class Requirement:
    """One variable's: alternatives, one of which must hold, each with all of its terms."""

    __slots__ = ("_read", "_words", "text", "variable")

    def __init__(self, variable: str, text: str, limit: int = MAX_TEXT) -> None:
        """Take a variable's text: one that has more than `limit` characters is no requirement."""
        self.variable = variable
        self.text = text
        # One term that is too long stands for a text that is.
        self._words = [part for part in text[:limit].split(" ") if part.strip(",")]
        if len(text) > limit:
            self._words = [text[:MAX_TERM].replace(",", "_").ljust(MAX_TERM + 1, "_")]
        self._read: dict[str, Term] = {}

    def __bool__(self) -> bool:
        """Return whether it requires anything."""
        return bool(self._words)

    def alternatives(self) -> Iterator[Iterator[Term]]:
        """Yield the terms of each alternative, each read when it is its turn."""
        for words in self._words:
            yield (self._term(word) for word in words.split(",") if word)

    def _term(self, word: str) -> Term:
        """Return a term, which is read once: each sort of GPU is judged by it."""
        if word not in self._read:
            self._read[word] = Term(word)
        return self._read[word]


def disabled(environment: Mapping[str, str]) -> bool:
    """Return whether the container waives its requirements: NVIDIA_DISABLE_REQUIRE is true."""
    return environment.get(DISABLE, "") in _TRUE


def asked(environment: Mapping[str, str]) -> tuple[Requirement, ...]:
    """Return what the variables require, by their names; also where that is disabled.

    An image with CUDA_VERSION and without NVIDIA_REQUIRE_CUDA requires the first two parts of it,
    as long as it is a version: it is a name that others use as well.
    """
    found = []
    left = MAX_TEXT
    for name in sorted(environment):
        if name.startswith(PREFIX) and not name.startswith(_NOT_OURS):
            found.append(Requirement(name, environment[name], left))
            left = max(left - len(environment[name]), 0)
    if not environment.get(_CUDA):
        version = ".".join(environment.get(CUDA_VERSION, "").split(".")[:2])
        if len(version) <= MAX_TERM // 2 and _numbers(version) is not None:
            found.append(Requirement(CUDA_VERSION, "cuda>=" + version))
    return tuple(requirement for requirement in found if requirement)


def of_term(term: Term, facts: Facts) -> str:
    """Return the verdict on one term: MET, UNMET, UNKNOWN where the fact is, or INVALID.

    What is asked of a GPU holds for a container that has none.
    """
    if term.trouble:
        return INVALID
    name = term.name
    if not facts.gpu and name in OF_GPU:
        return MET
    fact = getattr(facts, name)
    if fact is None:
        return UNKNOWN
    if name == _BRAND:
        order = int(fact.lower() != term.operand.lower())
    else:
        numbers, wanted = _numbers(fact), term.numbers
        if numbers is None or wanted is None:
            return UNKNOWN
        order = (numbers > wanted) - (numbers < wanted)
    return MET if order in _HOLDS[term.operator] else UNMET


def fact_of(term: Term, facts: Facts) -> str | None:
    """Return the fact that a valid term is about, None where it is not known."""
    found: str | None = getattr(facts, term.name)
    return found


def of_alternative(terms: Iterable[Term], facts: Facts) -> str:
    """Return the verdict on terms that must all hold: the first that does not decides."""
    verdict = MET
    for term in terms:
        found = of_term(term, facts)
        if found in (UNMET, INVALID):
            return found
        if found == UNKNOWN:
            verdict = UNKNOWN
    return verdict


def of_requirement(requirement: Requirement, facts: Facts) -> str:
    """Return the verdict on a variable: the first alternative that holds decides.

    So does one that is INVALID, but behind one that may hold.
    """
    verdict = UNMET
    for terms in requirement.alternatives():
        found = of_alternative(terms, facts)
        if found == MET or (found == INVALID and verdict == UNMET):
            return found
        if found == UNKNOWN:
            verdict = UNKNOWN
    return verdict


def _numbers(version: str) -> list[int] | None:
    """Return the parts of a version, without zeros at its end; None for what is no version."""
    if not version[:1].isdigit() or version.strip("0123456789.") or len(version) > MAX_TERM:
        return None
    numbers = [int(part) for part in version.split(".") if part]
    while numbers and not numbers[-1]:
        numbers.pop()
    return numbers
