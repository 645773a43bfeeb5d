# SPDX-License-Identifier: Apache-2.0
"""Options of the commands on running containers, and their usage errors."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.shell_completion import ShellComplete
from click.testing import CliRunner

from gpuhook.cli import main
from gpuhook.containers import find
from gpuhook.containers.warm.runtime_state import Found


def refused(*words: str, **env: str) -> str:
    """Return the usage error of a command, which changes nothing."""
    done = CliRunner().invoke(main, words, prog_name="gpuhook", env=env)
    assert done.exit_code == 2, done
    assert done.stdout == ""
    return " ".join(done.stderr.split())


@pytest.mark.parametrize(
    ("incomplete", "offered"),
    [
        ("tr", ["trainer"]),
        ("ml/", ["ml/train-0/main"]),
        ("4c", ["4c1f"]),
        ("", ["trainer", "4c1f", "ml/train-0/main", "5d2e", "6e3d"]),
    ],
)
@pytest.mark.parametrize("command", ["inspect", "explain", "repair"])
def test_completion_offers_names_and_ids(
    command: str, incomplete: str, offered: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A container in a pod is offered by its pod, one without a name by its id."""
    named, in_pod, nameless = Found("4c1f"), Found("5d2e"), Found("6e3d")
    named.name = "trainer"
    in_pod.name, in_pod.pod = "main", {"namespace": "ml", "pod": "train-0", "container": "main"}
    monkeypatch.setattr(find, "visible", lambda: ([named, in_pod, nameless], None))
    completed = ShellComplete(main, {}, "gpuhook", "_GPUHOOK_COMPLETE")
    assert [one.value for one in completed.get_completions([command], incomplete)] == offered


def test_completion_shows_no_error(monkeypatch: pytest.MonkeyPatch) -> None:
    def failing() -> None:
        raise PermissionError

    monkeypatch.setattr(find, "visible", failing)
    completed = ShellComplete(main, {}, "gpuhook", "_GPUHOOK_COMPLETE")
    assert completed.get_completions(["inspect"], "a") == []


@pytest.mark.parametrize("name", ["", " "])
@pytest.mark.parametrize("verb", [["attach", "--device=0"], ["detach", "--device=0"], ["inspect"]])
def test_empty_name_is_refused(verb: list[str], name: str) -> None:
    """An unset variable of a script is not a container."""
    assert "the name of a container is empty" in refused(*verb, name)
    assert "the name of a container is empty" in refused("repair", name)


def test_repair_takes_one_container_or_all() -> None:
    """Both are a usage error, and so is neither."""
    assert "pass a CONTAINER or --all, not both" in refused("repair", "--all", "x")
    assert refused("repair").endswith("name a CONTAINER, or --all")


@pytest.mark.parametrize(
    "verb",
    [
        ["attach", "x", "--device=0"],
        ["detach", "x", "--device=0"],
        ["inspect", "x"],
        ["repair", "x"],
    ],
)
def test_state_root_must_be_a_directory(verb: list[str], tmp_path: Path) -> None:
    """A missing directory and a file are not state roots."""
    missing, file = tmp_path / "missing", tmp_path / "file"
    file.touch()
    assert "does not exist" in refused(*verb, "--state-root", str(missing))
    assert "is a file" in refused(*verb, "--state-root", str(file))
    assert "does not exist" in refused("repair", "x", GPUHOOK_REPAIR_STATE_ROOTS=str(missing))


def test_attach_takes_no_paths() -> None:
    """The error names the command that accepts paths."""
    said = refused("attach", "x", "--device", "0,/dev/nvidia0")
    assert "/dev/nvidia0 is a path, which only detach accepts" in said


def test_driver_capabilities_errors_name_the_option() -> None:
    """The error names the option, not a variable that is not set; an empty value is an error."""
    said = refused("attach", "x", "--device", "0", "--driver-capabilities", "foo,compute")
    assert "'--driver-capabilities': unknown driver capability foo; known are compute" in said
    assert "NVIDIA_DRIVER_CAPABILITIES" not in said
    for empty in ("", " , "):
        said = refused("attach", "x", "--device", "0", "--driver-capabilities", empty)
        assert "'--driver-capabilities': it is empty" in said
    assert "unknown driver capability foo" in refused("generate-cdi", "--driver-capabilities=foo")
