# SPDX-License-Identifier: Apache-2.0
"""NVIDIA_REQUIRE_* through every integration: who starts, who is refused, and with which words."""

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
from tests.contract.limiting import given_by_engine
from tests.contract.live import sleeping, started
from tests.contract.roots import Roots
from tests.contract.runtimes import BOTH, ENGINES, run
from tests.contract.views import questions

INTEGRATIONS = pytest.mark.parametrize("integration", ["runc", "runc-prestart", "podman-cdi"])
EVERY_DOOR = pytest.mark.parametrize("integration", integrations.ALL)
# The node's driver is 580.95.05, which offers CUDA 13.0.
OLD = "cuda>=99.0 brand=tesla,driver>=470,driver<471 brand=nvidia,driver>=570,driver<571"
HOLDS = "cuda>=99.0 brand=tesla,driver>=470,driver<471 brand=nvidia,driver>=580,driver<581"


@pytest.fixture(scope="module")
def two(node8: Installation, tmp_path_factory: pytest.TempPathFactory) -> Installation:
    """Give gpuhook on a node with two sorts of GPUs: index 0 is a T4, the others are H100."""
    facts = dump_file.load("h100x8")
    t4 = replace(facts.gpus[0], brand="tesla", compute_capability="7.5", architecture="turing")
    two = replace(facts, gpus=(t4, *facts.gpus[1:]))
    return installation(tmp_path_factory.mktemp("two"), two, node8.bindir)


@pytest.fixture
def through(two: Installation, tmp_path: Path, request: pytest.FixtureRequest) -> Integrations:
    """Give the integrations to that node."""
    return Integrations(two, tmp_path, lambda: request.getfixturevalue("containerd"))


def edited(node: Installation, made: Bundle) -> list[str]:
    """Create a container that starts, and return the codes of the warnings."""
    return node.edit(made).warned


def refused(node: Installation, made: Bundle, code: str) -> str:
    """Create a container that is refused, its config.json untouched; return the sentence."""
    before = made.file.read_bytes()
    done = node.edit(made)
    assert done.rc != 0, done
    assert made.file.read_bytes() == before
    (sentence,) = [line for line in done.stderr.splitlines() if f"error {code}" in line]
    assert code in done.log
    return sentence


@EVERY_DOOR
def test_what_does_not_hold_is_refused(
    integration: str, enter: Integrations, root_of: Roots
) -> None:
    """Every integration refuses, and says what the image wants and the node has."""
    env = [f"NVIDIA_REQUIRE_CUDA={OLD}"]
    done = enter.through(integration, root_of("debian"), ["/probe"], "2", env)
    assert done.rc != 0, done
    said = done.stderr + done.log
    if "exit code: 1" in said and integration.startswith("crun"):
        return  # crun keeps what its hooks say to itself
    assert "GH1043" in said
    assert "NVIDIA_REQUIRE_CUDA is not satisfied by this node's driver" in said
    assert "cuda>=99.0 (it is 13.0); driver<571 (it is 580.95.05)" in said.replace("\\u003e", ">")


@INTEGRATIONS
@pytest.mark.parametrize(
    "env",
    [
        [f"NVIDIA_REQUIRE_CUDA={HOLDS}"],
        ["CUDA_VERSION=12.4.131", "NVIDIA_REQUIRE_ARCH=arch>=9.0"],
        [f"NVIDIA_REQUIRE_CUDA={OLD}", "NVIDIA_DISABLE_REQUIRE=true"],
        ["NVIDIA_REQUIRE_JETPACK=csv-mounts=all"],
    ],
)
def test_what_holds_or_is_waived_starts(
    integration: str, env: Sequence[str], enter: Integrations, node8: Installation, root_of: Roots
) -> None:
    """The container has its GPU, and nothing is said."""
    asked = ["/probe", *questions(tries=[node8.number(2)])]
    done = enter.through(integration, root_of("debian"), asked, "2", env)
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
def test_every_gpu_that_is_given_must_fit(
    integration: str, value: str, text: str, code: str, through: Integrations, root_of: Roots
) -> None:
    """What holds on one GPU and not on the other depends on which one is requested."""
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
def test_a_mig_instance_is_judged_by_its_gpu(
    integration: str,
    node8: Installation,
    tmp_path_factory: pytest.TempPathFactory,
    tmp_path: Path,
    root_of: Roots,
) -> None:
    """The instance 0:1 is a part of an A100."""
    place = tmp_path_factory.mktemp("mig")
    mine = Integrations(installation(place, "a100-mig", node8.bindir), tmp_path)
    held = mine.through(
        integration, root_of("debian"), ["/probe"], "0:1", ["NVIDIA_REQUIRE_X=arch=8.0"]
    )
    assert held.view.gpus()
    env = ["NVIDIA_REQUIRE_X=arch>=9.0"]
    mine = replace(mine, place=tmp_path / "again")
    mine.place.mkdir()
    done = mine.through(integration, root_of("distroless"), ["/probe"], "0:1", env)
    assert done.rc != 0
    assert "arch>=9.0 (it is 8.0)" in done.stderr + done.log


def test_a_container_with_the_driver_alone(two: Installation, bundle_of: Bundles) -> None:
    """`none`: the driver is judged, and what is asked of a GPU holds."""
    env = [*asks("none"), "NVIDIA_REQUIRE_X=cuda>=13.0,brand=titan,arch>=99"]
    assert edited(two, bundle_of("distroless", ["/probe"], env)) == []
    env = [*asks("none"), "NVIDIA_REQUIRE_X=cuda>=13.1,brand=titan"]
    made = bundle_of("debian", ["/probe"], env)
    assert "cuda>=13.1 (it is 13.0)" in refused(two, made, "GH1043")


def test_words_that_cannot_be_read(two: Installation, root_of: Roots, bundle_of: Bundles) -> None:
    """They refuse the container, as NVIDIA's runtime does, but not one without GPUs."""
    root = root_of("distroless")
    wrong = bundle_of(root, ["/probe"], [*asks("0"), "NVIDIA_REQUIRE_X=cuda => 12"])
    assert "NVIDIA_REQUIRE_X: invalid requirement cuda: " in refused(two, wrong, "GH1045")
    many = [f"NVIDIA_REQUIRE_{n}=cuda>=1" for n in range(33)]
    assert "33 NVIDIA_REQUIRE_* variables" in refused(
        two, bundle_of(root, ["/probe"], [*asks("0"), *many]), "GH1046"
    )
    for value in ("void", ""):
        without = bundle_of(root, ["/probe"], [*asks(value), *many, "NVIDIA_REQUIRE_X=nonsense"])
        assert edited(two, without) == []


def test_an_image_of_old(two: Installation, root_of: Roots, bundle_of: Bundles) -> None:
    """CUDA_VERSION counts where NVIDIA_REQUIRE_CUDA is not set, and only if it is a version."""
    root = root_of("distroless")
    assert edited(two, bundle_of(root, ["/probe"], [*asks("0"), "CUDA_VERSION=13.1.80"])) == [
        "GH1062"
    ]
    made = bundle_of(root, ["/probe"], [*asks("0"), "CUDA_VERSION=14.0.1"])
    assert "CUDA_VERSION is not satisfied" in refused(two, made, "GH1043")
    assert edited(two, bundle_of(root, ["/probe"], [*asks("0"), "CUDA_VERSION=13.0.80"])) == []
    assert edited(two, bundle_of(root, ["/probe"], [*asks("0"), "CUDA_VERSION=cu118"])) == []


def test_a_setting_waives_for_the_node(
    two: Installation, tmp_path: Path, bundle_of: Bundles
) -> None:
    """With request.disableRequirements nothing is judged."""
    waiving = two.apart(tmp_path / "node", request={"disableRequirements": True})
    made = bundle_of("distroless", ["/probe"], [*asks("0"), f"NVIDIA_REQUIRE_X={OLD}"])
    assert edited(waiving, made) == []


@pytest.mark.parametrize("waives", [True, False])
def test_a_setting_waives_in_the_hook_of_a_spec(
    waives: bool, two: Installation, tmp_path: Path, root_of: Roots
) -> None:
    """podman gives the GPU by CDI; the hook reads the node's settings where it would refuse."""
    mine = two.apart(tmp_path / "node", request={"disableRequirements": waives})
    text = mine.spec.read_text(encoding="utf-8")
    own = f"- GPUHOOK_CONFIG={mine.config}"
    path = "- PATH=/usr/sbin:/usr/bin:/sbin:/bin"
    assert path in text
    indent = text[: text.index(path)].rpartition("\n")[2]
    mine.spec.write_text(text.replace(path, f"{path}\n{indent}{own}"), encoding="utf-8")
    env = [f"NVIDIA_REQUIRE_X={OLD}"]
    entered = Integrations(mine, tmp_path)
    done = entered.through("podman-cdi", root_of("debian"), ["/probe"], "0", env)
    assert (done.rc == 0) == waives, done
    assert ("GH1043" in done.stderr + done.log) != waives


def test_a_spec_without_our_hook(
    two: Installation, tmp_path: Path, root_of: Roots, bundle_of: Bundles
) -> None:
    """The notes of generate-cdi count; without them the module's version, and one warning."""
    mine = two.apart(tmp_path / "node")
    mine.generate("--hooks", "none")
    root = root_of("distroless")
    env = [*asks("0"), "NVIDIA_REQUIRE_X=cuda>=13.0,arch>=9.0"]
    made = bundle_of(root, ["/probe"], env)
    assert "arch>=9.0 (it is 7.5)" in refused(mine, made, "GH1044")
    (mine.state / "node.json").unlink()
    assert edited(mine, made) == ["GH1047"]
    old = bundle_of(root, ["/probe"], [*asks("0"), "NVIDIA_REQUIRE_X=cuda>=13.0,driver>=590"])
    assert "driver>=590 (it is 580.95.05)" in refused(mine, old, "GH1043")


def test_what_an_engine_gave_is_judged_before_it_starts(
    two: Installation, tmp_path: Path, root_of: Roots, bundle_of: Bundles
) -> None:
    """If the wrapper comes after CDI, it is the wrapper that refuses."""
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
            assert edited(two, made) == []
        else:
            assert "arch>=9.0 (it is 7.5)" in refused(two, made, "GH1044")


@ENGINES
def test_a_forged_record_ends_no_judgement(
    engine: str, two: Installation, bundle_of: Bundles
) -> None:
    """The hook of a CDI spec judges a container whose annotation says that the wrapper has."""
    base = bundle_of(
        "debian",
        ["/probe"],
        [f"NVIDIA_REQUIRE_X={OLD}"],
        annotations={"io.gpuhook.record": "{}"},
    )
    made = given_by_engine(two, base, "0")
    done = run(made, two.secluded(engine), engine)
    assert done.rc != 0, done
    assert "GH1043" in (two.state / "hook.log").read_text(encoding="utf-8")


@BOTH
def test_attach(engine: str, cgroup: str, two: Installation, tmp_path: Path) -> None:
    """A GPU that the image cannot use is not attached; another one is."""
    made = sleeping(tmp_path, env=["NVIDIA_REQUIRE_X=arch>=9.0"])
    with started(made, two, engine, cgroup) as live:
        before = live.seen()
        said = live.refused("GH1044", "attach", "--device", "0")
        assert f"the GPU of {two.device(0)}: arch>=9.0 (it is 7.5)" in said
        assert live.seen() == before
        live.attach("1")
        assert set(live.view().gpus()) > {two.device(1)}


@ENGINES
def test_jobs_that_the_wrapper_leaves_to_the_hook(
    engine: str, two: Installation, tmp_path: Path, root_of: Roots, bundle_of: Bundles
) -> None:
    """The hook does not judge again what the wrapper judged by other settings than the hook's."""
    waiving = two.apart(tmp_path / "node", request={"disableRequirements": True})
    root = root_of("debian")
    made = bundle_of(root, ["/probe"], [*asks("0"), f"NVIDIA_REQUIRE_X={OLD}"])
    volume = tmp_path / "etc"
    volume.mkdir()
    made.mount(volume, "/etc", "rbind", "rw")
    done = waiving.run_secluded(made, engine)
    assert "--gpus" in json.dumps(made.config()["hooks"]["createContainer"])
    assert two.device(0) in done.view.gpus()
