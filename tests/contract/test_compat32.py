# SPDX-License-Identifier: Apache-2.0
"""What a container for 32-bit programs sees of the driver, by the wrapper and by podman."""

from __future__ import annotations

from pathlib import Path

import pytest

from gpuhook.loader import ld_cache_entries
from gpuhook.vendors.nvidia.inventory import dump_file
from tests.contract import engines
from tests.contract.bundles import Bundles
from tests.contract.installation import LIBRARIES, Installation, asks, installation
from tests.contract.roots import Roots
from tests.contract.views import View, questions
from tests.simulated.graphics import NARROW, with_32_bit

CACHE = "/etc/ld.so.cache"
I386 = 0x0003
CUDA, GLX = "libcuda.so.1", "libGLX_nvidia.so.0"
ICD = "/etc/vulkan/icd.d/nvidia_icd.i686.json"
ASKED = [
    "/probe",
    *questions(CACHE, f"{NARROW}/{CUDA}", f"{NARROW}/{GLX}", f"{NARROW}/libcuda.so", ICD),
]


@pytest.fixture(scope="module")
def both(bindir: Path, tmp_path_factory: pytest.TempPathFactory) -> Installation:
    """Give gpuhook on a node with 32-bit packages of the driver."""
    facts = with_32_bit(dump_file.load("t4"))
    return installation(tmp_path_factory.mktemp("compat32"), facts, bindir)


def narrows(view: View) -> dict[str, str]:
    """Return name -> path of the 32-bit libraries in the loader's cache."""
    entries = ld_cache_entries.parse(view.paths[CACHE].content)
    return {e.soname.decode(): e.path.decode() for e in entries if e.flags == I386}


def kinds(view: View) -> set[str]:
    """Return the paths below the 32-bit directory, and the ICD, that are there."""
    return {path for path, entry in view.paths.items() if entry.kind != "missing"} - {CACHE}


def test_compat32_and_graphics(both: Installation, bundle_of: Bundles) -> None:
    """The 32-bit GL libraries and their ICD are there, and known to the 32-bit loader; no CUDA."""
    bundle = bundle_of("debian", ASKED, asks("0", "graphics,compat32"))
    view = both.run(bundle).view
    assert kinds(view) == {f"{NARROW}/{GLX}", ICD}
    known = narrows(view)
    assert known[GLX] == f"{NARROW}/{GLX}"
    assert CUDA not in known
    assert "libEGL_nvidia.so.0" in known


def test_every_capability(both: Installation, bundle_of: Bundles) -> None:
    """All capabilities are those of 32-bit programs too; the 64-bit libraries stay theirs."""
    asked = [*ASKED, *questions(runs=[["/dlprobe", CUDA]])]
    bundle = bundle_of("debian", asked, asks("0", "all"))
    view = both.run(bundle).view
    assert len(kinds(view)) == 4
    assert narrows(view)[CUDA] == f"{NARROW}/{CUDA}"
    assert view.runs[0].found()[CUDA]["real"].startswith(f"{LIBRARIES}/libcuda.so.")


def test_who_does_not_ask_gets_none(both: Installation, bundle_of: Bundles) -> None:
    """compute, utility, video, graphics: a container without compat32 has no 32-bit library."""
    capabilities = "compute,utility,video,graphics,display,ngx"
    bundle = bundle_of("debian", ASKED, asks("0", capabilities))
    view = both.run(bundle).view
    assert kinds(view) == set()
    assert narrows(view) == {}


def test_by_the_spec_alone(both: Installation, tmp_path: Path, root_of: Roots) -> None:
    """podman applies the spec, and its hook makes the cache for both loaders."""
    specs = tmp_path / "cdi"
    specs.mkdir()
    both.generate(output=specs / "nvidia.yaml")
    options = ["--device", "nvidia.com/gpu=0"]
    view = engines.podman(tmp_path / "podman", root_of("debian"), ASKED, options, cdi=specs).view
    assert len(kinds(view)) == 4
    assert narrows(view)[CUDA] == f"{NARROW}/{CUDA}"
