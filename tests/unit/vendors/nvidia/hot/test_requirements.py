# SPDX-License-Identifier: Apache-2.0
"""Requirements of images, parsed and evaluated as in libnvidia-container."""

from __future__ import annotations

import pytest

from gpuhook.vendors.nvidia.hot import requirements
from gpuhook.vendors.nvidia.hot.requirements import INVALID, MET, UNKNOWN, UNMET, RequirementFacts

T4 = RequirementFacts("/dev/nvidia0", cuda="12.2", driver="535.183.01", arch="7.5", brand="Tesla")
NONE = RequirementFacts("", cuda="12.2", driver="535.183.01")
# The value in NVIDIA's CUDA 12.4 images.
CUDA_12_4 = (
    "cuda>=12.4 brand=tesla,driver>=470,driver<471 brand=unknown,driver>=470,driver<471"
    " brand=nvidia,driver>=470,driver<471 brand=nvidiartx,driver>=470,driver<471"
    " brand=geforce,driver>=470,driver<471 brand=quadro,driver>=470,driver<471"
    " brand=titan,driver>=470,driver<471 brand=tesla,driver>=535,driver<536"
    " brand=unknown,driver>=535,driver<536 brand=nvidia,driver>=535,driver<536"
)


def verdict(text: str, facts: RequirementFacts = T4) -> str:
    (requirement,) = requirements.required_terms({"NVIDIA_REQUIRE_X": text})
    return requirements.of_requirement(requirement, facts)


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        # Versions: part by part as numbers, missing parts are 0.
        ("cuda>=12.2", MET),
        ("cuda>=12.2.0", MET),
        ("cuda=12.2.0.0", MET),
        ("cuda>=12.2.1", UNMET),
        ("cuda>=12.10", UNMET),
        ("cuda<12.10", MET),
        ("cuda=12.2", MET),
        ("cuda!=12.2", UNMET),
        ("cuda!=12.2.0", UNMET),
        ("cuda!=12", MET),
        ("cuda>12", MET),
        ("cuda>12.2", UNMET),
        ("cuda<12.2", UNMET),
        ("cuda<=12.2", MET),
        ("cuda<=12", UNMET),
        ("cuda>=9", MET),
        ("cuda<100", MET),
        ("cuda=12.", UNMET),
        ("cuda>=12.", MET),
        ("cuda>=12..2", MET),
        ("cuda>=0012.02", MET),
        ("cuda<99999999999999999999999", INVALID),
        ("cuda<13.99999999999999999999999", MET),
        ("driver>=535.183.01", MET),
        ("driver>535.183.1", UNMET),
        ("driver<535.183.06", MET),
        ("driver=535.183.1", MET),
        ("arch>=7.5", MET),
        ("arch>=8.0", UNMET),
        ("arch<8", MET),
        ("arch!=9.0", MET),
        # Names and brands in any case.
        ("CUDA<=12", UNMET),
        ("Cuda>=12.2", MET),
        ("DRIVER>=535,Arch=7.5", MET),
        ("brand=tesla", MET),
        ("brand=TESLA", MET),
        ("brand!=tesla", UNMET),
        ("brand!tesla", UNMET),
        ("brand!=GeForce", MET),
        ("brand=tesl", UNMET),
        ("brand=a=b", UNMET),
        # Commas are `and`, spaces `or`.
        ("cuda>=12.0,driver>=535", MET),
        ("cuda>=12.0,driver>=550", UNMET),
        ("driver>=550,cuda>=12.0", UNMET),
        ("cuda>=13.0 brand=tesla,driver>=535,driver<536", MET),
        ("cuda>=13.0 brand=tesla,driver>=470,driver<471", UNMET),
        ("  cuda>=13.0   cuda>=12  ", MET),
        ("cuda>=12.0,", MET),
        (",cuda>=12.0", MET),
        ("cuda>=12.0,,driver>=550", UNMET),
        ("cuda>=13.0 ,", UNMET),
        (CUDA_12_4, MET),
        (CUDA_12_4.replace("535", "550").replace("536", "551"), UNMET),
        # Invalid terms.
        ("cuda", INVALID),
        ("cuda>=", INVALID),
        (">=12", INVALID),
        ("cuda=>12", INVALID),
        ("cuda==12", INVALID),
        ("cuda<>12", INVALID),
        ("cuda>>12", INVALID),
        ("cuda>=new", INVALID),
        ("cuda>=12>5", INVALID),
        ("cuda>=.5", INVALID),
        ("cuda>=-1", INVALID),
        ("cuda>=1e3", INVALID),
        ("cuda>=\u0661\u0662", INVALID),
        ("cuda>=12\tcuda>=11", INVALID),
        ("cuda >= 12", INVALID),
        ("brand>tesla", INVALID),
        ("brand<=tesla", INVALID),
        ("gpu=1", INVALID),
        ("cuda_>=12", INVALID),
        ("cuda>=13." + "1" * 116, UNMET),
        ("cuda>=13." + "1" * 118, INVALID),
        ("cuda<13." + "1" * 200, MET),
        # Terms are evaluated from left to right until the result is known.
        ("cuda>=12.0 gpu=1", MET),
        ("gpu=1 cuda>=12.0", INVALID),
        ("cuda>=13.0 gpu=1", INVALID),
        ("cuda>=13.0,gpu=1", UNMET),
        ("gpu=1,cuda>=13.0", INVALID),
        ("cuda>=12.0,gpu=1", INVALID),
    ],
)
def test_requirement_is_evaluated(text: str, wanted: str) -> None:
    assert verdict(text) == wanted


def test_unknown_facts_leave_only_their_terms_undecided() -> None:
    nothing = RequirementFacts("/dev/nvidia0", cuda="12.2")
    assert verdict("brand=tesla", nothing) == UNKNOWN
    assert verdict("brand=tesla cuda>=12", nothing) == MET
    assert verdict("brand=tesla,cuda>=13", nothing) == UNMET
    assert verdict("driver>=535 cuda>=13", nothing) == UNKNOWN
    assert verdict("driver>=535 gpu=1", nothing) == UNKNOWN
    assert verdict("driver>=535 gpu=1 cuda>=12", nothing) == UNKNOWN
    assert verdict("driver>=535", RequirementFacts("", driver="of 1999")) == UNKNOWN


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("brand=tesla", MET),
        ("arch>=9.0", MET),
        ("cuda>=12.2,arch>=9.0", MET),
        ("cuda>=13.0,brand=tesla", UNMET),
        ("cuda>=13.0 brand=tesla,driver<535", UNMET),
        ("arch>=new", MET),
        ("arch=>9", INVALID),
    ],
)
def test_gpu_terms_without_a_gpu(text: str, wanted: str) -> None:
    assert verdict(text, NONE) == wanted


def test_too_long_requirement_is_invalid() -> None:
    longest = "cuda>=12 " * (requirements.MAX_TEXT // 9)
    assert verdict(longest) == MET
    assert verdict(longest + longest) == INVALID


def test_total_length_is_bounded() -> None:
    """32 variables do not make the wrapper read more text."""
    half = "cuda<1 " * (requirements.MAX_TEXT // 14) + "cuda>1"
    names = [f"NVIDIA_REQUIRE_{letter}" for letter in "ABC"]
    found = requirements.required_terms(dict.fromkeys(names, half))
    verdicts = [requirements.of_requirement(one, T4) for one in found]
    assert verdicts == [MET, INVALID, INVALID]
    found = requirements.required_terms(
        {names[0]: "x=1 " * requirements.MAX_TEXT, names[1]: "cuda>=1"}
    )
    assert requirements.of_requirement(found[1], T4) == INVALID


def test_each_term_is_parsed_once_for_all_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[str] = []
    term = requirements.Term

    def counted(text: str) -> requirements.Term:
        read.append(text)
        return term(text)

    monkeypatch.setattr(requirements, "Term", counted)
    requirement = requirements.Requirement("NVIDIA_REQUIRE_CUDA", "cuda<1 " * 1000 + "cuda<2")
    for _ in range(16):
        assert requirements.of_requirement(requirement, T4) == UNMET
    assert read == ["cuda<1", "cuda<2"]


@pytest.mark.parametrize(
    ("version", "text"),
    [
        ("12.4.131", "cuda>=12.4"),
        ("9.2", "cuda>=9.2"),
        ("11", "cuda>=11"),
        ("cu118", None),
        ("latest", None),
        ("1" * 100, None),
        ("", None),
    ],
)
def test_legacy_image_requires_its_cuda_version(version: str, text: str | None) -> None:
    """If it is a version: other programs use CUDA_VERSION, too."""
    asked = requirements.required_terms({"CUDA_VERSION": version})
    assert [(one.variable, one.text) for one in asked] == [("CUDA_VERSION", text)] * bool(text)


@pytest.mark.parametrize(
    ("version", "cuda", "verdict"),
    [
        ("13.1.80", "13.0", "newer"),
        ("13.1", "13", "newer"),
        ("013.1", "13.0", "newer"),
        ("13.0.80", "13.0", "met"),
        ("12.9", "13.0", "met"),
        ("14.0", "13.0", "unmet"),
        ("130.0", "13.0", "unmet"),
        ("13.1", None, "unknown"),
        ("13.1", "unclear", "unknown"),
        ("13." + "9" * 25, "13.0", "invalid"),
    ],
)
def test_newer_cuda_minor_version_is_not_required(
    version: str, cuda: str | None, verdict: str
) -> None:
    """An image runs with a driver of the same major version."""
    (one,) = requirements.required_terms({"CUDA_VERSION": version})
    assert requirements.of_requirement(one, RequirementFacts("", cuda=cuda)) == verdict
    # A requirement of the image itself applies.
    (one,) = requirements.required_terms({"NVIDIA_REQUIRE_CUDA": one.text})
    expected = "unmet" if verdict == "newer" else verdict
    assert requirements.of_requirement(one, RequirementFacts("", cuda=cuda)) == expected


def test_requirement_of_the_image_replaces_its_cuda_version() -> None:
    environment = {"CUDA_VERSION": "12.4.131", "NVIDIA_REQUIRE_CUDA": "cuda>=11"}
    assert [one.text for one in requirements.required_terms(environment)] == ["cuda>=11"]
    emptied = requirements.required_terms({**environment, "NVIDIA_REQUIRE_CUDA": ""})
    assert [one.text for one in emptied] == ["cuda>=12.4"]
    beside = {"CUDA_VERSION": "12.4.131", "NVIDIA_REQUIRE_ARCH": "arch>=8.0"}
    assert [one.text for one in requirements.required_terms(beside)] == ["arch>=8.0", "cuda>=12.4"]


def test_variables_with_requirements() -> None:
    environment = {"NVIDIA_REQUIRE_JETPACK": "csv-mounts=all", "NVIDIA_REQUIRE_CUDA": " "}
    environment |= {"NVIDIA_REQUIRE_JETPACK_HOST_MOUNTS": "base-only", "XNVIDIA_REQUIRE_CUDA": "x"}
    environment |= {"NVIDIA_REQUIRE": "cuda>=99", "NVIDIA_REQUIRE_": "cuda>=1"}
    assert [one.variable for one in requirements.required_terms(environment)] == ["NVIDIA_REQUIRE_"]


@pytest.mark.parametrize("value", ["1", "t", "T", "TRUE", "true", "True"])
def test_disabling_value_is_a_bool_of_go(value: str) -> None:
    assert requirements.disabled({"NVIDIA_DISABLE_REQUIRE": value})


@pytest.mark.parametrize("value", ["", "0", "false", "yes", "tRUE", "2", " 1"])
def test_other_values_do_not_disable_requirements(value: str) -> None:
    assert not requirements.disabled({"NVIDIA_DISABLE_REQUIRE": value})


def test_terms_after_the_decision_are_not_parsed(monkeypatch: pytest.MonkeyPatch) -> None:
    read = []

    class Read(requirements.Term):
        def __init__(self, text: str) -> None:
            read.append(text)
            super().__init__(text)

    monkeypatch.setattr(requirements, "Term", Read)
    text = "brand=titan,driver>=470 cuda>=12,arch>=7 x " + "y " * 1000
    (requirement,) = requirements.required_terms({"NVIDIA_REQUIRE_X": text})
    assert requirements.of_requirement(requirement, T4) == MET
    assert read == ["brand=titan", "cuda>=12", "arch>=7"]
