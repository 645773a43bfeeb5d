# SPDX-License-Identifier: Apache-2.0
"""Which of several sources applies: annotations, mounts, variables, and legacy images."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from gpuhook.entry.plan_context import PlanContext, source_logged
from gpuhook.errors import GpuhookError
from gpuhook.node.kept_log import KeptLog
from gpuhook.request import plan
from tests.plans import chosen as settings
from tests.plans import planned, this_context, this_node

BELOW = "/var/run/nvidia-container-devices/"
OLD_MIG = "MIG-GPU-3d2b7a51-9c0e-4f6d-8b17-52e0c4a6f913/7/0"
# Abbreviations of variables and settings.
MOUNTS = {"accept_volume_mounts": True}
CLOSED = {"accept_env_when_unprivileged": False}
BOTH = {**MOUNTS, **CLOSED}
YOUNG = {"legacy_images": False}
SWARM = {"swarm_resources": ["DOCKER_RESOURCE_GPU"]}
TWO = {"swarm_resources": ["DOCKER_RESOURCE_GPU", "DOCKER_RESOURCE_NVIDIA-GPU"]}
V, R, C = "NVIDIA_VISIBLE_DEVICES=", "DOCKER_RESOURCE_GPU=", "CUDA_VERSION=8.0"
N = "DOCKER_RESOURCE_NVIDIA-GPU="
Q = "NVIDIA_REQUIRE_CUDA=cuda>=9.0"

# Requests and settings -> the kind and the names of the source that applies.
#   env; mounts below the directory; annotation; privileged; settings
CASES: list[tuple[list[str], list[str], str, bool, dict[str, Any], str | None, list[str]]] = [
    # the variable alone
    ([], [], "", False, {}, None, []),
    ([V], [], "", False, {}, None, []),
    ([V + "void"], [], "", False, {}, None, []),
    ([V + "0,void"], [], "", False, {}, None, []),
    ([V + "none"], [], "", False, {}, "env", ["none"]),
    ([V + "all"], [], "", False, {}, "env", ["all"]),
    ([V + "gpu0,gpu1"], [], "", False, {}, "env", ["gpu0", "gpu1"]),
    ([V + "0, 1,,0"], [], "", False, {}, "env", ["0", "1"]),
    ([V + "0,all"], [], "", False, {}, "env", ["all"]),
    ([V + "all,none"], [], "", False, {}, "env", ["all"]),
    ([V + "0:1"], [], "", False, {}, "env", ["0:1"]),
    ([V + OLD_MIG], [], "", False, {}, "env", [OLD_MIG]),
    ([V + "nvidia.com/gpu=0"], [], "", False, {}, "env", ["nvidia.com/gpu=0"]),
    ([V + "0", V + "1"], [], "", False, {}, "env", ["1"]),
    # policy of the variable
    ([V + "all"], [], "", False, CLOSED, None, []),
    ([V + "0"], [], "", False, CLOSED, None, []),
    ([V + "0"], [], "", True, CLOSED, "env", ["0"]),
    ([V + "all"], [], "", True, CLOSED, "env", ["all"]),
    ([V + "void"], [], "", True, CLOSED, None, []),
    # a legacy image
    ([C], [], "", False, {}, "image", ["all"]),
    ([C, V], [], "", False, {}, None, []),
    ([C, V + "void"], [], "", False, {}, None, []),
    ([C, V + "none"], [], "", False, {}, "env", ["none"]),
    ([C, V + "0"], [], "", False, {}, "env", ["0"]),
    ([C, Q], [], "", False, {}, None, []),
    ([C, Q, V + "0"], [], "", False, {}, "env", ["0"]),
    ([C, "NVIDIA_REQUIRE_CUDA="], [], "", False, {}, "image", ["all"]),
    (["CUDA_VERSION="], [], "", False, {}, None, []),
    ([C], [], "", False, YOUNG, None, []),
    ([C, V + "all"], [], "", False, YOUNG, "env", ["all"]),
    ([C], [], "", False, CLOSED, None, []),
    ([C], [], "", True, CLOSED, "image", ["all"]),
    # variables of a swarm's resources
    ([R + "GPU-1"], [], "", False, {}, None, []),
    ([R + "GPU-1"], [], "", False, SWARM, "resources", ["GPU-1"]),
    ([R + "GPU-1,GPU-2"], [], "", False, SWARM, "resources", ["GPU-1", "GPU-2"]),
    ([R + "GPU-1", V + "all"], [], "", False, SWARM, "resources", ["GPU-1"]),
    ([V + "all", R + "GPU-1", V + "void"], [], "", False, SWARM, "resources", ["GPU-1"]),
    ([R, V + "all"], [], "", False, SWARM, None, []),
    ([R + "void", V + "all"], [], "", False, SWARM, None, []),
    ([R + "all"], [], "", False, SWARM, "resources", ["all"]),
    ([V + "all"], [], "", False, SWARM, "env", ["all"]),
    ([R + "GPU-1", C], [], "", False, SWARM, "resources", ["GPU-1"]),
    ([R, C], [], "", False, SWARM, None, []),
    ([C], [], "", False, SWARM, "image", ["all"]),
    ([R + "GPU-1", N + "GPU-2"], [], "", False, TWO, "resources", ["GPU-1", "GPU-2"]),
    ([N + "GPU-2,GPU-1", R + "GPU-1"], [], "", False, TWO, "resources", ["GPU-1", "GPU-2"]),
    ([N + "GPU-2", V + "0"], [], "", False, TWO, "resources", ["GPU-2"]),
    ([N + "all", R + "GPU-1"], [], "", False, TWO, "resources", ["all"]),
    ([R + "GPU-1"], [], "", False, {**SWARM, **CLOSED}, None, []),
    ([R + "GPU-1"], [], "", True, {**SWARM, **CLOSED}, "resources", ["GPU-1"]),
    # mounts
    ([], ["GPU-1"], "", False, {}, None, []),
    ([], ["GPU-1"], "", False, MOUNTS, "mounts", ["GPU-1"]),
    ([], ["GPU-2", "GPU-1", "GPU-2"], "", False, MOUNTS, "mounts", ["GPU-2", "GPU-1"]),
    ([], ["GPU-1/", "//GPU-1", "x/../GPU-1"], "", False, MOUNTS, "mounts", ["GPU-1"]),
    ([], ["all", "0"], "", False, MOUNTS, "mounts", ["all"]),
    ([], ["none"], "", False, MOUNTS, "mounts", ["none"]),
    ([], ["void", "0"], "", False, MOUNTS, None, []),
    ([], ["0,1"], "", False, MOUNTS, "mounts", ["0,1"]),
    ([], [""], "", False, MOUNTS, None, []),
    ([], [OLD_MIG], "", False, MOUNTS, "mounts", [OLD_MIG]),
    ([], ["cdi/nvidia.com/gpu/0"], "", False, MOUNTS, "mounts", ["nvidia.com/gpu=0"]),
    ([], ["cdi/nvidia.com/gpu=0"], "", False, MOUNTS, "mounts", ["nvidia.com/gpu=0"]),
    ([], ["cdi/a.b/c/" + OLD_MIG], "", False, MOUNTS, "mounts", ["a.b/c=" + OLD_MIG]),
    ([], ["cdi/a.b/c=" + OLD_MIG], "", False, MOUNTS, "mounts", ["a.b/c=" + OLD_MIG]),
    ([], ["cdi/gpu0"], "", False, MOUNTS, None, []),
    ([], ["cdi", "cdi/a.b", "cdi/a.b/c", "cdi/a.b/c=", "cdi/-/c/0"], "", False, MOUNTS, None, []),
    ([], ["cdi/a.b/c", "GPU-1"], "", False, MOUNTS, "mounts", ["GPU-1"]),
    ([], ["imex/0"], "", False, MOUNTS, None, []),
    ([V + "0"], ["imex/0"], "", False, MOUNTS, "env", ["0"]),
    # mounts and variables
    ([V + "0"], ["GPU-1"], "", False, MOUNTS, "mounts", ["GPU-1"]),
    ([V + "void"], ["GPU-1"], "", False, MOUNTS, "mounts", ["GPU-1"]),
    ([V + "0"], ["GPU-1"], "", False, {}, "env", ["0"]),
    ([V + "0"], ["GPU-1"], "", True, {}, "env", ["0"]),
    ([V + "0"], ["GPU-1"], "", False, CLOSED, None, []),
    ([V + "0"], ["GPU-1"], "", False, BOTH, "mounts", ["GPU-1"]),
    ([V + "0"], ["GPU-1"], "", True, BOTH, "mounts", ["GPU-1"]),
    ([V + "0"], ["cdi/gpu0"], "", False, MOUNTS, "env", ["0"]),
    ([C], ["GPU-1"], "", False, MOUNTS, "mounts", ["GPU-1"]),
    ([R + "GPU-2"], ["GPU-1"], "", False, {**SWARM, **MOUNTS}, "mounts", ["GPU-1"]),
    # annotations
    ([], [], "nvidia.com/gpu=0", False, {}, "annotations", ["nvidia.com/gpu=0"]),
    ([V + "1"], [], "nvidia.com/gpu=0", False, {}, "annotations", ["nvidia.com/gpu=0"]),
    ([V + "1"], ["2"], "a.b/c=0", False, MOUNTS, "annotations", ["a.b/c=0"]),
    ([V + "1"], ["2"], "a.b/c=0", False, CLOSED, "annotations", ["a.b/c=0"]),
    ([R + "1", C], [], "a.b/c=0", False, SWARM, "annotations", ["a.b/c=0"]),
    ([V + "1"], [], " , ", False, {}, "env", ["1"]),
    ([V + "void"], [], "a.b/c=" + OLD_MIG, False, {}, "annotations", ["a.b/c=" + OLD_MIG]),
]


def context(**chosen: Any) -> tuple[PlanContext, KeptLog]:
    """Return the plan context of a node with these settings, and its log."""
    heard = KeptLog()
    return this_context(settings(**chosen), heard), heard


def capabilities(spec: dict[str, Any], **chosen: Any) -> frozenset[str]:
    """Return the capabilities of a container on a node with these settings."""
    found = settings(**chosen)
    return plan.capabilities(spec, found, this_node(found))


def config(
    env: Sequence[str],
    mounts: Sequence[str] = (),
    annotation: str = "",
    *,
    privileged: bool = False,
) -> dict[str, Any]:
    return {
        "process": {
            "env": list(env),
            "capabilities": {"bounding": ["CAP_SYS_ADMIN"] if privileged else ["CAP_MKNOD"]},
        },
        "mounts": [{"source": "/dev/null", "destination": BELOW + path} for path in mounts],
        "annotations": {"cdi.k8s.io/x": annotation} if annotation else {},
    }


@pytest.mark.parametrize("case", CASES, ids=[str(number) for number in range(len(CASES))])
def test_source_that_applies(
    case: tuple[list[str], list[str], str, bool, dict[str, Any], str | None, list[str]],
) -> None:
    env, mounts, annotation, privileged, chosen, kind, names = case
    found_by, _ = context(**chosen)
    spec = config(env, mounts, annotation, privileged=privileged)
    source = source_logged(spec, found_by)
    found = (source.kind, source.names) if source else (None, [])
    assert found == (kind, names)


@pytest.mark.parametrize(
    ("env", "chosen", "is_grant"),
    [
        ([V + "all"], {}, False),
        ([V + "none"], {}, False),
        ([V + "0"], {}, True),
        ([C], {}, False),
        ([R + "all"], SWARM, True),
        ([R + "GPU-1"], SWARM, True),
    ],
)
def test_grants_of_variables(env: list[str], chosen: dict[str, Any], is_grant: bool) -> None:
    """An image may run on nodes without a GPU; a swarm's variable is of this node."""
    source = source_logged(config(env), context(**chosen)[0])
    assert source is not None
    assert source.is_grant is is_grant


def test_legacy_image_with_devices_gets_no_others() -> None:
    """An engine or a device plugin has added its devices already."""
    spec = config([C])
    spec["linux"] = {"devices": [{"path": "/dev/nvidia3"}]}
    assert source_logged(spec, context()[0]) is None
    privileged = {**config([C], privileged=True), "linux": spec["linux"]}
    assert source_logged(privileged, context()[0]) is not None  # it has every device of the host
    spec["linux"] = {"devices": [{"path": "/dev/fuse"}]}
    assert source_logged(spec, context()[0]) is not None


def test_origin_of_a_request_in_messages() -> None:
    """The text is that of the ledger and of faults."""
    old, swarm = source_logged(config([C]), context()[0]), context(**TWO)[0]
    named = source_logged(config([N + "GPU-1", R + "GPU-2"]), swarm)
    assert old is not None
    assert named is not None
    assert old.where == "CUDA_VERSION without NVIDIA_REQUIRE_CUDA"
    assert named.where == "DOCKER_RESOURCE_GPU, DOCKER_RESOURCE_NVIDIA-GPU"


def test_swarm_variable_cannot_name_another_vendor() -> None:
    """An image can set it as well."""
    by, _ = context(**SWARM)
    with pytest.raises(GpuhookError) as caught:
        planned(config([R + "evil.com/disk=all"]), by)
    assert caught.value.code == "GH1009"


@pytest.mark.parametrize(
    ("env", "mounts", "chosen", "where"),
    [
        ([V + "0"], [], CLOSED, "NVIDIA_VISIBLE_DEVICES"),
        ([R + "GPU-1"], [], {**SWARM, **CLOSED}, "DOCKER_RESOURCE_GPU"),
        ([C], [], CLOSED, "CUDA_VERSION without NVIDIA_REQUIRE_CUDA"),
        ([], ["GPU-1"], {}, BELOW),
        ([V + "0"], ["GPU-1"], {}, BELOW),
    ],
)
def test_refused_request_is_logged_or_fails(
    env: list[str], mounts: list[str], chosen: dict[str, Any], where: str
) -> None:
    """By default the container starts without GPUs and with a warning."""
    ignoring, heard = context(**chosen)
    source_logged(config(env, mounts), ignoring)
    (warning,) = heard.warnings
    assert (warning.code, f"in {where}:" in warning.message) == ("GH1007", True)
    failing, unheard = context(on_refusal="fail", **chosen)
    with pytest.raises(GpuhookError) as caught:
        source_logged(config(env, mounts), failing)
    assert caught.value.code == "GH1026"
    assert f"in {where}: " in caught.value.message
    assert "request.accept" in caught.value.message
    assert unheard.warnings == []


def test_source_with_lower_precedence_is_not_refused() -> None:
    """In Kubernetes annotations name devices: the image's variable has no effect."""
    failing, heard = context(on_refusal="fail", **CLOSED)
    source = source_logged(config([V + "all"], ["0"], "nvidia.com/gpu=0"), failing)
    assert source is not None
    assert source.kind == "annotations"
    assert heard.warnings == []


def test_mount_that_names_no_device_has_a_warning() -> None:
    """Its device is missing in the container, and no other log has the reason."""
    by, heard = context(**MOUNTS)
    source = source_logged(config([], ["cdi/gpu0", "GPU-1", "cdi/a.b/c/", "imex/3"]), by)
    assert source is not None
    assert source.names == ["GPU-1"]
    assert [one.code for one in heard.warnings] == ["GH1028", "GH1028"]
    assert [BELOW + path in one.message for path, one in zip(
        ("cdi/gpu0:", "cdi/a.b/c:"), heard.warnings, strict=True
    )] == [True, True]  # fmt: skip
    unasked, silence = context()
    source_logged(config([V + "0"], ["cdi/gpu0"]), unasked)
    assert silence.warnings == []


@pytest.mark.parametrize("name", ["a\x1bb", "x" * 256])
def test_mount_with_a_hostile_name_is_a_fault(name: str) -> None:
    with pytest.raises(GpuhookError) as caught:
        source_logged(config([], [name]), context(**MOUNTS)[0])
    assert caught.value.code == "GH1004"


@pytest.mark.parametrize(
    "mounts",
    [None, 7, [None, {}, {"source": 1, "destination": BELOW + "0"}, {"source": "/dev/null"}]],
)
def test_malformed_mounts_are_ignored(mounts: object) -> None:
    assert source_logged({"mounts": mounts}, context(**MOUNTS)[0]) is None


EVERY = {"compute", "compat32", "graphics", "utility", "video", "display", "ngx"}
D = "NVIDIA_DRIVER_CAPABILITIES="


@pytest.mark.parametrize(
    ("env", "allowed", "expected"),
    [
        ([], [], {"utility", "compute"}),
        ([D], [], {"utility", "compute"}),
        ([D + " , "], [], {"utility", "compute"}),
        ([D + "all"], [], EVERY),
        ([D + "compute,all"], [], EVERY),
        ([D + "utility"], [], {"utility"}),
        ([D + "video"], [], {"video", "compute"}),
        ([D + "display"], [], {"display", "graphics"}),
        ([], ["utility"], {"utility"}),
        ([D], ["compute", "graphics"], {"compute"}),
        ([], ["graphics"], set()),
        ([D + "all"], ["compute", "graphics"], {"compute", "graphics"}),
        ([D + "compute"], ["compute", "graphics"], {"compute"}),
        ([D + "video"], ["video"], {"video"}),
        ([D + "compute,utility"], ["compute"], "GH1027"),
        ([D + "graphics"], ["compute", "utility"], "GH1027"),
        ([D + "nothing"], ["compute"], "GH1020"),
        ([C], [], EVERY),
        ([C], ["compute", "video"], {"compute", "video"}),
        ([C, D], [], {"utility", "compute"}),
        ([C, D + "video"], [], {"video", "compute"}),
        ([C, V + "0"], [], EVERY),
        ([C, Q], [], {"utility", "compute"}),
    ],
)
def test_capabilities_of_a_container(
    env: list[str], allowed: list[str], expected: set[str] | str
) -> None:
    """The default and `all` mean the allowed ones; a named one that is not allowed is refused."""
    if isinstance(expected, set):
        assert capabilities(config(env), driver_capabilities=allowed) == expected
        return
    with pytest.raises(GpuhookError) as caught:
        capabilities(config(env), driver_capabilities=allowed)
    assert caught.value.code == expected
    if expected == "GH1027":
        assert "request.driverCapabilities" in caught.value.hint


@pytest.mark.parametrize(
    ("env", "default", "allowed", "expected"),
    [
        ([], ["all"], [], EVERY),
        ([D], ["all"], [], EVERY),
        ([D + " , "], ["all"], [], EVERY),
        ([D + "utility"], ["all"], [], {"utility"}),
        ([], ["video"], [], {"video", "compute"}),
        ([], ["all"], ["utility"], {"utility"}),
        ([], ["graphics", "utility"], ["utility"], {"utility"}),
        ([C], ["utility"], [], EVERY),
    ],
)
def test_default_capabilities_of_the_node(
    env: list[str], default: list[str], allowed: list[str], expected: set[str]
) -> None:
    """They apply to a container without the variable, if they are allowed."""
    chosen = {"default_driver_capabilities": default, "driver_capabilities": allowed}
    assert capabilities(config(env), **chosen) == expected


IGNORING = {"on_unknown_capability": "ignore"}


@pytest.mark.parametrize(
    ("value", "expected", "ignored"),
    [
        ("Compute,utility", {"utility"}, "Compute"),
        ("nothing,ALL", {"utility", "compute"}, "nothing, ALL"),
        ("nothing,all", EVERY, ""),
        ("a\nb,video", {"video", "compute"}, "a\\nb"),
        ("video", {"video", "compute"}, ""),
        ("", {"utility", "compute"}, ""),
    ],
)
def test_unknown_words_are_refused_or_ignored(value: str, expected: set[str], ignored: str) -> None:
    """The refusal names the setting that ignores them; then a warning has the words."""
    spec = config([V + "0", D + value])
    if ignored:
        with pytest.raises(GpuhookError) as caught:
            capabilities(spec)
        assert caught.value.code == "GH1020"
        assert "request.onUnknownCapability to ignore" in caught.value.hint
    by, heard = context(**IGNORING)
    assert capabilities(spec, **IGNORING) == expected
    with pytest.raises(GpuhookError):
        planned(spec, by)  # this node has no spec
    said = [warning.message for warning in heard.warnings if warning.code == "GH1061"]
    assert [one.endswith(f": {ignored}") for one in said] == [True] * bool(ignored)


def test_disallowed_capability_is_refused_with_unknown_words_ignored() -> None:
    with pytest.raises(GpuhookError) as caught:
        capabilities(config([D + "nothing,compute"]), driver_capabilities=["utility"], **IGNORING)
    assert caught.value.code == "GH1027"


def test_capabilities_if_legacy_images_are_disabled() -> None:
    assert capabilities(config([C]), **YOUNG) == {"utility", "compute"}
