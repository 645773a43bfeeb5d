# SPDX-License-Identifier: Apache-2.0
"""The output and exit status of `gpuhook doctor`, and --fix, with checks made for these tests."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml
from click.testing import CliRunner, Result

import gpuhook
from gpuhook.cli import main
from gpuhook.cli.diagnosis import doctor as command
from gpuhook.doctor import doctor_text
from gpuhook.doctor.examination import Examination, examine
from gpuhook.node_facts.check import (
    FAILED,
    WARNING,
    Check,
    ExaminedNode,
    Finding,
    Fix,
    absent,
    ok,
)
from gpuhook.node_facts.check import Result as CheckResult
from gpuhook.node_facts.sources.node_readings import Readings
from gpuhook.node_facts.sources.node_tree import DirectoryTree

SCHEMAS = Path(gpuhook.__file__).parent / "schemas"


def validated(text: str, name: str = "doctor") -> dict[str, Any]:
    """Return a document after validation by its schema."""
    found: dict[str, Any] = json.loads(text)
    schema = json.loads((SCHEMAS / f"{name}.json").read_text("utf-8"))
    jsonschema.Draft202012Validator.check_schema(schema)
    jsonschema.validate(found, schema)
    return found


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """Give a node with a healthy driver that lacks the file that a check requires."""
    root = tmp_path / "node"
    (root / "dev").mkdir(parents=True)
    return root


@pytest.fixture(autouse=True)
def catalogue(tree: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Check, ...]:
    """Replace the checks of the command, and return the new ones."""

    def missing(node: ExaminedNode) -> Iterable[Finding]:
        if node.tree.status("/dev/there") is not None:
            return [ok("/dev/there is there", "/dev/there")]
        fix = Fix("make /dev/there", (tree / "dev/there").touch)
        return [
            Finding(
                FAILED,
                "/dev/there is not there",
                subject="/dev/there",
                meaning='programs say "no such file"',
                command="touch /dev/there",
                looked_at=("/dev/there",),
                fix=fix,
            )
        ]

    def warns(node: ExaminedNode) -> Iterable[Finding]:
        return [Finding(WARNING, "it is\x1b[2J slow", meaning="you wait", command="be patient")]

    made = (
        Check("driver.version", "The driver is whole", lambda node: [ok("it is 570.1")]),
        Check("devices.there", "The node is there", missing),
        Check("devices.after", "It works", lambda n: [ok("works")], ("devices.there",)),
        Check("docker.absent", "Docker", lambda node: [absent("Docker is not installed")]),
        Check("containerd.slow", "It is quick", warns),
    )
    monkeypatch.setattr(command, "checks", lambda: made)
    return made


@pytest.fixture
def doctor(tree: Path) -> Callable[..., Result]:
    """Give a function that runs `gpuhook doctor` on the tree: as a live node, or `offline`."""

    def called(*words: str, quietly: bool = False, offline: bool = False) -> Result:
        place = ["--root"] if offline else ["--host-root"]
        roots = [*place, str(tree)]
        if not offline:
            roots += ["--driver-root", str(tree), "--dev-root", str(tree)]
        before = ["--quiet"] if quietly else []
        return CliRunner().invoke(main, [*before, "doctor", *roots, *words], prog_name="gpuhook")

    return called


def test_root_cause_is_first(doctor: Callable[..., Result]) -> None:
    shown = doctor("--all", offline=True)
    assert shown.exit_code == 1
    first, meaning, cure, *_ = shown.stdout.splitlines()
    assert first == "Root cause: devices.there: /dev/there is not there"
    assert meaning.split(": ", 1)[1] == 'programs say "no such file"'
    assert cure.endswith("fix:     touch /dev/there")
    assert "waits for devices.there to be fixed" in shown.stdout
    assert "Engines: docker" in shown.stdout
    assert "Engines: containerd" in shown.stdout
    assert shown.stderr == "1 failed, 1 warning, 1 ok, 2 not applicable\n"


def test_control_characters_are_escaped(doctor: Callable[..., Result]) -> None:
    assert "\x1b" not in doctor(offline=True).stdout
    assert "it is\\x1b[2J slow" in doctor(offline=True).stdout


def test_healthy_checks_are_counted(doctor: Callable[..., Result]) -> None:
    """They are listed with --all only."""
    shown = doctor(offline=True)
    assert "driver.version" not in shown.stdout
    assert "docker.absent" not in shown.stdout
    assert "containerd.slow" in shown.stdout
    counts = "1 failed, 1 warning, 1 ok, 2 not applicable; --all lists all checks\n"
    assert shown.stderr == counts
    assert "driver.version" in doctor("--checks", "driver", offline=True).stdout


def test_fault_of_many_checks_is_one_line() -> None:
    """Such as a /proc that cannot be read; wide lists the checks."""
    same = [Check(f"driver.c{n}", "it works", lambda _: []) for n in range(9)]
    results = [CheckResult(one, Finding(WARNING, "/proc cannot be read")) for one in same]
    found = Examination(tuple(results))
    line = "  warning  /proc cannot be read (9 checks; -o wide lists them)"
    assert doctor_text.lines(found) == [line]
    assert len(doctor_text.lines(found, is_wide=True)) == 10


def test_quiet_shows_only_failures_and_warnings(doctor: Callable[..., Result]) -> None:
    for shown in (doctor("--quiet", offline=True), doctor(offline=True, quietly=True)):
        assert "driver.version" not in shown.stdout
        assert "docker.absent" not in shown.stdout
        assert "containerd.slow" in shown.stdout
        assert "devices.there" in shown.stdout
        assert shown.exit_code == 1
    assert shown.stderr == ""


def test_root_cause_is_printed_once(doctor: Callable[..., Result]) -> None:
    shown = doctor("--all", offline=True).stdout
    assert shown.count("FAILED   devices.there") == 1
    assert shown.count("fix:     touch /dev/there") == 1
    quiet = doctor("--quiet", offline=True).stdout
    assert quiet.count("devices.there") == 1
    assert "FAILED" not in quiet


def test_list_refuses_fix_and_from(doctor: Callable[..., Result]) -> None:
    for words in (["--fix"], ["--from", __file__]):
        shown = doctor("--list", *words)
        assert (shown.exit_code, shown.stdout) == (2, "")


def test_warnings_are_not_failures(tree: Path, doctor: Callable[..., Result]) -> None:
    (tree / "dev/there").touch()
    shown = doctor("--all", offline=True)
    assert shown.exit_code == 0
    assert "Root cause:" not in shown.stdout
    assert "devices.after" in shown.stdout


def test_wide_output_shows_what_was_read(doctor: Callable[..., Result]) -> None:
    assert "looked at: /dev/there" in doctor("-o", "wide", offline=True).stdout
    assert "looked at" not in doctor(offline=True).stdout


def test_documents_fit_their_schema_and_json_equals_yaml(
    tree: Path, doctor: Callable[..., Result]
) -> None:
    found = validated(doctor("-o", "json", offline=True).stdout)
    assert found == yaml.safe_load(doctor("-o", "yaml", offline=True).stdout)
    assert next(iter(found)) == "schema"
    assert (found["well"], found["first"], found["live"]) == (False, "devices.there", False)
    assert found["counts"] == {"ok": 1, "warning": 1, "failed": 1, "not_applicable": 2}
    assert [one["id"] for one in found["results"]] == [
        "driver.version", "devices.there", "devices.after", "docker.absent", "containerd.slow",
    ]  # fmt: skip
    assert found["mended"] is None
    assert validated(doctor("-o", "json").stdout)["live"] is True


def test_selected_checks_include_their_causes(doctor: Callable[..., Result]) -> None:
    found = validated(doctor("--checks", "devices.after", "-o", "json", offline=True).stdout)
    assert [one["id"] for one in found["results"]] == ["devices.there", "devices.after"]
    found = validated(doctor("--checks", "driver, docker", "-o", "json", offline=True).stdout)
    assert [one["id"] for one in found["results"]] == ["driver.version", "docker.absent"]
    wrong = doctor("--checks", "devices.their", offline=True)
    assert wrong.exit_code == 2
    assert "did you mean devices.there?" in wrong.stderr
    assert doctor("--checks", " , ", offline=True).exit_code == 2


def test_unknown_check_is_named(doctor: Callable[..., Result]) -> None:
    told = doctor("--checks", "driver.filez")
    assert told.exit_code == 2
    assert "unknown check driver.filez" in told.output
    assert "(`gpuhook doctor --list` lists the checks)" in told.output


def test_list_shows_every_check(doctor: Callable[..., Result]) -> None:
    shown = doctor("--list", "--no-headers", offline=True)
    assert shown.exit_code == 0
    assert len(shown.stdout.splitlines()) == 5
    found = validated(doctor("--list", "-o", "json", offline=True).stdout, "doctor-list")
    assert {one["id"]: one["needs"] for one in found["checks"]}["devices.after"] == [
        "devices.there"
    ]
    assert "devices.there" in doctor("--list", "-o", "wide", offline=True).stdout


def test_output_names_are_accepted_by_checks(doctor: Callable[..., Result]) -> None:
    told = doctor("-o", "name", offline=True)
    assert (told.exit_code, told.stdout) == (1, "devices.there\ncontainerd.slow\n")
    again = doctor("--checks", ",".join(told.stdout.split()), "-o", "name", offline=True)
    assert again.stdout == told.stdout
    listed = doctor("--list", "-o", "name", offline=True).stdout.split()
    assert len(listed) == 5
    assert set(told.stdout.split()) < set(listed)


def test_fix_changes_the_node_and_examines_it_again(
    tree: Path, doctor: Callable[..., Result]
) -> None:
    shown = doctor("--fix", "--dry-run")
    assert shown.exit_code == 1
    assert "would do: devices.there: make /dev/there" in shown.stdout
    assert not (tree / "dev/there").exists()
    shown = doctor("--fix")
    assert (shown.exit_code, (tree / "dev/there").exists()) == (0, True)
    assert "devices.there: make /dev/there" in shown.stderr
    assert "(was failed, is fixed)" in shown.stdout
    found = validated(doctor("--fix", "-o", "json").stdout)
    assert (found["mended"], found["well"]) == ([], True)


def test_fix_reports_what_it_could_not_do(tree: Path, doctor: Callable[..., Result]) -> None:
    (tree / "dev").rmdir()
    shown = doctor("--fix", "-o", "json")
    (one,) = validated(shown.stdout)["mended"]
    assert (one["done"], one["before"], one["after"]) == (False, "failed", "failed")
    assert "No such file or directory" in one["trouble"]
    assert shown.exit_code == 1


def test_tree_is_not_fixed(tree: Path, doctor: Callable[..., Result]) -> None:
    refused = doctor("--fix", offline=True)
    assert refused.exit_code == 2
    assert refused.stderr.startswith(f"Error GH1903: {tree} contains the files of another node")
    assert doctor("--dry-run").exit_code == 2


def test_roots_must_be_in_the_host_root(tree: Path, tmp_path: Path) -> None:
    words = ["doctor", "--host-root", str(tree), "--driver-root", str(tmp_path)]
    refused = CliRunner().invoke(main, words)
    assert refused.exit_code == 2
    assert "--root" in refused.stderr
    missing = CliRunner().invoke(main, ["doctor", "--root", str(tmp_path / "none")])
    assert (missing.exit_code, "GH1900" in missing.stderr) == (1, True)


def test_driver_root_defaults_to_the_host_root(tree: Path) -> None:
    for words in (["doctor", "-o", "json"], ["doctor", "-o", "json", "--driver-root", str(tree)]):
        shown = CliRunner().invoke(main, [*words, "--host-root", str(tree)])
        assert shown.exit_code == 1, shown.stderr
        assert validated(shown.stdout)["first"] == "devices.there"


@pytest.fixture(autouse=True)
def no_readings(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fail if a reading is taken: these checks read only files."""

    def asked(*args: object) -> None:
        raise AssertionError("a reading was taken that no check needs")

    monkeypatch.setattr("gpuhook.node.node_programs.ProgramOutput", asked)
    monkeypatch.setattr("gpuhook.host.worker.call_in_child", asked)


def test_colour_is_used_only_on_terminals(catalogue: tuple[Check, ...], tree: Path) -> None:
    """The text is the same with and without colour."""
    found = examine(ExaminedNode(DirectoryTree(str(tree)), Readings({})), catalogue)
    plain, coloured = (
        "\n".join(doctor_text.lines(found, is_all=True, has_colour=has_colour))
        for has_colour in (False, True)
    )
    assert "\x1b[1;31mFAILED  \x1b[0m devices.there" in coloured
    assert re.sub(r"\x1b\[[0-9;]*m", "", coloured) == plain


def test_many_subjects_of_one_check_are_one_line(tree: Path) -> None:
    check = Check("gpus.all", "All", lambda node: [ok(f"GPU {n}") for n in range(9)])
    found = examine(ExaminedNode(DirectoryTree(str(tree)), Readings({})), [check])
    assert [line.strip() for line in doctor_text.lines(found, is_all=True)[1:]] == [
        "ok       gpus.all  GPU 0", "and 8 more of gpus.all",
    ]  # fmt: skip
    assert len(doctor_text.lines(found, is_all=True, is_wide=True)) == 10


def test_each_section_is_printed_once(tree: Path) -> None:
    """A check that needs one in a later section does not divide its own section."""

    def well(name: str, *needs: str) -> Check:
        return Check(name, name, lambda _: [ok(name)], needs)

    checks = (
        well("host.first"),
        well("host.reload", "docker.values"),
        well("host.last"),
        well("docker.values"),
        well("crio.config"),
    )
    found = examine(ExaminedNode(DirectoryTree(str(tree)), Readings({})), checks)
    lines = doctor_text.lines(found, is_all=True)
    headings = [line for line in lines if line and not line.startswith(" ")]
    assert headings == ["Host", "Engines: docker", "Engines: crio"]
    assert sum("host." in line for line in lines) == 3


def test_note_for_users_other_than_root(
    doctor: Callable[..., Result], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("os.geteuid", lambda: 65534)
    assert doctor().stderr.startswith("not running as root: ")
    assert "root: " not in doctor(offline=True).stderr
    assert doctor(quietly=True).stderr == ""
