# SPDX-License-Identifier: Apache-2.0
"""The JSON schema of the device plugin's configuration, compared with the reader."""

from __future__ import annotations

import json
from pathlib import Path

import jsonschema
import pytest
import yaml

import gpuhook
from gpuhook.device_plugin.config import configuration as config_build
from gpuhook.device_plugin.config.config_reader import read
from gpuhook.device_plugin.config.configuration import Configuration
from tests.unit.device_plugin.config.test_plugin_config import SEED, TABLE, WHOLE

FILE = Path(gpuhook.__file__).parent / "schemas/device-plugin.json"

# Only the reader finds these: YAML syntax, contradictions, names and their lengths.
ONLY_READ = {
    "a key twice",
    "a tag of one's own",
    "a foreign tag",
    "an amount that is none",
    "indentation with a tab",
    "name too long",  # the length with or without the prefix
    "name too long when it is shared",
    "replicas empty",
    "seconds that are nanoseconds",
    "the same name twice",
    "timeSlicing null",
}


def valid(document: object) -> bool:
    validator = jsonschema.Draft202012Validator(json.loads(config_build.schema_text()))
    return bool(validator.is_valid(document))


def test_schema_file_is_up_to_date() -> None:
    """It is the output of `gpuhook device-plugin --print-schema`."""
    assert FILE.read_text("utf-8") == config_build.schema_text()
    jsonschema.Draft202012Validator.check_schema(json.loads(config_build.schema_text()))


@pytest.mark.parametrize("text", [SEED.format(name="nvidia.com/gpu"), WHOLE, "{}", "flags:"])
def test_files_without_findings_are_valid(text: str) -> None:
    assert valid(yaml.safe_load(text.replace("1:2", "'1:2'")))


def test_printed_defaults_are_valid() -> None:
    assert valid(config_build.document(Configuration()))


@pytest.mark.parametrize("case", sorted(set(TABLE) - ONLY_READ))
def test_files_with_errors_are_invalid(case: str) -> None:
    assert not valid(yaml.safe_load(TABLE[case][0]))


@pytest.mark.parametrize(
    ("page", "least"), [("docs/reference/plugin.md", 3), ("docs/reference/device-plugin.md", 2)]
)
def test_configurations_in_the_documentation_have_no_findings(page: str, least: int) -> None:
    content = (Path(gpuhook.__file__).parents[1] / page).read_text("utf-8")
    blocks = [block.partition("```")[0] for block in content.split("```yaml\n")[1:]]
    shown = [text for text in blocks if text.startswith(("version: v1\n", "gpuhook:"))]
    assert len(shown) >= least
    for text in shown:
        assert read(text.encode(), page).findings == ()
        assert valid(yaml.safe_load(text))
