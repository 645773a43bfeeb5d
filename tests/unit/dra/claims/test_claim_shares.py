# SPDX-License-Identifier: Apache-2.0
"""Settings of class and claim, numbers of shares, memory limits, and conflicts of two claims."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from gpuhook.dra.claims.claim import FROM_CLAIM, OpaqueConfig
from gpuhook.dra.claims.settings import device_share
from gpuhook.dra.claims.settings.gpu_config import DeviceSettings
from tests.refusal import refused
from tests.unit.dra.claims.share_claims import GIB, NVIDIA, OWN, SHARED, NodeOfClaims

MIB = 1 << 20
QUARTER = 3840 * MIB
WHOLE = "{}"
BY_MPS = SHARED.replace("timeSlicing", "mps")


def settings(of_class: list[Any], of_claim: list[Any], sharing: str = WHOLE) -> DeviceSettings:
    node = NodeOfClaims(sharing)
    (share,) = node.shares(node.claim("a", of_class=of_class, of_claim=of_claim))
    return share.settings


def test_the_default_memory_of_a_share_is_its_limit() -> None:
    node = NodeOfClaims()
    (share,) = node.shares(node.claim("a"))
    assert (share.memory, share.number, share.is_required) == (QUARTER, 0, False)
    assert share.enforcer == "driver"


def test_a_requested_amount_is_the_limit_and_required() -> None:
    node = NodeOfClaims()
    result = node.result(consumed={"memory": 6 * GIB, "slots": 1}, requests_memory=True)
    (share,) = node.shares(node.claim("a", result))
    assert (share.memory, share.is_required) == (6 * GIB, True)


def test_a_whole_gpu_has_no_limit_and_no_number() -> None:
    node = NodeOfClaims(WHOLE)
    (share,) = node.shares(node.claim("a"))
    assert (share.memory, share.number, share.enforcer) == (0, None, "")


def test_later_entries_win_key_by_key() -> None:
    first = {**OWN, "timeSlice": "short", "computeMode": "default"}
    assert settings([first, {**OWN, "timeSlice": "long"}], []).time_slice == "long"
    merged = settings([first], [{**NVIDIA, "sharing": {"strategy": "TimeSlicing"}}])
    assert (merged.time_slice, merged.compute_mode) == ("short", "default")
    server = settings([first], [{**OWN, "mps": {"activeThreadPercentage": 20}}])
    assert (server.time_slice, server.compute_mode) == (None, None)
    assert server.mps is not None
    assert settings([{**OWN, "mps": {}}], [{**OWN, "timeSlice": "long"}]).mps is None


def test_the_smaller_memory_limit_of_class_and_claim_applies() -> None:
    limits = [{**OWN, "memory": {"limit": f"{size}Gi"}} for size in (4, 9)]
    assert settings(limits[:1], limits[1:]).memory.limit == 4 * GIB
    assert settings(limits[1:], limits[:1]).memory.limit == 4 * GIB


def test_a_claim_cannot_start_without_the_limit_that_its_class_requires() -> None:
    refuse, start = ({**OWN, "memory": {"onFailure": word}} for word in ("refuse", "start"))
    assert settings([refuse], [start]).memory.on_failure == "refuse"
    assert settings([start], [refuse]).memory.on_failure == "refuse"
    assert settings([start], []).memory.on_failure == "start"


def test_entries_apply_to_their_requests() -> None:
    node = NodeOfClaims(WHOLE, "h100x8")
    short = {**OWN, "timeSlice": "short"}
    config = OpaqueConfig(FROM_CLAIM, short, ("b", "c/small"), "config[0]")
    results = (
        node.result("gpu-0", "a"),
        node.result("gpu-1", "b", subrequest="big"),
        node.result("gpu-2", "c", subrequest="big"),
        node.result("gpu-3", "c", subrequest="small"),
    )
    shares = node.shares(node.claim("a", *results, of_claim=[config]))
    assert [one.settings.time_slice for one in shares] == [None, "short", None, "short"]


def test_numbers_of_shares_are_the_lowest_free_ones() -> None:
    node = NodeOfClaims()
    numbers = [node.shares(node.claim(name))[0].number for name in "abc"]
    assert numbers == [0, 1, 2]
    node.held = [one for one in node.held if one.number != 1]
    assert node.shares(node.claim("d"))[0].number == 1
    again = node.shares(node.claim("d"))  # its own share is not that of another claim
    assert again[0].number == 1


def test_two_shares_of_one_gpu_in_a_claim_have_their_own_numbers() -> None:
    node = NodeOfClaims()
    results = (node.result(share_id="x"), node.result(request="other", share_id="y"))
    shares = node.shares(node.claim("a", *results))
    assert [one.number for one in shares] == [0, 1]


def test_the_replica_of_a_server_without_shares_has_the_default_memory() -> None:
    node = NodeOfClaims()
    found = node.devices["gpu-0"]
    capacity = {"memory": replace(found.capacity["memory"], value=QUARTER)}
    replica = replace(found, is_shared=False, replica=2, replicas=4, capacity=capacity)
    node.devices["gpu-0"] = replica
    (share,) = node.shares(node.claim("a", node.result(consumed={})))
    assert (share.number, share.memory) == (2, QUARTER)


def test_an_admin_has_no_limits_no_settings_and_no_conflicts() -> None:
    node = NodeOfClaims()
    node.shares(node.claim("a", of_claim=[{**OWN, "timeSlice": "short"}]))
    result = node.result(is_admin=True)
    (share,) = node.shares(node.claim("admin", result, of_class=[{**OWN, "timeSlice": "long"}]))
    assert (share.memory, share.number, share.settings) == (0, None, DeviceSettings())
    assert node.shares(node.claim("b"))[0].number == 1


CONFLICTS = [
    (
        {**OWN, "timeSlice": "short"},
        {**OWN, "timeSlice": "long"},
        ["the time slice", "long", "short"],
    ),
    (
        {**OWN, "computeMode": "default"},
        {**OWN, "mps": {}},
        ["MPS would be a server with the default share of threads for gpu-0 3840Mi", "uses none"],
    ),
    (
        {**OWN, "mps": {"activeThreadPercentage": 10}},
        {**OWN, "mps": {"activeThreadPercentage": 20}},
        ["20 % of the threads", "10 % of the threads"],
    ),
    ({**OWN, "mps": {}}, OWN, ["MPS would be none", "a server"]),
    (
        {**OWN, "mps": {}},
        {**OWN, "mps": {"memory": "1Gi"}},
        ["gpu-0 1Gi", "gpu-0 3840Mi"],
    ),
]


@pytest.mark.parametrize(("first", "second", "words"), CONFLICTS)
def test_two_claims_with_other_modes_on_one_gpu(first: Any, second: Any, words: list[str]) -> None:
    node = NodeOfClaims()
    node.shares(node.claim("a", of_claim=[first]))
    with refused("GH2621", "team/a", "team/b", "gpu-0", *words):
        node.shares(node.claim("b", of_claim=[second]))
    assert len(node.shares(node.claim("c", of_claim=[first]))) == 1


def test_a_claim_without_a_time_slice_shares_a_gpu_that_has_one() -> None:
    node = NodeOfClaims()
    node.shares(node.claim("a", of_claim=[{**OWN, "timeSlice": "short"}]))
    node.shares(node.claim("b"))
    node.shares(node.claim("c", of_claim=[{**OWN, "timeSlice": "short"}]))


REFUSED = [
    (SHARED, {**OWN, "computeMode": "exclusive-process"}, "computeMode", "prevents a second claim"),
    (SHARED, {**OWN, "computeMask": True}, "computeMask", "NVIDIA's driver has no such variable"),
    (WHOLE, {**OWN, "interposer": "nvshare"}, "interposer", "has no nvshare, only none"),
    (WHOLE, {**OWN, "hints": ["jax"]}, "hints", "there is none"),
    (SHARED, {**OWN, "memory": {"limit": "8Gi"}}, "memory", "8Gi are more than the 3840Mi"),
    (BY_MPS, {**OWN, "timeSlice": "short"}, "timeSlice", "sharing.mps.resources[0]"),
    (BY_MPS, {**OWN, "mps": {"memory": "1Gi"}}, "mps", "sharing.mps.resources[0]"),
    (BY_MPS, {**OWN, "memory": {"limit": "1Gi"}}, "memory", "sets the limit of MPS clients"),
    (
        WHOLE,
        {
            **NVIDIA,
            "sharing": {
                "strategy": "MPS",
                "mpsConfig": {"defaultPerDevicePinnedMemoryLimit": {"1": "1Gi"}},
            },
        },
        "",
        "for the device 1, which team/a does not have",
    ),
]


@pytest.mark.parametrize(("sharing", "parameters", "key", "message"), REFUSED)
def test_settings_that_a_device_cannot_have(
    sharing: str, parameters: Any, key: str, message: str
) -> None:
    node = NodeOfClaims(sharing)
    where = f"ResourceClaim team/a: config[0]{'.' + key if key else ''}: "
    with refused("GH2620", "claim team/a: ", where, message, "(gpu-0)"):
        node.shares(node.claim("a", of_claim=[parameters]))


def test_a_problem_names_the_class_that_has_it() -> None:
    node = NodeOfClaims()
    with refused("GH2620", "DeviceClass shared: config[0].timeSlice: must be one of default"):
        node.shares(node.claim("a", of_class=[{**OWN, "timeSlice": "fast"}]))


def test_a_class_may_have_a_limit_above_that_of_a_share() -> None:
    node = NodeOfClaims()
    (share,) = node.shares(node.claim("a", of_class=[{**OWN, "memory": {"limit": "8Gi"}}]))
    assert share.memory == QUARTER


def test_a_claim_lowers_its_limit() -> None:
    node = NodeOfClaims()
    (share,) = node.shares(node.claim("a", of_claim=[{**OWN, "memory": {"limit": "1Gi"}}]))
    assert share.memory == GIB


def test_many_problems_are_some_and_a_number() -> None:
    node = NodeOfClaims()
    wrong = {**OWN, **{f"x{number}": 1 for number in range(9)}}
    with refused("GH2620", "config[0].x4: unknown key; and 4 more"):
        node.shares(node.claim("a", of_claim=[wrong]))


def test_mps_needs_the_directory_of_its_servers() -> None:
    node = NodeOfClaims(WHOLE)
    flags = replace(node.sharing.configuration.flags, mps_root="")
    loaded = replace(node.sharing.configuration, flags=flags)
    node.sharing = replace(node.sharing, configuration=loaded)
    with refused("GH2620", "no flags.mpsRoot"):
        node.shares(node.claim("a", of_claim=[{**OWN, "mps": {}}]))


@pytest.mark.parametrize("key", ["timeSlice", "mps", "computeMode"])
def test_amd_gpus_have_no_such_modes(key: str) -> None:
    node = NodeOfClaims(WHOLE, "mi300x8")
    value: Any = {"timeSlice": "short", "mps": {}, "computeMode": "default"}[key]
    with refused("GH2620", f"config[0].{key}: "):
        node.shares(node.claim("a", of_claim=[{**OWN, key: value}]))


def test_instances_have_no_modes_of_a_gpu() -> None:
    node = NodeOfClaims(WHOLE, "a100-mig")
    with refused("GH2620", "config[0].timeSlice: only whole GPUs have it"):
        node.shares(node.claim("a", of_claim=[{**OWN, "timeSlice": "short"}]))


def test_the_kinds_of_the_vendors_driver_are_for_gpus_or_instances() -> None:
    """For all requests they apply where they fit, as in NVIDIA's driver."""
    node = NodeOfClaims(WHOLE, "a100-mig")
    mig = {**NVIDIA, "kind": "MigDeviceConfig", "sharing": {"strategy": "TimeSlicing"}}
    short = {**NVIDIA, "sharing": {"strategy": "TimeSlicing"}}
    short["sharing"]["timeSlicingConfig"] = {"interval": "Short"}
    number = next(name for name, one in node.devices.items() if one.device.instance is None)
    results = (node.result("gpu-0", "part"), node.result(number, "whole"))
    shares = node.shares(node.claim("a", *results, of_claim=[mig, short]))
    assert [one.settings.time_slice for one in shares] == [None, "short"]
    named = OpaqueConfig(FROM_CLAIM, short, ("part",), "config[0]")
    with refused("GH2620", "this kind is for a whole GPU, and gpu-1 is an instance of a GPU"):
        node.shares(node.claim("b", node.result("gpu-1", "part"), of_claim=[named]))
    server = {**mig, "sharing": {"strategy": "MPS"}}
    with refused("GH2620", "only whole GPUs have it"):
        node.shares(node.claim("c", node.result("gpu-1"), of_claim=[server]))


REFUSE: dict[str, Any] = {**OWN, "memory": {"onFailure": "refuse"}}
START: dict[str, Any] = {**OWN, "memory": {"onFailure": "start"}}


def test_a_required_limit_that_nothing_enforces_is_refused() -> None:
    node = NodeOfClaims().without_driver_limits()
    words = ["team/a", "3840Mi", "gpu-0", "the driver is too old"]
    with refused("GH2622", *words):
        node.shares(node.claim("a", of_class=[REFUSE]))
    asked = node.result(requests_memory=True)
    with refused("GH2622", *words):
        node.shares(node.claim("a", asked))
    (share,) = node.shares(node.claim("a", asked, of_class=[START]))
    assert (share.enforcer, share.is_required) == ("nobody", False)
    (share,) = node.shares(node.claim("b"))
    assert (share.memory, share.enforcer, share.is_required) == (QUARTER, "nobody", False)


def test_the_guard_enforces_a_required_limit() -> None:
    """The hook must not require the driver to do so: the container would not start."""
    node = NodeOfClaims(more="gpuhook: {guard: {action: kill}}").without_driver_limits()
    (share,) = node.shares(node.claim("a", of_class=[REFUSE]))
    assert (share.enforcer, share.is_required) == ("guard", True)
    assert not share.must_start_with_limit


def test_the_limit_of_instances_needs_the_guard() -> None:
    node = NodeOfClaims(SHARED.replace("/gpu", "/mig-1g.5gb"), "a100-mig")
    with refused("GH2622", "limits the memory of whole GPUs only"):
        node.shares(node.claim("a", of_class=[REFUSE]))


def test_an_mps_server_enforces_the_limits_of_its_clients() -> None:
    node = NodeOfClaims(WHOLE).without_driver_limits()
    limits = {"defaultPerDevicePinnedMemoryLimit": {"0": "2Gi", "default": "1Gi"}}
    server = {**NVIDIA, "sharing": {"strategy": "MPS", "mpsConfig": limits}}
    (share,) = node.shares(node.claim("a", of_class=[server, REFUSE]))
    assert (share.memory, share.enforcer, share.is_required) == (2 * GIB, "mps", True)


def test_the_server_of_the_file_serves_claims_that_ask_for_mps() -> None:
    node = NodeOfClaims(BY_MPS)
    (share,) = node.shares(node.claim("a", of_class=[{**OWN, "mps": {}}]))
    assert (share.settings.mps, share.enforcer) == (None, "mps")
    node.shares(node.claim("b"))  # no conflict: one server serves both


def test_a_share_survives_the_checkpoint() -> None:
    node = NodeOfClaims()
    all_keys = {
        **OWN,
        "mps": {"activeThreadPercentage": 5},
        "hints": ["jax"],
        "memory": {"limit": "1Gi", "onFailure": "refuse"},
    }
    named = {**NVIDIA, "sharing": {"strategy": "MPS"}}
    named["sharing"]["mpsConfig"] = {"defaultPerDevicePinnedMemoryLimit": {"0": "1Gi"}}
    for parameters in (all_keys, named, OWN):
        node.held.clear()
        (share,) = node.shares(node.claim("a", of_claim=[parameters]))
        document = json.loads(json.dumps(share.document()))
        assert device_share.share_of(document) == share


@pytest.mark.parametrize("change", [{"claim": 5}, {"settings": {}}, {"x": 1}, {"settings": []}])
def test_a_damaged_share_is_refused(change: dict[str, Any]) -> None:
    node = NodeOfClaims()
    (share,) = node.shares(node.claim("a"))
    with pytest.raises((KeyError, TypeError, ValueError)):
        device_share.share_of({**share.document(), **change})
