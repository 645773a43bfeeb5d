# SPDX-License-Identifier: Apache-2.0
"""The shipped settings file, the schema and docs/reference/configuration.md agree."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner
from generate import settings as settings_texts

from gpuhook.cli import main
from gpuhook.cli.generate import generate_section
from gpuhook.cli.generate.generate_cdi import generate_cdi
from gpuhook.host.hot import settings
from gpuhook.node import settings_file

ROOT = Path(__file__).parents[3]
MARKED = re.compile(r"^  #(?=[a-zA-Z]+:)", re.MULTILINE)


def test_generated_files_are_current() -> None:
    schema = json.loads((ROOT / "gpuhook/schemas/config.json").read_text("utf-8"))
    assert schema == settings_texts.schema()
    assert settings_file.shipped() == settings_texts.shipped()
    page = (ROOT / "docs/reference/configuration.md").read_text("utf-8")
    assert settings_texts.files()["docs/reference/configuration.md"] == page


def test_every_option_of_generate_cdi_has_a_key() -> None:
    """All but those that name another node; each key is the option's name."""
    keys = dict(generate_section.options(generate_cdi))
    names = {param.name for param in generate_cdi.params if not getattr(param, "hidden", False)}
    elsewhere = {"driver_root", "dev_root", "inventory"}
    assert {option.name for option in keys.values()} == names - elsewhere
    properties = settings_file.schema()["properties"]["generate"]["properties"]
    assert list(properties) == list(keys)
    assert {"mode", "outputFile", "format", "class", "deviceNameStrategies", "deviceIds"} <= set(
        keys
    )
    assert {"noAllDevice", "librarySearchPaths", "hooks", "createDeviceNodes"} <= set(keys)


def test_shipped_file_sets_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`config default` prints it; it is valid, and the defaults apply."""
    path = tmp_path / "config.yaml"
    path.write_text(CliRunner().invoke(main, ["config", "default"]).stdout, encoding="utf-8")
    monkeypatch.setenv("GPUHOOK_CONFIG", str(path))
    monkeypatch.setenv("GPUHOOK_STATE_DIR", str(tmp_path / "state"))
    assert settings_file.problem(str(path)) == settings_file.unknown_keys(str(path)) == ""
    assert values(settings_file.of_node()) == values(settings.Settings())
    assert generate_section.values_of_file(generate_cdi) == {}


def test_shipped_file_without_comment_marks_sets_the_defaults(tmp_path: Path) -> None:
    """It has every key of the schema with its default."""
    path = tmp_path / "config.yaml"
    path.write_text(MARKED.sub("  ", settings_file.shipped()), encoding="utf-8")
    assert settings_file.problem(str(path)) == settings_file.unknown_keys(str(path)) == ""
    document = yaml.safe_load(path.read_text("utf-8"))
    schema = settings_file.schema()["properties"]
    assert {s: list(keys) for s, keys in document.items()} == {
        section: list(one["properties"]) for section, one in schema.items()
    }
    found = settings.from_document(document)
    found.default_kind = ""  # its default is the vendor's own
    assert values(found) == values(settings.Settings())


def test_every_key_has_a_description() -> None:
    for section in settings_file.schema()["properties"].values():
        assert section["description"].endswith(".")
        assert all(one["description"] for one in section["properties"].values())


def values(found: settings.Settings) -> dict[str, object]:
    return vars(found)
