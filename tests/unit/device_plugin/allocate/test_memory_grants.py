# SPDX-License-Identifier: Apache-2.0
"""The memory limits of a container: grants in mounts, reduced by variables."""

from __future__ import annotations

import pytest

from gpuhook.errors import GpuhookError
from gpuhook.request import memory_request
from gpuhook.request.memory_request import MIB, MemoryLimit
from gpuhook.vendors.nvidia.hot.vocabulary import VOCABULARY

PREFIX = VOCABULARY.memory_prefix
GPU = "GPU-0e9c6e7a-5b6c-4d8f-9c1a-2f3e4d5c6b7a"


def spec_with(*limits: MemoryLimit, env: tuple[str, ...] = ()) -> dict[str, object]:
    mounts = [
        {"destination": memory_request.mount_path(PREFIX, one), "source": "/dev/null"}
        for one in limits
    ]
    return {"process": {"env": list(env)}, "mounts": mounts}


@pytest.mark.parametrize("is_asked", [False, True])
def test_grant_is_read_back_from_its_mount(is_asked: bool) -> None:
    limit = MemoryLimit(GPU, 4096 * MIB, 1024 * MIB, is_asked=is_asked)
    assert memory_request.granted(spec_with(limit), PREFIX) == {GPU: limit}


def test_smaller_of_two_grants_applies() -> None:
    """An added grant does not increase a limit."""
    first, second = MemoryLimit(GPU, 20 * MIB, 5 * MIB), MemoryLimit(GPU, 10 * MIB, 10 * MIB)
    both = MemoryLimit(GPU, 10 * MIB, 5 * MIB, is_asked=True)
    assert memory_request.granted(spec_with(first, second), PREFIX) == {GPU: both}
    assert memory_request.granted(spec_with(second, first), PREFIX) == {GPU: both}
    assert memory_request.granted(spec_with(first, first), PREFIX) == {GPU: first}


@pytest.mark.parametrize(
    "name",
    ["", "GPU-1", "GPU-1,hard=1", "GPU-1,soft=1,hard=1", "GPU-1,hard=-1,soft=0", ",hard=1,soft=1",
     "GPU-1,hard=1,soft=1,more", "GPU-1,hard=0,soft=0", "GPU-1,hard=1234567890,soft=0",
     "GPU-1,hard=\u0661,soft=0"],
)  # fmt: skip
def test_malformed_mount_grants_nothing(name: str) -> None:
    mounts = [{"destination": f"{PREFIX}/{name}", "source": "/dev/null"}]
    assert memory_request.granted({"mounts": mounts}, PREFIX) == {}


def test_volume_at_the_path_of_a_grant_keeps_the_grant() -> None:
    """CRI-O keeps the last of two mounts of one path, and a pod can guess the path."""
    limit = MemoryLimit(GPU, MIB)
    mounts = [
        {"destination": memory_request.mount_path(PREFIX, limit), "source": "/var/lib/kubelet/x"}
    ]
    assert memory_request.granted({"mounts": mounts}, PREFIX) == {GPU: limit}


@pytest.mark.parametrize(
    ("env", "hard", "soft", "is_asked"),
    [
        ((), 4096, 1024, False),
        (("NVIDIA_GPU_MEMORY_LIMIT=4096", "NVIDIA_GPU_MEMORY_REQUEST=1024"), 4096, 1024, False),
        (("NVIDIA_GPU_MEMORY_LIMIT=2048",), 2048, 1024, True),
        (("NVIDIA_GPU_MEMORY_LIMIT=512",), 512, 512, True),
        (("NVIDIA_GPU_MEMORY_LIMIT=9000",), 4096, 1024, True),
        (("NVIDIA_GPU_MEMORY_REQUEST=100",), 4096, 100, True),
        (("NVIDIA_GPU_MEMORY_REQUEST=3000",), 4096, 1024, True),
        (("NVIDIA_GPU_MEMORY_LIMIT=",), 4096, 1024, False),
    ],
)
def test_variables_reduce_a_grant_and_never_increase_it(
    env: tuple[str, ...], hard: int, soft: int, is_asked: bool
) -> None:
    granted = spec_with(MemoryLimit(GPU, 4096 * MIB, 1024 * MIB), env=env)
    (limit,) = memory_request.limits(granted, [GPU], VOCABULARY)
    assert limit.hard == hard * MIB
    assert limit.soft == soft * MIB
    assert limit.is_asked is is_asked


def test_variables_apply_without_a_grant() -> None:
    found = memory_request.limits(
        spec_with(env=("NVIDIA_GPU_MEMORY_LIMIT=2048",)), [GPU], VOCABULARY
    )
    assert found == [MemoryLimit(GPU, 2048 * MIB, is_asked=True)]
    found = memory_request.limits(
        spec_with(env=("NVIDIA_GPU_MEMORY_REQUEST=100",)), [GPU], VOCABULARY
    )
    assert found == [MemoryLimit(GPU, memory_request.NO_LIMIT, 100 * MIB, is_asked=True)]
    assert memory_request.limits(spec_with(), [GPU], VOCABULARY) == []


def test_grant_of_another_device_is_ignored() -> None:
    assert memory_request.limits(spec_with(MemoryLimit(GPU, MIB)), ["GPU-other"], VOCABULARY) == []


@pytest.mark.parametrize("value", ["4Gi", "-1", "0", "1.5", "9" * 10, "4096M", "\u0661"])
def test_invalid_number_of_mebibytes_is_refused(value: str) -> None:
    with pytest.raises(GpuhookError) as caught:
        memory_request.memory_request({"NVIDIA_GPU_MEMORY_LIMIT": value}, VOCABULARY)
    assert caught.value.code == "GH1022"
    assert value in caught.value.message


ABOVE = ("NVIDIA_GPU_MEMORY_REQUEST=20", "NVIDIA_GPU_MEMORY_LIMIT=10")


@pytest.mark.parametrize("grants", [(), (MemoryLimit(GPU, 30 * MIB, 5 * MIB),)])
def test_request_above_the_limit_is_refused(grants: tuple[MemoryLimit, ...]) -> None:
    with pytest.raises(GpuhookError) as caught:
        memory_request.limits(spec_with(*grants, env=ABOVE), [GPU], VOCABULARY)
    assert caught.value.code == "GH1023"


def test_limit_of_the_pod_reduces_the_request_of_the_plugin() -> None:
    """The pod sets one of two variables, and the plugin the other."""
    granted = spec_with(MemoryLimit(GPU, 20 * MIB, 20 * MIB), env=ABOVE)
    assert memory_request.limits(granted, [GPU], VOCABULARY) == [
        MemoryLimit(GPU, 10 * MIB, 10 * MIB, is_asked=True)
    ]
    granted = spec_with(MemoryLimit(GPU, 10 * MIB, 5 * MIB), env=ABOVE)
    assert memory_request.limits(granted, [GPU], VOCABULARY) == [
        MemoryLimit(GPU, 10 * MIB, 5 * MIB, is_asked=True)
    ]


@pytest.mark.parametrize("env", [(), ("NVIDIA_GPU_MEMORY_LIMIT=10", "NVIDIA_GPU_MEMORY_REQUEST=5")])
def test_variables_of_the_plugin_do_not_limit_other_resources(env: tuple[str, ...]) -> None:
    """A container with replicas of two resources has the variables of one of them."""
    small, great = MemoryLimit(GPU, 10 * MIB, 5 * MIB), MemoryLimit("GPU-2", 20 * MIB, 9 * MIB)
    found = memory_request.limits(
        spec_with(small, great, env=env), [GPU, "GPU-2", "GPU-whole"], VOCABULARY
    )
    assert found == [small, great]


def test_variables_without_a_gpu_have_no_effect() -> None:
    assert (
        memory_request.limits(spec_with(env=("NVIDIA_GPU_MEMORY_LIMIT=10",)), [], VOCABULARY) == []
    )
