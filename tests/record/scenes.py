# SPDX-License-Identifier: Apache-2.0
"""The simulated nodes of the record, each with its CDI spec, settings and state.

A scene is made once per process: the node remains at /mnt/node/NAME, the other files are linked
into the directory of each case, so that compiled files stay valid there.
"""

from __future__ import annotations

import json
import os
import shutil
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from tests.record import commands
from tests.record.sandbox import ENVIRONMENT
from tests.simulated import amd_tree, tegra_node, wsl_node
from tests.simulated.layouts import Layout
from tests.simulated.node import make_node

_PLACE, _KEPT, _NODES = Path("/mnt/case"), Path("/mnt/kept"), Path("/mnt/node")
# One driver file of each kind and capability. The others are handled in the same way.
_FEW = (
    "libcuda.so", "libnvidia-ml.so", "libnvidia-encode.so", "libnvidia-eglcore.so", "libGLX_nvidia",
    "libnvidia-ptxjitcompiler", "nvidia-smi", "nvidia-cuda-mps-control", "gsp_tu10x.bin",
    "nvidia.icd", "10_nvidia.json", "nvidia-persistenced/socket",
)  # fmt: skip


@dataclass(frozen=True)
class Scene:
    """How a node is made: a profile, a layout, and its files."""

    name: str
    profile: str = "h100x8"
    layout: Layout = "flat"
    is_full: bool = False  # with every file of the driver
    generate: tuple[str, ...] = ()  # options of generate-cdi
    has_spec: bool = True
    settings: dict[str, Any] = field(default_factory=dict)
    make: Callable[[Path], object] | None = None  # a node without a profile


def _amd(root: Path) -> None:
    amd_tree.build(root, "mi300x8", real_nodes=True)


SCENES = {
    scene.name: scene
    for scene in (
        Scene("h100"),
        Scene("h100-uuid", generate=("--device-name-strategy", "uuid")),
        Scene("h100-full", is_full=True),
        Scene("h100-hookless", generate=("--hooks", "none")),
        Scene("h100-nospec", has_spec=False),
        Scene("t4", profile="t4", is_full=True),
        Scene("t4-debian", profile="t4", layout="debian"),
        Scene("t4-lib64", profile="t4", layout="lib64"),
        Scene("t4-container", profile="t4", layout="driver-container"),
        Scene("t4-gke", profile="t4", layout="gke"),
        Scene("mig", profile="a100-mig"),
        Scene("lost", profile="lost-gpu"),
        Scene("tegra", make=tegra_node.make, has_spec=False),
        Scene("wsl", make=wsl_node.make, has_spec=False),
        Scene("amd", make=_amd, has_spec=False),
        Scene("empty", make=lambda _: None, has_spec=False),
    )
}


def environment(name: str) -> dict[str, str]:
    """Return the variables that point the programs at a scene's node."""
    return {
        "GPUHOOK_CONFIG": f"{_PLACE}/config.yaml",
        "GPUHOOK_HOST_ROOT": f"{_NODES}/{name}",
        "GPUHOOK_STATE_DIR": f"{_PLACE}/state",
    }


def options(name: str) -> list[str]:
    """Return the options that point commands at a scene's node."""
    roots = json.loads((_KEPT / name / "roots").read_text(encoding="utf-8"))
    return [f"--{root}-root={path}" for root, path in roots.items()]


class Kept:
    """The scenes that exist, and when they were made."""

    def __init__(self) -> None:
        self._made: dict[str, int] = {}

    def place(self, name: str) -> None:
        """Link the files of a scene into the empty directory of a case."""
        kept = _KEPT / name
        if not kept.is_dir():
            self._make(SCENES[name])
        _linked(kept / "case", _PLACE)

    def check(self, name: str) -> None:
        """Raise AssertionError if a case has written into a file of its scene."""
        for path in (_KEPT / name).rglob("*"):
            if path.is_file() and not path.is_symlink():
                assert path.stat().st_mtime_ns <= self._made[name], f"{path} was written to"

    def forget(self, name: str) -> None:
        """Remove the files of a scene."""
        for place in (_KEPT / name, _NODES / name):
            shutil.rmtree(place, ignore_errors=True)

    def _make(self, scene: Scene) -> None:
        self.forget(scene.name)
        shutil.rmtree(_PLACE, ignore_errors=True)
        node = _NODES / scene.name
        node.mkdir(parents=True)
        roots = _made(scene, node)
        kept = _KEPT / scene.name
        kept.mkdir(parents=True)
        (kept / "roots").write_text(json.dumps(roots), encoding="utf-8")
        (_PLACE / "cdi").mkdir(parents=True)
        (_PLACE / "state").mkdir()
        known = {"cdi": {"specDirs": [f"{_PLACE}/cdi"]}}
        text = json.dumps({**known, **scene.settings})
        (_PLACE / "config.yaml").write_text(text, encoding="utf-8")
        if scene.has_spec:
            _generate(scene)
        _call(scene, "config", "compile", f"{_PLACE}/config.yaml")
        _PLACE.rename(kept / "case")
        self._made[scene.name] = time.time_ns()


def _made(scene: Scene, node: Path) -> dict[str, str]:
    """Make the node; return its roots by the names of the options."""
    if scene.make is not None:
        scene.make(node)
        return dict.fromkeys(("driver", "dev", "host"), str(node))
    made = make_node(node, str(_inventory(scene)), layout=scene.layout)
    return {"driver": made.driver_root, "dev": made.dev_root, "host": made.host_root}


def _inventory(scene: Scene) -> Path | str:
    if scene.is_full:
        return scene.profile
    words = ["inventory", "--inventory", scene.profile, "-o", "yaml"]
    document = yaml.safe_load(_called(words, ENVIRONMENT))
    files = [f for f in document["files"] if any(few in f["container_path"] for few in _FEW)]
    names = {os.path.basename(file["container_path"]).partition(".so")[0] for file in files}
    document["files"] = files
    document["links"] = [
        link
        for link in document["links"]
        if os.path.basename(link["target"]).partition(".so")[0] in names
    ]
    path = Path(f"/mnt/tmp/{scene.name}.yaml")
    path.write_text(yaml.safe_dump(document, sort_keys=False), encoding="utf-8")
    return path


def _generate(scene: Scene) -> None:
    words = [*options(scene.name), "--hook-path", "/mnt/prefix/bin/gpuhook-hook"]
    spec = f"{_PLACE}/cdi/nvidia.yaml"
    _call(scene, "generate-cdi", *words, "--output-file", spec, *scene.generate)
    _call(scene, "cdi", "compile", spec)


def _call(scene: Scene, *words: str) -> None:
    _called([*words], {**ENVIRONMENT, **environment(scene.name)})


def _called(words: list[str], env: dict[str, str]) -> bytes:
    """Return the output of a command, which must succeed."""
    done = commands.run(words, env)
    assert done.returncode == 0, done.stderr.decode()
    return done.stdout


def _linked(source: Path, target: Path) -> None:
    """Copy a tree with hard links; programs replace files and never write into them."""
    target.mkdir(parents=True)
    target.chmod(source.stat().st_mode & 0o7777)
    for entry in os.scandir(source):
        if entry.is_dir(follow_symlinks=False):
            _linked(Path(entry.path), target / entry.name)
        else:
            os.link(entry.path, target / entry.name, follow_symlinks=False)
