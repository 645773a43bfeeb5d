# SPDX-License-Identifier: Apache-2.0
"""The resources of nodes with AMD GPUs: names, ids, sharing, exclusion."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gpuhook.device_plugin.config import config_reader
from gpuhook.device_plugin.offer import resources
from gpuhook.errors import FileError
from gpuhook.vendors.amd.inventory import amd_dump
from gpuhook.vendors.amd.inventory.amd_inventory import AmdNode
from gpuhook.vendors.nvidia.inventory import dump_file
from tests.unit.amd_offering import (
    CPX,
    GPU,
    MI300X,
    MIXED_STRATEGY,
    configuration,
    five_and_three,
    offer,
    only,
)
from tests.unit.offering import H100, changed

SHARED = """\
sharing:
  timeSlicing:
    renameByDefault: true
    resources:
    - {name: amd.com/gpu, replicas: 4, memory: fair}
"""


def counts(node: AmdNode, text: str = "") -> dict[str, int]:
    return {one.name: len(one.units) for one in offer(node, text).resources}


def test_whole_gpus_have_the_ids_and_nodes_of_amds_plugin() -> None:
    resource = only(MI300X)
    assert (resource.name, resource.domain, len(resource.units)) == (GPU, "amd.com", 8)
    device = resource.devices[1]
    assert (device.uuid, device.index, device.gpu) == ("0000:27:00.0", "1", "0000:27:00.0")
    assert device.paths == device.host_paths == ("/dev/dri/card9", "/dev/dri/renderD136")
    assert (device.model, device.memory_bytes) == ("AMD Instinct MI300X OAM", 196592 << 20)


def test_strategy_single_names_partitions_like_gpus() -> None:
    assert counts(CPX) == {GPU: 64}
    first = [unit.id for unit in only(CPX).units[:3]]
    assert first == ["0000:05:00.0", "amdgpu_xcp_0", "amdgpu_xcp_1"]
    assert {device.gpu for device in only(CPX).devices[:8]} == {"0000:05:00.0"}


def test_strategy_mixed_names_the_modes() -> None:
    assert counts(MI300X, MIXED_STRATEGY) == {"amd.com/spx_nps1": 8}
    assert counts(CPX, MIXED_STRATEGY) == {"amd.com/cpx_nps4": 64}
    both = {"amd.com/spx_nps1": 5, "amd.com/cpx_nps1": 24}
    assert counts(five_and_three(), MIXED_STRATEGY) == both


def test_strategy_mixed_offers_gpus_without_modes() -> None:
    """AMD's plugin omits them if another GPU has modes."""
    *others, last = MI300X.gpus
    plain = replace(last, compute_mode=None, memory_mode=None)
    node = replace(MI300X, gpus=(*others, plain))
    assert counts(node, MIXED_STRATEGY) == {GPU: 1, "amd.com/spx_nps1": 7}
    assert counts(node) == {GPU: 8}


def test_strategy_single_refuses_different_modes() -> None:
    with pytest.raises(FileError, match="GPU 0 is whole, GPU 5 is cpx_nps1") as raised:
        offer(five_and_three())
    assert raised.value.code == "GH2530"
    assert resources.contradicts(raised.value)
    excluded = "gpuhook: {excludeDevices: [0, 1, 2, 3, '0000:85:00.0']}"
    assert counts(five_and_three(), excluded) == {GPU: 24}


def test_strategy_none_offers_nothing() -> None:
    text = "flags: {amd: {resourceNamingStrategy: none}}\ngpuhook: {excludeDevices: [0]}"
    assert counts(MI300X, text) == {}


def test_each_vendor_fails_alone() -> None:
    """If the GPUs of one vendor cannot be offered together, those of the other are."""
    t4 = dump_file.load("t4")
    found = resources.offered(t4, configuration(), five_and_three())
    assert [one.name for one in found.resources] == ["nvidia.com/gpu"]
    assert "GH2530" in "".join(found.warnings)
    divided = changed(H100, 0, mig_mode="enabled")
    found = resources.offered(divided, configuration("flags: {migStrategy: single}"), MI300X)
    assert [one.name for one in found.resources] == [GPU]
    assert "GH1840" in "".join(found.warnings)


def test_mixed_node_offers_both_vendors() -> None:
    found = resources.offered(dump_file.load("mixed"), configuration(), amd_dump.load("mixed"))
    assert {one.name: len(one.units) for one in found.resources} == {GPU: 2, "nvidia.com/gpu": 1}


@pytest.mark.parametrize(
    "name",
    ["0", "0:0", "0000:05:00.0", "05:00.0", MI300X.gpus[0].uuid, "gpu-" + "00" * 8],
)
def test_excluded_devices_have_any_of_their_names(name: str) -> None:
    found = offer(MI300X, f"gpuhook: {{excludeDevices: ['{name}']}}")
    left = len(found.resources[0].units)
    assert (left, bool(found.warnings)) == ((8, True) if name.endswith("00" * 8) else (7, False))


def test_models_have_resources_of_their_own() -> None:
    text = (
        "resources:\n  gpus:\n  - {pattern: '*MI300X*', name: amd.com/mi300x}\n"
        "  mig: [{pattern: 'cpx_*', name: amd.com/small}]\n"
        "flags: {migStrategy: single}\n"
    )
    assert counts(five_and_three(), text) == {"amd.com/mi300x": 5, "amd.com/small": 24}
    unmatched = "resources: {gpus: [{pattern: MI50, name: amd.com/old}]}"
    found = offer(MI300X, unmatched)
    assert found.resources == ()
    assert "no pattern of resources.gpus matches" in found.warnings[0]
    # Entries of one vendor's names leave the names of the other's GPUs alone.
    t4 = dump_file.load("t4")
    names = [one.name for one in resources.offered(t4, configuration(unmatched)).resources]
    assert names == ["nvidia.com/gpu"]


def test_shared_gpus_have_replicas_with_fair_limits() -> None:
    resource = only(MI300X, SHARED)
    assert (resource.name, resource.sharing, len(resource.units)) == (
        "amd.com/gpu.shared",
        "time-slicing",
        32,
    )
    assert resource.units[1].id == "0000:05:00.0::1"
    fair = (196592 - 256) // 4 << 20
    assert {limit.hard for limit in resource.memory.values()} == {fair}
    assert only(CPX, SHARED).units[9].id == "amdgpu_xcp_1::1"


def test_shared_partitions_by_their_own_name() -> None:
    text = MIXED_STRATEGY + SHARED.replace("amd.com/gpu", "amd.com/cpx_nps1")
    both = {"amd.com/spx_nps1": 5, "amd.com/cpx_nps1.shared": 96}
    assert counts(five_and_three(), text) == both


def test_memory_units_have_the_domain_of_their_gpus() -> None:
    text = "sharing: {memoryUnits: {resources: [{name: amd.com/gpu, unit: GiB}]}}"
    resource = only(MI300X, text)
    assert resource.name == "amd.com/gpumem"
    assert len(resource.units) == 8 * ((196592 - 256) // 1024)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("mps: {resources: [{name: amd.com/gpu, replicas: 2}]}", "AMD GPUs have no MPS"),
        (
            "timeSlicing: {resources: [{name: amd.com/gpu, replicas: 2, timeSlice: long}]}",
            "has no effect on amd.com/gpu",
        ),
        (
            "timeSlicing: {resources: [{name: amd.com/gpu, replicas: 2, computeMode: default}]}",
            "has no effect on amd.com/gpu",
        ),
        (
            "timeSlicing: {resources: [{name: amd.com/gpu, replicas: 2, rename: gpu.small}]}",
            "nvidia.com/gpu.small is not a resource of amd.com",
        ),
        ("timeSlicing: {resources: [{name: amd.com/GPU, replicas: 2}]}", "incorrect format"),
        ("timeSlicing: {resources: [{name: cpx_nps4, replicas: 2}]}", "incorrect format"),
    ],
)
def test_sharing_that_amd_gpus_do_not_have_is_an_error(text: str, message: str) -> None:
    reading = config_reader.read(
        f"flags: {{mpsRoot: /run/mps}}\nsharing: {{{text}}}".encode(), "file"
    )
    assert reading.configuration is None
    assert message in "\n".join(map(str, reading.findings))
