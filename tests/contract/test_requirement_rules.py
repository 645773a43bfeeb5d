# SPDX-License-Identifier: Apache-2.0
"""NVIDIA_REQUIRE_* compared with a program in C that applies libnvidia-container's rules."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterator

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from gpuhook.vendors.nvidia.hot import requirements
from gpuhook.vendors.nvidia.hot.requirements import INVALID, MET, UNKNOWN, UNMET, RequirementFacts
from tests.contract import compiled

Judge = Callable[[str, RequirementFacts], str]

NOTHING = RequirementFacts("")
NUMBER = st.sampled_from(["0", "1", "2", "9", "10", "012", "", "18446744073709551615", "9" * 25])
VERSION = st.lists(NUMBER, min_size=1, max_size=3).map(".".join)
FACT = st.lists(st.sampled_from(["0", "1", "2", "9", "10", "012"]), min_size=1, max_size=3).map(
    ".".join
)
NAME = st.sampled_from(["cuda", "CUDA", "driver", "arch", "brand", "gpu", ""])
OPERATOR = st.sampled_from(["=", "!=", "!", "<", "<=", ">", ">=", "==", "=>", "<>", ""])
LONG = st.integers(100, 130).flatmap(lambda n: st.sampled_from(["1." + "0" * n, "t" * n]))
OPERAND = VERSION | VERSION | st.sampled_from(["tesla", "TESLA", "geforce", "x", ".1"]) | LONG
TERM = st.tuples(NAME, OPERATOR, OPERAND).map("".join) | st.just("")
TEXT = st.lists(st.lists(TERM, min_size=1, max_size=3).map(",".join), min_size=1, max_size=4)
BRAND = st.sampled_from(["Tesla", "GeForce"])
FACTS = st.builds(
    RequirementFacts,
    st.sampled_from(["", "/dev/nvidia0"]),
    st.none() | FACT,
    st.none() | FACT,
    st.none() | FACT,
    st.none() | BRAND,
)


@pytest.fixture(scope="module")
def judge() -> Iterator[Judge]:
    """Yield a function that evaluates a text by the program in C."""
    command = [str(compiled.require())]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as program:
        assert program.stdin
        assert program.stdout
        stdin, stdout = program.stdin, program.stdout

        def evaluate(text: str, facts: RequirementFacts) -> str:
            of_gpu = [facts.cuda, facts.driver, facts.arch, facts.brand]
            fields = ["1" if facts.gpu else "0", *(fact or "" for fact in of_gpu), text]
            stdin.write("\t".join(fields) + "\n")
            stdin.flush()
            return stdout.readline().strip()

        yield evaluate
        stdin.close()


def verdict_of(text: str, facts: RequirementFacts) -> str:
    """Return gpuhook's verdict; an unknown fact is met, as in libnvidia-container."""
    for one in requirements.required_terms({"NVIDIA_REQUIRE_X": text}):
        verdict = requirements.of_requirement(one, facts)
        return MET if verdict == UNKNOWN else verdict
    return MET


@given(TEXT.map(" ".join), FACTS)
@example("cuda=0 cuda,cuda=0 brand=tesla", NOTHING)
def test_requirements_as_in_libnvidia_container(
    judge: Judge, text: str, facts: RequirementFacts
) -> None:
    assert verdict_of(text, facts) == judge(text, facts)


@given(st.text("cudarivebn<>=!., 019", max_size=40), FACTS)
def test_any_text_as_in_libnvidia_container(
    judge: Judge, text: str, facts: RequirementFacts
) -> None:
    assert verdict_of(text, facts) == judge(text, facts)


T4 = RequirementFacts("/dev/nvidia0", cuda="12.2", driver="535.183.01", arch="7.5", brand="Tesla")


@pytest.mark.parametrize(
    ("text", "facts", "wanted"),
    [
        ("cuda>=11.6 arch=5.3", T4, MET),  # the cases of NVIDIA's tests of the grammar
        ("cuda<12 cuda>=11.6,arch=5.3", T4, UNMET),
        ("notvalid", T4, INVALID),
        ("cuda=foo", T4, INVALID),
        ("cuda=0 cuda,cuda=0 brand=tesla", NOTHING, MET),
        (", cuda>=13", T4, MET),
        ("cuda>=13 , cuda>=12", T4, UNMET),
        ("cuda>=18446744073709551615", T4, INVALID),
        ("cuda>=13.18446744073709551615", T4, UNMET),
        ("cuda>=12.18446744073709551615", T4, INVALID),
        ("arch>=new brand<tesla", RequirementFacts("", cuda="12.2"), MET),
        ("brand<tesla", RequirementFacts("", cuda="12.2"), MET),
        ("driver>=new", RequirementFacts("/dev/nvidia0", cuda="12.2"), MET),
        ("brand!=" + "t" * 200, T4, MET),
        ("brand=" + "t" * 119, T4, UNMET),
        ("brand=" + "t" * 120, T4, INVALID),
    ],
)
def test_cases_of_the_rules_in_both_programs(
    judge: Judge, text: str, facts: RequirementFacts, wanted: str
) -> None:
    assert (judge(text, facts), verdict_of(text, facts)) == (wanted, wanted)
