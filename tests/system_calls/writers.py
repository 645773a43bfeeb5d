# SPDX-License-Identifier: Apache-2.0
"""The programs that write files, each with the places that it writes to."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tests.contract import roots
from tests.contract.bundles import bundle
from tests.contract.installation import Installation, asks
from tests.contract.runtimes import Result
from tests.system_calls import call_points, file_tree
from tests.system_calls.call_points import Point
from tests.system_calls.file_tree import Tree


@dataclass(frozen=True)
class Writer:
    """A command that writes below `places`; `saved` is a copy of them from before its first run."""

    command: Sequence[object]
    places: tuple[Path, ...]
    env: dict[str, str]
    saved: Path
    stdin: str = ""
    prepare: Callable[[], None] = field(default=lambda: None)

    def save(self) -> None:
        """Copy the places: reset() restores them."""
        for number, place in enumerate(self.places):
            subprocess.run(["cp", "-a", place, self.saved / str(number)], check=True)

    def reset(self) -> None:
        """Restore the places."""
        for number, place in enumerate(self.places):
            shutil.rmtree(place)
            subprocess.run(["cp", "-a", self.saved / str(number), place], check=True)
        self.prepare()

    def run(self) -> Result:
        """Run the command."""
        done = subprocess.run(
            [str(word) for word in self.command],
            env=self.env, input=self.stdin, capture_output=True, text=True, check=False,
        )  # fmt: skip
        return Result(done.returncode, done.stdout, done.stderr)

    def tree(self) -> Tree:
        """Return the files of the places."""
        return file_tree.read_tree(self.places)

    def whole_run(self) -> Tree:
        """Return the files after a run from the saved state."""
        self.reset()
        done = self.run()
        assert done.rc == 0, done
        return self.tree()

    def changes(self, place: Path) -> list[Point]:
        """Return the system calls of a run from the saved state that change a file."""
        self.reset()
        words = list(map(str, self.command))
        found = call_points.points(words, self.env, place, self.stdin)
        return [one for one in found if one.is_change]

    def killed(self, point: Point) -> bool:
        """Run the command from the saved state, killed at a point; return whether it was."""
        self.reset()
        done = call_points.run_with(
            call_points.KILL, point, list(map(str, self.command)), self.env, self.stdin
        )
        assert done.rc in (0, 1, -signal.SIGKILL, 128 + signal.SIGKILL), done
        return done.rc != 0


Maker = Callable[[Installation, Path], Writer]


def made(apart: Installation, place: Path, words: Sequence[object], *places: Path) -> Writer:
    """Return a writer that is a `gpuhook` command."""
    saved = place / "saved"
    saved.mkdir()
    env = {**os.environ, **apart.env, "HOME": str(place)}
    return Writer([apart.bindir / "gpuhook", *words], places, env, saved)


def _generate(*more: str) -> Maker:
    def make(apart: Installation, place: Path) -> Writer:
        words = ["generate-cdi", *apart.node.options, "--output-file", apart.spec, *more]
        apart.spec.write_text("cdiVersion: 0.5.0\nkind: nvidia.com/gpu\ndevices: []\n", "utf-8")
        return made(apart, place, words, apart.specs, apart.state)

    return make


def refresh(apart: Installation, place: Path) -> Writer:
    """Return `gpuhook refresh` of a stale spec."""
    return made(apart, place, ["refresh", "--force"], apart.specs, apart.state)


def import_settings(apart: Installation, place: Path) -> Writer:
    """Return `gpuhook config import`."""
    directory = place / "settings"
    directory.mkdir()
    (directory / "config.yaml").write_text("{}\n", "utf-8")
    toml = place / "config.toml"
    toml.write_text("[nvidia-container-cli]\nldconfig = '@/sbin/ldconfig'\n", "utf-8")
    words = ["config", "import", toml, "--output-file", directory / "config.yaml"]
    return made(apart, place, words, directory)


def labels(apart: Installation, place: Path) -> Writer:
    """Return `gpuhook labels`, which writes the file that NFD reads."""
    directory = place / "features.d"
    directory.mkdir()
    (directory / "gfd").write_text("nvidia.com/gpu.count=7\n", "utf-8")
    words = ["labels", "--oneshot", "--no-timestamp", "true", *apart.node.options]
    return made(apart, place, [*words, "--output-file", directory / "gfd"], directory)


def support_bundle(apart: Installation, place: Path) -> Writer:
    """Return `gpuhook support-bundle`."""
    directory = place / "out"
    directory.mkdir()
    (directory / "bundle.tar.gz").write_bytes(b"old")
    words = ["support-bundle", "--no-logs", "--output-file", directory / "bundle.tar.gz"]
    return made(apart, place, [*words, *apart.node.options], directory)


def map_page(apart: Installation, place: Path) -> Writer:
    """Return `gpuhook map` into a file."""
    directory = place / "out"
    directory.mkdir()
    words = ["map", "--no-nvml", "--svg", directory / "map.svg"]
    return made(apart, place, words, directory)


def create(apart: Installation, place: Path) -> Writer:
    """Return a create of gpuhook-runtime: config.json, the root, the caches, the ledger."""
    root = roots.copy("debian", place / "container")
    oci = bundle(place / "bundle", root, ["/probe"], asks("0"))
    saved = place / "saved"
    saved.mkdir()
    env = {**os.environ, **apart.on("/bin/true")}
    command = [apart.runtime, "--root", place / "runc", "create", "--bundle", oci.path, "x"]
    return Writer(command, (oci.path, root, apart.state), env, saved)


def hook(apart: Installation, place: Path) -> Writer:
    """Return the createContainer hook of a CDI spec, in a mount namespace with a root."""
    root = roots.copy("debian", place / "container")
    oci = bundle(place / "bundle", root, ["/probe"], [])
    saved = place / "saved"
    saved.mkdir()
    words = json.loads(json.dumps(_hook_words(apart)))
    state = {"ociVersion": "1.0.2", "id": "x", "pid": os.getpid(), "bundle": str(oci.path)}
    env = {**os.environ, **apart.env}
    steps = 'mount --bind "$0" "$0" && cd "$0" && exec "$@"'
    command = ["unshare", "--mount", "sh", "-c", steps, root, *words]
    return Writer(command, (root, apart.state), env, saved, json.dumps(state))


def _hook_words(apart: Installation) -> list[str]:
    import yaml

    document = yaml.safe_load(apart.spec.read_text("utf-8"))
    (one,) = document["containerEdits"]["hooks"]
    return [one["path"], *one["args"][1:]]


def _configure(engine: str, *more: str, is_undo: bool = False) -> Maker:
    def make(apart: Installation, place: Path) -> Writer:
        root = place / "host"
        for name, text in _ENGINE_FILES[engine].items():
            path = root / name
            path.parent.mkdir(parents=True)
            path.write_text(text, "utf-8")
        (root / "var/lib").mkdir(parents=True, exist_ok=True)
        option = "--hook-path" if engine == "podman" else "--runtime-path"
        program = root / "usr/bin/gpuhook"
        program.parent.mkdir(parents=True)
        program.write_text("#!/bin/sh\n", "utf-8")
        program.chmod(0o755)
        words = ["configure", engine, "--host-root", root, "--restart", "none"]
        words += [option, "/usr/bin/gpuhook", *more]
        writer = made(apart, place, words, root)
        if is_undo:
            done = writer.run()
            assert done.rc == 0, done
            words = ["configure", "undo", engine, "--host-root", root, "--restart", "none"]
            writer = Writer([apart.bindir / "gpuhook", *words], (root,), writer.env, writer.saved)
        return writer

    return make


_ENGINE_FILES = {
    "containerd": {"etc/containerd/config.toml": "version = 2\nroot = '/x'\n"},
    "crio": {"etc/crio/crio.conf": "[crio.runtime]\ndefault_runtime = 'runc'\n"},
    "docker": {"etc/docker/daemon.json": '{"log-level": "warn"}\n'},
    "podman": {"etc/containers/containers.conf": "[engine]\nruntime = 'crun'\n"},
}

WRITERS: dict[str, Maker] = {
    "generate-cdi": _generate(),
    "refresh": refresh,
    "config import": import_settings,
    "labels": labels,
    "support-bundle": support_bundle,
    "map": map_page,
    "create": create,
    "hook": hook,
    **{f"configure {engine}": _configure(engine) for engine in _ENGINE_FILES},
    **{f"undo {engine}": _configure(engine, is_undo=True) for engine in _ENGINE_FILES},
}
