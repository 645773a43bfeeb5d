# SPDX-License-Identifier: Apache-2.0
"""A container with devices of two CDI specs has the libraries of both, by whatever way."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from tests.contract import roots
from tests.contract.bundles import Bundles
from tests.contract.installation import KIND, LIBRARIES, Installation, asks
from tests.contract.integrations import Integrations
from tests.contract.live import sleeping, wrapped
from tests.contract.roots import Roots
from tests.contract.views import View, questions

OTHER = "nvidia.com/other"
BOTH = f"0,{OTHER}=a"
DIRECTORY = "/opt/other"
SONAME = "libother.so.1"
FOUND = {"libcuda.so.1": LIBRARIES, "libnvidia-ml.so.1": LIBRARIES, SONAME: DIRECTORY}
ASKED = questions(runs=[["/dlprobe", *FOUND], ["/ldconfig", "-p"]])


def describe(made: Installation, version: str = "1.0") -> None:
    """Write the spec of another device, with a library."""
    (driver,) = Path(made.node.driver_root).rglob("libcuda.so.*.*")
    library = made.place / f"{SONAME}.{version}"
    shutil.copy(driver, library)
    path = f"{DIRECTORY}/libother.so.{version}"
    args = ["gpuhook-hook", "apply", "--library", f"{path}={SONAME}"]
    hook = {
        "hookName": "createContainer",
        "path": str(made.bindir / "gpuhook-hook"),
        "args": args,
        "env": [f"{name}={value}" for name, value in made.env.items()],
    }
    options = ["ro", "nosuid", "nodev", "bind"]
    mount = {"hostPath": str(library), "containerPath": path, "options": options}
    edits = {"hooks": [hook], "mounts": [mount]}
    nothing = {"env": ["OTHER=1"]}
    spec = {
        "cdiVersion": "0.5.0",
        "kind": OTHER,
        "devices": [{"name": "a", "containerEdits": nothing}],
        "containerEdits": edits,
    }
    (made.specs / "other.json").write_text(json.dumps(spec), encoding="utf-8")


@pytest.fixture
def two(apart: Installation) -> Installation:
    """Return an installation on whose node there are two specs."""
    describe(apart)
    return apart


def assert_both(view: View) -> None:
    """Assert that the loader finds the libraries of both specs."""
    found = view.runs[0].found()
    assert {name: Path(facts["real"]).parent for name, facts in found.items()} == {
        name: Path(place) for name, place in FOUND.items()
    }
    # The driver's directory may be one that the loader looks into without a cache.
    entries = [line.split() for line in view.runs[1].output.splitlines() if " => " in line]
    cached = {(words[0], words[-1].removeprefix("/usr")) for words in entries}
    for name, place in FOUND.items():
        assert (name, f"{place}/{name}".removeprefix("/usr")) in cached


@pytest.mark.parametrize("integration", ["runc", "crun", "runc-prestart", "podman-runtime"])
def test_asked_for_together(
    integration: str, two: Installation, tmp_path: Path, root_of: Roots
) -> None:
    """By one request, and started again nothing is another."""
    root = roots.with_ldconfig(root_of("debian"))
    listings = []
    for start in ("first", "second"):
        (tmp_path / start).mkdir()
        enter = Integrations(two, tmp_path / start)
        assert_both(enter.through(integration, root, ["/probe", *ASKED], BOTH).view)
        listings.append(roots.listing(root))
    assert listings[0] == listings[1]


def by_podman(two: Installation, place: Path, root: Path, *options: str, runtime: str = "") -> View:
    """Return what a container of podman's sees that asks with `options`; `place` is a new one."""
    place.mkdir()
    enter = Integrations(two, place)
    return enter.by_podman(root, ["/probe", *ASKED], options, runtime=runtime).view


def test_hooks_of_an_engine(two: Installation, tmp_path: Path, root_of: Roots) -> None:
    """An engine that reads both specs calls both hooks, one after the other."""
    root = roots.with_ldconfig(root_of("debian"))
    options = ["--device", f"{KIND}=0", "--device", f"{OTHER}=a"]
    assert_both(by_podman(two, tmp_path / "first", root, *options, runtime="runc"))
    once = roots.listing(root)
    assert_both(by_podman(two, tmp_path / "again", root, *options, runtime="runc"))
    assert roots.listing(root) == once
    describe(two, "2.0")
    view = by_podman(two, tmp_path / "upgraded", root, *options, runtime="runc")
    assert_both(view)
    assert view.runs[0].found()[SONAME]["real"].endswith(".2.0")


def test_an_engine_brings_one_of_them(two: Installation, tmp_path: Path, root_of: Roots) -> None:
    """The engine gives one by CDI, and an annotation asks the wrapper for the other."""
    root = roots.with_ldconfig(root_of("debian"))
    options = ["--device", f"{KIND}=0", "--annotation", f"cdi.k8s.io/a={OTHER}=a"]
    for start in ("first", "second"):
        assert_both(by_podman(two, tmp_path / start, root, *options))


def test_a_volume_lies_over_one_of_them(
    two: Installation, tmp_path: Path, root_of: Roots, bundle_of: Bundles
) -> None:
    """What the wrapper cannot do before the mounts are there is a hook's, and so is the rest."""
    root = roots.with_ldconfig(root_of("debian"))
    made = bundle_of(root, ["/probe", *ASKED], asks(BOTH))
    (root / DIRECTORY[1:]).mkdir(parents=True)
    config: dict[str, Any] = made.config()
    scratch = {"destination": DIRECTORY, "type": "tmpfs", "source": "tmpfs", "options": ["nosuid"]}
    config["mounts"].append(scratch)
    made.write(config)
    assert_both(two.run(made).view)


def test_without_one_of_them_again(two: Installation, tmp_path: Path, root_of: Roots) -> None:
    """Started again without one of the devices, the container has its library no more."""
    root = roots.with_ldconfig(root_of("debian"))
    enter = Integrations(two, tmp_path)
    assert_both(enter.through("runc", root, ["/probe", *ASKED], BOTH).view)
    view = enter.through("runc", root, ["/probe", *ASKED], "0").view
    assert "libcuda.so.1 " in view.runs[1].output
    assert SONAME not in view.runs[1].output


def test_attached_later(two: Installation, tmp_path: Path) -> None:
    """A device of another spec leaves a running container the libraries that it was made with."""
    made = sleeping(tmp_path, env=asks("0"))
    roots.with_ldconfig(made.root)
    with wrapped(made, two) as live:
        assert live.attach(f"{OTHER}=a")["steps"] != []
        assert_both(live.view(ASKED))
        assert live.report("repair", "--dry-run")["steps"] == []
        live.attach("1")
        assert_both(live.view(ASKED))
        assert live.report("repair", "--dry-run")["steps"] == []
