# SPDX-License-Identifier: Apache-2.0
"""The engine that `gpuhook install --engine auto` selects."""

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
def test_engine_of_the_kubelet(
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
def test_engine_of_the_chosen_file(node: Path, path: str, text: str | None, expected: str) -> None:
    """By its content, then by its name; the socket of another engine changes nothing."""
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
def test_ambiguous_file_is_a_fault(node: Path, path: str, text: str | None) -> None:
    """The host would decide; it has no engine here."""
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
def test_engine_of_the_socket_that_the_kubelet_calls(
    node: Path, arguments: list[str], text: str, expected: str
) -> None:
    """It may be anywhere. Without a known one, any socket of an engine decides."""
    (node / "k.yaml").write_text(text, encoding="utf-8")
    (node / "run/podman").mkdir(parents=True)
    (node / "run/podman/podman.sock").touch()
    with running(node, "kubelet", arguments):
        assert engine_choice.engines(str(node), "auto") == (expected,)


def test_kubelet_of_another_user_is_ignored(node: Path) -> None:
    (node / "run/podman").mkdir(parents=True)
    (node / "run/podman/podman.sock").touch()
    for directory in [node, *node.parents[:3]]:
        directory.chmod(0o755)
    with running(node, "kubelet", [f"--container-runtime-endpoint={CRIO}"], user=65534):
        assert engine_choice.engines(str(node), "auto") == ("podman",)


def test_missing_engine_is_a_fault(node: Path) -> None:
    with pytest.raises(GpuhookError) as caught:
        engine_choice.engines(str(node), "auto")
    assert caught.value.code == "GH2106"
