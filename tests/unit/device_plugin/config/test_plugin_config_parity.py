# SPDX-License-Identifier: Apache-2.0
"""Each configuration key is complete: option, variable, documentation, value, and a reader."""

from __future__ import annotations

import ast
import copy
import json
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
import yaml

import gpuhook
from gpuhook.device_plugin.config.config_reader import read
from gpuhook.device_plugin.config.configuration import ROOT_SECTION
from gpuhook.device_plugin.config.grammar.grammar import Section, keys_of, walk
from gpuhook.device_plugin.config.launch_options import Launch
from tests.unit.device_plugin.config import test_plugin_config, test_plugin_config_limits

PACKAGE = Path(gpuhook.__file__).parent
PAGE = (PACKAGE.parent / "docs/reference/device-plugin.md").read_text("utf-8")
MPS = """\
mps: {root: /mps}
sharing:
  mps:
    renameByDefault: true
    failRequestsGreaterThanOne: true
    resources:
    - {name: gpu, rename: x, devices: [0], replicas: 2, memory: 4Gi, oversubscribe: true,
       activeThreadPercentage: 30, interposer: quota}
    - {name: gpu, rename: y, devices: [1], replicas: {memory: 4Gi}}
gpuhook: {interposers: [{name: quota, containerEdits: {env: [A=1]}}]}
"""
UNITS = """\
sharing:
  memoryUnits:
    policy: spread
    resources:
    - {name: gpu, rename: x, devices: [0], unit: MiB, timeSlice: long, computeMode: default,
       hints: [jax], interposer: quota}
gpuhook: {interposers: [{name: quota, containerEdits: {env: [A=1]}}]}
"""
AMD = """
version: v1
sharing:
  timeSlicing:
    resources:
    - {name: amd.com/gpu, replicas: 4, computeMask: true}
gpuhook: {health: {taintEffect: NoExecute}}
"""
SAMPLES = [
    yaml.safe_load(text)
    for text in (test_plugin_config.WHOLE, test_plugin_config_limits.WHOLE, MPS, UNITS, AMD)
]
KEYS = dict(walk(ROOT_SECTION))
# Keys that are checked only: they have one value, or no value with an effect.
ONLY_CHECKED = {"version", "flags.useNodeFeatureAPI"}
# Both of its values use NVML.
WITHOUT_EFFECT = {"device_discovery_strategy"}
# Health.rule() reads these.
OF_RULE = {"enabled_xids", "ignored_xids"}
# With MPS a container never gets more than one replica.
FIXED = {"sharing.mps.failRequestsGreaterThanOne"}
VALUES = [path for path, key in KEYS.items() if not isinstance(key.kind, Section)]
IN_LISTS = ("resources.", "sharing.", "gpuhook.interposers")
READERS = [path for path in PACKAGE.rglob("*.py") if "device_plugin/config/" not in path.as_posix()]


def paths(value: Any, path: str = "") -> Iterator[str]:
    """Yield the paths of all keys in a document, with [] for an index."""
    if isinstance(value, dict):
        for key, inner in value.items():
            here = f"{path}.{key}" if path else key
            yield here
            yield from paths(inner, here)
    elif isinstance(value, list):
        for item in value:
            yield from paths(item, path + "[]")


def without(document: Any, path: str) -> Any:
    """Return a copy of a document without the key at `path`."""
    made = copy.deepcopy(document)
    *sections, name = path.split(".")
    holders = [made]
    for section in sections:
        inner = [holder.get(section.removesuffix("[]")) for holder in holders if holder]
        holders = [
            one for value in inner for one in (value if isinstance(value, list) else [value])
        ]
    for holder in holders:
        if isinstance(holder, dict):
            holder.pop(name, None)
    return made


def test_samples_have_every_key() -> None:
    known = {path for sample in SAMPLES for path in paths(sample)}
    assert sorted(KEYS.keys() - known) == [], "add these keys to SAMPLES"


@pytest.mark.parametrize("path", sorted(set(VALUES) - ONLY_CHECKED - FIXED))
def test_removed_key_changes_the_configuration(path: str) -> None:
    changes = []
    for sample in (one for one in SAMPLES if path in set(paths(one))):
        before = read(json.dumps(sample).encode(), "file")
        after = read(json.dumps(without(sample, path)).encode(), "file")
        assert before.configuration is not None
        changes.append(after.configuration != before.configuration)
    assert any(changes), f"{path}: its value does not change the configuration"


@pytest.mark.parametrize("path", VALUES)
def test_every_key_is_documented(path: str) -> None:
    """A key of mps and timeSlicing has one row."""
    same = path.replace("sharing.mps.", "sharing.timeSlicing.")
    assert f"`{path}`" in PAGE or f"`{same}`" in PAGE, f"{path} lacks a row in the documentation"


@pytest.mark.parametrize(
    "path",
    [
        path
        for path in VALUES
        if not path.startswith(IN_LISTS) and path not in {*ONLY_CHECKED, "mps.root"}
    ],
)
def test_every_key_has_an_option_and_a_variable(path: str) -> None:
    """Lists of entries have none, and mps.root is another name of flags.mpsRoot."""
    option = KEYS[path].option
    assert option is not None, f"{path} lacks an option"
    assert option.name, f"{path} lacks the name of its option"
    assert option.variables, f"{path} lacks a variable"


def read_attributes() -> set[str]:
    """Return the attributes that other code reads from the configuration."""
    found = set()
    for path in READERS:
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Load):
                found.add(node.attr)
    return found


def test_every_field_is_read_by_other_code() -> None:
    """A field without a reader has no effect."""
    attributes = {key.field for key in KEYS.values() if key.field and key.field.isidentifier()}
    # Dict keys and keyword arguments, not fields.
    attributes -= {"resources", "root", "mps"}
    attributes |= {one.name for one in fields(Launch)} | {key.field for key in keys_of(Launch)}
    read_outside = read_attributes()
    assert "rule" in read_outside
    unread = sorted(attributes - read_outside - WITHOUT_EFFECT - OF_RULE)
    assert unread == [], f"no code outside the configuration reads {', '.join(unread)}"
