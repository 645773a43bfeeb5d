# SPDX-License-Identifier: Apache-2.0
"""Graphics nodes and 32-bit libraries by the prestart hook, and in running containers."""

from __future__ import annotations

from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from gpuhook.loader.library_directory import is_narrow
from gpuhook.vendors.nvidia.devices import drm
from gpuhook.vendors.nvidia.inventory import dump_file
from tests.contract.bundles import Bundle
from tests.contract.installation import Installation, asks, installation
from tests.contract.live import Live, sleeping, started, wrapped
from tests.contract.test_attach import assert_as_before
from tests.contract.test_compat32 import CACHE, CUDA, narrows
from tests.contract.test_graphics import TRIES, dri_nodes
from tests.contract.test_prestart import hooked, plain
from tests.contract.views import View, questions
from tests.simulated.graphics import NARROW, with_32_bit, with_drm

ASKED = questions(CACHE, f"{NARROW}/{CUDA}", tries=TRIES)


@pytest.fixture(scope="module")
def graphics(bindir: Path, tmp_path_factory: pytest.TempPathFactory) -> Installation:
    """Return an installation on a node with graphics and 32-bit libraries, and one lost GPU."""
    facts = with_32_bit(with_drm(dump_file.load("lost-gpu")))
    return installation(tmp_path_factory.mktemp("graphics"), facts, bindir)


def started_by_wrapper(made: Bundle, installation: Installation) -> AbstractContextManager[Live]:
    """Return a running container of gpuhook-runtime."""
    return wrapped(made, installation)


def assert_graphics(view: View, installation: Installation, *indices: int) -> None:
    """Assert that the graphics nodes are those of these GPUs, and can be opened."""
    gpus = [installation.gpu(index) for index in indices]
    assert set(dri_nodes(view)) == {path for gpu in gpus for path in drm.paths(gpu)}
    allowed = {number for number, answer in view.tries.items() if answer != "EPERM"}
    assert allowed == {f"226:{base + index}" for index in indices for base in (1, 128)}


def test_prestart_hook_adds_graphics_nodes(graphics: Installation, tmp_path: Path) -> None:
    """Under a plain runtime the prestart hook adds the same nodes as the wrapper."""
    mine = graphics.apart(tmp_path / "node")
    made = hooked(tmp_path, mine, ["/probe", *ASKED], asks("1", "all"))
    view = plain(made).view
    assert_graphics(view, graphics, 1)
    assert narrows(view)[CUDA] == f"{NARROW}/{CUDA}"


@pytest.mark.parametrize("cgroup", ["host", "v2"])
def test_attach_and_detach_graphics_nodes(
    cgroup: str, graphics: Installation, tmp_path: Path
) -> None:
    """attach adds the nodes by both names, detach removes those of one GPU, then of the other."""
    with started(sleeping(tmp_path, env=asks("void", "all")), graphics, "runc", cgroup) as live:
        before = live.seen()
        live.attach("0", "1")
        view = live.view(ASKED)
        assert_graphics(view, graphics, 0, 1)
        assert narrows(view)[CUDA] == f"{NARROW}/{CUDA}"
        assert live.attach("0", "1")["steps"] == []
        live.detach("0")
        assert_graphics(live.view(ASKED), graphics, 1)
        live.detach("1")
        assert dri_nodes(live.view(ASKED)) == {}
        assert_as_before(live.bundle.root, before.files)


def test_detach_from_a_container_without_graphics(graphics: Installation, tmp_path: Path) -> None:
    """A container without graphics nodes is recognized by its GPU's node, which detach removes."""
    with started_by_wrapper(sleeping(tmp_path, env=asks("0", "compute,utility")), graphics) as live:
        assert "/dev/nvidia0" in live.view(ASKED).gpus()
        assert dri_nodes(live.view(ASKED)) == {}
        assert {path for path in live.view(ASKED).mounts if is_narrow(path)} == set()
        live.detach("0")
        assert "/dev/nvidia0" not in live.view(ASKED).gpus()


def test_compare_finds_no_difference(graphics: Installation, tmp_path: Path) -> None:
    """compare reports no difference for graphics and for libraries of both widths."""
    with started_by_wrapper(sleeping(tmp_path, env=asks("0", "all")), graphics) as live:
        done = live.gpuhook("compare")
        assert done.rc == 0, done.stdout
        assert "GPUs added by gpuhook" in done.stdout
