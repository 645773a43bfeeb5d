# SPDX-License-Identifier: Apache-2.0
"""The engine that `gpuhook install` chooses with --engine auto."""

from __future__ import annotations

from pathlib import Path

import pytest

from gpuhook.errors import GpuhookError
from gpuhook.install import engine_choice
from tests.unit.host_program import running


@pytest.fixture
def node(tmp_path: Path) -> Path:
    made = tmp_path / "host"
    (made / "etc").mkdir(parents=True)
    return made


@pytest.mark.parametrize(
    ("sockets", "directories", "expected"),
    [
        (["run/crio/crio.sock", "run/containerd/containerd.sock"], [], "crio"),
        (["run/docker.sock", "run/containerd/containerd.sock"], [], "docker"),
        (["run/docker.sock", "run/containerd/containerd.sock"], ["var/lib/kubelet"], "containerd"),
        (["run/docker.sock", "run/cri-dockerd.sock"], ["var/lib/kubelet"], "docker"),
        (["run/k3s/containerd/containerd.sock"], [], "containerd"),
        (["run/podman/podman.sock"], [], "podman"),
    ],
)
def test_the_engine_is_the_kubelets(
    node: Path, sockets: list[str], directories: list[str], expected: str
) -> None:
    for name in sockets:
        (node / name).parent.mkdir(parents=True, exist_ok=True)
        (node / name).touch()
    for name in directories:
        (node / name).mkdir(parents=True)
    assert engine_choice.engines(str(node), "auto") == (expected,)
    assert engine_choice.engines(str(node), "none") == ()
    assert engine_choice.engines(str(node), "crio") == ("crio",)


CONTAINERD, CRIO = "/run/lab/containerd/containerd.sock", "unix:///var/run/crio/crio.sock"


@pytest.mark.parametrize(
    ("path", "text", "expected"),
    [
        ("/srv/c.toml", 'version = 2\nstate = "/s"\n', "containerd"),
        ("/srv/c.toml", '[plugins."io.containerd.cri.v1.runtime"]\n', "containerd"),
        ("/srv/c.conf", "[crio.runtime]\n", "crio"),
        ("/srv/c.conf", "[engine]\n", "podman"),
        ("/srv/c.json", " {}", "docker"),
        ("/etc/containerd/config.toml", "", "containerd"),
        ("/etc/containerd/config.toml", None, "containerd"),
        ("/var/lib/rancher/k3s/agent/etc/containerd/config.toml.tmpl", "{{ x }}", "containerd"),
        ("/etc/crio/crio.conf.d/9.conf", "", "crio"),
        ("/etc/docker/daemon.json", "{", "docker"),
        ("/etc/containers/containers.conf", "# nothing", "podman"),
    ],
)
def test_the_engine_is_that_of_the_file(
    node: Path, path: str, text: str | None, expected: str
) -> None:
    """By its content, and else by its name; a socket of another engine changes nothing."""
    if text is not None:
        (node / path[1:]).parent.mkdir(parents=True, exist_ok=True)
        (node / path[1:]).write_text(text, encoding="utf-8")
    assert engine_choice.engines(str(node), "auto", path) == (expected,)
    (node / "run/podman").mkdir(parents=True)
    (node / "run/podman/podman.sock").touch()
    assert engine_choice.engines(str(node), "auto", path) == (expected,)
    assert engine_choice.engines(str(node), "crio", path) == ("crio",)


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("/srv/c.toml", None),
        ("/srv/c.toml", 'version = 2\nroot = "/r"\n'),
        ("/srv/c.toml", "[crio]\n[engine]\n"),
        ("/srv/c.json", "{"),
        ("/srv/crio/containerd/c", ""),
        ("/etc", None),
        ("/etc/x", "\ufeff"),
    ],
)
def test_a_file_that_could_be_of_any_engine(node: Path, path: str, text: str | None) -> None:
    """Then the host decides; it has none here."""
    if text is not None:
        (node / path[1:]).parent.mkdir(parents=True, exist_ok=True)
        (node / path[1:]).write_text(text, encoding="utf-8")
    with pytest.raises(GpuhookError) as caught:
        engine_choice.engines(str(node), "auto", path)
    assert caught.value.code == "GH2106"


@pytest.mark.parametrize(
    ("arguments", "text", "expected"),
    [
        (["--container-runtime-endpoint", f"unix://{CONTAINERD}"], "", "containerd"),
        ([f"--container-runtime-endpoint={CRIO}"], "", "crio"),
        (["--config=/k.yaml"], f"containerRuntimeEndpoint: unix://{CONTAINERD}", "containerd"),
        (["--config", "/k.yaml"], "containerRuntimeEndpoint: /run/cri-dockerd.sock", "docker"),
        (["--config", "/k.yaml"], "containerRuntimeEndpoint: [", "podman"),
        (["--config", "/k.yaml"], "containerRuntimeEndpoint: 5", "podman"),
        (["--config", "/none.yaml"], "", "podman"),
        (["--container-runtime-endpoint=/run/x.sock"], "", "podman"),
        ([], "", "podman"),
    ],
)
def test_the_engine_is_the_one_that_the_kubelet_calls(
    node: Path, arguments: list[str], text: str, expected: str
) -> None:
    """Its socket may be anywhere. Without one that is known, any socket of an engine decides."""
    (node / "k.yaml").write_text(text, encoding="utf-8")
    (node / "run/podman").mkdir(parents=True)
    (node / "run/podman/podman.sock").touch()
    with running(node, "kubelet", arguments):
        assert engine_choice.engines(str(node), "auto") == (expected,)


def test_a_kubelet_of_another_user_decides_nothing(node: Path) -> None:
    (node / "run/podman").mkdir(parents=True)
    (node / "run/podman/podman.sock").touch()
    for directory in [node, *node.parents[:3]]:
        directory.chmod(0o755)
    with running(node, "kubelet", [f"--container-runtime-endpoint={CRIO}"], user=65534):
        assert engine_choice.engines(str(node), "auto") == ("podman",)


def test_no_engine_is_told(node: Path) -> None:
    with pytest.raises(GpuhookError) as caught:
        engine_choice.engines(str(node), "auto")
    assert caught.value.code == "GH2106"
