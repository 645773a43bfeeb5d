# SPDX-License-Identifier: Apache-2.0
"""The README's steps for a node with NVIDIA's toolkit, and the one command that undoes each step.

Step 3, the device plugin with NVIDIA's runtime, is in test_device_plugin.py and tests/charts.
"""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from gpuhook.cli import main
from gpuhook.engines.toml import toml_text
from tests.simulated.node import SimulatedNode, make_node

PROGRAMS = ("gpuhook-runtime", "gpuhook-prestart", "nvidia-container-runtime")
NVIDIA = "/usr/bin/nvidia-container-runtime"
OURS = "/usr/bin/gpuhook-runtime"
CONTAINERD = "/etc/containerd/config.toml"
DAEMON = "/etc/docker/daemon.json"
# What nvidia-ctk 1.17 writes on a kubeadm node.
CONTAINERD_1 = """# managed by us
version = 2
root = "/data/containerd"   # the large disk

[plugins]
  [plugins."io.containerd.grpc.v1.cri"]
    sandbox_image = "registry.k8s.io/pause:3.9"
    [plugins."io.containerd.grpc.v1.cri".containerd]
      default_runtime_name = "nvidia"
      [plugins."io.containerd.grpc.v1.cri".containerd.runtimes]
        [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
          runtime_type = "io.containerd.runc.v2"
          [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
            SystemdCgroup = true

        [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.nvidia]
          privileged_without_host_devices = false
          runtime_engine = ""
          runtime_root = ""
          runtime_type = "io.containerd.runc.v2"
          [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.nvidia.options]
            BinaryName = "/usr/bin/nvidia-container-runtime"
            SystemdCgroup = true
"""
# nvidia-ctk 1.18 writes a drop-in file.
CONTAINERD_2 = """version = 3

[plugins]

  [plugins."io.containerd.cri.v1.runtime"]

    [plugins."io.containerd.cri.v1.runtime".containerd]

      [plugins."io.containerd.cri.v1.runtime".containerd.runtimes]

        [plugins."io.containerd.cri.v1.runtime".containerd.runtimes.nvidia]
          runtime_type = "io.containerd.runc.v2"

          [plugins."io.containerd.cri.v1.runtime".containerd.runtimes.nvidia.options]
            BinaryName = "/usr/bin/nvidia-container-runtime"
"""
DOCKER = """{
    "default-runtime": "nvidia",
    "log-driver": "journald",
    "runtimes": {
        "nvidia": {
            "args": [],
            "path": "/usr/bin/nvidia-container-runtime"
        }
    }
}"""
CRIO = """[crio]

  [crio.runtime]
    default_runtime = "crun"

    [crio.runtime.runtimes]

      [crio.runtime.runtimes.nvidia]
        runtime_path = "/usr/bin/nvidia-container-runtime"
        runtime_type = "oci"
"""
PODMAN = '[engine.runtimes]\nnvidia = ["/usr/bin/nvidia-container-runtime"]\n'
CONFIGURED = {
    "containerd 1": ("containerd", {CONTAINERD: CONTAINERD_1}),
    "containerd 2": (
        "containerd",
        {
            CONTAINERD: 'version = 3\nimports = ["/etc/containerd/conf.d/*.toml"]\n',
            "/etc/containerd/conf.d/99-nvidia.toml": CONTAINERD_2,
        },
    ),
    "docker": ("docker", {DAEMON: DOCKER}),
    "crio": ("crio", {"/etc/crio/crio.conf.d/99-nvidia.conf": CRIO}),
    "podman": ("podman", {"/etc/containers/containers.conf": PODMAN}),
}


def listing(root: Path) -> dict[str, tuple[int, bytes | None]]:
    """Return all files below a directory: their modes and contents."""
    return {
        str(path.relative_to(root)): (
            path.lstat().st_mode,
            path.read_bytes() if path.is_file() else None,
        )
        for path in root.rglob("*")
    }


@dataclass(frozen=True)
class Host:
    """A host whose engine NVIDIA's toolkit has configured."""

    root: Path
    engine: str

    def call(self, *words: str) -> Result:
        """Run `gpuhook configure`."""
        return CliRunner().invoke(main, ("configure", *words, "--host-root", str(self.root)))

    def succeed(self, *words: str) -> str:
        """Run `gpuhook configure`, which must succeed, and return its output."""
        result = self.call(*words)
        assert result.exit_code == 0, result.output
        return result.stdout

    def configure(self, *words: str) -> None:
        """Register gpuhook-runtime with the engine."""
        route = ("--route", "wrapper") if self.engine == "podman" else ()
        self.succeed(self.engine, *route, *words)

    @property
    def runtimes(self) -> dict[str, str]:
        """Return the programs of NVIDIA's and gpuhook's runtimes, by the runtime's name."""
        (shown,) = json.loads(self.succeed("show", self.engine, "-o", "json"))["engines"]
        programs = {one["name"]: one["program"] for one in shown["runtimes"]}
        return {name: one for name, one in programs.items() if one in (NVIDIA, OURS)}

    def path(self, path: str) -> Path:
        """Return the test's path of a file on the host."""
        return self.root / path[1:]


@pytest.fixture(params=CONFIGURED)
def host(request: pytest.FixtureRequest, tmp_path: Path) -> Host:
    engine, files = CONFIGURED[request.param]
    for name in PROGRAMS:
        path = tmp_path / "usr/bin" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch(mode=0o755)
    for name, text in files.items():
        path = tmp_path / name[1:]
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        path.chmod(0o640)
    (tmp_path / "var/lib").mkdir(parents=True)
    return Host(tmp_path, engine)


def test_nvidia_runtime_is_replaced_on_request_only(host: Host) -> None:
    before = listing(host.root)
    route = ("--route", "wrapper") if host.engine == "podman" else ()
    refused = host.call(host.engine, *route)
    assert refused.exit_code == 1
    assert "GH2000" in refused.stderr
    assert listing(host.root) == before


def test_undo_after_runtime_name_and_take_over(host: Host) -> None:
    """Steps 4 and 5: after each of them, undo restores every byte."""
    before = listing(host.root)
    host.configure("--runtime-name", "gpuhook")
    assert host.runtimes == {"nvidia": NVIDIA, "gpuhook": OURS}
    host.succeed("undo", host.engine)
    assert listing(host.root) == before
    host.configure("--runtime-name", "gpuhook")
    host.configure("--take-over")
    assert host.runtimes == {"nvidia": OURS}
    host.configure("--runtime-name", "gpuhook")
    assert host.runtimes == {"nvidia": NVIDIA, "gpuhook": OURS}
    host.configure("--take-over", "--set-as-default")
    host.succeed("undo", host.engine)
    assert listing(host.root) == before
    host.succeed("undo", host.engine)
    assert listing(host.root) == before


@pytest.mark.parametrize("options", [("--take-over",), ("--take-over", "--set-as-default")])
@pytest.mark.parametrize("has_marks", [True, False])
def test_undo_restores_nvidia_runtime_in_an_edited_file(
    host: Host, options: tuple[str, ...], *, has_marks: bool
) -> None:
    """Undo restores NVIDIA's runtime and keeps edits that were made since.

    Tools that write a TOML file again lose its comments, and with them the marks of gpuhook.
    """
    runtimes_before = host.runtimes, _default(host)
    before = listing(host.root)
    host.configure(*options)
    for name, (_, content) in before.items():
        if not (content and name.startswith("etc/")):
            continue
        path = host.root / name
        text = path.read_bytes()
        if not has_marks:
            text = toml_text.without_marks(text)
        edited = text.replace(b"{\n", b'{\n    "debug": true,\n', 1)
        path.write_bytes(edited if edited != text else text + b"# edited\n")
    host.succeed("undo", host.engine)
    assert (host.runtimes, _default(host)) == runtimes_before
    for name, (_, content) in before.items():
        if content and name.startswith("etc/"):
            text = (host.root / name).read_bytes()
            assert b"edited" in text or b"debug" in text
            assert b"gpuhook" not in text
    host.succeed("undo", host.engine)


def _default(host: Host) -> str:
    (shown,) = json.loads(host.succeed("show", host.engine, "-o", "json"))["engines"]
    return str(shown["default"])


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> SimulatedNode:
    return make_node(tmp_path_factory.mktemp("node"), "t4")


def test_read_only_commands_change_nothing(
    node: SimulatedNode, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Step 1: no command creates a file, not even the state directory."""
    _use_node(node, tmp_path, monkeypatch)
    before = listing(Path(node.host_root)), listing(tmp_path)
    for words in (
        ("doctor", "--root", node.host_root),
        ("explain", "--env", "NVIDIA_VISIBLE_DEVICES=0"),
        ("compare", "--all"),
        ("ps",),
        ("map",),
    ):
        ran = CliRunner().invoke(main, words)
        assert ran.exit_code in (0, 1), (words, ran.output)
        assert ran.exception is None or isinstance(ran.exception, SystemExit), words
        assert (listing(Path(node.host_root)), listing(tmp_path)) == before, words


def test_cdi_spec_is_undone_by_its_removal(
    node: SimulatedNode, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Step 2: generate-cdi writes one spec for engines that read CDI, and state below /run."""
    _use_node(node, tmp_path, monkeypatch)
    spec = tmp_path / "cdi/nvidia.yaml"
    words = ["generate-cdi", *node.options, "--hook-path", "/usr/bin/gpuhook-hook"]
    ran = CliRunner().invoke(main, [*words, "--output-file", str(spec)])
    assert ran.exit_code == 0, ran.output
    assert sorted(os.listdir(tmp_path)) == ["cdi", "state"]
    assert os.listdir(spec.parent) == ["nvidia.yaml"]
    listed = CliRunner().invoke(main, ["cdi", "list", "--spec-dir", str(spec.parent), "-o", "name"])
    assert "nvidia.com/gpu=0" in listed.stdout.split()
    spec.unlink()
    listed = CliRunner().invoke(main, ["cdi", "list", "--spec-dir", str(spec.parent), "-o", "name"])
    assert listed.stdout == ""


def _use_node(node: SimulatedNode, place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GPUHOOK_HOST_ROOT", node.host_root)
    monkeypatch.setenv("GPUHOOK_STATE_DIR", str(place / "state"))
    monkeypatch.setenv("GPUHOOK_CONFIG", str(place / "config.yaml"))
