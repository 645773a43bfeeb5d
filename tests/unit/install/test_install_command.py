# SPDX-License-Identifier: Apache-2.0
"""`gpuhook install` and `gpuhook uninstall` on a host with Docker, with a small tree."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click.testing
import jsonschema
import pytest

import gpuhook
from gpuhook.cli import main
from gpuhook.host import installed_roots
from gpuhook.install import installation, runtime_tree, tree_copy
from tests.waiting import eventually

SCHEMA = json.loads((Path(gpuhook.__file__).parent / "schemas/install.json").read_text("utf-8"))
DAEMON_JSON = '{\n    "log-level": "info"\n}\n'


@pytest.fixture(autouse=True)
def untried(monkeypatch: pytest.MonkeyPatch) -> None:
    """Skip the test run of the installed programs: this tree has none, unlike the contract
    tests.
    """
    monkeypatch.setattr(installation, "_require_running", lambda where, version: None)


@pytest.fixture
def host(tmp_path: Path) -> Path:
    made = tmp_path / "host"
    (made / "etc/docker").mkdir(parents=True)
    (made / "etc/docker/daemon.json").write_text(DAEMON_JSON, encoding="utf-8")
    return made


@pytest.fixture
def small(tmp_path: Path) -> Path:
    """Yield a tree whose programs do nothing."""
    made = tmp_path / "tree"
    (made / "launchers/bin").mkdir(parents=True)
    for name in ("gpuhook-runtime", "gpuhook-hook", "gpuhook-prestart"):
        (made / "launchers/bin" / name).write_text("#!/bin/sh\n", encoding="utf-8")
    described = {"schema": runtime_tree.SCHEMA, "version": "1.0", "digest": "a" * 64}
    (made / "tree.json").write_text(json.dumps(described), encoding="utf-8")
    return made


def called(command: str, host: Path, *words: str) -> dict[str, Any]:
    """Call the command and return the document that it prints."""
    words = (command, "--host-root", str(host), *words, "-o", "json")
    done = click.testing.CliRunner().invoke(main, words)
    assert done.exit_code == 0, done.output
    document: dict[str, Any] = json.loads(done.stdout)
    jsonschema.validate(document, SCHEMA)
    return document


def refused(host: Path, *words: str) -> str:
    done = click.testing.CliRunner().invoke(main, ("install", "--host-root", str(host), *words))
    assert done.exit_code != 0
    return done.output


def test_install_and_uninstall(host: Path, small: Path) -> None:
    """The engine's runtime is the path of all versions; uninstall restores every byte."""
    words = ("--tree", str(small), "--engine", "docker")
    assert called("install", host, *words, "--dry-run")["engines"][0]["files"]
    assert not (host / "opt").exists()
    document = called("install", host, *words)
    assert document["changed"]
    assert document["version"] == "1.0-aaaaaaaaaaaa"
    config = json.loads((host / "etc/docker/daemon.json").read_text(encoding="utf-8"))
    assert config["runtimes"]["nvidia"]["path"] == "/opt/gpuhook/bin/gpuhook-runtime"
    assert config["log-level"] == "info"
    assert not called("install", host, *words)["changed"]
    assert called("uninstall", host, "--dry-run")["changed"]
    assert (host / "opt/gpuhook/bin").is_symlink()
    assert called("uninstall", host)["changed"]
    assert (host / "etc/docker/daemon.json").read_text(encoding="utf-8") == DAEMON_JSON
    assert not called("uninstall", host)["changed"]
    assert not (host / "opt/gpuhook").exists()


def test_uninstall_removes_what_a_killed_undo_left(host: Path, small: Path) -> None:
    """A kill after the record is removed leaves its directories."""
    called("install", host, "--tree", str(small), "--engine", "docker")
    called("uninstall", host)
    (host / "var/lib/gpuhook/configured/docker").mkdir(parents=True)
    called("uninstall", host, "--dry-run")
    assert (host / "var/lib/gpuhook/configured/docker").is_dir()
    called("uninstall", host)
    assert not (host / "var/lib/gpuhook").exists()


def test_other_directory(host: Path, small: Path) -> None:
    place = "/home/kubernetes/bin/gpuhook"
    words = ("--install-dir", place)
    called("install", host, *words, "--tree", str(small), "--engine", "docker")
    text = (host / "etc/docker/daemon.json").read_text(encoding="utf-8")
    assert f"{place}/bin/gpuhook-runtime" in text
    called("uninstall", host, *words)
    assert not (host / place[1:]).exists()


def test_configuration_of_a_package_is_not_undone(host: Path, small: Path) -> None:
    """Only an engine that was configured for the removed programs is undone."""
    called("install", host, "--tree", str(small), "--engine", "none")
    (host / "usr/bin").mkdir(parents=True, exist_ok=True)
    (host / "usr/bin/gpuhook-runtime").touch(mode=0o755)
    words = ["configure", "docker", "--host-root", str(host), "--runtime-path"]
    done = click.testing.CliRunner().invoke(main, [*words, "/usr/bin/gpuhook-runtime"])
    assert done.exit_code == 0, done.output
    before = (host / "etc/docker/daemon.json").read_text(encoding="utf-8")
    assert called("uninstall", host)["engines"] == []
    assert (host / "etc/docker/daemon.json").read_text(encoding="utf-8") == before != DAEMON_JSON


def test_integration_cdi_copies_no_tree(host: Path) -> None:
    """The engine applies specs by itself."""
    document = called("install", host, "--route", "cdi", "--engine", "docker")
    assert document["version"] == ""
    assert not (host / "opt").exists()
    assert "cdi" in (host / "etc/docker/daemon.json").read_text(encoding="utf-8")


def driver_file(host: Path) -> Path:
    """Return the file from which the installed programs read the driver root."""
    return host / "opt/gpuhook/current/lib/gpuhook" / installed_roots.FILE


def test_driver_root_of_the_host(host: Path, small: Path) -> None:
    """Each installation writes the file, also without a root: it has no other owner."""
    words = ("--tree", str(small), "--engine", "none")
    (small / "lib/gpuhook").mkdir(parents=True)
    both = ("--driver-root", "/run/nvidia/../driver", "--dev-root", "/")
    done = called("install", host, *words, *both)
    assert done["changed"]
    assert [note.split(":")[0] for note in done["notes"]] == ["--driver-root"]
    (host / "run/driver").mkdir(parents=True)
    assert called("install", host, *words, *both)["notes"] == []
    found = json.loads(driver_file(host).read_text(encoding="utf-8"))
    assert found == {"root": "/run/driver", "devRoot": "/"}
    assert not called("install", host, *words, *both)["changed"]
    other = ("--driver-root", "/srv/driver")
    assert called("install", host, *words, *other, "--dry-run")["changed"]
    assert json.loads(driver_file(host).read_text(encoding="utf-8")) == found
    assert called("install", host, *words, *other)["changed"]
    assert json.loads(driver_file(host).read_text(encoding="utf-8")) == {"root": "/srv/driver"}
    assert called("install", host, *words)["changed"]
    assert not driver_file(host).exists()
    called("install", host, *words, *other)
    called("uninstall", host)
    assert not (host / "opt/gpuhook").exists()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--driver-root", "driver"), "absolute path"),
        (("--dev-root", ""), "absolute path"),
        (("--driver-root", "/a", "--route", "cdi"), "copies no programs"),
        (("--dev-root", "/a", "--route", "cdi"), "copies no programs"),
    ],
)
def test_invalid_driver_roots_are_refused(
    words: tuple[str, ...], said: str, host: Path, small: Path
) -> None:
    assert said in refused(host, "--tree", str(small), "--engine", "docker", *words)
    assert not (host / "opt").exists()


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ('{"root": "/a", "devRoot": "/b"}', ("/a", "/b")),
        ('{"root": "a", "devRoot": 3}', ("", "")),
        ("[1]", ("", "")),
        ("{", ("", "")),
        ("\udcff", ("", "")),
    ],
)
def test_unreadable_driver_root_file_names_no_root(
    text: str, found: tuple[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / installed_roots.FILE
    file.write_bytes(text.encode("utf-8", "surrogateescape"))
    monkeypatch.setattr(installed_roots, "installed_file", lambda: str(file))
    assert installed_roots.installed_roots() == found


def test_host_without_an_engine(host: Path, small: Path) -> None:
    assert called("install", host, "--tree", str(small), "--engine", "none")["engines"] == []
    assert (host / "etc/docker/daemon.json").read_text(encoding="utf-8") == DAEMON_JSON


def test_refused_installations(host: Path, small: Path, tmp_path: Path) -> None:
    assert "GH2106" in refused(host, "--tree", str(small))
    said = refused(host, "--tree", str(tmp_path), "--engine", "docker")
    assert "GH2101" in said
    assert "it has no tree.json" in said
    assert "GH2101" in refused(
        host, "--engine", "docker"
    )  # this checkout is not an installable tree
    assert "needs --stay" in refused(host, "--undo-on-exit")
    assert not (host / "opt").exists()


@contextmanager
def staying_pod(host: Path, small: Path, *options: str) -> Iterator[subprocess.Popen[bytes]]:
    """Yield the process of a pod that configured Docker and waits."""
    words = ["install", "--host-root", str(host), "--tree", str(small), "--engine", "docker"]
    code = (
        "from gpuhook.install import installation; "
        "installation._require_running = lambda where, version: None; "
        "from gpuhook.cli import main; main()"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", code, *words, "--stay", *options],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={**os.environ, "PYTHONUNBUFFERED": "1"},
    )
    config = host / "etc/docker/daemon.json"
    try:
        eventually(lambda: process.poll() or config.read_text(encoding="utf-8") != DAEMON_JSON)
        yield process
    finally:
        process.kill()
        process.communicate()


@pytest.mark.parametrize(("options", "is_undone"), [((), False), (("--undo-on-exit",), True)])
def test_staying_pod_ends_at_sigterm(
    host: Path, small: Path, options: tuple[str, ...], is_undone: bool
) -> None:
    """It exits with 0, and with --undo-on-exit undoes the installation."""
    with staying_pod(host, small, *options) as process:
        process.send_signal(signal.SIGTERM)  # at any step: the installation is finished first
        process.send_signal(signal.SIGTERM)  # a second signal does not interrupt it
        _, said = process.communicate(timeout=60)
    assert process.returncode == 0, said
    config = host / "etc/docker/daemon.json"
    assert (config.read_text(encoding="utf-8") == DAEMON_JSON) is is_undone
    assert (host / "opt/gpuhook").exists() is not is_undone


def test_replaced_pod_removes_nothing(host: Path, small: Path) -> None:
    """In a rolling update the next pod may have installed its version before this one ends."""
    with staying_pod(host, small, "--undo-on-exit") as process:
        version = host / "opt/gpuhook/versions/2.0-bbbbbbbbbbbb"
        shutil.copytree(small, version)
        (host / "opt/gpuhook/current").unlink()
        (host / "opt/gpuhook/current").symlink_to(f"versions/{version.name}")
        process.send_signal(signal.SIGTERM)
        _, said = process.communicate(timeout=60)
    assert process.returncode == 0, said
    assert b"another version is in use" in said
    assert version.is_dir()
    assert "gpuhook-runtime" in (host / "etc/docker/daemon.json").read_text(encoding="utf-8")


def test_staying_pod_reaps_orphans() -> None:
    code = (
        "import os; from gpuhook.install import pod_wait; pod_wait.block_signals(); "
        "os.fork() or os._exit(0); print('up', flush=True); pod_wait.wait()"
    )
    command = [sys.executable, "-c", code]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "up\n"
        children = Path(f"/proc/{process.pid}/task/{process.pid}/children")
        eventually(lambda: not children.read_text(encoding="ascii"))
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0


def test_uninstall_defaults_to_this_host(host: Path, small: Path) -> None:
    """On the node there is no other host. The variable has the effect of the option."""
    called("install", host, "--tree", str(small), "--engine", "docker")
    runner = click.testing.CliRunner()
    done = runner.invoke(main, ["uninstall", "--install-dir", "/opt/none", "--dry-run"])
    assert done.exit_code == 0, done.output
    assert done.stdout == "nothing to do: gpuhook is not installed in /opt/none\n"
    done = runner.invoke(main, ["uninstall"], env={"GPUHOOK_HOST_ROOT": str(host)})
    assert done.exit_code == 0, done.output
    assert (host / "etc/docker/daemon.json").read_text(encoding="utf-8") == DAEMON_JSON
    assert not (host / "opt/gpuhook").exists()


def test_install_has_a_variable_and_no_default_for_the_host(host: Path, small: Path) -> None:
    """In a container the root directory is not the host's."""
    runner = click.testing.CliRunner()
    words = ["install", "--tree", str(small), "--engine", "docker"]
    assert "Missing option '--host-root'" in runner.invoke(main, words).output
    done = runner.invoke(main, words, env={"GPUHOOK_HOST_ROOT": str(host)})
    assert done.exit_code == 0, done.output
    assert (host / "opt/gpuhook").exists()


def test_control_characters_of_a_reason_are_escaped(host: Path, small: Path) -> None:
    """A path of a configuration or of a command line is printed on a terminal."""
    called("install", host, "--tree", str(small), "--engine", "docker")
    (host / "etc/docker/daemon.json").write_text('{"exec-root": "/\\u001b]0;x"}', encoding="utf-8")
    words = ["uninstall", "--host-root", str(host), "--dry-run"]
    done = click.testing.CliRunner().invoke(main, words)
    assert "every version is kept" in done.stderr
    assert "\x1b" not in done.output


def test_fault_after_the_removal_has_its_text(
    host: Path, small: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Texts are loaded on demand, and the program may be in the removed tree."""
    called("install", host, "--tree", str(small), "--engine", "docker")
    loaded: list[bool] = []
    monkeypatch.delitem(sys.modules, "gpuhook.errors.messages", raising=False)
    remove = tree_copy.remove

    def removed(place: str, kept: frozenset[str]) -> list[str]:
        loaded.append("gpuhook.errors.messages" in sys.modules)
        return remove(place, kept)

    monkeypatch.setattr(tree_copy, "remove", removed)
    called("uninstall", host)
    assert loaded == [True]


def test_kept_tree_is_not_reported_as_removed(host: Path, small: Path) -> None:
    """The reason is printed with the next step."""
    called("install", host, "--tree", str(small), "--engine", "docker")
    config = host / "etc/docker/daemon.json"
    document = json.loads(config.read_text(encoding="utf-8"))
    config.write_text(json.dumps({**document, "exec-root": "/none"}), encoding="utf-8")
    words = ["uninstall", "--host-root", str(host)]
    done = click.testing.CliRunner().invoke(main, words)
    assert done.exit_code == 0, done.output
    assert "1.0-aaaaaaaaaaaa: kept: a container may need it\n" in done.stdout
    assert "/opt/gpuhook: 1.0-aaaaaaaaaaaa: removed" not in done.stdout
    assert "/none (/etc/docker/daemon.json): No such file or directory\n" in done.stderr
    assert (
        "run `gpuhook node uninstall` again when the cause is fixed, or with --force" in done.stderr
    )
    assert called("uninstall", host)["kept"] == [
        "1.0-aaaaaaaaaaaa"
    ]  # also after its configuration is undone
    assert (host / "opt/gpuhook/bin/gpuhook-runtime").exists()
    (host / "none").mkdir()
    assert called("uninstall", host)["kept"] == []
