# SPDX-License-Identifier: Apache-2.0
"""32-bit driver libraries in containers, by gpuhook-runtime and by podman."""

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
def installation_with_32_bit(
    bindir: Path, tmp_path_factory: pytest.TempPathFactory
) -> Installation:
    """Return an installation on a node with 32-bit packages of the driver."""
    facts = with_32_bit(dump_file.load("t4"))
    return installation(tmp_path_factory.mktemp("compat32"), facts, bindir)


def narrows(view: View) -> dict[str, str]:
    """Return name -> path of the 32-bit libraries in the loader cache."""
    entries = ld_cache_entries.parse(view.paths[CACHE].content)
    return {e.soname.decode(): e.path.decode() for e in entries if e.flags == I386}


def existing_paths(view: View) -> set[str]:
    """Return the asked 32-bit files that exist in the container."""
    return {path for path, entry in view.paths.items() if entry.kind != "missing"} - {CACHE}


def test_compat32_adds_32_bit_graphics_libraries(
    installation_with_32_bit: Installation, bundle_of: Bundles
) -> None:
    """compat32 with graphics adds the 32-bit GL libraries and their ICD, and no CUDA."""
    bundle = bundle_of("debian", ASKED, asks("0", "graphics,compat32"))
    view = installation_with_32_bit.run(bundle).view
    assert existing_paths(view) == {f"{NARROW}/{GLX}", ICD}
    cached = narrows(view)
    assert cached[GLX] == f"{NARROW}/{GLX}"
    assert CUDA not in cached
    assert "libEGL_nvidia.so.0" in cached


def test_all_capabilities_add_32_bit_libraries(
    installation_with_32_bit: Installation, bundle_of: Bundles
) -> None:
    """`all` adds each 32-bit library; 64-bit programs load the 64-bit ones."""
    command = [*ASKED, *questions(runs=[["/dlprobe", CUDA]])]
    bundle = bundle_of("debian", command, asks("0", "all"))
    view = installation_with_32_bit.run(bundle).view
    assert len(existing_paths(view)) == 4
    assert narrows(view)[CUDA] == f"{NARROW}/{CUDA}"
    assert view.runs[0].found()[CUDA]["real"].startswith(f"{LIBRARIES}/libcuda.so.")


def test_no_32_bit_library_without_compat32(
    installation_with_32_bit: Installation, bundle_of: Bundles
) -> None:
    capabilities = "compute,utility,video,graphics,display,ngx"
    bundle = bundle_of("debian", ASKED, asks("0", capabilities))
    view = installation_with_32_bit.run(bundle).view
    assert existing_paths(view) == set()
    assert narrows(view) == {}


def test_podman_applies_32_bit_libraries(
    installation_with_32_bit: Installation, tmp_path: Path, root_of: Roots
) -> None:
    """podman applies the spec, and its hook writes the cache for both loaders."""
    specs = tmp_path / "cdi"
    specs.mkdir()
    installation_with_32_bit.generate(output=specs / "nvidia.yaml")
    options = ["--device", "nvidia.com/gpu=0"]
    view = engines.podman(tmp_path / "podman", root_of("debian"), ASKED, options, cdi=specs).view
    assert len(existing_paths(view)) == 4
    assert narrows(view)[CUDA] == f"{NARROW}/{CUDA}"
