# SPDX-License-Identifier: Apache-2.0
"""Requests in addition to GPUs: how each variable is read, and the decision of policy."""

from __future__ import annotations

from typing import Any

import pytest

from gpuhook.errors import GpuhookError
from gpuhook.host.hot.settings import Settings
from gpuhook.request import mount_requests, parse, policy
from gpuhook.vendors.nvidia.hot import vocabulary
from gpuhook.vendors.nvidia.hot.extras import extra_devices

SWITCHES = {
    "NVIDIA_GDS": "nvidia.com/gds=all",
    "NVIDIA_MOFED": "nvidia.com/mofed=all",
    "NVIDIA_GDRCOPY": "nvidia.com/gdrcopy=all",
    "NVIDIA_NVSWITCH": "nvidia.com/nvswitch=all",
}
CHANNELS = "NVIDIA_IMEX_CHANNELS"
MOUNT = "/var/run/nvidia-container-devices/imex/"


def asking(*env: str, imex: tuple[str, ...] = (), privileged: bool = False) -> dict[str, Any]:
    """Return a config.json with these variables, mounts and CAP_SYS_ADMIN."""
    bounding = ["CAP_SYS_ADMIN"] if privileged else []
    return {
        "process": {"env": list(env), "capabilities": {"bounding": bounding}},
        "mounts": [{"source": "/dev/null", "destination": MOUNT + one} for one in imex],
    }


def settings(**chosen: object) -> Settings:
    """Return settings with these values."""
    made = Settings()
    for name, value in chosen.items():
        setattr(made, name, value)
    return made


def results(spec: dict[str, Any], **chosen: object) -> list[tuple[str, list[str], str]]:
    """Return source, names and result of each extra request."""
    found = extra_devices.extra_requests(spec, settings(**chosen))
    return [(one.where, one.names, one.result) for one in found]


@pytest.mark.parametrize("place", ["imex//5", "./imex/5", "0/../imex/./5"])
def test_mount_paths_are_normalized(place: str) -> None:
    """Like those of GPUs, which ignore the mounts in that directory."""
    spec = asking(imex=(f"../{place}",))
    assert parse.has_extras(spec, vocabulary.VOCABULARY)
    found = results(spec, accept_volume_mounts=True)
    assert found == [(MOUNT, ["nvidia.com/imex-channel=5"], "won")]
    prefix, rooms = vocabulary.VOCABULARY.mount_prefix, vocabulary.VOCABULARY.extra_mounts
    assert mount_requests.names(spec["mounts"], prefix, rooms) == ([], [])


@pytest.mark.parametrize(("variable", "name"), SWITCHES.items())
def test_switch_requires_the_word_enabled(variable: str, name: str) -> None:
    """`enabled` exactly; other values are ignored, an empty one without a message."""
    assert results(asking(f"{variable}=enabled")) == [(variable, [name], "won")]
    for value in ("1", "true", "ENABLED", "enabled ", "disabled"):
        assert [one[2] for one in results(asking(f"{variable}={value}"))] == ["ignored"], value
    assert results(asking(f"{variable}=")) == []


@pytest.mark.parametrize(
    ("value", "names"),
    [
        ("0", ["0"]),
        ("0,3", ["0", "3"]),
        (" 3 , 0,3,", ["3", "0"]),
        ("1048575", ["1048575"]),
    ],
)
def test_channels_are_a_list_of_numbers(value: str, names: list[str]) -> None:
    """Each channel once, in order, without white space."""
    expected = [f"nvidia.com/imex-channel={name}" for name in names]
    assert results(asking(f"{CHANNELS}={value}")) == [(CHANNELS, expected, "won")]


@pytest.mark.parametrize(
    "value", ["1048576", "-1", "01", "channel0", "none", "void", "0x1", "1.0", "²", "9" * 200]
)
def test_invalid_channels_are_refused(value: str) -> None:
    """By variable and by mount."""
    for spec in (asking(f"{CHANNELS}={value}"), asking(imex=(value,))):
        with pytest.raises(GpuhookError) as raised:
            results(spec, accept_volume_mounts=True)
        assert raised.value.code == "GH1036"


def test_all_channels_is_not_a_request() -> None:
    """As in NVIDIA's toolkit; a mount of that name is not a channel either."""
    assert results(asking(f"{CHANNELS}=all")) == [(CHANNELS, ["all"], "ignored")]
    with pytest.raises(GpuhookError, match="is not an IMEX channel"):
        results(asking(imex=("all",)), accept_volume_mounts=True)


def test_mounts_take_precedence_over_the_variable() -> None:
    """Mounts win if they apply; if they do not, the variable is the request."""
    spec = asking(f"{CHANNELS}=3", imex=("0", "12"))
    assert results(spec, accept_volume_mounts=True) == [
        (MOUNT, ["nvidia.com/imex-channel=0", "nvidia.com/imex-channel=12"], "won"),
        (CHANNELS, ["nvidia.com/imex-channel=3"], "ignored"),
    ]
    assert [one[2] for one in results(spec)] == ["refused", "won"]


def test_variables_of_unprivileged_containers() -> None:
    """They apply only if they do for GPUs."""
    env = ("NVIDIA_GDS=enabled", f"{CHANNELS}=0")
    for is_privileged, result in ((False, "refused"), (True, "won")):
        found = results(asking(*env, privileged=is_privileged), accept_env_when_unprivileged=False)
        assert [one[2] for one in found] == [result, result]


def test_setting_ignores_channels() -> None:
    """By variable and by mount; switches are not affected."""
    spec = asking(f"{CHANNELS}=0", "NVIDIA_GDS=enabled", imex=("3",))
    found = results(spec, ignore_imex_channels=True, accept_volume_mounts=True)
    assert {one[0]: one[2] for one in found} == {
        MOUNT: "ignored",
        CHANNELS: "ignored",
        "NVIDIA_GDS": "won",
    }


@pytest.mark.parametrize("device", ["config", "monitor"])
def test_mig_administration_accepts_all_only(device: str) -> None:
    """`all` and no other value, whatever the policy of variables is."""
    variable = f"NVIDIA_MIG_{device.upper()}_DEVICES"
    spec = asking(f"{variable}=all", privileged=True)
    for accepts in (True, False):
        found = results(spec, accept_env_when_unprivileged=accepts)
        assert found == [(variable, [f"nvidia.com/mig={device}"], "won")]
    for value in ("0", "0,1", "all,0", "none", "ALL"):
        with pytest.raises(GpuhookError) as raised:
            results(asking(f"{variable}={value}", privileged=True))
        assert raised.value.code == "GH1039"
    assert results(asking(f"{variable}=")) == []


@pytest.mark.parametrize("name", ["config", "monitor", "all", "x"])
def test_mig_administration_requires_privileges(name: str) -> None:
    """For every source; `none` requests nothing, and other kinds need no privilege."""
    qualified = f"nvidia.com/mig={name}"
    policy.require_privilege([qualified], "x", asking(privileged=True), vocabulary.VOCABULARY)
    with pytest.raises(GpuhookError) as raised:
        policy.require_privilege(["0", qualified], "x", asking(), vocabulary.VOCABULARY)
    assert raised.value.code == "GH1038"
    free = ["nvidia.com/mig=none", "nvidia.com/gpu=config", "nvidia.com/gds=all", "config"]
    policy.require_privilege(free, "x", asking(), vocabulary.VOCABULARY)


def test_channels_are_not_gpus() -> None:
    """Mounts of channels alone leave the request for GPUs to the variable."""
    spec = asking("NVIDIA_VISIBLE_DEVICES=1", imex=("0",))
    (source,) = parse.sources(spec, vocabulary.VOCABULARY, [])
    assert (source.kind, source.names) == ("env", ["1"])


def test_quick_check_finds_each_extra_request() -> None:
    """It has no false negatives."""
    for env in ("NVIDIA_VISIBLE_DEVICES=all", "NVIDIA_GDSX=enabled", "NVIDIA_GDS"):
        assert not parse.has_extras(asking(env), vocabulary.VOCABULARY)
    for variable in vocabulary.VOCABULARY.extras:
        assert parse.has_extras(asking(f"{variable}="), vocabulary.VOCABULARY)
    assert parse.has_extras(asking(imex=("0",)), vocabulary.VOCABULARY)
    for odd in ({}, {"process": 1, "mounts": 2}, {"mounts": [None, {"source": "/dev/null"}]}):
        assert not parse.has_extras(odd, vocabulary.VOCABULARY)
