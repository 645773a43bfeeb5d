# SPDX-License-Identifier: Apache-2.0
"""A container with devices of two CDI specs has the libraries of both, by each integration."""

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
DIRECTORY_OF = {"libcuda.so.1": LIBRARIES, "libnvidia-ml.so.1": LIBRARIES, SONAME: DIRECTORY}
QUESTIONS = questions(runs=[["/dlprobe", *DIRECTORY_OF], ["/ldconfig", "-p"]])


def write_spec(made: Installation, version: str = "1.0") -> None:
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
    """Return an installation on a node with two specs."""
    write_spec(apart)
    return apart


def assert_both(view: View) -> None:
    """Assert that the loader finds the libraries of both specs."""
    answers = view.runs[0].found()
    assert {name: Path(facts["real"]).parent for name, facts in answers.items()} == {
        name: Path(place) for name, place in DIRECTORY_OF.items()
    }
    # The loader may search the driver's directory without a cache.
    entries = [line.split() for line in view.runs[1].output.splitlines() if " => " in line]
    cached = {(words[0], words[-1].removeprefix("/usr")) for words in entries}
    for name, place in DIRECTORY_OF.items():
        assert (name, f"{place}/{name}".removeprefix("/usr")) in cached


@pytest.mark.parametrize("integration", ["runc", "crun", "runc-prestart", "podman-runtime"])
def test_one_request_for_both_devices(
    integration: str, two: Installation, tmp_path: Path, root_of: Roots
) -> None:
    """A second start does not change the root file system."""
    root = roots.with_ldconfig(root_of("debian"))
    listings = []
    for start in ("first", "second"):
        (tmp_path / start).mkdir()
        enter = Integrations(two, tmp_path / start)
        assert_both(enter.through(integration, root, ["/probe", *QUESTIONS], BOTH).view)
        listings.append(roots.listing(root))
    assert listings[0] == listings[1]


def by_podman(two: Installation, place: Path, root: Path, *options: str, runtime: str = "") -> View:
    """Return the view of a podman container that is started with `options`; `place` is created."""
    place.mkdir()
    enter = Integrations(two, place)
    return enter.by_podman(root, ["/probe", *QUESTIONS], options, runtime=runtime).view


def test_podman_calls_the_hooks_of_both_specs(
    two: Installation, tmp_path: Path, root_of: Roots
) -> None:
    """The hooks run one after the other; a new version replaces the library."""
    root = roots.with_ldconfig(root_of("debian"))
    options = ["--device", f"{KIND}=0", "--device", f"{OTHER}=a"]
    assert_both(by_podman(two, tmp_path / "first", root, *options, runtime="runc"))
    once = roots.listing(root)
    assert_both(by_podman(two, tmp_path / "again", root, *options, runtime="runc"))
    assert roots.listing(root) == once
    write_spec(two, "2.0")
    view = by_podman(two, tmp_path / "upgraded", root, *options, runtime="runc")
    assert_both(view)
    assert view.runs[0].found()[SONAME]["real"].endswith(".2.0")


def test_engine_and_wrapper_apply_one_spec_each(
    two: Installation, tmp_path: Path, root_of: Roots
) -> None:
    """The engine applies one by CDI; an annotation requests the other from the wrapper."""
    root = roots.with_ldconfig(root_of("debian"))
    options = ["--device", f"{KIND}=0", "--annotation", f"cdi.k8s.io/a={OTHER}=a"]
    for start in ("first", "second"):
        assert_both(by_podman(two, tmp_path / start, root, *options))


def test_volume_over_the_directory_of_a_library(
    two: Installation, tmp_path: Path, root_of: Roots, bundle_of: Bundles
) -> None:
    """A hook does what the wrapper cannot do before the container's mounts exist."""
    root = roots.with_ldconfig(root_of("debian"))
    made = bundle_of(root, ["/probe", *QUESTIONS], asks(BOTH))
    (root / DIRECTORY[1:]).mkdir(parents=True)
    config: dict[str, Any] = made.config()
    scratch = {"destination": DIRECTORY, "type": "tmpfs", "source": "tmpfs", "options": ["nosuid"]}
    config["mounts"].append(scratch)
    made.write(config)
    assert_both(two.run(made).view)


def test_restart_without_one_of_the_devices(
    two: Installation, tmp_path: Path, root_of: Roots
) -> None:
    """The library of the removed device is no longer in the loader cache."""
    root = roots.with_ldconfig(root_of("debian"))
    enter = Integrations(two, tmp_path)
    assert_both(enter.through("runc", root, ["/probe", *QUESTIONS], BOTH).view)
    view = enter.through("runc", root, ["/probe", *QUESTIONS], "0").view
    assert "libcuda.so.1 " in view.runs[1].output
    assert SONAME not in view.runs[1].output


def test_attach_of_a_device_of_another_spec(two: Installation, tmp_path: Path) -> None:
    """The running container keeps the libraries that it was created with."""
    made = sleeping(tmp_path, env=asks("0"))
    roots.with_ldconfig(made.root)
    with wrapped(made, two) as live:
        assert live.attach(f"{OTHER}=a")["steps"] != []
        assert_both(live.view(QUESTIONS))
        assert live.report("repair", "--dry-run")["steps"] == []
        live.attach("1")
        assert_both(live.view(QUESTIONS))
        assert live.report("repair", "--dry-run")["steps"] == []
