# SPDX-License-Identifier: Apache-2.0
"""Properties of NVIDIA_REQUIRE_*: any text is evaluated, and as by a simple evaluator."""

from __future__ import annotations

import operator
import re

from hypothesis import example, given
from hypothesis import strategies as st

from gpuhook.vendors.nvidia.hot import requirement_check, requirements
from gpuhook.vendors.nvidia.hot.requirements import (
    INVALID,
    MET,
    NEWER,
    UNKNOWN,
    UNMET,
    RequirementFacts,
)
from gpuhook.vendors.nvidia.inventory.inventory import Gpu

COMPARISONS = {
    "=": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
NUMBER = st.sampled_from(["0", "1", "2", "9", "10", "12", "012"])
VERSION = st.lists(NUMBER, min_size=1, max_size=3).map(".".join)
BRAND = st.sampled_from(["tesla", "Tesla", "geforce"])
NAMES = st.sampled_from(["cuda", "CUDA", "driver", "arch"])
OF_VERSION = st.tuples(NAMES, st.sampled_from([*COMPARISONS]), VERSION).map("".join)
OF_BRAND = st.tuples(st.just("brand"), st.sampled_from(["=", "!="]), BRAND).map("".join)
BAD = st.sampled_from(["cuda", "gpu=1", "cuda>=x", "brand<tesla", "cuda=>1"])
TERM = st.one_of(OF_VERSION, OF_VERSION, OF_BRAND, BAD)
TEXT = st.lists(st.lists(TERM, min_size=1, max_size=3).map(",".join), min_size=1, max_size=4)
FACTS = st.builds(
    RequirementFacts,
    st.sampled_from(["", "/dev/nvidia0"]),
    st.none() | VERSION,
    st.none() | VERSION,
    st.none() | VERSION,
    st.none() | BRAND,
)


def padded(version: str) -> list[int]:
    numbers = [int(part) for part in version.split(".")]
    return numbers + [0] * (4 - len(numbers))


def plain_term(text: str, facts: RequirementFacts) -> str:
    """Evaluate one term by a regular expression and Python's comparisons."""
    found = re.fullmatch(r"(cuda|driver|arch|brand)([<>=!]=?)([0-9a-z.]+)", text.lower())
    if found is None or found[2] not in COMPARISONS:
        return INVALID
    name, sign, operand = found.groups()
    if not facts.gpu and name in ("arch", "brand"):
        return MET
    fact: str | None = getattr(facts, name)
    if fact is None:
        return UNKNOWN
    if name == "brand":
        if sign not in ("=", "!="):
            return INVALID
        return MET if (fact.lower() == operand) == (sign == "=") else UNMET
    if not re.fullmatch("[0-9.]+", operand):
        return INVALID
    return MET if COMPARISONS[sign](padded(fact), padded(operand)) else UNMET


def plain(text: str, facts: RequirementFacts) -> str:
    """Evaluate a text. An unknown term is treated as met, until the end."""
    is_open = False
    for alternative in text.split():
        results = [plain_term(term, facts) for term in alternative.split(",")]
        end = next((one for one in results if one in (UNMET, INVALID)), MET)
        if end == UNMET:
            continue
        if end == INVALID:
            return UNKNOWN if is_open else INVALID
        if UNKNOWN not in results:
            return MET
        is_open = True
    return UNKNOWN if is_open else UNMET


@given(TEXT.map(" ".join), FACTS)
@example("cuda=0 cuda,cuda=0 brand=tesla", RequirementFacts(""))
def test_verdict_equals_that_of_a_simple_evaluator(text: str, facts: RequirementFacts) -> None:
    (requirement,) = requirements.required_terms({"NVIDIA_REQUIRE_X": text})
    assert requirements.of_requirement(requirement, facts) == plain(text, facts)


@given(st.text() | st.text("cudarivebn<>=!., 019"), FACTS)
def test_any_text_has_a_verdict(text: str, facts: RequirementFacts) -> None:
    for one in requirements.required_terms({"NVIDIA_REQUIRE_X": text, "CUDA_VERSION": text}):
        verdict = requirements.of_requirement(one, facts)
        assert verdict in (MET, UNMET, UNKNOWN, INVALID, NEWER)
        assert verdict != NEWER or one.variable == "CUDA_VERSION"
        for terms in one.alternatives():
            assert requirements.of_alternative(terms, facts) in (MET, UNMET, UNKNOWN, INVALID, "")


@given(VERSION, VERSION, st.none() | st.integers(0, 3))
def test_versions_have_a_total_order(one: str, other: str, zeros: int | None) -> None:
    """Trailing zeros have no effect."""
    facts = RequirementFacts("", cuda=one)
    wanted = other + ".0" * (zeros or 0)
    signs = [
        sign
        for sign in "<=>"
        if requirements.of_term(requirements.Term(f"cuda{sign}{wanted}"), facts) == MET
    ]
    assert len(signs) == 1
    assert signs[0] == (
        "<" if padded(one) < padded(other) else "=" if padded(one) == padded(other) else ">"
    )


SORTS = st.sampled_from([("9.0", "nvidia"), ("7.5", "tesla"), (None, "tesla"), (None, None)])


@given(st.dictionaries(st.integers(0, 40), SORTS, max_size=20))
def test_facts_of_each_gpu_are_read_back_from_the_arguments(
    gpus: dict[int, tuple[str | None, str | None]],
) -> None:
    """The arguments group minors into ranges."""
    made = [
        Gpu(index=n, minor=minor, compute_capability=arch, brand=brand)
        for n, (minor, (arch, brand)) in enumerate(gpus.items())
    ]
    known = requirement_check.KnownGpu(gpus=requirement_check.gpu_groups(made))
    assert len(known.gpus) <= 3
    for minor in range(41):
        assert known.of_minor(minor) == gpus.get(minor, (None, None))
