# SPDX-License-Identifier: Apache-2.0
"""Every document that a command prints fits a shipped schema."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import click
import jsonschema
import pytest
import yaml
from click.testing import CliRunner, Result

import gpuhook
from gpuhook.cli import COMMANDS, main

PACKAGE = Path(gpuhook.__file__).parent
NAME = re.compile(r"\"(gpuhook/[a-z-]+/v\d+)\"")
SCHEMAS = {
    path.stem: json.loads(path.read_text("utf-8")) for path in PACKAGE.glob("schemas/*.json")
}
# Files of the state directory, and of support bundles.
NOT_PRINTED = {
    "gpuhook/ledger/v1",
    "gpuhook/bundle-tree/v1",
    "gpuhook/generated/v1",
    "gpuhook/configured/v1",
    "gpuhook/state-directories/v1",
    "gpuhook/tree/v1",
}


def _known() -> set[str]:
    """Return the names of documents that have schemas."""
    texts = (json.dumps(schema["properties"].get("schema", {})) for schema in SCHEMAS.values())
    return {name for text in texts for name in NAME.findall(text)}


def _printed() -> set[str]:
    """Return the names of documents in the code."""
    sources = (path.read_text("utf-8") for path in PACKAGE.rglob("*.py"))
    return {name for text in sources for name in NAME.findall(text)}


def _validated(text: str, output: str) -> dict[str, Any]:
    document: dict[str, Any] = json.loads(text) if output == "json" else yaml.safe_load(text)
    name = document["schema"].split("/")[1]
    jsonschema.validate(document, SCHEMAS[name])
    return document


def _run(*arguments: str) -> Result:
    return CliRunner().invoke(main, arguments, prog_name="gpuhook")


def test_every_document_has_a_schema() -> None:
    assert _printed() - NOT_PRINTED <= _known()


@pytest.mark.parametrize("name", sorted(SCHEMAS))
def test_schemas_are_valid(name: str) -> None:
    jsonschema.Draft202012Validator.check_schema(SCHEMAS[name])


@pytest.mark.parametrize(
    "arguments",
    [
        ("inventory", "--inventory", "a100-mig"),
        ("labels", "--inventory", "t4"),
        ("health", "show"),
        ("ps",),
    ],
    ids=lambda arguments: arguments[0],
)
def test_json_and_yaml_are_the_same_document(
    arguments: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GPUHOOK_STATE_DIR", str(tmp_path))
    monkeypatch.setenv("GFD_NO_TIMESTAMP", "true")
    found = [_validated(_run(*arguments, "-o", o).stdout, o) for o in ("json", "yaml")]
    assert found[0] == found[1]


def test_list_of_specs_fits_its_schema(tmp_path: Path) -> None:
    spec = tmp_path / "nvidia.json"
    assert _run("generate-cdi", "--inventory", "t4", "--output-file", str(spec)).exit_code == 0
    (tmp_path / "broken.json").write_text("{")
    listed = ("cdi", "list", "--spec-dir", str(tmp_path))
    found = [_validated(_run(*listed, "-o", o).stdout, o) for o in ("json", "yaml")]
    assert found[0] == found[1]
    assert found[0]["broken"]
    names = _run(*listed, "-o", "name").stdout.split()
    assert names == [one["name"] for one in found[0]["devices"]]
    rows = _run(*listed, "--no-headers").stdout.splitlines()
    assert [row.split()[0] for row in rows] == names


def test_findings_of_a_configuration_are_a_document(tmp_path: Path) -> None:
    wrong = tmp_path / "config.yaml"
    wrong.write_text("version: v1\nflags: {migStrategy: both}\n")
    for output in ("json", "yaml"):
        told = _run("device-plugin", "--validate", str(wrong), "-o", output)
        assert told.exit_code == 1
        assert _validated(told.stdout, output)["findings"]


def test_explanation_of_a_code_is_a_document() -> None:
    found = [_validated(_run("explain", "GH1102", "-o", o).stdout, o) for o in ("json", "yaml")]
    assert found[0] == found[1]
    assert found[0]["code"] == "GH1102"


def test_settings_are_printed_in_the_form_of_their_file(tmp_path: Path) -> None:
    shown = json.loads(_run("config", "show", "-o", "json").stdout)
    jsonschema.validate(shown, SCHEMAS["config"])
    written = tmp_path / "config.yaml"
    written.write_text(json.dumps(shown))
    assert _run("config", "validate", str(written)).exit_code == 0
    assert _run("config", "validate", "").exit_code == 2  # not the settings of the node


def test_output_names_are_accepted_by_other_commands(tmp_path: Path) -> None:
    listed = _run("inventory", "--inventory", "a100-mig", "-o", "name").stdout.split()
    assert any(name.startswith("MIG-") for name in listed)
    for name in listed:
        if name.startswith("MIG-"):
            made = _run("generate-cdi", "--inventory", "a100-mig", "--device-id", name)
            assert made.exit_code == 0, made.stderr


def test_commands_with_json_output_have_yaml() -> None:
    """-o has the same meaning in all commands."""
    for path, options in _outputs():
        if "json" in options:
            assert "yaml" in options, path
        assert set(options) <= {"table", "text", "wide", "json", "yaml", "name"}, path


def _outputs() -> list[tuple[str, tuple[str, ...]]]:
    found: list[tuple[str, tuple[str, ...]]] = []
    for name in COMMANDS:
        command = main.get_command(click.Context(main), name)
        assert command is not None
        below = command.commands if isinstance(command, click.Group) else {"": command}
        for sub, one in below.items():
            found += [
                (f"{name} {sub}", tuple(param.type.choices))
                for param in one.params
                if param.name == "output" and isinstance(param.type, click.Choice)
            ]
    return found


def test_internal_error_has_a_code(monkeypatch: pytest.MonkeyPatch) -> None:
    """There is a traceback only with --debug."""
    monkeypatch.setattr("gpuhook.cli.node.inventory._of_this_node", lambda **options: 1 // 0)
    failed = _run("inventory")
    assert failed.exit_code == 1
    assert failed.stderr.startswith("Error GH1491: internal error of gpuhook, ZeroDivisionError at")
    assert "Traceback" not in failed.stderr
    assert "Traceback" in _run("--debug", "inventory").stderr
