# SPDX-License-Identifier: Apache-2.0
"""The check before a container starts."""

from __future__ import annotations

import pytest

from gpuhook.device_plugin.kubelet.kubelet_answers import check_start
from gpuhook.device_plugin.offer.offered_devices import Device, Resource, Unit
from gpuhook.errors import GpuhookError

GIB = 1 << 30


def nothing(uuid: str) -> int:
    raise AssertionError(uuid)


def shared() -> Resource:
    units = []
    for n in range(2):
        device = Device(f"GPU-{n}", str(n), f"GPU-{n}", n, (), ())
        units += [Unit(f"GPU-{n}::{replica}", device, replica) for replica in range(2)]
    return Resource("nvidia.com/gpu", tuple(units))


def test_an_unhealthy_device_is_refused() -> None:
    """A container that restarts on an unhealthy GPU is refused; others start."""
    with pytest.raises(GpuhookError) as caught:
        check_start(shared(), ["GPU-0::1"], {"GPU-0": "XID 79"}, 0, nothing)
    assert caught.value.code == "GH1851"
    assert "XID 79" in caught.value.message
    check_start(shared(), ["GPU-1::1"], {"GPU-0": "XID 79"}, 0, nothing)


@pytest.mark.parametrize(
    ("free", "refused"), [(5 * GIB, False), (4 * GIB, False), (4 * GIB - 1, True), (None, False)]
)
def test_memory_that_is_left(free: int | None, refused: bool) -> None:
    """Too little free memory refuses with both amounts; unknown free memory refuses nothing."""
    asked: list[str] = []

    def free_memory(uuid: str) -> int | None:
        asked.append(uuid)
        return free if uuid == "GPU-1" else 80 * GIB

    ids = ["GPU-0::0", "GPU-1::0", "GPU-1::1"]
    if refused:
        with pytest.raises(GpuhookError, match=r"GPU-1 has 4095 MiB .* 4096") as caught:
            check_start(shared(), ids, {}, 4 * GIB, free_memory)
        assert caught.value.code == "GH1858"
    else:
        check_start(shared(), ids, {}, 4 * GIB, free_memory)
    assert asked == ["GPU-0", "GPU-1"]


def test_no_question_without_a_bound() -> None:
    """Without minFreeMemory the driver is not called."""
    check_start(shared(), ["GPU-0::0"], {}, 0, nothing)


@pytest.mark.parametrize("replicas", [1, 2])
@pytest.mark.parametrize("identifier", ["GPU-0", "GPU-0::3"])
def test_an_id_of_another_number_of_replicas(identifier: str, replicas: int) -> None:
    """A container can restart after a change of the replicas: its device exists."""
    device = Device("GPU-0", "0", "GPU-0", 0, (), ())
    ids = ["GPU-0"] if replicas == 1 else ["GPU-0::0", "GPU-0::1"]
    resource = Resource("nvidia.com/gpu", tuple(Unit(name, device) for name in ids))
    check_start(resource, [identifier], {}, 0, nothing)
    with pytest.raises(GpuhookError) as caught:
        check_start(resource, [identifier], {"GPU-0": "XID 79"}, 0, nothing)
    assert caught.value.code == "GH1851"
    check_start(resource, [identifier], {}, GIB, lambda _: GIB)
    with pytest.raises(GpuhookError) as caught:
        check_start(resource, [identifier], {}, GIB, lambda _: 1)
    assert caught.value.code == "GH1858"


def test_an_id_that_is_gone() -> None:
    """A device that the resource no longer has is unknown."""
    with pytest.raises(GpuhookError) as caught:
        check_start(shared(), ["GPU-7::0"], {}, 0, nothing)
    assert caught.value.code == "GH1850"
