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


def spec(*limits: MemoryLimit, env: tuple[str, ...] = ()) -> dict[str, object]:
    mounts = [
        {"destination": memory_request.mount_path(PREFIX, one), "source": "/dev/null"}
        for one in limits
    ]
    return {"process": {"env": list(env)}, "mounts": mounts}


@pytest.mark.parametrize("is_asked", [False, True])
def test_a_grant_survives_being_a_mount(is_asked: bool) -> None:
    limit = MemoryLimit(GPU, 4096 * MIB, 1024 * MIB, is_asked=is_asked)
    assert memory_request.granted(spec(limit), PREFIX) == {GPU: limit}


def test_of_two_grants_of_one_device_the_smaller_amounts_count() -> None:
    """An added grant does not increase the limit, even if no limit can be set."""
    one, other = MemoryLimit(GPU, 20 * MIB, 5 * MIB), MemoryLimit(GPU, 10 * MIB, 10 * MIB)
    both = MemoryLimit(GPU, 10 * MIB, 5 * MIB, is_asked=True)
    assert memory_request.granted(spec(one, other), PREFIX) == {GPU: both}
    assert memory_request.granted(spec(other, one), PREFIX) == {GPU: both}
    assert memory_request.granted(spec(one, one), PREFIX) == {GPU: one}


@pytest.mark.parametrize(
    "name",
    ["", "GPU-1", "GPU-1,hard=1", "GPU-1,soft=1,hard=1", "GPU-1,hard=-1,soft=0", ",hard=1,soft=1",
     "GPU-1,hard=1,soft=1,more", "GPU-1,hard=0,soft=0", "GPU-1,hard=1234567890,soft=0",
     "GPU-1,hard=\u0661,soft=0"],
)  # fmt: skip
def test_a_mount_that_says_something_else_grants_nothing(name: str) -> None:
    mounts = [{"destination": f"{PREFIX}/{name}", "source": "/dev/null"}]
    assert memory_request.granted({"mounts": mounts}, PREFIX) == {}


def test_a_volume_in_place_of_the_plugins_mount_takes_no_grant_away() -> None:
    """CRI-O keeps the last of two mounts of one path, and a pod can guess that of its grant."""
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
def test_variables_narrow_a_grant_and_never_widen_it(
    env: tuple[str, ...], hard: int, soft: int, is_asked: bool
) -> None:
    granted = spec(MemoryLimit(GPU, 4096 * MIB, 1024 * MIB), env=env)
    (limit,) = memory_request.limits(granted, [GPU], VOCABULARY)
    assert limit.hard == hard * MIB
    assert limit.soft == soft * MIB
    assert limit.is_asked is is_asked


def test_without_a_grant_the_variables_say_all() -> None:
    found = memory_request.limits(spec(env=("NVIDIA_GPU_MEMORY_LIMIT=2048",)), [GPU], VOCABULARY)
    assert found == [MemoryLimit(GPU, 2048 * MIB, is_asked=True)]
    found = memory_request.limits(spec(env=("NVIDIA_GPU_MEMORY_REQUEST=100",)), [GPU], VOCABULARY)
    assert found == [MemoryLimit(GPU, memory_request.NO_LIMIT, 100 * MIB, is_asked=True)]
    assert memory_request.limits(spec(), [GPU], VOCABULARY) == []


def test_a_device_that_the_container_has_not_got_is_not_limited() -> None:
    assert memory_request.limits(spec(MemoryLimit(GPU, MIB)), ["GPU-other"], VOCABULARY) == []


@pytest.mark.parametrize("value", ["4Gi", "-1", "0", "1.5", "9" * 10, "4096M", "\u0661"])
def test_a_value_that_is_no_number_of_mebibytes_is_refused(value: str) -> None:
    with pytest.raises(GpuhookError) as caught:
        memory_request.memory_request({"NVIDIA_GPU_MEMORY_LIMIT": value}, VOCABULARY)
    assert caught.value.code == "GH1022"
    assert value in caught.value.message


ABOVE = ("NVIDIA_GPU_MEMORY_REQUEST=20", "NVIDIA_GPU_MEMORY_LIMIT=10")


@pytest.mark.parametrize("grants", [(), (MemoryLimit(GPU, 30 * MIB, 5 * MIB),)])
def test_a_request_above_the_limit_is_refused(grants: tuple[MemoryLimit, ...]) -> None:
    with pytest.raises(GpuhookError) as caught:
        memory_request.limits(spec(*grants, env=ABOVE), [GPU], VOCABULARY)
    assert caught.value.code == "GH1023"


def test_a_pods_limit_may_be_below_the_request_that_the_plugin_repeats() -> None:
    """The pod sets one of two variables, and the plugin the other."""
    granted = spec(MemoryLimit(GPU, 20 * MIB, 20 * MIB), env=ABOVE)
    assert memory_request.limits(granted, [GPU], VOCABULARY) == [
        MemoryLimit(GPU, 10 * MIB, 10 * MIB, is_asked=True)
    ]
    granted = spec(MemoryLimit(GPU, 10 * MIB, 5 * MIB), env=ABOVE)
    assert memory_request.limits(granted, [GPU], VOCABULARY) == [
        MemoryLimit(GPU, 10 * MIB, 5 * MIB, is_asked=True)
    ]


@pytest.mark.parametrize("env", [(), ("NVIDIA_GPU_MEMORY_LIMIT=10", "NVIDIA_GPU_MEMORY_REQUEST=5")])
def test_what_the_plugin_repeats_says_nothing_of_other_resources(env: tuple[str, ...]) -> None:
    """A container with replicas of two resources has the variables of one of them."""
    small, great = MemoryLimit(GPU, 10 * MIB, 5 * MIB), MemoryLimit("GPU-2", 20 * MIB, 9 * MIB)
    found = memory_request.limits(
        spec(small, great, env=env), [GPU, "GPU-2", "GPU-whole"], VOCABULARY
    )
    assert found == [small, great]


def test_variables_of_a_container_without_gpus_stop_nothing() -> None:
    assert memory_request.limits(spec(env=("NVIDIA_GPU_MEMORY_LIMIT=10",)), [], VOCABULARY) == []
