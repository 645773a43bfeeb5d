# SPDX-License-Identifier: Apache-2.0
"""The directories that uninstall searches for containers, and their sources."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path

import pytest

from gpuhook.engines.configure.host_files import Host
from gpuhook.engines.read import unit_flags
from gpuhook.install import container_directories, version_references
from tests.unit.host_program import running

AT = "/opt/gpuhook"
NAMES_US = '{"hooks": {"poststop": [{"path": "/opt/gpuhook/versions/1.0-a/bin/gpuhook-hook"}]}}'
TASK = "io.containerd.runtime.v2.task/k8s.io/c/runtime"
RUNTIME = "/opt/gpuhook/bin/gpuhook-runtime"
STORAGE = "overlay-containers/c/userdata/config.json"
CRI = 'plugins."io.containerd.grpc.v1.cri".containerd.runtimes.other.options'


@pytest.fixture
def node(tmp_path: Path) -> Path:
    (tmp_path / "host/etc").mkdir(parents=True)
    return tmp_path / "host"


def write(node: Path, path: str, text: str) -> None:
    (node / path[1:]).parent.mkdir(parents=True, exist_ok=True)
    (node / path[1:]).write_text(text, encoding="utf-8")


def directories_of(
    node: Path, configured: Mapping[str, str] | None = None
) -> version_references.VersionReferences:
    where = container_directories.locate(Host(str(node)), configured or {}, AT)
    return version_references.version_references(str(node), AT, where)


@pytest.mark.parametrize(
    ("files", "configured", "path"),
    [
        ({"/etc/containerd/config.toml": 'state = "/s"'}, {}, f"/s/{TASK}"),
        ({"/c.toml": 'imports = ["d.toml"]', "/d.toml": 'state = "/s"'}, {"containerd": "/c.toml"},
         f"/s/{TASK}"),
        ({"/etc/containerd/config.toml": f'version = 2\n[{CRI}]\nRoot = "/r"'}, {},
         "/r/k8s.io/c/state.json"),
        ({"/lib/systemd/system/containerd.service": "ExecStart=/bin/containerd --state /s"}, {},
         f"/s/{TASK}"),
        ({"/lib/systemd/system/containerd.service": "ExecStart=/bin/containerd --state /s",
          "/etc/containerd/config.toml": f'version = 2\n[{CRI}]\nSystemdCgroup = true'}, {},
         f"/s/{TASK}"),
        ({"/lib/systemd/system/containerd.service":
          "ExecStart=/bin/containerd --config /c.toml", "/c.toml": 'state = "/s"'}, {},
         f"/s/{TASK}"),
        ({"/etc/docker/daemon.json": '{"exec-root": "/d"}'}, {}, f"/d/containerd/daemon/{TASK}"),
        ({"/etc/docker/daemon.json": '{"exec-root": "/d"}'}, {},
         "/d/runtime-runc/moby/c/state.json"),
        ({"/j.json": '{"exec-root": "/d"}'}, {"docker": "/j.json"}, f"/d/containerd/daemon/{TASK}"),
        ({"/lib/systemd/system/docker.service": "ExecStart=/bin/dockerd --exec-root=/d"}, {},
         f"/d/containerd/daemon/{TASK}"),
        ({"/etc/crio/crio.conf": '[crio]\nrunroot = "/r"'}, {}, f"/r/{STORAGE}"),
        ({"/etc/crio/crio.conf.d/1.conf": '[crio.runtime.runtimes.x]\nruntime_root = "/r"'}, {},
         "/r/c/state.json"),
        ({"/etc/containers/storage.conf": '[storage]\nrunroot = "/r"'}, {}, f"/r/{STORAGE}"),
        ({"/etc/containers/storage.conf": '[storage]\ngraphroot = "/g"'}, {}, f"/g/{STORAGE}"),
        ({"/run/gpuhook/containers/c.json": '{"root": "/r"}'}, {}, "/r/c/state.json"),
    ],
)  # fmt: skip
def test_directory_of_each_engine_is_found(
    node: Path, files: dict[str, str], configured: dict[str, str], path: str
) -> None:
    for name, text in files.items():
        write(node, name, text)
    write(node, path, RUNTIME if path.endswith("/runtime") else NAMES_US)
    assert directories_of(node, configured) == version_references.VersionReferences(
        frozenset() if path.endswith("/runtime") else frozenset({"1.0-a"}),
        path.endswith("/runtime"),
    )


@pytest.mark.parametrize(
    ("files", "configured", "reason"),
    [
        ({"/etc/containerd/config.toml": 'state = "/s"'}, "containerd", "/s (/etc/containerd/"),
        ({"/etc/containerd/config.toml": "state = "}, "containerd", "is not TOML"),
        ({"/etc/containerd/config.toml": 'imports = ["/x"]'}, "containerd", "imports /x, which"),
        ({"/etc/docker/daemon.json": '{"exec-root": "/d"}'}, "docker", "/d (/etc/docker/"),
        ({"/etc/docker/daemon.json": "{"}, "docker", "is not JSON"),
        ({"/etc/crio/crio.conf": "[crio"}, "crio", "is not TOML"),
        ({"/etc/crio/crio.conf/a": ""}, "crio", "/etc/crio/crio.conf"),
        ({"/lib/systemd/system/docker.service/a": ""}, "docker", "/docker.service"),
    ],
)  # fmt: skip
def test_configured_engine_without_a_known_directory(
    node: Path, files: dict[str, str], configured: str, reason: str
) -> None:
    """Its containers are invisible. An engine that is not configured calls no gpuhook."""
    for name, text in files.items():
        write(node, name, text)
    (unknown,) = directories_of(node, {configured: ""}).unknown
    assert unknown.startswith(f"the state directory of {configured} is not known: ")
    assert reason in unknown
    assert directories_of(node, {}).is_whole


def test_missing_recorded_file(node: Path) -> None:
    (unknown,) = directories_of(node, {"containerd": "/gone.toml"}).unknown
    assert "/gone.toml does not exist" in unknown


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"schema": "other"}', "[" * 100000])
def test_broken_list(node: Path, text: str) -> None:
    write(node, f"{AT}/{container_directories.LIST}", text)
    (unknown,) = directories_of(node).unknown
    assert f"{AT}/{container_directories.LIST} cannot be read" in unknown


@pytest.mark.parametrize("one", [{"path": "s", "files": []}, {"path": "/s"}, 5, {"files": ["a"]}])
def test_list_with_a_wrong_entry(node: Path, one: object) -> None:
    document = {
        "schema": container_directories.SCHEMA,
        "engines": {},
        "made": [],
        "directories": [one],
    }
    write(node, f"{AT}/{container_directories.LIST}", json.dumps(document))
    assert not directories_of(node).is_whole


def test_engine_in_the_list_is_like_a_configured_one(node: Path) -> None:
    """Its state directory is unknown also after its configuration is undone."""
    host = Host(str(node))
    (node / AT[1:]).mkdir(parents=True)
    container_directories.save(
        host, AT, container_directories.locate(host, {"containerd": "/none.toml"}, AT)
    )
    assert "/none.toml does not exist" in directories_of(node).unknown[0]


def test_list_replaces_an_undone_configuration(node: Path) -> None:
    """A directory of the list need not exist: /run is empty after a reboot."""
    write(node, "/c.toml", 'state = "/s"')
    write(node, f"/s/{TASK}", RUNTIME)
    (node / AT[1:]).mkdir(parents=True)
    host = Host(str(node))
    container_directories.save(
        host, AT, container_directories.locate(host, {"containerd": "/c.toml"}, AT)
    )
    write(node, "/c.toml", "")
    assert directories_of(node).has_programs
    shutil.rmtree(node / "s")
    assert directories_of(node) == version_references.VersionReferences()
    container_directories.forget(host, AT)
    assert not os.listdir(node / AT[1:])


@pytest.mark.parametrize("is_running", [False, True])
def test_file_that_gpuhook_made_and_undo_removed(node: Path, *, is_running: bool) -> None:
    """A containerd whose --config does not exist has the defaults: the list has its directory."""
    write(node, "/c.toml", 'state = "/s"')
    write(node, f"/s/{TASK}", RUNTIME)
    for directory in (AT, "/run/containerd"):
        (node / directory[1:]).mkdir(parents=True)
    host, made = Host(str(node)), frozenset({"/c.toml"})
    where = container_directories.locate(host, {"containerd": "/c.toml"}, AT, made)
    for _ in range(2):
        container_directories.save(host, AT, where)
        host.remove("/c.toml")
        with ExitStack() as stack:
            if is_running:
                stack.enter_context(running(node, "containerd", ["--config", "/c.toml"]))
            assert directories_of(node) == version_references.VersionReferences(has_programs=True)
            where = container_directories.locate(host, {}, AT)
    shutil.rmtree(node / "s")
    assert directories_of(node) == version_references.VersionReferences()


@pytest.mark.parametrize(
    ("program", "arguments", "path"),
    [
        ("containerd", ["--config", "/c.toml"], f"/s/{TASK}"),
        ("containerd", ["-c", "../c.toml"], f"/s/{TASK}"),
        ("containerd", ["--state=/t"], f"/t/{TASK}"),
        ("containerd-shim-runc-v2", ["-id", "c"], f"/w/{TASK}"),
        ("dockerd", ["--exec-root", "/d"], f"/d/containerd/daemon/{TASK}"),
        ("crio", ["--runroot", "/r"], f"/r/{STORAGE}"),
        ("conmon", ["-r", RUNTIME], ""),
    ],
)
def test_process_names_the_directory(
    node: Path, program: str, arguments: list[str], path: str
) -> None:
    write(node, "/c.toml", 'state = "/s"')
    if path:
        write(node, path, RUNTIME)
    directory = f"/w/{os.path.dirname(TASK)}" if "shim" in program else "/w"
    with running(node, program, arguments, directory):
        assert directories_of(node) == version_references.VersionReferences(has_programs=True)


@pytest.mark.parametrize(
    ("program", "arguments", "reason"),
    [
        ("containerd", [], "/run/containerd"),
        ("containerd", ["--config", "/none.toml"], "/none.toml does not exist"),
        ("dockerd", ["--exec-root", "/d"], "/d (--exec-root)"),
    ],
)
def test_running_engine_with_an_invisible_directory(
    node: Path, program: str, arguments: list[str], reason: str
) -> None:
    """For example in another mount namespace. The engine may be unconfigured now."""
    with running(node, program, arguments):
        assert any(reason in unknown for unknown in directories_of(node).unknown)


@pytest.mark.parametrize(
    ("program", "arguments", "text"),
    [
        ("containerd", ["--config", "/c"], 'state = "/a\\u0000b"'),
        ("dockerd", ["--config-file", "/c"], '{"exec-root": "/a\\ud800"}'),
        ("crio", ["--config", "/c"], '[crio.runtime.runtimes.x]\nruntime_root = "/\\u0000"'),
    ],
)
def test_invalid_directory_is_reported(
    node: Path, program: str, arguments: list[str], text: str
) -> None:
    write(node, "/c", text)
    with running(node, program, arguments):
        assert any("is not a path" in unknown for unknown in directories_of(node).unknown)


def test_ledger_entry_with_an_invalid_root(node: Path) -> None:
    write(node, "/run/gpuhook/containers/c.json", '{"root": "/a\\u0000"}')
    assert directories_of(node).is_whole


def test_engine_of_another_user_is_ignored(node: Path) -> None:
    """A user cannot prevent the removal, or make root read any tree for an import."""
    write(node, "/c.toml", 'imports = ["/*/*"]\nstate = "/none"')
    for directory in [node, *node.parents[:3]]:
        directory.chmod(0o755)
    with running(node, "containerd", ["--config", "/c.toml"], user=65534):
        assert directories_of(node).is_whole


def test_configuration_of_a_running_engine_is_ignored(node: Path) -> None:
    """The command line of the process is what the engine uses."""
    write(node, "/etc/containerd/config.toml", 'state = "/s"')
    (node / "t").mkdir()
    with running(node, "containerd", ["--state", "/t"]):
        assert directories_of(node, {"containerd": ""}).is_whole


def test_configuration_applies_if_another_containerd_runs(node: Path) -> None:
    """Docker starts its own containerd."""
    write(node, "/c.toml", 'state = "/s"')
    (node / "t").mkdir()
    with running(node, "containerd", ["--config", "/d.toml", "--state", "/t"]):
        write(node, "/d.toml", "")
        (unknown,) = directories_of(node, {"containerd": "/c.toml"}).unknown
    assert "/s (/c.toml)" in unknown


def test_unreadable_ledger(node: Path) -> None:
    (node / "run").symlink_to("run")
    assert any("/run/gpuhook/containers" in unknown for unknown in directories_of(node).unknown)


@pytest.mark.parametrize("words", [[], ["--state"], ["--state", "--root"], ["-"], ["--="]])
def test_flags_without_values(words: list[str]) -> None:
    assert not any(unit_flags.command_options(words).values())
