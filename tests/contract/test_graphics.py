# SPDX-License-Identifier: Apache-2.0
"""What a container for graphics sees of its GPU in /dev/dri, by the wrapper and by podman."""

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
    """Give gpuhook on a node with four GPUs, one of them lost, that have nodes for graphics."""
    facts = with_drm(dump_file.load("lost-gpu"))
    return installation(tmp_path_factory.mktemp("graphics"), facts, bindir)


def dri(view: View) -> dict[str, str]:
    """Return what opening each node of /dev/dri says."""
    return {path: node.open for path, node in view.nodes.items() if path.startswith("/dev/dri/")}


def own(installation: Installation, index: int) -> dict[str, str]:
    """Return the nodes that a container with this GPU has: the driver is not there to open them."""
    return dict.fromkeys(drm.paths(installation.gpu(index)), "ENXIO")


@ENGINES
@pytest.mark.parametrize("capabilities", ["graphics", "display,utility", "all"])
def test_the_gpus_own_nodes_and_no_others(
    engine: str, capabilities: str, graphics: Installation, bundle_of: Bundles
) -> None:
    """The card, the render node and their names by place are there; the neighbours' are not."""
    asked = ["/probe", *questions(tries=TRIES)]
    bundle = bundle_of("debian", asked, asks("1", capabilities))
    view = graphics.run(bundle, engine).view
    assert dri(view) == own(graphics, 1)
    assert len(dri(view)) == 4
    numbers = {(node.major, node.minor) for path, node in view.nodes.items() if path in dri(view)}
    assert numbers == {(MAJOR, 2), (MAJOR, 129)}
    allowed = {number for number, answer in view.tries.items() if answer != "EPERM"}
    assert allowed == {f"{MAJOR}:2", f"{MAJOR}:129"}


def test_who_computes_sees_none(graphics: Installation, bundle_of: Bundles) -> None:
    """Without graphics or display there is no /dev/dri, and no right to open its nodes."""
    asked = ["/probe", *questions("/dev/dri", tries=TRIES)]
    bundle = bundle_of("debian", asked, asks("all", "compute,utility,video"))
    view = graphics.run(bundle).view
    assert dri(view) == {}
    assert view.paths["/dev/dri"].kind == "missing"
    assert set(view.tries.values()) == {"EPERM"}


def test_all_is_every_gpu_that_works(graphics: Installation, bundle_of: Bundles) -> None:
    """The nodes of the lost GPU are not among those of `all`."""
    bundle = bundle_of("debian", ["/probe"], asks("all", "all"))
    view = graphics.run(bundle).view
    usable = [gpu.index for gpu in graphics.node.node.gpus if gpu.lost is None]
    assert set(dri(view)) == {path for index in usable for path in own(graphics, index)}


def test_in_a_user_namespace(graphics: Installation, bundle_of: Bundles) -> None:
    """There the nodes are bound, those by place too."""
    let_through(Path(graphics.node.driver_root) / "any")
    bundle = mapped(bundle_of("debian", ["/probe"], asks("0", "graphics")))
    view = graphics.run(bundle).view
    assert set(dri(view)) == set(own(graphics, 0))


def test_podman_gives_them_to_any_user(
    graphics: Installation, tmp_path: Path, root_of: Roots
) -> None:
    """By the spec alone, and for a user of no group of the host's."""
    specs = tmp_path / "cdi"
    specs.mkdir()
    graphics.generate("--hooks", "none", output=specs / "nvidia.yaml")
    options = ["--device", "nvidia.com/gpu=3", "--user", "1000:1000"]
    asked = ["/probe"]
    view = engines.podman(tmp_path / "podman", root_of("debian"), asked, options, cdi=specs).view
    assert view.uid == 1000
    assert dri(view) == own(graphics, 3)
