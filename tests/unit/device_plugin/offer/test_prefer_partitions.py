# SPDX-License-Identifier: Apache-2.0
"""Preferred AMD devices: the results that AMD's plugin documents, and what it gets wrong."""

from __future__ import annotations

import pytest

from gpuhook.device_plugin.offer.preferred_allocation import preferred
from tests.unit.amd_offering import CPX, MI300X, SHARED_EIGHT, links, mi210, only

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Collection

    from gpuhook.vendors.amd.inventory.amd_inventory import AmdNode

CPX_GPU = {device.uuid: device.gpu for device in only(CPX).devices}
GPUS = [gpu.pci_address for gpu in CPX.gpus]


def chosen(
    node: AmdNode,
    size: int,
    available: Collection[int] | None = None,
    required: tuple[int, ...] = (),
) -> list[int]:
    """Return the indices of the preferred devices; `available` None: all."""
    resource = only(node)
    ids = [unit.id for unit in resource.units]
    named = ids if available is None else [ids[index] for index in available]
    must = [ids[index] for index in required]
    found = preferred(resource, named, must, size, policy="distributed", topology=links(node))
    return [ids.index(one) for one in found]


def test_three_mi210_are_of_one_hive() -> None:
    """AMD's test: of the GPUs 3 to 8, counted from 1, it expects 5, 6 and 7."""
    assert chosen(mi210(), 3, range(2, 8)) == [4, 5, 6]


@pytest.mark.parametrize("has_p2p", [True, False])
def test_missing_link_is_the_worst(*, has_p2p: bool) -> None:
    """AMD's plugin selects GPUs of two hives if KFD lists no PCIe links: a pair weighs nothing."""
    node = mi210(has_p2p=has_p2p)
    assert chosen(node, 2) == [0, 1]
    assert chosen(node, 4) == [0, 1, 2, 3]
    assert chosen(node, 4, [1, 2, 3, 4, 5, 6, 7]) == [4, 5, 6, 7]
    assert chosen(node, 2, required=(5,)) == [4, 5]


def test_partitions_are_of_the_gpu_that_is_partly_used() -> None:
    """AMD's test: with 63 partitions, three are of the GPU with seven."""
    free = [index for index in range(64) if index != 20]
    assert {place // 8 for place in chosen(CPX, 3, free)} == {2}


def test_eight_partitions_are_one_whole_gpu() -> None:
    assert chosen(CPX, 8, range(1, 64)) == list(range(8, 16))


def test_request_above_a_gpu_uses_the_rest_of_another() -> None:
    """Ten partitions: seven of the GPU that is partly used, three of another one."""
    free = [index for index in range(64) if index != 63]
    places = [place // 8 for place in chosen(CPX, 10, free)]
    assert sorted(map(places.count, set(places))) == [3, 7]
    assert places.count(7) == 7


def test_required_partitions_decide_the_gpu() -> None:
    places = chosen(CPX, 4, range(64), required=(40,))
    assert places == [40, 41, 42, 43]


def test_order_of_the_ids_is_irrelevant() -> None:
    free = [*range(5, 64)]
    assert chosen(CPX, 11, free) == chosen(CPX, 11, list(reversed(free)))


def test_replicas_of_one_request_are_of_distinct_gpus() -> None:
    resource = only(MI300X, SHARED_EIGHT)
    assert len(resource.units) == 512
    ids = [unit.id for unit in resource.units]
    found = preferred(resource, ids, [], 8, policy="distributed", topology=links(MI300X))
    assert [one.partition("::")[0] for one in found] == GPUS
