# SPDX-License-Identifier: Apache-2.0
"""The request of a container, its source, and the decision of policy."""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any

import pytest

from gpuhook.errors import GpuhookError
from gpuhook.host.hot.settings import Settings
from gpuhook.request import parse, policy, replicas
from gpuhook.vendors.nvidia.hot.vocabulary import VOCABULARY

PREFIXES = ["cdi.k8s.io/"]


def spec(value: str | None = None, **more: Any) -> dict[str, Any]:
    env = [] if value is None else [f"NVIDIA_VISIBLE_DEVICES={value}"]
    return {"process": {"env": env}, **more}


def requested(config: dict[str, Any]) -> list[tuple[str, list[str]]]:
    return [(s.kind, s.names) for s in parse.sources(config, VOCABULARY, PREFIXES)]


@pytest.mark.parametrize(
    ("value", "names"),
    [
        ("all", ["all"]),
        ("0", ["0"]),
        ("0,1", ["0", "1"]),
        (" 1 , 0 ,1,,", ["1", "0"]),
        ("0,all", ["all"]),
        ("none", ["none"]),
        ("GPU-1::2,GPU-1::3", ["GPU-1::2", "GPU-1::3"]),
        ("nvidia.com/gpu=0", ["nvidia.com/gpu=0"]),
        ("00000000:3B:00.0", ["00000000:3B:00.0"]),
    ],
)
def test_variable_is_a_comma_list(value: str, names: list[str]) -> None:
    """Trimmed, each name once, in order; `all` replaces the other names."""
    assert requested(spec(value)) == [("env", names)]


@pytest.mark.parametrize("value", [None, "", ",", "void", "0,void"])
def test_empty_values_request_nothing(value: str | None) -> None:
    """Unset, empty and void."""
    assert requested(spec(value)) == []


def test_last_of_duplicate_variables_applies() -> None:
    """As in the container."""
    config = {"process": {"env": ["NVIDIA_VISIBLE_DEVICES=all", "NVIDIA_VISIBLE_DEVICES=void"]}}
    assert requested(config) == []


def test_entries_without_equals_are_ignored() -> None:
    """Such an entry is not a fault."""
    assert requested(
        {"process": {"env": ["NVIDIA_VISIBLE_DEVICES", 7, "NVIDIA_VISIBLE_DEVICES=1"]}}
    )


@pytest.mark.parametrize(
    "config", [{}, {"process": None}, {"process": {"env": None}}, {"mounts": None}]
)
def test_absent_parts_request_nothing(config: dict[str, Any]) -> None:
    """A spec without process, env, mounts or annotations."""
    assert requested(config) == []


def test_annotations_precede_mounts_and_variables() -> None:
    """Every source is found, in the order of precedence."""
    config = spec(
        "all",
        annotations={
            "cdi.k8s.io/b": "nvidia.com/gpu=1",
            "cdi.k8s.io/a": "nvidia.com/gpu=0",
            "x": "y",
        },
        mounts=[
            {"destination": "/var/run/nvidia-container-devices/GPU-7", "source": "/dev/null"},
            {
                "destination": "/var/run/nvidia-container-devices/cdi/nvidia.com/gpu/5",
                "source": "/dev/null",
            },
            {"destination": "/var/run/nvidia-container-devices/8", "source": "/tmp"},
        ],
    )
    assert requested(config) == [
        ("annotations", ["nvidia.com/gpu=0", "nvidia.com/gpu=1"]),
        ("mounts", ["GPU-7", "nvidia.com/gpu=5"]),
        ("env", ["all"]),
    ]


@pytest.mark.parametrize(
    ("value", "code"),
    [("a\x1b[31mb", "GH1004"), ("x" * 256, "GH1004"), (",".join(map(str, range(10000))), "GH1005")],
)
def test_hostile_values_are_refused(value: str, code: str) -> None:
    """Control characters, endless names and endless lists, in one printable line."""
    with pytest.raises(GpuhookError) as caught:
        requested(spec(value))
    assert caught.value.code == code
    assert caught.value.message.isprintable()
    assert len(caught.value.message) < 600


@pytest.mark.parametrize(
    "name", ["GPU-1::", "::1", "GPU-1::-1", "GPU-1::1::2", "GPU-1::x", "G::1234567"]
)
def test_malformed_replicas_are_refused(name: str) -> None:
    """A replica number is a short decimal number after a device."""
    with pytest.raises(GpuhookError) as caught:
        replicas.split(name)
    assert caught.value.code == "GH1003"


def test_replica_has_its_device() -> None:
    """Other names have no replica."""
    assert replicas.split("MIG-a::0") == ("MIG-a", "MIG-a::0")
    assert replicas.split("0:1") == ("0:1", None)


@pytest.mark.parametrize(
    ("kind", "names", "is_grant"),
    [
        ("env", ["all"], False),
        ("env", ["none"], False),
        ("env", ["GPU-1"], True),
        ("env", ["0"], True),
        ("annotations", ["nvidia.com/gpu=all"], True),
        ("mounts", ["all"], True),
    ],
)
def test_images_all_is_not_a_grant(kind: str, names: list[str], is_grant: bool) -> None:
    """All other requests are."""
    assert parse.Source(kind, "", names).is_grant is is_grant


def judged(config: dict[str, Any], settings: Settings) -> policy.Verdict:
    return policy.judge(parse.sources(config, VOCABULARY, PREFIXES), config, settings)


def test_variable_applies_only_if_policy_allows() -> None:
    """With the setting off, it applies in privileged containers only."""
    settings = Settings()
    settings.accept_env_when_unprivileged = False
    verdict = judged(spec("all"), settings)
    assert verdict.chosen is None
    assert [s.kind for s, _ in verdict.refused] == ["env"]
    privileged = spec("all")
    privileged["process"]["capabilities"] = {"bounding": ["CAP_SYS_ADMIN"]}
    assert judged(privileged, settings).chosen is not None


def test_variable_cannot_name_another_vendor() -> None:
    """An image cannot request another vendor's devices, an annotation can."""
    foreign = parse.Source(parse.ENV, "V", ["nvidia.com/gpu=0", "evil.com/disk=all"])
    with pytest.raises(GpuhookError) as caught:
        policy.require_own_vendor(foreign, "nvidia.com/gpu", {})
    assert caught.value.code == "GH1009"
    foreign.kind = parse.ANNOTATIONS
    policy.require_own_vendor(foreign, "nvidia.com/gpu", {})


@pytest.mark.parametrize(
    ("kind", "is_privileged", "may"),
    [
        ("management.nvidia.com/gpu", True, True),
        ("management.nvidia.com/gpu", False, False),
        ("evilnvidia.com/gpu", True, False),
        ("nvidia.com.evil.com/gpu", True, False),
        ("nvidia.com/gds", False, True),
    ],
)
def test_subdomain_belongs_to_the_vendor(kind: str, is_privileged: bool, may: bool) -> None:
    """Variables of a container that may administer the host can request GPU management."""
    asking: dict[str, Any] = {}
    if is_privileged:
        asking = {"process": {"capabilities": {"bounding": ["CAP_SYS_ADMIN"]}}}
    named = parse.Source(parse.ENV, "V", [f"{kind}=all"])
    with (
        nullcontext()
        if may
        else pytest.raises(GpuhookError, match="a device of a vendor other than")
    ):
        policy.require_own_vendor(named, "nvidia.com/gpu", asking)


def test_mounts_apply_only_with_the_setting() -> None:
    """Then they take precedence over the variable."""
    mount = {"destination": "/var/run/nvidia-container-devices/0", "source": "/dev/null"}
    config = spec("all", mounts=[mount])
    settings = Settings()
    verdict = judged(config, settings)
    assert verdict.chosen is not None
    assert verdict.chosen.kind == "env"
    settings.accept_volume_mounts = True
    verdict = judged(config, settings)
    assert verdict.chosen is not None
    assert (verdict.chosen.kind, [s.kind for s in verdict.beaten]) == ("mounts", ["env"])
