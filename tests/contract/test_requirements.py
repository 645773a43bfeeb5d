# SPDX-License-Identifier: Apache-2.0
"""NVIDIA_REQUIRE_* by each integration: which containers start, and the messages of a refusal."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from gpuhook.vendors.nvidia.inventory import dump_file
from tests.contract import integrations
from tests.contract.bundles import Bundle, Bundles
from tests.contract.installation import Installation, asks, installation
from tests.contract.integrations import Integrations
from tests.contract.limiting import apply_cdi_spec
from tests.contract.live import sleeping, started
from tests.contract.roots import Roots
from tests.contract.runtimes import BOTH, ENGINES, run
from tests.contract.views import questions

INTEGRATIONS = pytest.mark.parametrize("integration", ["runc", "runc-prestart", "podman-cdi"])
EVERY_INTEGRATION = pytest.mark.parametrize("integration", integrations.ALL)
# The node's driver is 580.95.05, which offers CUDA 13.0.
UNSATISFIED = "cuda>=99.0 brand=tesla,driver>=470,driver<471 brand=nvidia,driver>=570,driver<571"
SATISFIED = "cuda>=99.0 brand=tesla,driver>=470,driver<471 brand=nvidia,driver>=580,driver<581"


@pytest.fixture(scope="module")
def two(node8: Installation, tmp_path_factory: pytest.TempPathFactory) -> Installation:
    """Return gpuhook on a node with two sorts of GPUs: index 0 is a T4, the others are H100."""
    facts = dump_file.load("h100x8")
    t4 = replace(facts.gpus[0], brand="tesla", compute_capability="7.5", architecture="turing")
    two = replace(facts, gpus=(t4, *facts.gpus[1:]))
    return installation(tmp_path_factory.mktemp("two"), two, node8.bindir)


@pytest.fixture
def through(two: Installation, tmp_path: Path, request: pytest.FixtureRequest) -> Integrations:
    """Return the integrations of that node."""
    return Integrations(two, tmp_path, lambda: request.getfixturevalue("containerd"))


def warnings_of(node: Installation, made: Bundle) -> list[str]:
    """Create a container that starts, and return the codes of its warnings."""
    return node.edit(made).warned


def refused(node: Installation, made: Bundle, code: str) -> str:
    """Create a container that is refused, with an unchanged config.json; return the error."""
    before = made.file.read_bytes()
    done = node.edit(made)
    assert done.rc != 0, done
    assert made.file.read_bytes() == before
    (sentence,) = [line for line in done.stderr.splitlines() if f"error {code}" in line]
    assert code in done.log
    return sentence


@EVERY_INTEGRATION
def test_unsatisfied_requirement_is_refused(
    integration: str, enter: Integrations, root_of: Roots
) -> None:
    """The error names the requirement and the node's version."""
    env = [f"NVIDIA_REQUIRE_CUDA={UNSATISFIED}"]
    done = enter.through(integration, root_of("debian"), ["/probe"], "2", env)
    assert done.rc != 0, done
    messages = done.stderr + done.log
    if "exit code: 1" in messages and integration.startswith("crun"):
        return  # crun discards the output of its hooks
    assert "GH1043" in messages
    assert "NVIDIA_REQUIRE_CUDA is not satisfied by this node's driver" in messages
    assert "cuda>=99.0 (it is 13.0); driver<571 (it is 580.95.05)" in messages.replace(
        "\\u003e", ">"
    )


@INTEGRATIONS
@pytest.mark.parametrize(
    "env",
    [
        [f"NVIDIA_REQUIRE_CUDA={SATISFIED}"],
        ["CUDA_VERSION=12.4.131", "NVIDIA_REQUIRE_ARCH=arch>=9.0"],
        [f"NVIDIA_REQUIRE_CUDA={UNSATISFIED}", "NVIDIA_DISABLE_REQUIRE=true"],
        ["NVIDIA_REQUIRE_JETPACK=csv-mounts=all"],
    ],
)
def test_satisfied_or_disabled_requirement_starts(
    integration: str, env: Sequence[str], enter: Integrations, node8: Installation, root_of: Roots
) -> None:
    """The container has its GPU, and no message is printed."""
    command = ["/probe", *questions(tries=[node8.number(2)])]
    done = enter.through(integration, root_of("debian"), command, "2", env)
    assert node8.device(2) in done.view.gpus()
    assert "GH104" not in done.stderr + done.log


@INTEGRATIONS
@pytest.mark.parametrize(
    ("value", "text", "code"),
    [
        ("0", "brand=tesla", ""),
        ("1", "brand=tesla", "GH1044"),
        ("0", "arch>=9.0", "GH1044"),
        ("1,2", "arch>=9.0,brand=nvidia", ""),
        ("1,0", "arch>=9.0", "GH1044"),
        ("all", "arch>=9.0", "GH1044"),
        ("all", "arch>=7.5", ""),
        ("0,1", "brand=tesla brand=nvidia", ""),
    ],
)
def test_requirement_applies_to_each_assigned_gpu(
    integration: str, value: str, text: str, code: str, through: Integrations, root_of: Roots
) -> None:
    """The node has two sorts of GPUs, and only one satisfies the requirement."""
    env = [f"NVIDIA_REQUIRE_X={text}"]
    done = through.through(integration, root_of("debian"), ["/probe"], value, env)
    if code:
        assert done.rc != 0, done
        wrong = 0 if "arch" in text else 1
        device = through.installation.device(wrong)
        assert code in done.stderr + done.log
        assert f"the GPU of {device}" in done.stderr + done.log
    else:
        assert done.rc == 0, done
        assert done.view.gpus()


@INTEGRATIONS
def test_requirement_of_a_mig_instance_uses_its_gpu(
    integration: str,
    node8: Installation,
    tmp_path_factory: pytest.TempPathFactory,
    tmp_path: Path,
    root_of: Roots,
) -> None:
    """The instance 0:1 is a part of an A100."""
    place = tmp_path_factory.mktemp("mig")
    mine = Integrations(installation(place, "a100-mig", node8.bindir), tmp_path)
    started = mine.through(
        integration, root_of("debian"), ["/probe"], "0:1", ["NVIDIA_REQUIRE_X=arch=8.0"]
    )
    assert started.view.gpus()
    env = ["NVIDIA_REQUIRE_X=arch>=9.0"]
    mine = replace(mine, place=tmp_path / "again")
    mine.place.mkdir()
    done = mine.through(integration, root_of("distroless"), ["/probe"], "0:1", env)
    assert done.rc != 0
    assert "arch>=9.0 (it is 8.0)" in done.stderr + done.log


def test_requirement_without_a_gpu_checks_the_driver(two: Installation, bundle_of: Bundles) -> None:
    """With `none`, requirements of a GPU are satisfied."""
    env = [*asks("none"), "NVIDIA_REQUIRE_X=cuda>=13.0,brand=titan,arch>=99"]
    assert warnings_of(two, bundle_of("distroless", ["/probe"], env)) == []
    env = [*asks("none"), "NVIDIA_REQUIRE_X=cuda>=13.1,brand=titan"]
    made = bundle_of("debian", ["/probe"], env)
    assert "cuda>=13.1 (it is 13.0)" in refused(two, made, "GH1043")


def test_invalid_requirement_is_refused(
    two: Installation, root_of: Roots, bundle_of: Bundles
) -> None:
    """A container without GPUs starts."""
    root = root_of("distroless")
    wrong = bundle_of(root, ["/probe"], [*asks("0"), "NVIDIA_REQUIRE_X=cuda => 12"])
    assert "NVIDIA_REQUIRE_X: invalid requirement cuda: " in refused(two, wrong, "GH1045")
    many = [f"NVIDIA_REQUIRE_{n}=cuda>=1" for n in range(33)]
    assert "33 NVIDIA_REQUIRE_* variables" in refused(
        two, bundle_of(root, ["/probe"], [*asks("0"), *many]), "GH1046"
    )
    for value in ("void", ""):
        without = bundle_of(root, ["/probe"], [*asks(value), *many, "NVIDIA_REQUIRE_X=nonsense"])
        assert warnings_of(two, without) == []


def test_cuda_version_is_a_requirement(
    two: Installation, root_of: Roots, bundle_of: Bundles
) -> None:
    """CUDA_VERSION applies if NVIDIA_REQUIRE_CUDA is unset and the value is a version."""
    root = root_of("distroless")
    assert warnings_of(two, bundle_of(root, ["/probe"], [*asks("0"), "CUDA_VERSION=13.1.80"])) == [
        "GH1062"
    ]
    made = bundle_of(root, ["/probe"], [*asks("0"), "CUDA_VERSION=14.0.1"])
    assert "CUDA_VERSION is not satisfied" in refused(two, made, "GH1043")
    assert warnings_of(two, bundle_of(root, ["/probe"], [*asks("0"), "CUDA_VERSION=13.0.80"])) == []
    assert warnings_of(two, bundle_of(root, ["/probe"], [*asks("0"), "CUDA_VERSION=cu118"])) == []


def test_disable_requirements_setting(
    two: Installation, tmp_path: Path, bundle_of: Bundles
) -> None:
    """With request.disableRequirements no requirement is checked."""
    waiving = two.apart(tmp_path / "node", request={"disableRequirements": True})
    made = bundle_of("distroless", ["/probe"], [*asks("0"), f"NVIDIA_REQUIRE_X={UNSATISFIED}"])
    assert warnings_of(waiving, made) == []


@pytest.mark.parametrize("waives", [True, False])
def test_disable_requirements_setting_in_the_cdi_hook(
    waives: bool, two: Installation, tmp_path: Path, root_of: Roots
) -> None:
    """podman applies CDI; the hook reads the node's settings."""
    mine = two.apart(tmp_path / "node", request={"disableRequirements": waives})
    text = mine.spec.read_text(encoding="utf-8")
    own = f"- GPUHOOK_CONFIG={mine.config}"
    path = "- PATH=/usr/sbin:/usr/bin:/sbin:/bin"
    assert path in text
    indent = text[: text.index(path)].rpartition("\n")[2]
    mine.spec.write_text(text.replace(path, f"{path}\n{indent}{own}"), encoding="utf-8")
    env = [f"NVIDIA_REQUIRE_X={UNSATISFIED}"]
    entered = Integrations(mine, tmp_path)
    done = entered.through("podman-cdi", root_of("debian"), ["/probe"], "0", env)
    assert (done.rc == 0) == waives, done
    assert ("GH1043" in done.stderr + done.log) != waives


def test_requirement_with_a_spec_without_hooks(
    two: Installation, tmp_path: Path, root_of: Roots, bundle_of: Bundles
) -> None:
    """The inventory applies; without it the kernel module's version, and one warning."""
    mine = two.apart(tmp_path / "node")
    mine.generate("--hooks", "none")
    root = root_of("distroless")
    env = [*asks("0"), "NVIDIA_REQUIRE_X=cuda>=13.0,arch>=9.0"]
    made = bundle_of(root, ["/probe"], env)
    assert "arch>=9.0 (it is 7.5)" in refused(mine, made, "GH1044")
    (mine.state / "node.json").unlink()
    assert warnings_of(mine, made) == ["GH1047"]
    old = bundle_of(root, ["/probe"], [*asks("0"), "NVIDIA_REQUIRE_X=cuda>=13.0,driver>=590"])
    assert "driver>=590 (it is 580.95.05)" in refused(mine, old, "GH1043")


def test_wrapper_checks_requirements_after_cdi(
    two: Installation, tmp_path: Path, root_of: Roots, bundle_of: Bundles
) -> None:
    """If an engine applied CDI first, the wrapper refuses the container."""
    document = json.loads(two.gpuhook("generate-cdi", *two.node.options, "--format", "json").stdout)
    hooks = document["containerEdits"]["hooks"]
    for device, text, is_well in ((1, "arch>=9.0", True), (0, "arch>=9.0", False)):
        number = two.gpu(device).minor
        node = {"path": two.device(device), "type": "c", "major": 195, "minor": number}
        stage = [{k: v for k, v in hook.items() if k != "hookName"} for hook in hooks]
        made = bundle_of(
            root_of("distroless") if is_well else root_of("debian"),
            ["/probe"],
            [*asks("void"), f"NVIDIA_REQUIRE_X={text}"],
            linux={"devices": [node]},
            hooks={"createContainer": stage},
        )
        if is_well:
            assert warnings_of(two, made) == []
        else:
            assert "arch>=9.0 (it is 7.5)" in refused(two, made, "GH1044")


@ENGINES
def test_forged_record_does_not_disable_requirements(
    engine: str, two: Installation, bundle_of: Bundles
) -> None:
    """The CDI hook ignores an annotation that claims that the wrapper checked the container."""
    base = bundle_of(
        "debian",
        ["/probe"],
        [f"NVIDIA_REQUIRE_X={UNSATISFIED}"],
        annotations={"io.gpuhook.record": "{}"},
    )
    made = apply_cdi_spec(two, base, "0")
    done = run(made, two.command_with_state(engine), engine)
    assert done.rc != 0, done
    assert "GH1043" in (two.state / "hook.log").read_text(encoding="utf-8")


@BOTH
def test_attach_checks_requirements(
    engine: str, cgroup: str, two: Installation, tmp_path: Path
) -> None:
    """A GPU that does not satisfy the image is not attached; another one is."""
    made = sleeping(tmp_path, env=["NVIDIA_REQUIRE_X=arch>=9.0"])
    with started(made, two, engine, cgroup) as live:
        before = live.seen()
        error = live.refused("GH1044", "attach", "--device", "0")
        assert f"the GPU of {two.device(0)}: arch>=9.0 (it is 7.5)" in error
        assert live.seen() == before
        live.attach("1")
        assert set(live.view().gpus()) > {two.device(1)}


@ENGINES
def test_hook_does_not_repeat_the_wrappers_check(
    engine: str, two: Installation, tmp_path: Path, root_of: Roots, bundle_of: Bundles
) -> None:
    """The wrapper's settings may differ from those of the hook."""
    waiving = two.apart(tmp_path / "node", request={"disableRequirements": True})
    root = root_of("debian")
    made = bundle_of(root, ["/probe"], [*asks("0"), f"NVIDIA_REQUIRE_X={UNSATISFIED}"])
    volume = tmp_path / "etc"
    volume.mkdir()
    made.mount(volume, "/etc", "rbind", "rw")
    done = waiving.run_with_state(made, engine)
    assert "--gpus" in json.dumps(made.config()["hooks"]["createContainer"])
    assert two.device(0) in done.view.gpus()
