# SPDX-License-Identifier: Apache-2.0
"""Requests on a node that is described by a dump."""

from __future__ import annotations

import pytest

from gpuhook.errors import GpuhookError
from gpuhook.host.hot.settings import Settings
from gpuhook.request.resolve import resolve_names
from gpuhook.vendors.nvidia.hot import vocabulary
from gpuhook.vendors.nvidia.inventory import dump_file
from gpuhook.vendors.nvidia.spec.described_node import DescribedNode


def _node(profile: str) -> DescribedNode:
    return DescribedNode(dump_file.load(profile), Settings())


def test_dumped_node_grants_its_gpus_by_every_name() -> None:
    node = _node("h100x8")
    gpu = dump_file.load("h100x8").gpus[3]
    capabilities = vocabulary.parse_capabilities("all")
    for name in ("3", str(gpu.uuid), str(gpu.pci_bus_id), f"{gpu.uuid}::1"):
        grant = resolve_names([name], capabilities, node)
        paths = [one["path"] for one in grant.edits["deviceNodes"]]
        assert f"/dev/nvidia{gpu.minor}" in paths, name
    assert len(resolve_names(["all"], capabilities, node).devices) == 1


def test_unknown_name_is_refused() -> None:
    with pytest.raises(GpuhookError, match="GPU-nobody") as raised:
        resolve_names(["GPU-nobody"], vocabulary.parse_capabilities(None), _node("t4"))
    assert raised.value.code == "GH1102"
    # No file describes this node: none is written again.
    assert "`gpuhook inventory` shows" in raised.value.hint
    assert "refresh" not in raised.value.hint


def test_kind_without_facts_in_a_dump_has_its_own_hint() -> None:
    with pytest.raises(GpuhookError) as raised:
        resolve_names(["nvidia.com/other=all"], vocabulary.parse_capabilities(None), _node("t4"))
    assert raised.value.code == "GH1104"
    assert "other kinds of devices need a CDI spec" in raised.value.hint


def test_driver_of_the_dump_applies() -> None:
    assert _node("t4").has_driver()
