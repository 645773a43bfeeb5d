# SPDX-License-Identifier: Apache-2.0
"""Parameters of classes and claims are read strictly; each error names object, path and values."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuhook.dra.claims.settings import opaque_parameters
from gpuhook.dra.claims.settings.gpu_config import DeviceSettings, MemorySettings, MpsSettings

GIB = 1 << 30
OWN: dict[str, Any] = {"apiVersion": "gpuhook.io/v1", "kind": "GpuConfig"}
NVIDIA: dict[str, Any] = {"apiVersion": "resource.nvidia.com/v1beta1", "kind": "GpuConfig"}
MIG = {**NVIDIA, "kind": "MigDeviceConfig"}


def sharing(strategy: str = "TimeSlicing", **keys: Any) -> dict[str, Any]:
    """Return parameters for NVIDIA's driver."""
    return {**NVIDIA, "sharing": {"strategy": strategy, **keys}}


READ = [
    (OWN, DeviceSettings()),
    ({**OWN, "timeSlice": "short"}, DeviceSettings(time_slice="short")),
    ({**OWN, "computeMode": "default"}, DeviceSettings(compute_mode="default")),
    (
        {**OWN, "mps": {"activeThreadPercentage": 30, "memory": "2Gi"}},
        DeviceSettings(mps=MpsSettings(30, 2 * GIB)),
    ),
    (
        {**OWN, "memory": {"limit": "3Gi", "onFailure": "refuse"}},
        DeviceSettings(memory=MemorySettings(3 * GIB, "refuse")),
    ),
    (
        {**OWN, "computeMask": True, "hints": ["pytorch"], "interposer": "nvshare"},
        DeviceSettings(compute_mask=True, hints=("pytorch",), interposer="nvshare"),
    ),
    (NVIDIA, DeviceSettings()),
    (sharing(), DeviceSettings()),
    (sharing(timeSlicingConfig={}), DeviceSettings()),
    (sharing(timeSlicingConfig={"interval": "Long"}), DeviceSettings(time_slice="long")),
    (sharing("MPS"), DeviceSettings(mps=MpsSettings())),
    (
        sharing(
            "MPS",
            mpsConfig={
                "defaultActiveThreadPercentage": 50,
                "defaultPinnedDeviceMemoryLimit": "4Gi",
                "defaultPerDevicePinnedMemoryLimit": {"0": "3Gi", "default": "1Gi"},
                "multiUser": False,
            },
        ),
        DeviceSettings(mps=MpsSettings(50, 4 * GIB, (("0", 3 * GIB), ("default", GIB)))),
    ),
    ({**MIG, "sharing": {"strategy": "TimeSlicing"}}, DeviceSettings()),
]


@pytest.mark.parametrize(("parameters", "settings"), READ)
def test_parameters(parameters: dict[str, Any], settings: DeviceSettings) -> None:
    found = opaque_parameters.read(parameters, "DeviceClass x", "here")
    assert found.problems == ()
    assert found.settings == settings


WRONG: list[tuple[object, str, str]] = [
    ("text", "here", 'must be a mapping, found the text "text"'),
    (None, "here", "must be a mapping, found nothing"),
    ({}, "here.apiVersion", "must be one of gpuhook.io/v1, resource.nvidia.com/v1beta1, found"),
    ({"apiVersion": ["x"]}, "here.apiVersion", "found a list"),
    ({"apiVersion": "gpuhook.io/v1"}, "here.kind", 'must be "GpuConfig", found nothing'),
    ({**OWN, "kind": {}}, "here.kind", "found a mapping"),
    ({**NVIDIA, "kind": "VfioDeviceConfig"}, "here.kind", "must be one of GpuConfig, MigDevice"),
    ({**NVIDIA, "kind": "ComputeDomainChannelConfig"}, "here.kind", "must be one of GpuConfig"),
    ({**OWN, "x": "y" * (10 << 10)}, "here", "the API server takes at most 10240"),
    ({**OWN, "timeslice": "short"}, "here.timeslice", "unknown key"),
    ({**OWN, "timeSlice": "Short"}, "here.timeSlice", "one of default, short, medium, long, found"),
    ({**OWN, "timeSlice": 1}, "here.timeSlice", "found 1"),
    ({**OWN, "timeSlice": None}, "here.timeSlice", "found nothing"),
    ({**OWN, "computeMode": "prohibited"}, "here.computeMode", "default, exclusive-process"),
    ({**OWN, "computeMask": "true"}, "here.computeMask", 'true or false, found the text "true"'),
    ({**OWN, "hints": ["x"]}, "here.hints[0]", "must be one of tensorflow, pytorch"),
    ({**OWN, "interposer": "A b"}, "here.interposer", "a name of lower-case letters"),
    ({**OWN, "memory": "4Gi"}, "here.memory", "must be a mapping"),
    ({**OWN, "memory": {"limit": "4Gb"}}, "here.memory.limit", "an amount of memory"),
    ({**OWN, "memory": {"limit": 1}}, "here.memory.limit", "must be 256Mi or more"),
    ({**OWN, "memory": {"onFailure": "ignore"}}, "here.memory.onFailure", "auto, refuse, start"),
    ({**OWN, "mps": {"activeThreadPercentage": 0}}, "here.mps.activeThreadPercentage", "1 or more"),
    ({**OWN, "mps": {"activeThreadPercentage": True}}, "here.mps.activeThread", "an integer"),
    ({**OWN, "timeSlice": "short", "mps": {}}, "here.timeSlice", "excludes `mps`"),
    ({**OWN, "computeMode": "default", "mps": {}}, "here.computeMode", "excludes `mps`"),
    ({**NVIDIA, "sharing": {}}, "here.sharing.strategy", "is missing"),
    (sharing("Spatial"), "here.sharing.strategy", "must be one of TimeSlicing, MPS, found"),
    (sharing(mpsConfig={}), "here.sharing.mpsConfig", "needs the strategy MPS"),
    (sharing("MPS", timeSlicingConfig={}), "here.sharing.timeSlicingConfig", "TimeSlicing"),
    (
        sharing(timeSlicingConfig={"interval": "short"}),
        "here.sharing.timeSlicingConfig.interval",
        'must be one of Default, Short, Medium, Long, found the text "short"',
    ),
    (
        sharing("MPS", mpsConfig={"multiUser": True}),
        "here.sharing.mpsConfig.multiUser",
        "must be false, found true",
    ),
    (
        sharing("MPS", mpsConfig={"defaultActiveThreadPercentage": 101}),
        "here.sharing.mpsConfig.defaultActiveThreadPercentage",
        "100 or less",
    ),
    (
        sharing("MPS", mpsConfig={"defaultPerDevicePinnedMemoryLimit": {"first": "1Gi"}}),
        "here.sharing.mpsConfig.defaultPerDevicePinnedMemoryLimit",
        'indices, UUIDs or `default`, found the text "first"',
    ),
    (
        sharing("MPS", mpsConfig={"defaultPerDevicePinnedMemoryLimit": {"0": "1"}}),
        "here.sharing.mpsConfig.defaultPerDevicePinnedMemoryLimit",
        "0: must be 256Mi or more",
    ),
    (
        {**MIG, "sharing": {"strategy": "TimeSlicing", "timeSlicingConfig": {}}},
        "here.sharing.timeSlicingConfig",
        "unknown key",
    ),
]


@pytest.mark.parametrize(("parameters", "path", "message"), WRONG)
def test_wrong_parameters(parameters: object, path: str, message: str) -> None:
    found = opaque_parameters.read(parameters, "DeviceClass x", "here")
    assert found.settings is None
    (problem,) = found.problems
    assert problem.path.startswith(path)
    assert message in problem.message
    assert str(problem).startswith(f"DeviceClass x: {path}")


def test_all_problems_are_reported_at_once() -> None:
    wrong = {**OWN, "timeSlice": "fast", "computeMask": 1, "other": {}}
    found = opaque_parameters.read(wrong, "DeviceClass x", "here")
    assert [one.path for one in found.problems] == [
        "here.timeSlice",
        "here.computeMask",
        "here.other",
    ]


def test_hostile_names_are_escaped() -> None:
    found = opaque_parameters.read({**OWN, "\x1b[31m\n" + "k" * 999: 1}, "DeviceClass x", "here")
    text = str(found.problems[0])
    assert "\x1b" not in text
    assert "\n" not in text
    assert len(text) < 400


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=9),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=9), inner),
    max_leaves=9,
)
KEYS = ("sharing", "timeSlice", "mps", "memory", "hints", "computeMask", "interposer")


@given(st.sampled_from([OWN, NVIDIA, MIG, {}]), st.dictionaries(st.sampled_from(KEYS), JSON))
def test_any_document_is_read_or_has_problems(head: Any, document: Any) -> None:
    found = opaque_parameters.read({**head, **document}, "DeviceClass x", "here")
    assert (found.settings is None) == bool(found.problems)


def device_class(*parameters: object, driver: str = "gpu.nvidia.com") -> dict[str, Any]:
    config = [{"opaque": {"driver": driver, "parameters": one}} for one in parameters]
    return {"kind": "DeviceClass", "metadata": {"name": "shared"}, "spec": {"config": config}}


def claim(kind: str, *parameters: object) -> dict[str, Any]:
    devices = {"config": device_class(*parameters)["spec"]["config"]}
    spec: Any = {"devices": devices}
    if kind == "ResourceClaimTemplate":
        spec = {"spec": spec}
    return {"kind": kind, "metadata": {"name": "mine", "namespace": "team"}, "spec": spec}


def test_objects_of_the_api_are_checked_offline() -> None:
    bad = {**OWN, "timeSlice": "fast"}
    documents = [
        device_class(OWN, bad),
        claim("ResourceClaim", bad),
        claim("ResourceClaimTemplate", bad),
    ]
    found = [str(one) for document in documents for one in opaque_parameters.problems(document)]
    tail = '.timeSlice: must be one of default, short, medium, long, found the text "fast"'
    assert found == [
        f"DeviceClass shared: spec.config[1].opaque.parameters{tail}",
        f"ResourceClaim team/mine: spec.devices.config[0].opaque.parameters{tail}",
        f"ResourceClaimTemplate team/mine: spec.spec.devices.config[0].opaque.parameters{tail}",
    ]


@pytest.mark.parametrize("driver", ["gpu.nvidia.com", "gpu.amd.com"])
def test_the_drivers_of_both_vendors_have_parameters(driver: str) -> None:
    assert opaque_parameters.problems(device_class({**OWN, "x": 1}, driver=driver))


@pytest.mark.parametrize(
    "document",
    [
        device_class("anything", driver="dra.net"),
        {"kind": "Pod", "spec": {"config": [1]}},
        {"kind": "DeviceClass"},
        {"kind": "DeviceClass", "spec": {"config": [1, {}, {"opaque": 5}]}},
        {"kind": "ResourceClaim", "spec": {"devices": {"config": {"x": 1}}}},
        {},
    ],
)
def test_entries_of_other_drivers_and_objects_have_no_problems(document: dict[str, Any]) -> None:
    assert opaque_parameters.problems(document) == []
