# SPDX-License-Identifier: Apache-2.0
"""gpuhook and the CDI library of containerd, podman and CRI-O see the same devices and edits."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

import pytest

from gpuhook.apply.spec import oci_spec
from gpuhook.cdi import spec_file
from gpuhook.cdi.hot import compiled_spec, registry
from gpuhook.cdi.hot.container_edits import merged
from gpuhook.errors import GpuhookError
from tests.depth import depth
from tests.differential import cdi_documents
from tests.differential.cdi_documents import SpecFile
from tests.differential.go_programs import Answers, running
from tests.figures import Figures

pytestmark = pytest.mark.thorough
ROUNDS = depth(500, 3_000, 100_000)
ABOVE = ((0, "a.json"), (0, "b.json"), (1, "c.json"))
CONFIG: Any = {
    "ociVersion": "1.0.2",
    "process": {"user": {"uid": 7, "gid": 0}, "env": ["PATH=/bin", "A=0"], "cwd": "/"},
    "root": {"path": "rootfs"},
    "mounts": [{"destination": "/proc", "type": "proc", "source": "proc"}],
    "linux": {"devices": [{"path": "/dev/zero", "type": "c", "major": 1, "minor": 5}]},
}


@pytest.fixture(scope="module")
def library() -> Iterator[Answers]:
    """Yield a program with the CDI library."""
    with running("cdi_registry") as answers:
        yield answers


class Seen:
    """What the specs of directories describe: devices, refused files, and edited config.json."""

    def __init__(self) -> None:
        self.devices: set[str] = set()
        self.broken: dict[str, str] = {}
        self.edited: dict[str, Any] = {}
        self.failed: dict[str, str] = {}


def seen_by_library(library: Answers, dirs: list[str], names: list[str]) -> Seen | None:
    """Return what the library sees, None if it fails."""
    question = {"Dirs": dirs, "Names": names, "Config": CONFIG}
    [text] = library.to(json.dumps(question).encode(), 1)
    if text.startswith(b"!"):
        return None
    answer = json.loads(text)
    seen = Seen()
    seen.devices = set(answer["Devices"] or ())
    seen.broken = dict.fromkeys(answer["Broken"] or (), "")
    seen.edited, seen.failed = answer["Edited"], answer["Errors"]
    return seen


def registry_of(dirs: list[str]) -> registry.Registry:
    """Return gpuhook's registry of directories, without files below /run."""
    layers = []
    for directory in dirs:
        layer = []
        for path in registry.files(directory):
            try:
                layer.append(compiled_spec.of_spec(path, spec_file.read(path)))
            except GpuhookError as error:
                layer.append(compiled_spec.Compiled.of_fault(path, error))
        layers.append(layer)
    return registry.Registry(dirs, layers)


def seen_by_gpuhook(dirs: list[str]) -> Seen:
    """Return what gpuhook sees."""
    found, seen = registry_of(dirs), Seen()
    seen.broken = {one.path: one.error.message for one in found.broken if one.error}
    for kind in {spec.kind for spec in found.all()}:
        for name in found.names(kind):
            device = f"{kind}={name}"
            try:
                spec, edits = found.device(device)
            except GpuhookError as error:
                if error.code != "GH1103":  # two files at one priority
                    raise
                continue
            seen.devices.add(device)
            config = json.loads(json.dumps(CONFIG))
            try:
                oci_spec.apply(config, merged([spec.edits, edits]))
            except GpuhookError as error:
                seen.failed[device] = error.message
            else:
                seen.edited[device] = config
    return seen


def normal(config: Any) -> Any:
    """Return a config.json without what is no difference for a runtime."""
    linux = config.get("linux") or {}
    rules = (linux.get("resources") or {}).get("devices") or ()
    return {
        "env": dict(entry.partition("=")[::2] for entry in config["process"]["env"]),
        "devices": sorted(map(_node, linux.get("devices") or ()), key=str),
        "rules": sorted({str(_node(rule)) for rule in rules}),
        "mounts": sorted(map(_node, config["mounts"]), key=str),
        "hooks": {
            stage: list({str(hook): hook for hook in map(_node, hooks)}.values())
            for stage, hooks in (config.get("hooks") or {}).items()
            if hooks
        },
    }


def _node(one: dict[str, Any]) -> dict[str, Any]:
    numbers = {"major": 0, "minor": 0} if one.get("type") in ("b", "c", "u", "p") else {}
    found = {**numbers, **{key: value for key, value in one.items() if value not in (None, [], "")}}
    if found.get("type") == "bind":
        del found["type"]  # as gpuhook writes for a mount of the spec without one
    if found.get("env") == ["PATH=/usr/sbin:/usr/bin:/sbin:/bin"]:
        del found["env"]  # gpuhook gives some to a hook without variables
    return found


def write(place: Path, files: list[SpecFile]) -> list[str]:
    """Write the files into two directories, and return these."""
    dirs = [place / "low", place / "high"]
    for directory in dirs:
        directory.mkdir(exist_ok=True)
        for old in directory.iterdir():
            old.unlink()
    for one in files:
        (dirs[one.layer] / one.name).write_text(one.text, encoding="utf-8", newline="")
    return [str(directory) for directory in dirs]


# What gpuhook refuses and this release of the library takes: newer releases refuse the versions and
# the missing devices as well, and YAML that readers disagree on.
STRICTER = re.compile(
    "another document|read as another type|unknown field|cdiVersion is|/cdiVersion: missing"
    "|at least one device|not a string|not an integer|YAML does not allow"
)


class Comparison:
    """Directories of specs, as gpuhook and the library read them."""

    def __init__(self, library: Answers, place: Path) -> None:
        self._library, self._place = library, place
        self.counts: Counter[str] = Counter()

    def compare(self, files: list[SpecFile]) -> None:
        """Count the outcome; AssertionError where gpuhook sees what the library does not."""
        dirs = write(self._place, files)
        ours = seen_by_gpuhook(dirs)
        theirs = seen_by_library(self._library, dirs, sorted(ours.devices))
        self.counts["files"] += len(files)
        if theirs is None:
            self.counts["directories at which the library panics"] += 1
            return
        assert theirs.broken.keys() <= ours.broken.keys(), files
        for path, reason in ours.broken.items():
            if path in theirs.broken:
                self.counts["files that both refuse"] += 1
            else:
                assert STRICTER.search(reason), (reason, files)
                self.counts["files that only gpuhook refuses"] += 1
        if ours.broken.keys() == theirs.broken.keys():
            assert ours.devices == theirs.devices, files
            self._compare_edits(ours, theirs, files)

    def _compare_edits(self, ours: Seen, theirs: Seen, files: list[SpecFile]) -> None:
        for device in ours.devices & theirs.devices:
            self.counts["devices"] += 1
            assert (device in ours.failed) == (device in theirs.failed), (device, files)
            if device in ours.edited:
                found, expected = ours.edited[device], theirs.edited[device]
                assert normal(found) == normal(expected), (device, files)
                self.counts["edited config.json"] += 1


@pytest.mark.soak
def test_library_sees_the_same_devices_and_edits(
    library: Answers, tmp_path: Path, figures: Figures
) -> None:
    """Of files that both accept, the devices and the edited config.json are equal."""
    random, comparison = Random(5), Comparison(library, tmp_path)
    for _ in range(ROUNDS):
        comparison.compare(cdi_documents.directories(random))
    assert comparison.counts["edited config.json"] > ROUNDS / 30
    for what, count in comparison.counts.items():
        figures.record(f"CDI specs, gpuhook and the CDI library: {what}", str(count))


def test_conflict_below_another_directory(library: Answers, tmp_path: Path) -> None:
    """gpuhook takes the device of the higher directory, as CDI's SPEC.md says; the library none."""
    text = json.dumps(
        {
            "cdiVersion": "0.5.0",
            "kind": "example.com/gpu",
            "devices": [{"name": "0", "containerEdits": {"env": ["A=1"]}}],
        }
    )
    dirs = write(tmp_path, [SpecFile(0, "a.json", text), SpecFile(0, "b.json", text)])
    both = seen_by_library(library, dirs, [])
    assert both is not None
    assert seen_by_gpuhook(dirs).devices == both.devices == set()
    dirs = write(tmp_path, [SpecFile(layer, name, text) for layer, name in ABOVE])
    theirs = seen_by_library(library, dirs, [])
    assert theirs is not None
    assert (seen_by_gpuhook(dirs).devices, theirs.devices) == ({"example.com/gpu=0"}, set())
