# SPDX-License-Identifier: Apache-2.0
"""A real podman on what `gpuhook configure podman` writes: its containers have their GPU."""

from __future__ import annotations

import os
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from uuid import uuid4

import pytest

from gpuhook.engines.configure.drop_in import configure_podman
from gpuhook.engines.configure.engine_plan import EngineNode, EngineOptions, EnginePlan
from gpuhook.engines.read import engine_config
from gpuhook.engines.read import podman_config as reading
from gpuhook.engines.state import dependent_containers
from tests.contract.engines import ULIMITS
from tests.contract.installation import Installation, asks
from tests.contract.roots import Roots
from tests.contract.runtimes import Result, launcher, run_command
from tests.contract.views import questions


class Tree:
    """The files of a machine whose /etc/containers is a directory of the test's."""

    def __init__(self, directory: Path, storage: Path | None = None) -> None:
        self.directory = directory
        self.instead = {"/etc/containers": directory}
        if storage is not None:
            self.instead["/var/lib/containers/storage"] = storage

    def _place(self, path: str) -> Path:
        for begin, place in self.instead.items():
            if path.startswith(begin):
                return Path(path.replace(begin, str(place), 1))
        return Path(path)

    def read(self, path: str) -> bytes | None:
        place = self._place(path)
        return place.read_bytes() if place.exists() else None

    def names(self, path: str) -> list[str]:
        place = self._place(path)
        return sorted(os.listdir(place)) if place.is_dir() else []

    def write(self, plan: EnginePlan) -> None:
        for change in plan.changes:
            place = self._place(change.path)
            place.parent.mkdir(parents=True, exist_ok=True)
            assert change.after is not None
            place.write_bytes(change.after)


@pytest.fixture
def tree(tmp_path: Path) -> Tree:
    """Return a machine's files with a copy of its /etc/containers."""
    directory = tmp_path / "etc-containers"
    if Path("/etc/containers").is_dir():
        shutil.copytree("/etc/containers", directory, symlinks=True)
    directory.mkdir(exist_ok=True)
    return Tree(directory)


@pytest.fixture
def wanted(apart: Installation, tmp_path: Path) -> EngineOptions:
    """Return options whose programs know the simulated node."""
    runtime = apart.launcher(tmp_path / "gpuhook-runtime")
    command = apart.hooks["hook"]["path"]
    hook = launcher(tmp_path / "gpuhook-prestart", [command], apart.env)
    return EngineOptions("wrapper", "nvidia", str(runtime), str(hook))


def run(tree: Tree, place: Path, *words: str, storage: Path | None = None) -> Result:
    """Call podman with the files of `tree`, and with `storage` or a new one in `place`."""
    storage = storage or place / f"podman-{uuid4().hex[:8]}"  # it is bound to its run root
    with TemporaryDirectory(prefix="gpuhook-", dir="/tmp", ignore_cleanup_errors=True) as run_root:
        own = ["--root", str(storage), "--runroot", run_root, "--storage-driver", "vfs"]
        command = ["podman", *own, "--cgroup-manager", "cgroupfs", *words]
        script = f"mount --bind '{tree.directory}' /etc/containers && exec \"$@\""
        Path("/etc/containers").mkdir(exist_ok=True)
        return run_command(["unshare", "--mount", "sh", "-c", script, "sh", *command])


def container(
    tree: Tree, place: Path, root: Path, runtime: str, env: list[str], installation: Installation
) -> Result:
    """Run the probe; one that went well and said nothing runs again, for podman lost its words."""
    words = [word for one in env for word in ("--env", one)]
    asked = ["/probe", *questions(tries=[installation.number(1)])]
    command = ["run", "--rm", "--network", "none", "--cap-add", "MKNOD", *ULIMITS, *words]
    result = run(tree, place, "--runtime", runtime, *command, "--rootfs", str(root), *asked)
    for _ in range(3):
        if result.rc or result.stdout:
            break
        result = run(tree, place, "--runtime", runtime, *command, "--rootfs", str(root), *asked)
    return result


def test_the_runtime(
    tree: Tree, wanted: EngineOptions, apart: Installation, tmp_path: Path, root_of: Roots
) -> None:
    """`podman --runtime nvidia` finds the drop-in's runtime; the other runtimes remain."""
    tree.write(configure_podman.plan(EngineNode(tree), wanted))
    told = run(tree, tmp_path, "--runtime", "nvidia", "info", "--format={{.Host.OCIRuntime.Path}}")
    assert told.stdout.strip() == wanted.program
    mine = run(tree, tmp_path, "--runtime", "runc", "info", "--format={{.Host.OCIRuntime.Name}}")
    assert mine.stdout.strip() == "runc"
    root = root_of("debian")
    result = container(tree, tmp_path, root, "nvidia", asks("0"), apart)
    assert apart.device(0) in result.view.gpus()
    assert result.view.tries[apart.number(1)] == "EPERM"
    wrong = container(tree, tmp_path, root, "nvidia", asks("9"), apart)
    assert "GH1102: NVIDIA_VISIBLE_DEVICES: nvidia.com/gpu=9: no such device" in wrong.stderr


def test_a_container_that_is_kept(
    tree: Tree, wanted: EngineOptions, tmp_path: Path, root_of: Roots
) -> None:
    """A container with gpuhook's runtime is found in podman's database, another is not."""
    tree.write(configure_podman.plan(EngineNode(tree), wanted))
    storage = tmp_path / "kept"
    root = str(root_of("debian"))
    words = ["create", "--name", "mine", "--network", "none", "--rootfs", root, "/probe"]
    made = run(tree, tmp_path, "--runtime", "nvidia", *words, storage=storage)
    assert made.rc == 0, made
    (one,) = [
        each
        for each in dependent_containers.dependent_containers(Tree(tree.directory, storage))
        if each.path.startswith("/var/lib/containers")
    ]
    assert one.id == made.stdout.strip()
    assert (one.engine, one.name, one.is_running) == ("podman", "mine", False)
    assert one.why == "its runtime is nvidia"


def test_the_default_runtime(tree: Tree, wanted: EngineOptions, tmp_path: Path) -> None:
    tree.write(configure_podman.plan(EngineNode(tree), replace(wanted, is_default=True)))
    told = run(tree, tmp_path, "info", "--format={{.Host.OCIRuntime.Name}}")
    assert told.stdout.strip() == "nvidia"


def test_the_hook(
    tree: Tree, wanted: EngineOptions, apart: Installation, tmp_path: Path, root_of: Roots
) -> None:
    """podman's own runtime calls gpuhook's hook, and podman prints no warning."""
    plan = configure_podman.plan(EngineNode(tree), replace(wanted, route="hook"))
    tree.write(plan)
    assert reading.read(tree).hook_dirs[-1] == "/etc/containers/oci/hooks.d"
    root = root_of("debian")
    result = container(tree, tmp_path, root, "runc", asks("0"), apart)
    assert apart.device(0) in result.view.gpus()
    assert result.view.tries[apart.number(1)] == "EPERM"
    assert "deprecated" not in result.stderr
    none = container(tree, tmp_path, root, "runc", [], apart)
    assert none.view.gpus() == {}


def test_the_version_that_is_here_has_cdi(tree: Tree) -> None:
    """With the route CDI nothing is written for it."""
    said = subprocess.run(["podman", "--version"], check=True, capture_output=True, text=True)
    version = engine_config.parse_version(said.stdout)
    assert version is not None
    plan = configure_podman.plan(
        EngineNode(tree, version=version),
        EngineOptions("cdi", "nvidia", "/gpuhook-runtime", "/gpuhook-hook"),
    )
    assert plan.changes == ()
    assert plan.expected.has_cdi
