# SPDX-License-Identifier: Apache-2.0
"""Containers of a real podman with the files that `gpuhook configure podman` writes."""

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


class PodmanTree:
    """The machine's files, with /etc/containers replaced by a directory of the test."""

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
def tree(tmp_path: Path) -> PodmanTree:
    """Return the machine's files with a copy of its /etc/containers."""
    directory = tmp_path / "etc-containers"
    if Path("/etc/containers").is_dir():
        shutil.copytree("/etc/containers", directory, symlinks=True)
    directory.mkdir(exist_ok=True)
    return PodmanTree(directory)


@pytest.fixture
def wanted(apart: Installation, tmp_path: Path) -> EngineOptions:
    """Return options whose programs use the simulated node."""
    runtime = apart.launcher(tmp_path / "gpuhook-runtime")
    command = apart.hooks["hook"]["path"]
    hook = launcher(tmp_path / "gpuhook-prestart", [command], apart.env)
    return EngineOptions("wrapper", "nvidia", str(runtime), str(hook))


def run(tree: PodmanTree, place: Path, *words: str, storage: Path | None = None) -> Result:
    """Call podman with the files of `tree`, and with `storage` or a new one in `place`."""
    # podman binds a storage to its run root.
    storage = storage or place / f"podman-{uuid4().hex[:8]}"
    with TemporaryDirectory(prefix="gpuhook-", dir="/tmp", ignore_cleanup_errors=True) as run_root:
        own = ["--root", str(storage), "--runroot", run_root, "--storage-driver", "vfs"]
        command = ["podman", *own, "--cgroup-manager", "cgroupfs", *words]
        script = f"mount --bind '{tree.directory}' /etc/containers && exec \"$@\""
        Path("/etc/containers").mkdir(exist_ok=True)
        return run_command(["unshare", "--mount", "sh", "-c", script, "sh", *command])


def run_probe(
    tree: PodmanTree,
    place: Path,
    root: Path,
    runtime: str,
    env: list[str],
    installation: Installation,
) -> Result:
    """Run the probe; if podman lost its output, run it again."""
    words = [word for one in env for word in ("--env", one)]
    args = ["/probe", *questions(tries=[installation.number(1)])]
    command = ["run", "--rm", "--network", "none", "--cap-add", "MKNOD", *ULIMITS, *words]
    result = run(tree, place, "--runtime", runtime, *command, "--rootfs", str(root), *args)
    for _ in range(3):
        if result.rc or result.stdout:
            break
        result = run(tree, place, "--runtime", runtime, *command, "--rootfs", str(root), *args)
    return result


def test_configured_runtime_assigns_gpus(
    tree: PodmanTree, wanted: EngineOptions, apart: Installation, tmp_path: Path, root_of: Roots
) -> None:
    """`podman --runtime nvidia` finds the runtime of the drop-in; the other runtimes remain."""
    tree.write(configure_podman.plan(EngineNode(tree), wanted))
    info = run(tree, tmp_path, "--runtime", "nvidia", "info", "--format={{.Host.OCIRuntime.Path}}")
    assert info.stdout.strip() == wanted.program
    runc_info = run(
        tree, tmp_path, "--runtime", "runc", "info", "--format={{.Host.OCIRuntime.Name}}"
    )
    assert runc_info.stdout.strip() == "runc"
    root = root_of("debian")
    result = run_probe(tree, tmp_path, root, "nvidia", asks("0"), apart)
    assert apart.device(0) in result.view.gpus()
    assert result.view.tries[apart.number(1)] == "EPERM"
    wrong = run_probe(tree, tmp_path, root, "nvidia", asks("9"), apart)
    assert "GH1102: NVIDIA_VISIBLE_DEVICES: nvidia.com/gpu=9: no such device" in wrong.stderr


def test_container_of_the_runtime_is_a_dependent_container(
    tree: PodmanTree, wanted: EngineOptions, tmp_path: Path, root_of: Roots
) -> None:
    """Only containers with gpuhook's runtime in podman's database depend on it."""
    tree.write(configure_podman.plan(EngineNode(tree), wanted))
    storage = tmp_path / "kept"
    root = str(root_of("debian"))
    words = ["create", "--name", "mine", "--network", "none", "--rootfs", root, "/probe"]
    created = run(tree, tmp_path, "--runtime", "nvidia", *words, storage=storage)
    assert created.rc == 0, created
    (one,) = [
        each
        for each in dependent_containers.dependent_containers(PodmanTree(tree.directory, storage))
        if each.path.startswith("/var/lib/containers")
    ]
    assert one.id == created.stdout.strip()
    assert (one.engine, one.name, one.is_running) == ("podman", "mine", False)
    assert one.why == "its runtime is nvidia"


def test_configured_default_runtime_applies(
    tree: PodmanTree, wanted: EngineOptions, tmp_path: Path
) -> None:
    tree.write(configure_podman.plan(EngineNode(tree), replace(wanted, is_default=True)))
    info = run(tree, tmp_path, "info", "--format={{.Host.OCIRuntime.Name}}")
    assert info.stdout.strip() == "nvidia"


def test_configured_hook_assigns_gpus(
    tree: PodmanTree, wanted: EngineOptions, apart: Installation, tmp_path: Path, root_of: Roots
) -> None:
    """podman's own runtime calls gpuhook's hook, and podman prints no warning."""
    plan = configure_podman.plan(EngineNode(tree), replace(wanted, route="hook"))
    tree.write(plan)
    assert reading.read(tree).hook_dirs[-1] == "/etc/containers/oci/hooks.d"
    root = root_of("debian")
    result = run_probe(tree, tmp_path, root, "runc", asks("0"), apart)
    assert apart.device(0) in result.view.gpus()
    assert result.view.tries[apart.number(1)] == "EPERM"
    assert "deprecated" not in result.stderr
    none = run_probe(tree, tmp_path, root, "runc", [], apart)
    assert none.view.gpus() == {}


def test_cdi_integration_needs_no_file(tree: PodmanTree) -> None:
    """The installed podman supports CDI: nothing is written."""
    output = subprocess.run(["podman", "--version"], check=True, capture_output=True, text=True)
    version = engine_config.parse_version(output.stdout)
    assert version is not None
    plan = configure_podman.plan(
        EngineNode(tree, version=version),
        EngineOptions("cdi", "nvidia", "/gpuhook-runtime", "/gpuhook-hook"),
    )
    assert plan.changes == ()
    assert plan.expected.has_cdi
