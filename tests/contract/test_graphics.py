# SPDX-License-Identifier: Apache-2.0
"""Graphics nodes in /dev/dri, by gpuhook-runtime and by podman."""

from __future__ import annotations

from pathlib import Path

import pytest

from gpuhook.vendors.nvidia.devices import drm
from gpuhook.vendors.nvidia.inventory import dump_file
from tests.contract import engines
from tests.contract.bundles import Bundles
from tests.contract.installation import Installation, asks, installation
from tests.contract.roots import Roots
from tests.contract.runtimes import ENGINES
from tests.contract.test_user_namespace import let_through, mapped
from tests.contract.views import View, questions
from tests.simulated.graphics import MAJOR, with_drm

TRIES = [f"{MAJOR}:{minor}" for minor in (0, 1, 2, 3, 128, 129, 130)]


@pytest.fixture(scope="module")
def graphics(bindir: Path, tmp_path_factory: pytest.TempPathFactory) -> Installation:
    """Return an installation on a node with four GPUs with graphics nodes, one of them lost."""
    facts = with_drm(dump_file.load("lost-gpu"))
    return installation(tmp_path_factory.mktemp("graphics"), facts, bindir)


def dri_nodes(view: View) -> dict[str, str]:
    """Return the result of open(2) for each node of /dev/dri."""
    return {path: node.open for path, node in view.nodes.items() if path.startswith("/dev/dri/")}


def expected_nodes(installation: Installation, index: int) -> dict[str, str]:
    """Return the graphics nodes of a GPU, as dri_nodes() has them: no driver opens them."""
    return dict.fromkeys(drm.paths(installation.gpu(index)), "ENXIO")


@ENGINES
@pytest.mark.parametrize("capabilities", ["graphics", "display,utility", "all"])
def test_graphics_nodes_of_the_gpu_only(
    engine: str, capabilities: str, graphics: Installation, bundle_of: Bundles
) -> None:
    """A container has the card, the render node and their names by path, of its own GPU only."""
    command = ["/probe", *questions(tries=TRIES)]
    bundle = bundle_of("debian", command, asks("1", capabilities))
    view = graphics.run(bundle, engine).view
    assert dri_nodes(view) == expected_nodes(graphics, 1)
    assert len(dri_nodes(view)) == 4
    numbers = {
        (node.major, node.minor) for path, node in view.nodes.items() if path in dri_nodes(view)
    }
    assert numbers == {(MAJOR, 2), (MAJOR, 129)}
    allowed = {number for number, answer in view.tries.items() if answer != "EPERM"}
    assert allowed == {f"{MAJOR}:2", f"{MAJOR}:129"}


def test_no_graphics_nodes_without_the_capability(
    graphics: Installation, bundle_of: Bundles
) -> None:
    """Without graphics or display there is no /dev/dri, and no device rule for its nodes."""
    command = ["/probe", *questions("/dev/dri", tries=TRIES)]
    bundle = bundle_of("debian", command, asks("all", "compute,utility,video"))
    view = graphics.run(bundle).view
    assert dri_nodes(view) == {}
    assert view.paths["/dev/dri"].kind == "missing"
    assert set(view.tries.values()) == {"EPERM"}


def test_all_omits_graphics_nodes_of_the_lost_gpu(
    graphics: Installation, bundle_of: Bundles
) -> None:
    bundle = bundle_of("debian", ["/probe"], asks("all", "all"))
    view = graphics.run(bundle).view
    usable = [gpu.index for gpu in graphics.node.node.gpus if gpu.lost is None]
    assert set(dri_nodes(view)) == {
        path for index in usable for path in expected_nodes(graphics, index)
    }


def test_graphics_nodes_in_a_user_namespace(graphics: Installation, bundle_of: Bundles) -> None:
    """In a user namespace the nodes are bind-mounted, those by path too."""
    let_through(Path(graphics.node.driver_root) / "any")
    bundle = mapped(bundle_of("debian", ["/probe"], asks("0", "graphics")))
    view = graphics.run(bundle).view
    assert set(dri_nodes(view)) == set(expected_nodes(graphics, 0))


def test_podman_adds_graphics_nodes_for_any_user(
    graphics: Installation, tmp_path: Path, root_of: Roots
) -> None:
    """podman applies the spec for a user without a group of the host."""
    specs = tmp_path / "cdi"
    specs.mkdir()
    graphics.generate("--hooks", "none", output=specs / "nvidia.yaml")
    options = ["--device", "nvidia.com/gpu=3", "--user", "1000:1000"]
    command = ["/probe"]
    view = engines.podman(tmp_path / "podman", root_of("debian"), command, options, cdi=specs).view
    assert view.uid == 1000
    assert dri_nodes(view) == expected_nodes(graphics, 3)
