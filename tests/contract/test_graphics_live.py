# SPDX-License-Identifier: Apache-2.0
"""Nodes for graphics and 32-bit libraries by the prestart hook, and in a container that runs."""

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
from tests.contract.test_graphics import TRIES, dri
from tests.contract.test_prestart import hooked, plain
from tests.contract.views import View, questions
from tests.simulated.graphics import NARROW, with_32_bit, with_drm

ASKED = questions(CACHE, f"{NARROW}/{CUDA}", tries=TRIES)


@pytest.fixture(scope="module")
def graphics(bindir: Path, tmp_path_factory: pytest.TempPathFactory) -> Installation:
    """Give gpuhook on a node with four GPUs, one of them lost, that is made for graphics."""
    facts = with_32_bit(with_drm(dump_file.load("lost-gpu")))
    return installation(tmp_path_factory.mktemp("graphics"), facts, bindir)


def given(made: Bundle, installation: Installation) -> AbstractContextManager[Live]:
    """Return a running container that the wrapper gave its GPUs."""
    return wrapped(made, installation)


def assert_graphics(view: View, installation: Installation, *indices: int) -> None:
    """Assert that the nodes for graphics are those of these GPUs, and may be opened."""
    gpus = [installation.gpu(index) for index in indices]
    assert set(dri(view)) == {path for gpu in gpus for path in drm.paths(gpu)}
    allowed = {number for number, answer in view.tries.items() if answer != "EPERM"}
    assert allowed == {f"226:{base + index}" for index in indices for base in (1, 128)}


def test_by_the_prestart_hook(graphics: Installation, tmp_path: Path) -> None:
    """A runtime that knows nothing of GPUs gives the same as the wrapper does."""
    mine = graphics.apart(tmp_path / "node")
    made = hooked(tmp_path, mine, ["/probe", *ASKED], asks("1", "all"))
    view = plain(made).view
    assert_graphics(view, graphics, 1)
    assert narrows(view)[CUDA] == f"{NARROW}/{CUDA}"


@pytest.mark.parametrize("cgroup", ["host", "v2"])
def test_there_and_away(cgroup: str, graphics: Installation, tmp_path: Path) -> None:
    """attach brings the nodes by both names, detach takes one GPU's and then the other's."""
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
        assert dri(live.view(ASKED)) == {}
        assert_as_before(live.bundle.root, before.files)


def test_who_computes_is_told_by_its_own_nodes(graphics: Installation, tmp_path: Path) -> None:
    """A container without graphics is known to have the GPU, and gives it back."""
    with given(sleeping(tmp_path, env=asks("0", "compute,utility")), graphics) as live:
        assert "/dev/nvidia0" in live.view(ASKED).gpus()
        assert dri(live.view(ASKED)) == {}
        assert {path for path in live.view(ASKED).mounts if is_narrow(path)} == set()
        live.detach("0")
        assert "/dev/nvidia0" not in live.view(ASKED).gpus()


def test_a_comparison_finds_no_difference(graphics: Installation, tmp_path: Path) -> None:
    """compare, which looks from outside, sees what gpuhook gives, both widths of libraries too."""
    with given(sleeping(tmp_path, env=asks("0", "all")), graphics) as live:
        done = live.gpuhook("compare")
        assert done.rc == 0, done.stdout
        assert "GPUs added by gpuhook" in done.stdout
