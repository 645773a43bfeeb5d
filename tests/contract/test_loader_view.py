# SPDX-License-Identifier: Apache-2.0
"""What a container's loader finds, compared with the real ldconfig for each layout and image.

The names come from ldconfig on the host's driver directories. In the container, `ldconfig -p` is
compared before and after a real ldconfig run, and each name is opened by the real loader.
"""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.contract import roots
from tests.contract.bundles import Bundles
from tests.contract.installation import Installation, asks, installation
from tests.contract.integrations import Integrations
from tests.contract.live import WAIT, started
from tests.contract.roots import Roots
from tests.contract.views import Ran, questions
from tests.simulated import elf_maker
from tests.simulated.elf_maker import Note
from tests.simulated.layouts import Layout
from tests.simulated.node import SimulatedNode, make_node

LAYOUTS: tuple[Layout, ...] = ("flat", "debian", "lib64", "gke")
MULTIARCH = "usr/lib/x86_64-linux-gnu"
COMPAT = "usr/local/cuda/compat"
NEWER, OLDER = "999.10.01", "470.82.01"
OWN = {"libmine.so.3": ("usr/local/lib", MULTIARCH, "usr/lib64")}
DRIVER = ("libcuda.so.1", "libnvidia-ml.so.1", "libnvidia-nvvm.so.4")
NOTE = b'{"CUDA Version": "99.0", "Driver": [580]}'


@dataclass(frozen=True)
class Node:
    """A node of one layout, and the names that ldconfig finds in its driver's directories."""

    installation: Installation
    names: list[str]

    @property
    def version(self) -> str:
        """Return the driver's version."""
        return str(self.installation.node.node.driver.version)


@pytest.fixture(scope="module", params=LAYOUTS)
def node(
    request: pytest.FixtureRequest, bindir: Path, tmp_path_factory: pytest.TempPathFactory
) -> Node:
    place = tmp_path_factory.mktemp(request.param)
    simulated = make_node(place / "node", "t4", layout=request.param)
    _add_library_without_soname(simulated)
    made = installation(place, simulated, bindir)
    return Node(made, _names_on_host(simulated, place))


def _add_library_without_soname(node: SimulatedNode) -> None:
    nvml = next(file for file in node.node.files if file.soname == "libnvidia-ml.so.1")
    name = f"libnvidia-bare.so.{node.node.driver.version}"
    elf_maker.write(Path(nvml.host_path).with_name(name), None)


def _names_on_host(node: SimulatedNode, place: Path) -> list[str]:
    """Return the names that the real ldconfig finds in the directories of the driver."""
    files = [one for one in node.node.files if one.kind == "library" or "vdpau" in one.host_path]
    directories = {Path(file.host_path).parent for file in files}
    file, conf = place / "cache", place / "conf"
    conf.write_text("".join(f"{path}\n" for path in sorted(directories)), encoding="utf-8")
    subprocess.run(["ldconfig", "-X", "-f", str(conf), "-C", str(file)], check=True)
    lines = subprocess.check_output(["ldconfig", "-p", "-C", str(file)], text=True).splitlines()
    inside = [line.split() for line in lines if f"=> {place}/" in line and "x86-64" in line]
    names = {words[0] for words in inside}
    assert names >= {"libcuda.so.1", "libnvidia-ml.so.1"}, names
    return sorted(names | {"libcuda.so"})  # in another directory with Debian's packages


def _plain(root: Path) -> None:
    pass


def _own_newer_library(root: Path) -> None:
    """Add a newer copy of a distribution's library in /usr/local/lib."""
    for directory in OWN["libmine.so.3"]:
        _library(root / directory, "libmine.so.3", "3.1")


def _compat(root: Path) -> None:
    for stem in ("libcuda", "libcudadebugger", "libnvidia-ptxjitcompiler"):
        _library(root / COMPAT, f"{stem}.so.1", NEWER)
    _library(root / COMPAT, "libnvidia-nvvm.so.4", NEWER)
    for stem in ("libnvidia-gpucomp", "libnvidia-pkcs11"):
        _library(root / COMPAT, f"{stem}.so.{NEWER}", NEWER)
    note = Note(".note.cuda.fwd_compatibility", "NVIDIA Corporation", NOTE)
    elf_maker.write(root / COMPAT / f"libcuda.so.{NEWER}", "libcuda.so.1", note=note)


def _driver(directory: str, version: str) -> Callable[[Path], None]:
    """Return a function that copies a driver into the image, as `docker commit` does."""

    def bake(root: Path) -> None:
        for soname in DRIVER:
            _library(root / directory, soname, version)

    return bake


IMAGES: dict[str, tuple[str, Callable[[Path], None]]] = {
    "debian": ("debian", _plain),
    "red-hat": ("lib64", _plain),
    "own-library": ("debian", _own_newer_library),
    "compat": ("debian", _compat),
    "baked-in-older": ("debian", _driver(MULTIARCH, OLDER)),
    "baked-in-newer": ("debian", _driver(MULTIARCH, NEWER)),
    "baked-in-local": ("debian", _driver("usr/local/lib", OLDER)),
    "baked-in-red-hat": ("lib64", _driver("usr/lib64", NEWER)),
}


def _library(directory: Path, soname: str, version: str) -> None:
    """Write lib<x>.so.<version>, its SONAME link and the link for ld(1)."""
    directory.mkdir(parents=True, exist_ok=True)
    stem = soname.partition(".so")[0]
    name = f"{stem}.so.{version}"
    elf_maker.write(directory / name, soname)
    for link, target in ((soname, name), (f"{stem}.so", soname)):
        if link != target and not (directory / link).exists():
            (directory / link).symlink_to(target)


@pytest.fixture(params=IMAGES)
def root(request: pytest.FixtureRequest, root_of: Roots) -> Path:
    return _image(request.param, root_of)


def _image(name: str, root_of: Roots) -> Path:
    """Return the root file system of an image, with the cache that the image's ldconfig writes."""
    kind, change = IMAGES[name]
    made = root_of(kind)
    change(made)
    subprocess.run(["chroot", str(made), "/sbin/ldconfig"], check=True)
    shutil.copy(roots.ldconfig(), made / "ldconfig")
    return made


def _listed(ran: Ran) -> tuple[set[tuple[str, str]], dict[str, str]]:
    """Return all entries of `ldconfig -p`, and the first path of each name."""
    lines = [line.split() for line in ran.output.splitlines() if " => " in line]
    entries = [(words[0], words[-1]) for words in lines]
    return set(entries), dict(reversed(entries))


def _versions(ran: Ran) -> dict[str, str]:
    """Return the version of each mapped driver library, by its path."""
    real = [found["real"] for found in ran.found().values() if "real" in found]
    return {path: path.rpartition(".so.")[2] for path in real if "libmine" not in path}


def test_loader_cache_equals_that_of_ldconfig(node: Node, root: Path, bundle_of: Bundles) -> None:
    """The cache has ldconfig's entries, every name opens, and one driver is mapped."""
    compat = sorted(path.name for path in (root / COMPAT).glob("lib*.so*"))
    own = [name for name in OWN if (root / MULTIARCH / name).exists()]
    look = [
        ["/ldconfig", "-p"],
        ["/dlprobe", *node.names, *own],
        ["/dlprobe", *compat, "libcuda.so"],
    ]
    command = ["/probe", *questions(runs=[*look, ["/ldconfig"], *look])]
    bundle = bundle_of(root, command, asks("all", "all"))
    ran = node.installation.run(bundle).view.runs
    assert ran[3].rc == 0, ran[3]
    for listed, found, compatible in (ran[:3], ran[4:]):
        missing = {name: one for name, one in found.found().items() if "real" not in one}
        assert missing == {}
        assert found.found().keys() >= set(node.names)
        versions = set(_versions(compatible).values())
        assert versions == ({NEWER} if compat else {node.version})
        drivers = {v for p, v in _versions(found).items() if not p.startswith(f"/{COMPAT}/")}
        assert {v for v in drivers if v in (OLDER, NEWER)} == set()
        for name in own:
            assert found.found()[name]["path"].startswith("/usr/local/lib/")
        assert _listed(listed)[1]["libcuda.so.1"]
    assert _listed(ran[0])[0] == _listed(ran[4])[0]
    assert _listed(ran[0])[1] == _listed(ran[4])[1]
    assert [one["real"] for one in ran[1].found().values()] == [
        one["real"] for one in ran[5].found().values()
    ]


def test_second_start_changes_no_file(node: Node, root: Path, bundle_of: Bundles) -> None:
    """A restart with the same driver keeps every byte of the root file system."""
    bundle = bundle_of(root, ["/probe"], asks("all", "all"))
    for _ in range(2):
        node.installation.run(bundle)
    before = roots.listing(root)
    node.installation.run(bundle)
    assert roots.listing(root) == before


@pytest.mark.parametrize("integration", ["podman-cdi", "runc-prestart", "crun"])
@pytest.mark.parametrize("image", ["compat", "baked-in-newer"])
def test_loader_cache_by_each_integration(
    integration: str, image: str, node: Node, root_of: Roots, tmp_path: Path
) -> None:
    """A CDI spec that an engine applies and a hook write the same entries as the wrapper."""
    root = _image(image, root_of)
    look = [["/ldconfig", "-p"], ["/dlprobe", *node.names]]
    command = ["/probe", *questions(runs=[*look, ["/ldconfig"], *look])]
    integrations = Integrations(node.installation, tmp_path)
    env = ["NVIDIA_DRIVER_CAPABILITIES=all"]
    ran = integrations.through(integration, root, command, env=env).view.runs
    assert ran[2].rc == 0, ran[2]
    assert _listed(ran[0]) == _listed(ran[3])
    for found in (ran[1].found(), ran[4].found()):
        assert {name: one for name, one in found.items() if "real" not in one} == {}
        assert found.keys() >= set(node.names)
    assert ran[1].output == ran[4].output


@pytest.mark.parametrize("image", ["debian", "own-library", "compat", "baked-in-newer"])
def test_loader_cache_after_an_attach(
    image: str, node: Node, root_of: Roots, bundle_of: Bundles
) -> None:
    """Attach writes the same entries, a second one changes nothing, and detach removes all."""
    root = _image(image, root_of)
    look = [["/ldconfig", "-p"], ["/dlprobe", "libcuda.so.1", "libcuda.so", "libnvidia-ml.so.1"]]
    with started(bundle_of(root, WAIT), node.installation) as live:
        before = live.seen()
        live.attach("0")
        ran = live.view(questions(runs=look)).runs
        assert live.attach("0")["steps"] == []
        live.detach("0")
        assert live.seen().files == before.files
        live.attach("0")
        after = live.view(questions(runs=[["/ldconfig"], *look])).runs[1:]
    assert _listed(ran[0]) == _listed(after[0])
    assert ran[1].output == after[1].output
    mapped = {path.rpartition("/")[2] for path in _versions(ran[1])}
    version = NEWER if image == "compat" else node.version
    assert f"libcuda.so.{version}" in mapped
    assert len(mapped) == 2
