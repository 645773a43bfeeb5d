# SPDX-License-Identifier: Apache-2.0
"""gpuhook reads configurations as containerd and podman do."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from gpuhook.engines.read import containerd_config, engine_config, podman_config, toml_document
from gpuhook.node_facts.sources.node_tree import DirectoryTree
from tests.contract.runtimes import run_command

pytestmark = pytest.mark.contract
CRI = 'plugins."io.containerd.grpc.v1.cri".containerd'
RUNTIME = 'runtime_type = "io.containerd.runc.v2"'

FILES = {
    "no file says anything": {"config.toml": "version = 2\n"},
    "runtimes take the place of runc": {
        "config.toml": f"version = 2\n[{CRI}.runtimes.nvidia]\n{RUNTIME}\n"
        f'[{CRI}.runtimes.nvidia.options]\nBinaryName = "/usr/bin/nvidia-container-runtime"\n'
    },
    "a drop-in takes the place of the plugin": {
        "config.toml": f'version = 2\nimports = ["HERE/conf.d/*.toml"]\n[{CRI}]\n'
        f'default_runtime_name = "a"\n[{CRI}.runtimes.a]\n{RUNTIME}\n',
        "conf.d/99-nvidia.toml": f"version = 2\n[{CRI}.runtimes.nvidia]\n{RUNTIME}\n",
    },
    "the later of two drop-ins wins": {
        "config.toml": 'version = 2\nimports = ["HERE/conf.d/*.toml"]\n',
        "conf.d/10-a.toml": f"version = 2\n[{CRI}.runtimes.a]\n{RUNTIME}\n",
        "conf.d/20-b.toml": f'version = 2\n[{CRI}]\ndefault_runtime_name = "b"\n'
        f"[{CRI}.runtimes.b]\n{RUNTIME}\n",
    },
    "files are read breadth first": {
        "config.toml": 'version = 2\nimports = ["one.toml", "two.toml"]\n',
        "one.toml": f'version = 2\nimports = ["deep/three.toml"]\n[{CRI}.runtimes.a]\n{RUNTIME}\n',
        "two.toml": f"version = 2\n[{CRI}.runtimes.b]\n{RUNTIME}\n",
        "deep/three.toml": f'version = 2\nimports = ["../one.toml"]\n'
        f"[{CRI}.runtimes.c]\n{RUNTIME}\n",
    },
    "a drop-in of version 1 is of the others' version": {
        "config.toml": f'version = 2\nimports = ["one.toml"]\n[{CRI}.runtimes.a]\n{RUNTIME}\n',
        "one.toml": f"[{CRI}.runtimes.b]\n{RUNTIME}\n",
    },
    "a relative pattern is looked up from the working directory": {
        "config.toml": f'version = 2\nimports = ["conf.d/*.toml"]\n[{CRI}.runtimes.a]\n{RUNTIME}\n',
        "conf.d/b.toml": f"version = 2\n[{CRI}.runtimes.b]\n{RUNTIME}\n",
    },
    "the key of a later version is not read": {
        "config.toml": "version = 2\n"
        f'[plugins."io.containerd.cri.v1.runtime".containerd.runtimes.nvidia]\n{RUNTIME}\n'
    },
    "version 1": {
        "config.toml": "[plugins.cri.containerd.runtimes.nvidia]\n"
        'runtime_type = "io.containerd.runtime.v1.linux"\nruntime_engine = "/usr/bin/n"\n'
    },
}
REFUSED = {
    "no TOML": {"config.toml": "version = 2\n[plugins\n"},
    "a version in quotes": {"config.toml": 'version = "2"\n'},
    "imports is a number": {"config.toml": "version = 2\nimports = 5\n"},
    "disabled_plugins has a number": {"config.toml": 'version = 2\ndisabled_plugins = ["a", 5]\n'},
    "an import that is not there": {"config.toml": 'version = 2\nimports = ["HERE/no.toml"]\n'},
    "a question mark is no pattern": {
        "config.toml": 'version = 2\nimports = ["HERE/x?.toml"]\n',
        "x1.toml": "version = 2\n",
    },
    "a plugin's old name": {
        "config.toml": f"version = 2\n[plugins.cri.containerd.runtimes.nvidia]\n{RUNTIME}\n"
    },
}


def _daemon() -> engine_config.Version:
    output = subprocess.run(["containerd", "--version"], check=True, capture_output=True, text=True)
    version = engine_config.parse_version(output.stdout)
    assert version is not None
    return version


def _write(place: Path, files: dict[str, str]) -> str:
    for name, text in files.items():
        path = place / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text.replace("HERE", str(place)), encoding="utf-8")
    return str(place / "config.toml")


def _dump(path: str) -> subprocess.CompletedProcess[str]:
    words = ["containerd", "--config", path, "config", "dump"]
    return subprocess.run(words, check=False, capture_output=True, text=True, timeout=60, cwd="/")


def _engine(document: dict[str, Any]) -> dict[str, Any]:
    engine: dict[str, Any] = document["plugins"]["io.containerd.grpc.v1.cri"]["containerd"]
    return engine


@pytest.mark.parametrize("files", FILES.values(), ids=FILES)
def test_containerd_reads_the_same_runtimes(files: dict[str, str], tmp_path: Path) -> None:
    path = _write(tmp_path, files)
    dumped = _dump(path)
    assert dumped.returncode == 0, dumped.stderr
    document = toml_document.parsed(dumped.stdout.encode())
    read = containerd_config.read(DirectoryTree("/"), path, _daemon())
    assert read.configuration.trouble == ()
    assert set(read.configuration.files) == set(document["imports"])
    if read.version == 1 and files is FILES["version 1"]:
        # For an old file it prints its defaults of version 2, not what applies.
        assert read.configuration.runtimes["nvidia"].path == "/usr/bin/n"
        return
    expected = _engine(document)
    assert read.configuration.default == expected["default_runtime_name"]
    programs = {
        name: one["options"].get("BinaryName", "") for name, one in expected["runtimes"].items()
    }
    assert {name: one.path for name, one in read.configuration.runtimes.items()} == programs


@pytest.mark.parametrize("files", REFUSED.values(), ids=REFUSED)
def test_configuration_that_containerd_refuses_is_an_error(
    files: dict[str, str], tmp_path: Path
) -> None:
    path = _write(tmp_path, files)
    assert _dump(path).returncode != 0
    assert containerd_config.read(DirectoryTree("/"), path, _daemon()).configuration.trouble != ()


PODMAN = {
    "the vendor's file alone": {},
    "drop-ins by name, after the file": {
        "containers.conf": '[engine]\nruntime = "crun"\n',
        "containers.conf.d/20-b.conf": '[engine.runtimes]\nnvidia = ["/usr/sbin/runc"]\n',
        "containers.conf.d/10-a.conf": '[engine]\nruntime = "nvidia"\n',
        "containers.conf.d/30-c.toml": '[engine]\nruntime = "no-such"\n',
    },
    "the later drop-in wins": {
        "containers.conf.d/1.conf": '[engine]\nruntime = "runc"\n',
        "containers.conf.d/2.conf": '[engine]\nruntime = "crun"\n',
    },
}


@pytest.mark.parametrize("files", PODMAN.values(), ids=PODMAN)
def test_podman_reads_the_same_default_runtime(files: dict[str, str], tmp_path: Path) -> None:
    etc = tmp_path / "etc/containers"
    shutil.copytree("/etc/containers", etc)
    _write(etc, files)
    vendor = tmp_path / podman_config.VENDOR.lstrip("/")
    vendor.parent.mkdir(parents=True)
    shutil.copy(podman_config.VENDOR, vendor)
    read = podman_config.read(DirectoryTree(str(tmp_path))).configuration
    script = f"mount --bind {etc} /etc/containers && podman info --format '{{{{json .Host}}}}'"
    words = ["unshare", "--mount", "sh", "-c", script]
    info = subprocess.run(words, check=True, capture_output=True, text=True, timeout=120)
    runtime = json.loads(info.stdout)["ociRuntime"]
    assert runtime["name"] == read.default
    if read.default in read.runtimes:
        assert runtime["path"] in read.runtimes[read.default].options["paths"]


def test_configuration_that_podman_refuses_is_an_error(tmp_path: Path) -> None:
    etc = tmp_path / "etc/containers"
    shutil.copytree("/etc/containers", etc)
    (etc / "containers.conf").write_text("[engine]\nruntime = crun\n")
    script = f"mount --bind {etc} /etc/containers && podman info"
    words = ["unshare", "--mount", "sh", "-c", script]
    info = run_command(words)
    assert info.rc != 0
    errors = podman_config.read(DirectoryTree(str(tmp_path))).configuration.trouble
    assert [str(one.where) for one in errors] == [f"{podman_config.PATH}:2"]
