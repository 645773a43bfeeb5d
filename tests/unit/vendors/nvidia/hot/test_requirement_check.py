# SPDX-License-Identifier: Apache-2.0
"""Checking a container's requirements against its GPUs: refusals and their messages."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from gpuhook.apply.rootfs import hook_args
from gpuhook.apply.spec import change_record
from gpuhook.entry import plan_context
from gpuhook.entry.hooks import apply_hook
from gpuhook.entry.plan_context import PlanContext
from gpuhook.errors import DriverError, GpuhookError, RequestError
from gpuhook.host.hot.settings import Settings
from gpuhook.node.kept_log import KeptLog
from gpuhook.request import plan
from gpuhook.vendors.nvidia.hot import requirement_check
from gpuhook.vendors.nvidia.hot.requirement_check import KnownGpu
from tests.plans import this_context

# Two equal GPUs, a different one, and one without known facts.
JOB = ["--cuda-version", "12.2", "--driver-version", "535.183.01"]
JOB += ["--gpus", "0-1=7.5,tesla", "--gpus", "2=8.6,geforce"]
VARIABLE = "NVIDIA_REQUIRE_CUDA"


def unexpected_lookup() -> KnownGpu:
    return KnownGpu()


def checked(text: str, *minors: int, arguments: list[str] = JOB) -> list[GpuhookError]:
    todo = [hook_args.parse(arguments)] if arguments else []
    nodes = ["/dev/nvidiactl", *(f"/dev/nvidia{minor}" for minor in minors)]
    return requirement_check.check_requirements({VARIABLE: text}, todo, nodes, unexpected_lookup)


def refused(text: str, *minors: int) -> GpuhookError:
    with pytest.raises(GpuhookError) as caught:
        checked(text, *minors)
    return caught.value


@pytest.mark.parametrize(
    ("text", "minors", "where", "terms"),
    [
        ("cuda>=13.0", (0,), "this node's driver", "cuda>=13.0 (it is 12.2)"),
        ("cuda>=13.0", (), "this node's driver", "cuda>=13.0 (it is 12.2)"),
        ("driver>=550", (2, 0), "this node's driver", "driver>=550 (it is 535.183.01)"),
        (
            "cuda>=13.0 brand=tesla,driver>=550,driver<551 brand=titan,driver>=470,driver<471",
            (0,),
            "this node's driver",
            "cuda>=13.0 (it is 12.2); driver>=550 (it is 535.183.01)",
        ),
        (
            "cuda>=13.0,arch>=8.0",
            (0,),
            "the GPU of /dev/nvidia0",
            "cuda>=13.0 (it is 12.2) and arch>=8.0 (it is 7.5)",
        ),
    ],
)
def test_unsatisfied_driver_requirement_names_its_terms(
    text: str, minors: tuple[int, ...], where: str, terms: str
) -> None:
    error = refused(text, *minors)
    assert isinstance(error, DriverError)
    assert (error.code, error.message) == (
        "GH1043",
        f"{VARIABLE} is not satisfied by {where}: {terms}",
    )
    assert "another driver version" in error.hint  # an older one, if a term is an upper bound
    assert "NVIDIA_DISABLE_REQUIRE=1" in error.hint


@pytest.mark.parametrize(
    ("text", "minors", "wanted"),
    [
        ("arch>=8.0", (0, 1, 2), "/dev/nvidia0: arch>=8.0 (it is 7.5)"),
        ("brand=tesla", (1, 2), "/dev/nvidia2: brand=tesla (it is geforce)"),
        ("brand=titan brand=grid", (2,), "brand=titan (it is geforce); brand=grid (it is geforce)"),
    ],
)
def test_one_unsuitable_gpu_refuses_the_container(
    text: str, minors: tuple[int, ...], wanted: str
) -> None:
    error = refused(text, *minors)
    assert isinstance(error, RequestError)
    assert error.code == "GH1044"
    assert wanted in error.message
    assert "another GPU" in error.hint or "a GPU that" in error.hint


def test_only_assigned_gpus_are_checked() -> None:
    assert checked("arch>=8.0", 2) == []
    assert checked("brand=tesla", 0, 1) == []
    assert checked("brand=titan,arch>=10.0") == []


def test_invalid_requirements_are_refused() -> None:
    error = refused("cuda>=13 cuda=>12", 0)
    assert error.code == "GH1045"
    assert f"{VARIABLE}: invalid requirement cuda=>12" in error.message
    assert "is not a version" in refused("cuda>=new", 0).message
    assert "number that is too large" in refused(f"cuda>={'9' * 23}", 0).message
    long = refused("brand=" + "x" * 500, 0)
    assert len(long.message) < 300
    assert "more than 127 characters" in long.message
    long = refused("cuda>=1 " * 5000, 0)
    assert len(long.message) < 300
    assert "longer than 16384" in long.message


def test_unknown_facts_are_one_warning() -> None:
    (doubt,) = checked("brand=tesla brand=titan,arch>=7.0", 0, 7)
    assert doubt.code == "GH1047"
    assert f"cannot check {VARIABLE}: brand=tesla, brand=titan" in str(doubt)
    assert checked("brand=tesla cuda>=12", 7) == []
    (doubt,) = checked("cuda>=12", arguments=[])
    assert "cuda>=12" in doubt.message
    many = " ".join(f"driver>={n}" for n in range(100))
    (doubt,) = checked(many, arguments=[])
    assert doubt.message.count("driver>=") == 8


def test_disabled_requirements_are_not_checked() -> None:
    environment = {VARIABLE: "nonsense", "NVIDIA_DISABLE_REQUIRE": "1"}
    assert requirement_check.check_requirements(environment, [], [], unexpected_lookup) == []


def test_number_of_variables_is_bounded() -> None:
    environment = {f"NVIDIA_REQUIRE_{n}": "cuda>=12" for n in range(32)}
    assert (
        requirement_check.check_requirements(
            environment, [hook_args.parse(JOB)], [], unexpected_lookup
        )
        == []
    )
    with pytest.raises(GpuhookError) as caught:
        requirement_check.check_requirements(
            environment | {VARIABLE: "cuda>=1"}, [hook_args.parse(JOB)], [], unexpected_lookup
        )
    assert caught.value.code == "GH1046"


def test_only_missing_facts_are_looked_up() -> None:
    asked = []

    def noted() -> KnownGpu:
        asked.append(1)
        return KnownGpu("13.0", "580.1", [("7", "9.0", "nvidia"), ("0", "1.0", "grid")])

    whole = requirement_check.facts_of_jobs([hook_args.parse(JOB)])
    assert (
        len(requirement_check.requirement_facts(["/dev/nvidia0", "/dev/nvidia1"], whole, noted))
        == 1
    )
    assert asked == []
    facts = requirement_check.requirement_facts(["/dev/nvidia7", "/dev/nvidia0"], whole, noted)
    assert [(one.gpu, one.cuda, one.arch, one.brand) for one in facts] == [
        ("/dev/nvidia0", "12.2", "7.5", "tesla"),
        ("/dev/nvidia7", "12.2", "9.0", "nvidia"),
    ]


NODE: dict[str, Any] = {
    "driver": {"version": "535.1", "module_version": "535.1", "cuda": "12.2"},
    "gpus": [
        {"minor": 3, "compute_capability": "9.0", "brand": "unknown"},
        {"minor": "x", "brand": "tesla"},
        {"minor": 1},
        "nonsense",
    ],
}


def on_host(place: Path, monkeypatch: pytest.MonkeyPatch, module: str, node: object) -> KnownGpu:
    """Return the recorded facts of a host with this module and this node.json."""
    monkeypatch.setenv("GPUHOOK_HOST_ROOT", str(place))
    monkeypatch.setenv("GPUHOOK_STATE_DIR", str(place))
    version = place / "sys/module/nvidia/version"
    version.parent.mkdir(parents=True)
    version.write_text(module + "\n", encoding="utf-8")
    if node is not None:
        (place / "node.json").write_text(json.dumps(node), encoding="utf-8")
        (place / "node.json").chmod(0o644)
    return requirement_check.noted_facts()


def test_record_of_the_loaded_driver_is_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    known = on_host(tmp_path, monkeypatch, "535.1", NODE)
    assert (known.cuda, known.driver) == ("12.2", "535.1")
    assert known.of_minor(3) == ("9.0", None)
    assert known.of_minor(1) == (None, None)


@pytest.mark.parametrize("node", [NODE, None, {"driver": 7, "gpus": 7}])
def test_record_of_another_driver_is_not_used(
    node: object, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Then only the kernel module's version is known."""
    known = on_host(tmp_path, monkeypatch, "580.2", node)
    assert (known.cuda, known.driver, known.gpus) == (None, "580.2", [])


def spec(*variables: str) -> dict[str, Any]:
    return {"process": {"env": [*variables]}}


def require(
    asking: dict[str, Any], todo: list[hook_args.Jobs], nodes: list[str], context: PlanContext
) -> None:
    """Check the requirements in a container's variables, as the wrapper does."""
    required = plan.requirements(asking, context.settings, context.node)
    plan_context.enforce_requirements(required, todo, nodes, context)


def test_setting_disables_requirements_of_the_node() -> None:
    chosen, log = Settings(), KeptLog()
    by = this_context(chosen, log)
    asking, todo = spec(f"{VARIABLE}=cuda>=13.0"), [hook_args.parse(JOB)]
    with pytest.raises(GpuhookError):
        require(asking, todo, ["/dev/nvidia0"], by)
    chosen.disable_requirements = True
    require(asking, todo, ["/dev/nvidia0"], by)
    assert log.warnings == []


def test_unknown_facts_are_logged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    on_host(tmp_path, monkeypatch, "535.1", None)
    log = KeptLog()
    require(spec("CUDA_VERSION=12.2"), [], [], this_context(log=log))
    assert [warning.code for warning in log.warnings] == ["GH1047"]
    assert "CUDA_VERSION" in log.warnings[0].message


def test_newer_cuda_version_is_logged() -> None:
    log = KeptLog()
    by = this_context(log=log)
    require(
        spec("CUDA_VERSION=12.4.1"), [hook_args.parse(JOB)], ["/dev/nvidia0", "/dev/nvidia2"], by
    )
    assert [warning.code for warning in log.warnings] == ["GH1062"]
    assert "CUDA 12.4" in log.warnings[0].message
    assert "CUDA 12.2" in log.warnings[0].message
    with pytest.raises(GpuhookError) as caught:
        require(spec("CUDA_VERSION=13.0"), [hook_args.parse(JOB)], ["/dev/nvidia0"], by)
    assert caught.value.code == "GH1043"


def container_of_an_engine(*arguments: list[str], **more: Any) -> dict[str, Any]:
    """Return a container in which an engine has added the GPU of minor 0, with our hooks."""
    made = [hook_args.parse(one, "/usr/bin/gpuhook-hook").hook() for one in arguments]
    stage = [{"path": hook["path"], "args": hook["args"]} for hook in made]
    given = {"devices": [{"path": "/dev/nvidia0"}]}
    env = [f"{VARIABLE}=cuda>=13.0"]
    return {"hooks": {"createContainer": stage}, "linux": given, **spec(*env), **more}


OTHER = [*JOB, "--driver-params"]


@pytest.fixture
def settings_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("GPUHOOK_CONFIG", str(tmp_path / "config.yaml"))
    return tmp_path / "config.yaml"


def test_first_hook_of_a_container_checks_for_all(settings_file: Path) -> None:
    container = container_of_an_engine(JOB, OTHER)
    for content in (None, "request: [broken"):
        if content is not None:
            settings_file.write_text(content, encoding="utf-8")
        with pytest.raises(GpuhookError) as caught:
            apply_hook._require(hook_args.parse(JOB), container, KeptLog())
        assert caught.value.code == "GH1043"
    apply_hook._require(hook_args.parse(OTHER), container, KeptLog())


@pytest.mark.usefixtures("settings_file")
def test_hook_after_the_wrapper_does_not_check() -> None:
    container = container_of_an_engine(JOB)
    container[change_record.KEY] = {}
    apply_hook._require(hook_args.parse(JOB), container, KeptLog())
