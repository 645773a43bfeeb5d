# SPDX-License-Identifier: Apache-2.0
"""One runtime with two names: the handlers `nvidia` and `amd` of each engine, and back."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from gpuhook.cli import main
from gpuhook.engines.configure import configure_engine, configure_record
from gpuhook.engines.configure.configure_engine import Where
from gpuhook.engines.configure.host_files import Host
from gpuhook.engines.configure.host_programs import HostPrograms
from gpuhook.engines.read import containerd_config, crio_config, docker_config, podman_config
from gpuhook.engines.read.engine_config import Runtime
from gpuhook.errors import GpuhookError
from gpuhook.install import runtime_names
from tests.simulated import amd_tree
from tests.unit.configuring import RUNTIME, Tree, configured, undone, wanted
from tests.unit.engines.configure import test_configuring_crio as crio
from tests.unit.engines.configure import test_configuring_docker as docker
from tests.unit.engines.configure import test_configuring_podman as podman

BOTH = {"further_names": ("amd",)}
CONTAINERD = containerd_config.PATH
OF_VERSION_2 = b"""version = 2
[plugins."io.containerd.grpc.v1.cri".containerd]
  default_runtime_name = "runc"
  [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
    runtime_type = "io.containerd.runc.v2"
    [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
      SystemdCgroup = true
"""
K3S = "/var/lib/rancher/k3s/agent/etc/containerd/config.toml"
CASES: dict[str, tuple[str, dict[str, bytes], dict[str, Any]]] = {
    **{
        f"docker-{name}": ("docker", docker.files(before), {"version": docker.RECENT, **more})
        for name, (before, _, more) in docker.CASES.items()
        if more.get("route", "wrapper") == "wrapper"
    },
    **{
        f"{engine}-{name}": (engine, module.files(before), more)
        for engine, module in (("crio", crio), ("podman", podman))
        for name, (before, _, more) in module.CASES.items()
        if more.get("route", "wrapper") == "wrapper" and (engine == "crio" or "route" in more)
    },
    "containerd-no file": ("containerd", {}, {"version": (1, 7, 0)}),
    "containerd-version 2": ("containerd", {CONTAINERD: OF_VERSION_2}, {"version": (1, 7, 0)}),
    "containerd-hook": (
        "containerd",
        {CONTAINERD: OF_VERSION_2},
        {"version": (1, 7, 0), "route": "hook", "base_spec": b'{"process": {}, "hooks": {}}'},
    ),
    "containerd-default": (
        "containerd",
        {CONTAINERD: OF_VERSION_2},
        {"version": (1, 7, 0), "is_default": True},
    ),
    "containerd-drop-in": (
        "containerd",
        {CONTAINERD: b'version = 3\nimports = ["/etc/containerd/conf.d/*.toml"]\n'},
        {"version": (2, 1, 0)},
    ),
}


def runtimes(engine: str, files: dict[str, bytes], more: dict[str, Any]) -> dict[str, Runtime]:
    """Return the runtimes of an engine by its files."""
    tree = Tree(files)
    if engine == "docker":
        return dict(docker_config.read(tree, docker_config.PATH).configuration.runtimes)
    if engine == "crio":
        return dict(crio_config.read(tree).configuration.runtimes)
    if engine == "podman":
        return dict(podman_config.read(tree, more.get("home")).configuration.runtimes)
    read = containerd_config.read(tree, CONTAINERD, more["version"])
    return dict(read.configuration.runtimes)


@pytest.mark.parametrize(("engine", "before", "more"), CASES.values(), ids=CASES)
def test_both_names(engine: str, before: dict[str, bytes], more: dict[str, Any]) -> None:
    """Both names are the same runtime; a second run changes nothing, and undo removes both."""
    name = more.get("name", "nvidia")
    after = configured(engine, before, **more, **BOTH)
    found = runtimes(engine, after, more)
    own = [found[one] for one in (name, "amd")]
    assert own[0].path == own[1].path
    if more.get("route", "wrapper") == "wrapper":
        assert own[0].path == RUNTIME
    assert own[0].options.get("SystemdCgroup") == own[1].options.get("SystemdCgroup")
    one_name = configured(engine, before, **more)
    assert runtimes(engine, one_name, more).keys() | {"amd"} == found.keys()
    assert undone(engine, before, **more, **BOTH) == undone(engine, before, **more)


def test_k3s_template() -> None:
    """The template has both handlers, each unless k3s has that name itself."""
    after = configured("containerd", {K3S: OF_VERSION_2}, config=K3S, version=(1, 7, 0), **BOTH)
    text = after[f"{K3S}.tmpl"].decode()
    for name in ("nvidia", "amd"):
        assert f'{{{{ if eq $name "{name}" }}}}' in text
        assert f"containerd.runtimes.{name}.options]" in text
    assert text.count(f'BinaryName = "{RUNTIME}"') == 2


def test_file_of_amds_tool() -> None:
    """AMD's runtime is kept without --take-over; `features` and all other keys are kept always."""
    content = {
        "features": {"cdi": True, "buildkit": False},
        "runtimes": {"amd": {"path": "amd-container-runtime", "args": []}},
        "node-generic-resources": ["AMD_GPU=0x1"],
    }
    files = {docker_config.PATH: json.dumps(content).encode()}
    with pytest.raises(GpuhookError, match="amd") as caught:
        configured("docker", files, version=docker.RECENT, **BOTH)
    assert caught.value.code == "GH2000"
    taken = configured("docker", files, version=docker.RECENT, takes_over=True, **BOTH)
    after = json.loads(taken[docker_config.PATH])
    assert after.pop("runtimes") == {"amd": {"path": RUNTIME}, "nvidia": {"path": RUNTIME}}
    assert after == {key: value for key, value in content.items() if key != "runtimes"}


def test_names_that_no_engine_takes() -> None:
    """Each name is checked, not only the first one."""
    for engine, name in (("docker", "runc"), ("crio", "a/b"), ("podman", "a/b")):
        with pytest.raises(GpuhookError) as caught:
            configured(engine, {}, further_names=(name,), version=(9, 9, 9))
        assert caught.value.code == "GH2041"


def test_record_keeps_the_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A second run with the same names has nothing to do; undo restores the file."""
    monkeypatch.setattr(HostPrograms, "version", lambda *_: docker.RECENT)
    monkeypatch.setattr(HostPrograms, "run", lambda *_: None)
    path = tmp_path / docker_config.PATH[1:]
    path.parent.mkdir(parents=True)
    path.write_bytes(b'{"debug": true}\n')
    (tmp_path / "var/lib").mkdir(parents=True)
    host, where, options = Host(str(tmp_path)), Where("docker"), wanted(**BOTH)
    assert configure_engine.configure(host, where, options).writes
    store = configure_record.RecordStore(host, configure_record.directory("docker", None))
    record = store.load()
    assert record is not None
    assert record.wanted == options
    assert not configure_engine.configure(host, where, options).writes
    fewer = configure_engine.configure(host, where, wanted())
    assert b"amd" not in (fewer.writes[0].after or b"amd")
    configure_engine.undo(host, where)
    assert path.read_bytes() == b'{"debug": true}\n'


@pytest.mark.parametrize(
    ("profile", "words", "names"),
    [
        ("", [], {"nvidia"}),
        ("radeon", [], {"amd"}),
        ("radeon", ["--runtime-name", "nvidia", "--runtime-name", "amd"], {"nvidia", "amd"}),
    ],
)
def test_names_of_a_call(tmp_path: Path, profile: str, words: list[str], names: set[str]) -> None:
    """Without --runtime-name: the name for the first vendor with GPUs on the host."""
    if profile:
        amd_tree.build(tmp_path, profile)
    for program in ("gpuhook-runtime", "gpuhook-prestart"):
        path = tmp_path / "usr/bin" / program
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch(0o755)
    call = ["configure", "docker", "--host-root", str(tmp_path), *words]
    done = CliRunner().invoke(main, call, prog_name="gpuhook")
    assert done.exit_code == 0, done.stderr
    written = json.loads((tmp_path / docker_config.PATH[1:]).read_bytes())
    assert set(written["runtimes"]) == names


def test_names_of_two_vendors(tmp_path: Path) -> None:
    """A node of two vendors has both names for setup, and the first one for configure."""
    amd_tree.build(tmp_path, "radeon")
    assert runtime_names.names_of_gpus(str(tmp_path)) == ("amd",)
    (tmp_path / "sys/module/nvidia").mkdir(parents=True)
    (tmp_path / "sys/module/nvidia/version").write_text("580.95.05\n")
    (tmp_path / "proc/driver/nvidia/gpus/0000:01:00.0").mkdir(parents=True)
    assert runtime_names.names_of_gpus(str(tmp_path)) == ("nvidia", "amd")
    assert runtime_names.default_name(str(tmp_path)) == "nvidia"
