# SPDX-License-Identifier: Apache-2.0
"""What images require of the driver, read and judged as libnvidia-container does."""

from __future__ import annotations

import pytest

from gpuhook.vendors.nvidia import requirements
from gpuhook.vendors.nvidia.requirements import INVALID, MET, UNKNOWN, UNMET, Facts

T4 = Facts("0", cuda="12.2", driver="535.183.01", arch="7.5", brand="Tesla")


def verdict(text: str, facts: Facts = T4) -> str:
    (requirement,) = requirements.asked({"NVIDIA_REQUIRE_X": text})
    return requirements.of_requirement(requirement, facts)


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("cuda>=12.2", MET),
        ("cuda>=12.2.0", MET),
        ("cuda>=12.10", UNMET),
        ("cuda<12.10", MET),
        ("cuda=12.2", MET),
        ("cuda!=12.2", UNMET),
        ("CUDA<=12", UNMET),
        ("driver>=535.183.01", MET),
        ("driver>535.183.1", UNMET),
        ("arch>=8.0", UNMET),
        ("brand=tesla", MET),
        ("brand!=tesla", UNMET),
        ("brand!=GeForce", MET),
        ("cuda>=13.0 brand=tesla,driver>=535,driver<536", MET),
        ("cuda>=13.0 brand=tesla,driver>=470,driver<471", UNMET),
        ("brand>tesla", INVALID),
        ("cuda>=", INVALID),
        ("cuda", INVALID),
        ("cuda>=new", INVALID),
        ("gpu=1", INVALID),
        ("cuda>=12.0 gpu=1", INVALID),
        ("cuda>=12.0,", INVALID),
        ("cuda>=" + "1" * 200, INVALID),
    ],
)
def test_a_requirement_is_judged(text: str, wanted: str) -> None:
    assert verdict(text) == wanted


def test_what_nobody_told_decides_nothing_that_is_decided_otherwise() -> None:
    nothing = Facts("0", cuda="12.2")
    assert verdict("brand=tesla", nothing) == UNKNOWN
    assert verdict("brand=tesla cuda>=12", nothing) == MET
    assert verdict("brand=tesla,cuda>=13", nothing) == UNMET
    assert verdict("driver>=535 cuda>=13", nothing) == UNKNOWN


def test_quadro_rtx_is_one_word() -> None:
    assert verdict("brand=quadrortx", Facts("0", brand="Quadro RTX")) == MET


def test_an_image_of_old_requires_its_cuda_version() -> None:
    (requirement,) = requirements.asked({"CUDA_VERSION": "12.4.131"})
    assert (requirement.variable, requirement.text) == ("CUDA_VERSION", "cuda>=12.4")
    with_own = {"CUDA_VERSION": "12.4.131", "NVIDIA_REQUIRE_CUDA": "cuda>=11"}
    assert [one.text for one in requirements.asked(with_own)] == ["cuda>=11"]


def test_which_variables_require_something() -> None:
    environment = {"NVIDIA_REQUIRE_JETPACK": "csv-mounts=all", "NVIDIA_REQUIRE_CUDA": " "}
    assert requirements.asked(environment) == ()


@pytest.mark.parametrize(("value", "wanted"), [("1", True), ("true", True), ("yes", False)])
def test_requirements_are_waived_by_a_bool_of_gos(value: str, *, wanted: bool) -> None:
    assert requirements.disabled({"NVIDIA_DISABLE_REQUIRE": value}) is wanted
