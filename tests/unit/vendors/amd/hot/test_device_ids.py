# SPDX-License-Identifier: Apache-2.0
"""The grammar of AMD_VISIBLE_DEVICES: AMD's golden examples, and what AMD's tools do not have."""

from __future__ import annotations

import pytest

from gpuhook.errors import GpuhookError
from gpuhook.request import parse
from gpuhook.vendors.amd.hot import amd_words, device_ids

FOUR = ["0", "1", "2", "3", "all", "GPU-00000000abcd1234", "0000:05:00.0", "0:0"]


def resolved(value: str) -> list[str] | None:
    """Return the devices that a value means on a node with FOUR devices, None for an error."""
    spec = {"process": {"env": [f"AMD_VISIBLE_DEVICES={value}"]}}
    found: list[str] = []
    for source in parse.sources(spec, amd_words.VOCABULARY, []):
        for name in source.names:
            known = [one for one in (name, *device_ids.spellings(name)) if one in FOUR]
            devices = known[:1] or device_ids.expanded(name)
            if not devices or not set(devices) <= set(FOUR):
                return None
            found += [one for one in devices if one not in found]
    return found


@pytest.mark.parametrize(
    ("value", "devices"),
    [
        ("all", ["all"]),
        ("All", ["all"]),
        ("2,0", ["2", "0"]),
        ("1-2", ["1", "2"]),
        ("+1", ["1"]),
        ("0,0", ["0"]),
        ("1-3,2-3", ["1", "2", "3"]),
        ("0xABCD1234", ["GPU-00000000abcd1234"]),
        ("00000000abcd1234", ["GPU-00000000abcd1234"]),
        ("0x00000000ABCD1234", ["GPU-00000000abcd1234"]),
        # AMD's runtime finds nothing for these, without an error.
        (" 1", ["1"]),
        ("GPU-00000000ABCD1234", ["GPU-00000000abcd1234"]),
        ("0000:05:00.0", ["0000:05:00.0"]),
        ("none", []),
        ("void", []),
        ("", []),
    ],
)
def test_valid_values(value: str, devices: list[str]) -> None:
    assert resolved(value) == devices


@pytest.mark.parametrize("value", ["2-9", "3-1", "-1", "0-", "aLL", "123456789", "4", "GPU-1", "x"])
def test_values_without_a_device(value: str) -> None:
    """AMD's runtime skips these; here each of them is an error."""
    assert resolved(value) is None


@pytest.mark.parametrize("value", ["0,all", "all,0", "none,1", "void,1", "ALL,none"])
def test_contradictions(value: str) -> None:
    with pytest.raises(GpuhookError, match="together with other devices") as error:
        resolved(value)
    assert error.value.code == "GH2510"


@pytest.mark.parametrize(
    ("name", "spellings"),
    [
        ("007", ["7"]),
        ("1:02", ["1:2"]),
        ("05:00.0", ["0000:05:00.0"]),
        ("0000:05:00.0", ["0000:05:00.0"]),
        ("00000000:A5:00.1", ["0000:a5:00.1"]),
        ("10000:05:00.0", ["10000:05:00.0"]),
        ("AMDGPU_XCP.12", ["amdgpu_xcp_12"]),
        ("amdgpu_xcp_3", ["amdgpu_xcp_3"]),
        ("0x5", ["GPU-0000000000000005"]),
        ("abcdef12", []),  # eight hex digits without 0x are no unique id for AMD's runtime
        ("123456789", ["123456789", "GPU-0000000123456789"]),
        ("0x", []),
        ("0x10000000000000000", []),
        ("GPU-5", []),
        ("5:00.8", []),
        ("1:2:3:4.0", []),
        ("amdgpu_xcp-3", []),
        ("१", []),
        ("", []),
    ],
)
def test_spellings(name: str, spellings: list[str]) -> None:
    assert device_ids.spellings(name) == spellings


@pytest.mark.parametrize("name", ["3-1", "0-4096", "1-", "-1", "1--2", "a-b", "1-2-3", "1"])
def test_other_texts_are_no_ranges(name: str) -> None:
    assert device_ids.expanded(name) == []


def test_replicas_of_a_fork_of_amds_plugin() -> None:
    names = ["0000:05:00.0-slice-2", "amdgpu_xcp_1-slice-0", "x-slice-", "-slice-1"]
    replicas = ["0000:05:00.0::2", "amdgpu_xcp_1::0", "x-slice-", "-slice-1"]
    assert device_ids.normalized(names, "mounts") == replicas


@pytest.mark.parametrize(
    ("variable", "value", "is_own"),
    [
        ("DOCKER_RESOURCE_AMD_GPU", "anything", True),
        ("DOCKER_RESOURCE_amd-gpu", "0", True),
        ("DOCKER_RESOURCE_AMD.COM/GPU", "0", True),
        ("DOCKER_RESOURCE_GPU", "0x1,GPU-00000000abcd1234", True),
        ("DOCKER_RESOURCE_GPU", "0", False),
        ("DOCKER_RESOURCE_GPU", "", False),
        ("DOCKER_RESOURCE_GPU", "GPU-4a57c0ef-5c6b-4f0e-8f0e-0123456789ab", False),
        ("DOCKER_RESOURCE_DAMDEST", "0", False),
        ("DOCKER_RESOURCE_CPU", "2", False),
    ],
)
def test_resources_of_swarm(variable: str, value: str, is_own: bool) -> None:
    assert amd_words.is_own_resource(variable, value) == is_own


@pytest.mark.parametrize(
    ("name", "is_own"),
    [
        ("amd.com/gpu=0", True),
        ("k8s.gpu.amd.com/gpu=claim-0", True),
        ("notamd.com/gpu=0", False),
        ("nvidia.com/gpu=0", False),
        ("amd.com", False),
        ("0", False),
    ],
)
def test_names_of_the_vendor(name: str, is_own: bool) -> None:
    assert amd_words.is_own(name) == is_own
