# SPDX-License-Identifier: Apache-2.0
"""The check before a container starts."""

from __future__ import annotations

import pytest

from gpuhook.device_plugin.kubelet.kubelet_answers import check_start
from gpuhook.device_plugin.offer.offered_devices import Device, Resource, Unit
from gpuhook.errors import GpuhookError

GIB = 1 << 30


def unused_free_memory(uuid: str) -> int:
    raise AssertionError(uuid)


def shared_resource() -> Resource:
    units = []
    for n in range(2):
        device = Device(f"GPU-{n}", str(n), f"GPU-{n}", n, (), ())
        units += [Unit(f"GPU-{n}::{replica}", device, replica) for replica in range(2)]
    return Resource("nvidia.com/gpu", tuple(units))


def test_start_on_an_unhealthy_device_is_refused() -> None:
    with pytest.raises(GpuhookError) as caught:
        check_start(shared_resource(), ["GPU-0::1"], {"GPU-0": "XID 79"}, 0, unused_free_memory)
    assert caught.value.code == "GH1851"
    assert "XID 79" in caught.value.message
    check_start(shared_resource(), ["GPU-1::1"], {"GPU-0": "XID 79"}, 0, unused_free_memory)


@pytest.mark.parametrize(
    ("free", "refused"), [(5 * GIB, False), (4 * GIB, False), (4 * GIB - 1, True), (None, False)]
)
def test_start_without_enough_free_memory_is_refused(free: int | None, refused: bool) -> None:
    """The fault has both amounts; unknown free memory is accepted."""
    queried: list[str] = []

    def free_memory(uuid: str) -> int | None:
        queried.append(uuid)
        return free if uuid == "GPU-1" else 80 * GIB

    ids = ["GPU-0::0", "GPU-1::0", "GPU-1::1"]
    if refused:
        with pytest.raises(GpuhookError, match=r"GPU-1 has 4095 MiB .* 4096") as caught:
            check_start(shared_resource(), ids, {}, 4 * GIB, free_memory)
        assert caught.value.code == "GH1858"
    else:
        check_start(shared_resource(), ids, {}, 4 * GIB, free_memory)
    assert queried == ["GPU-0", "GPU-1"]


def test_free_memory_is_not_read_without_min_free_memory() -> None:
    check_start(shared_resource(), ["GPU-0::0"], {}, 0, unused_free_memory)


@pytest.mark.parametrize("replicas", [1, 2])
@pytest.mark.parametrize("identifier", ["GPU-0", "GPU-0::3"])
def test_id_of_another_number_of_replicas_is_checked_by_its_device(
    identifier: str, replicas: int
) -> None:
    """A container can restart after a change of the number of replicas."""
    device = Device("GPU-0", "0", "GPU-0", 0, (), ())
    ids = ["GPU-0"] if replicas == 1 else ["GPU-0::0", "GPU-0::1"]
    resource = Resource("nvidia.com/gpu", tuple(Unit(name, device) for name in ids))
    check_start(resource, [identifier], {}, 0, unused_free_memory)
    with pytest.raises(GpuhookError) as caught:
        check_start(resource, [identifier], {"GPU-0": "XID 79"}, 0, unused_free_memory)
    assert caught.value.code == "GH1851"
    check_start(resource, [identifier], {}, GIB, lambda _: GIB)
    with pytest.raises(GpuhookError) as caught:
        check_start(resource, [identifier], {}, GIB, lambda _: 1)
    assert caught.value.code == "GH1858"


def test_id_of_an_unknown_device_is_refused() -> None:
    with pytest.raises(GpuhookError) as caught:
        check_start(shared_resource(), ["GPU-7::0"], {}, 0, unused_free_memory)
    assert caught.value.code == "GH1850"
