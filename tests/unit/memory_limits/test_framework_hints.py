# SPDX-License-Identifier: Apache-2.0
"""The variables with a framework's share of a GPU's memory."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuhook.device_plugin.config.sharing_section import HINTS
from gpuhook.memory_limits.hot.framework_hints import CONTEXT, missing, variables
from gpuhook.request.memory_request import NO_LIMIT

GIB = 1 << 30
T4 = 15360 << 20


def test_every_hint_of_the_configuration_is_known() -> None:
    for name in HINTS:
        assert len(variables((name,), 4 * GIB, T4)) == 1


def test_share_of_a_card_is_set_for_each_framework() -> None:
    assert variables(HINTS, 3776 << 20, T4) == {
        "TF_FORCE_GPU_ALLOW_GROWTH": "true",
        "PYTORCH_ALLOC_CONF": "per_process_memory_fraction:0.2291",
        "XLA_PYTHON_CLIENT_MEM_FRACTION": "0.2291",
        "CUPY_GPU_MEMORY_LIMIT": str((3776 - 256) << 20),
        "FLAGS_fraction_of_gpu_memory_to_use": "0.2291",
    }


@given(st.integers(1, 1 << 40), st.integers(1, 1 << 40))
def test_no_pool_is_larger_than_its_limit(hard: int, total: int) -> None:
    told = variables(HINTS, hard, total)
    if "CUPY_GPU_MEMORY_LIMIT" in told:
        assert int(told["CUPY_GPU_MEMORY_LIMIT"]) <= hard
    for name in ("XLA_PYTHON_CLIENT_MEM_FRACTION", "FLAGS_fraction_of_gpu_memory_to_use"):
        if name in told:
            assert 0 < float(told[name]) * total <= hard * (1 + 1e-9)
            assert float(told[name]) < 1


def test_no_fraction_for_a_card_of_unknown_size() -> None:
    assert set(variables(HINTS, GIB, None)) == {
        "TF_FORCE_GPU_ALLOW_GROWTH",
        "CUPY_GPU_MEMORY_LIMIT",
    }


@pytest.mark.parametrize("hard", [T4, NO_LIMIT])
def test_only_growth_is_set_if_the_limit_is_the_card(hard: int) -> None:
    assert variables(HINTS, hard, T4) == {"TF_FORCE_GPU_ALLOW_GROWTH": "true"}


def test_small_share_keeps_half_for_the_pool() -> None:
    assert variables(("cupy",), CONTEXT, T4) == {"CUPY_GPU_MEMORY_LIMIT": str(CONTEXT // 2)}


def test_unknown_framework_gets_no_hint() -> None:
    assert variables(("mxnet",), GIB, T4) == {}


@pytest.mark.parametrize(
    ("name", "variable"),
    [
        ("tensorflow", "TF_FORCE_GPU_ALLOW_GROWTH"),
        ("pytorch", "PYTORCH_ALLOC_CONF"),
        ("pytorch", "PYTORCH_CUDA_ALLOC_CONF"),
        ("jax", "XLA_CLIENT_MEM_FRACTION"),
        ("jax", "XLA_PYTHON_CLIENT_MEM_FRACTION"),
        ("cupy", "CUPY_GPU_MEMORY_LIMIT"),
        ("paddle", "FLAGS_fraction_of_gpu_memory_to_use"),
    ],
)
@pytest.mark.parametrize("value", ["expandable_segments:True", ""])
def test_value_of_the_user_is_kept(name: str, variable: str, value: str) -> None:
    assert missing((name,), GIB, T4, {variable: value}) == {}
    assert missing((name,), GIB, T4, {"PATH": "/bin"}) == variables((name,), GIB, T4)
