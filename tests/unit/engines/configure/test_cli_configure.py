# SPDX-License-Identifier: Apache-2.0
"""`gpuhook configure`: its output, the spellings of its options, and its faults."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from click.testing import CliRunner, Result

import gpuhook
from gpuhook.cli import main
from gpuhook.engines.configure import configure_engine, engine_plan
from gpuhook.engines.state import host_processes
from gpuhook.host.hot import state
from tests.unit import configured_docker
from tests.unit.configured_docker import MAIN

SCHEMAS = Path(gpuhook.__file__).parent / "schemas"


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a host with gpuhook's programs and a daemon.json."""
    monkeypatch.setattr(configure_engine, "module_of", lambda _: configured_docker)
    for path in ("usr/bin/gpuhook-runtime", "usr/bin/gpuhook-prestart"):
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).touch(mode=0o755)
    (tmp_path / "etc/docker").mkdir(parents=True)
    (tmp_path / MAIN[1:]).write_text('{"runtimes": {}}\n')
    return tmp_path


def _run(root: Path, *words: str) -> Result:
    return CliRunner().invoke(
        main, ("configure", *words, "--host-root", str(root)), prog_name="gpuhook"
    )


def _document(root: Path, *words: str) -> dict[str, Any]:
    result = _run(root, *words, "-o", "json")
    assert result.exit_code == 0, result.output
    document: dict[str, Any] = json.loads(result.stdout)
    schema = json.loads((SCHEMAS / f"{document['schema'].split('/')[1]}.json").read_text())
    jsonschema.validate(document, schema)
    return document


def _runtimes(root: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((root / MAIN[1:]).read_text())["runtimes"]
    return found


def test_configure_and_undo(root: Path) -> None:
    result = _run(root, "docker")
    assert result.exit_code == 0, result.output
    assert f"changed {MAIN}" in result.stderr
    assert "use --restart" in result.stderr
    assert _runtimes(root) == {"nvidia": {"path": "/usr/bin/gpuhook-runtime"}}
    assert "already configured" in _run(root, "docker").stderr
    assert _run(root, "undo", "docker").exit_code == 0
    assert (root / MAIN[1:]).read_text() == '{"runtimes": {}}\n'
    again = _run(root, "undo", "docker")
    assert again.exit_code == 0
    assert "nothing to undo" in again.stderr


def test_nodeadm_configuration_can_be_copied(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A note of several lines keeps its line breaks."""
    monkeypatch.setattr(configure_engine, "module_of", engine_plan.engine)
    for path in ("usr/bin/nodeadm", "etc/containerd/config.toml"):
        (root / path).parent.mkdir(exist_ok=True)
        (root / path).write_text("version = 2\n")
    result = _run(root, "containerd", "--dry-run")
    assert "\napiVersion: node.eks.aws/v1alpha1\nkind: NodeConfig\n" in result.stderr


def test_dry_run_prints_only_a_diff_on_standard_output(root: Path) -> None:
    result = _run(root, "docker", "--dry-run")
    assert result.stdout.startswith(f"--- a{MAIN}\n+++ b{MAIN}\n@@ ")
    assert f"would change {MAIN} (dry run)" in result.stderr
    assert not (root / "var").exists()


def test_documents_fit_their_schemas(root: Path) -> None:
    dry = _document(root, "docker", "--dry-run")
    real = _document(root, "docker")
    assert dry["changes"] == real["changes"]
    assert [one["action"] for one in real["changes"]] == ["change", "write"]
    shown = _document(root, "show")["engines"][0]
    assert shown["configured"]["files"][0] == {"path": MAIN, "state": "as written"}
    assert _document(root, "undo", "docker")["wasConfigured"]
    assert not _document(root, "undo", "docker")["wasConfigured"]
    assert _document(root, "show")["engines"][0]["configured"] is None


def test_undo_lists_containers_that_need_gpuhook(root: Path) -> None:
    _run(root, "docker")
    place = root / "var/lib/docker/containers/0123"
    place.mkdir(parents=True)
    (place / "hostconfig.json").write_text('{"Runtime": "nvidia"}')
    (place / "config.v2.json").write_text('{"Name": "/trainer", "State": {"Running": true}}')
    assert (
        "restart: trainer (gpuhook configure users docker)"
        in _run(root, "undo", "docker", "--dry-run").stderr
    )
    assert _document(root, "undo", "docker")["users"] == ["0123"]


def test_users_report_configured_engines(root: Path) -> None:
    hint = "docker is configured for gpuhook: run gpuhook configure undo docker"
    assert hint not in _run(root, "users").stderr
    _run(root, "docker")
    assert hint in _run(root, "users").stderr
    assert hint not in _run(root, "users", "podman").stderr
    assert _document(root, "users")["configuredEngines"] == ["docker"]
    _run(root, "undo", "docker")
    assert _document(root, "users")["configuredEngines"] == []


def test_show_reports_later_edits(root: Path) -> None:
    _run(root, "docker", "--set-as-default")
    row = _run(root, "show", "docker", "--no-headers").stdout.split()
    assert row[:4] == ["docker", "nvidia", "/usr/bin/gpuhook-runtime", "yes"]
    assert "by gpuhook" in " ".join(row)
    file = root / MAIN[1:]
    file.write_text(file.read_text().replace("}", "} ", 1))
    assert f"{MAIN} is edited since" in _run(root, "show").stderr


def test_show_reports_a_runtime_of_another_program(root: Path) -> None:
    program = {"path": "nvidia-container-runtime"}
    (root / MAIN[1:]).write_text(json.dumps({"runtimes": {"nvidia": program}}))
    assert "by others" in _run(root, "show", "docker").stdout


def test_options_with_the_toolkits_names(root: Path) -> None:
    (root / "opt").mkdir()
    (root / "opt/own").touch(mode=0o755)
    result = _run(
        root,
        "docker",
        "--nvidia-runtime-name=gpus",
        "--nvidia-runtime-path",
        "/opt/own",
        "--nvidia-set-as-default",
        "--cdi.enabled",
    )
    assert result.exit_code == 0, result.output
    assert _runtimes(root) == {"gpus": {"path": "/opt/own"}}
    assert json.loads((root / MAIN[1:]).read_text())["default-runtime"] == "gpus"


def test_cdi_cannot_be_disabled(root: Path) -> None:
    assert "has no effect" in _run(root, "docker", "--enable-cdi=false").stderr


@pytest.mark.parametrize(
    ("route", "words", "idle"),
    [
        ("wrapper", ("--hook-path", "/usr/bin/gpuhook-prestart"), "--hook-path"),
        ("hook", ("--runtime-path", "/usr/bin/gpuhook-runtime"), "--runtime-path"),
        ("cdi", ("--runtime-name", "other"), "--runtime-name"),
        ("cdi", ("--take-over",), "--take-over"),
        ("hook", ("--take-over",), ""),
        ("wrapper", ("--runtime-name", "other"), ""),
        ("hook", ("--hook-path", "/usr/bin/gpuhook-prestart"), ""),
    ],
)
def test_option_without_effect_has_a_warning(
    root: Path, route: str, words: tuple[str, ...], idle: str
) -> None:
    said = _run(root, "docker", "--dry-run", "--route", route, *words).stderr
    assert said.count("has no effect") == bool(idle)
    assert f"{idle} has no effect" in said or not idle


def test_missing_program_is_a_fault(root: Path) -> None:
    (root / "usr/bin/gpuhook-runtime").unlink()
    result = _run(root, "docker")
    assert result.exit_code == 1
    assert "GH2010" in result.stderr
    assert "--runtime-path" in result.stderr


@pytest.mark.parametrize("is_dry", [False, True])
@pytest.mark.parametrize(
    ("path", "said"),
    [
        ("/opt/later", "does not exist"),
        ("/usr/bin/gpuhook-runtime/", "does not exist"),
        ("/usr/bin", "is not a regular file"),
        (MAIN, "is not executable"),
    ],
)
@pytest.mark.parametrize(
    "words", [("--runtime-path",), ("--route", "hook", "--hook-path")], ids=["runtime", "hook"]
)
def test_unusable_program_is_refused(
    root: Path, words: tuple[str, ...], path: str, said: str, is_dry: bool
) -> None:
    result = _run(root, "docker", *words, path, *(["--dry-run"] if is_dry else []))
    assert result.exit_code == 1
    assert "GH2011" in result.stderr
    assert f"{path} {said}" in result.stderr
    assert not (root / "var").exists()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("docker", "--runtime-name", "a/b"), "not a valid runtime name"),
        (("docker", "--runtime-name", "-x"), "not a valid runtime name"),
        (("docker", "--runtime-name", "\xe9"), "not a valid runtime name"),
        (("docker", "--runtime-path", "relative"), "not an absolute path"),
        (("docker", "--config", "relative"), "not an absolute path"),
        (("docker", "--restart=kill"), "is not one of"),
        (("undo",), "ENGINE"),
        (("undo", "lxc"), "is not one of"),
    ],
)
def test_invalid_arguments_are_usage_errors(root: Path, words: tuple[str, ...], said: str) -> None:
    result = _run(root, *words)
    assert result.exit_code == 2
    assert said in result.stderr


def test_restart_needs_no_value(root: Path) -> None:
    result = _run(root, "docker", "--restart")
    assert result.exit_code == 0, result.output
    assert "is not running" in result.stderr
    result = _run(root, "undo", "--restart", "docker")
    assert result.exit_code == 0, result.output


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the home directory of a user without root."""
    monkeypatch.setattr(state, "is_rootless", lambda: True)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("XDG_STATE_HOME", raising=False)
    return tmp_path


def _of_user(*words: str) -> Result:
    if words[0] == "docker":
        words = (*words, "--runtime-path", "/bin/true")
    return CliRunner().invoke(main, ("configure", *words), prog_name="gpuhook")


@pytest.mark.parametrize(
    "words", [("docker",), ("docker", "--dry-run"), ("docker", "--restart"), ("undo", "docker")]
)
def test_user_without_root_names_the_rootless_docker(home: Path, words: tuple[str, ...]) -> None:
    """Else the user's file would change, and the system's Docker would not."""
    result = _of_user(*words)
    assert result.exit_code == 1
    assert "GH2014" in result.stderr
    assert "sudo" in result.stderr
    assert "--user" in result.stderr
    assert list(home.iterdir()) == []
    assert _of_user("show", "docker").exit_code == 0


def test_rootless_docker_by_name(home: Path) -> None:
    """Once it is configured, the same user needs no --user to change or undo that."""
    file = home / ".config/docker/daemon.json"
    assert _of_user("docker", "--user").exit_code == 0
    assert file.exists()
    assert "already configured" in _of_user("docker").stderr
    assert str(file) in _of_user("show", "docker").stdout
    assert _of_user("undo", "docker").exit_code == 0
    assert not file.exists()


def test_rootless_docker_that_runs(home: Path) -> None:
    program = home / "dockerd"
    shutil.copy("/bin/sleep", program)
    with subprocess.Popen([program, "infinity"]) as process:
        try:
            assert host_processes.is_run_by_user("dockerd")
            result = _of_user("docker")
        finally:
            process.kill()
    assert result.exit_code == 0, result.stderr
    assert (home / ".config/docker/daemon.json").exists()
    assert not host_processes.is_run_by_user("dockerd")


def test_file_that_a_user_names(home: Path) -> None:
    file = home / "daemon.json"
    assert _of_user("docker", "--config", str(file)).exit_code == 0
    assert file.exists()


@pytest.mark.parametrize("words", [("undo", "podman"), ("undo", "docker", "--host-root", "/proc")])
def test_user_is_an_option_of_rootless_docker(home: Path, words: tuple[str, ...]) -> None:
    del home
    result = _of_user(*words, "--user")
    assert result.exit_code == 2
    assert "--user" in result.stderr


def test_root_has_no_rootless_docker(root: Path) -> None:
    result = _run(root, "docker", "--user")
    assert result.exit_code == 2
    assert "--user" in result.stderr
