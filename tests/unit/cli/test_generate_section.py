# SPDX-License-Identifier: Apache-2.0
"""Options of generate-cdi, and the driver's roots, set in the settings file."""

from __future__ import annotations

import json
import os
import stat
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner, Result

from gpuhook.cli import main
from tests.simulated.node import make_node

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="device nodes are made by root")


@pytest.fixture(autouse=True)
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the path of this node's settings file, which does not exist."""
    for name in list(os.environ):
        if name.startswith("GPUHOOK_"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("GPUHOOK_STATE_DIR", str(tmp_path / "state"))
    monkeypatch.setenv("GPUHOOK_CONFIG", str(tmp_path / "config.yaml"))
    return tmp_path / "config.yaml"


def call(*arguments: str, **env: str) -> Result:
    return CliRunner().invoke(main, arguments, prog_name="gpuhook", env=env)


def generated(*arguments: str, **env: str) -> Result:
    return call("generate-cdi", "--inventory", "h100x8", *arguments, **env)


def test_options_in_the_file_apply(file: Path) -> None:
    """Texts, lists, switches: like options of the command line."""
    file.write_text(
        "generate:\n  format: json\n  vendor: example.com\n  class: card\n"
        "  deviceNameStrategies: [type-index]\n  deviceIds: ['0', '3']\n  noAllDevice: true\n"
        "  hooks: none\n  driverCapabilities: [utility]\n"
    )
    done = generated()
    assert done.exit_code == 0, done.stderr
    spec = json.loads(done.stdout)
    assert spec["kind"] == "example.com/card"
    assert [device["name"] for device in spec["devices"]] == ["gpu0", "gpu3"]
    assert "hooks" not in spec["containerEdits"]
    assert "libcuda" not in done.stdout


def test_precedence_of_option_variable_and_file(file: Path) -> None:
    """The command line, then the variable, then the file; an empty value is unset."""
    file.write_text(
        "generate: {vendor: file.example, class: filed, outputFile: '', deviceIds: []}\n"
    )
    done = generated("--vendor", "cli.example", GPUHOOK_GENERATE_CDI_VENDOR="env.example")
    assert yaml.safe_load(done.stdout)["kind"] == "cli.example/filed"
    done = generated(GPUHOOK_GENERATE_CDI_CLASS="env")
    assert yaml.safe_load(done.stdout)["kind"] == "file.example/env"
    shown = call("config", "show", "--origin", "-o", "json", GPUHOOK_GENERATE_CDI_CLASS="env")
    assert json.loads(shown.stdout)["generate"] == {
        "vendor": {"value": "file.example", "origin": f"{file}, line 1"},
        "class": {"value": "env", "origin": "GPUHOOK_GENERATE_CDI_CLASS"},
        "outputFile": {"value": "", "origin": f"{file}, line 1"},
        "deviceIds": {"value": [], "origin": f"{file}, line 1"},
    }


def test_inventory_option_ignores_settings_of_this_node(file: Path) -> None:
    """With --inventory, settings of this node's platform have no effect."""
    file.write_text(f"generate: {{mode: nvml, createDeviceNodes: true, filesDir: {file.parent}}}\n")
    assert generated().exit_code == 0
    for options in (["--create-device-nodes"], ["--files-dir", "/etc"]):
        assert generated(*options).exit_code == 2


@needs_root
@pytest.mark.parametrize("mode", ["nvml", "proc", "management", "imex"])
def test_mode_option_ignores_settings_of_other_modes(mode: str, file: Path, tmp_path: Path) -> None:
    """Settings of GPUs and of a Tegra have no effect in a mode without them."""
    node = make_node(tmp_path / "node", "t4")
    channel = Path(node.dev_root) / "dev/nvidia-caps-imex-channels/channel3"
    channel.parent.mkdir()
    os.mknod(channel, 0o600 | stat.S_IFCHR, os.makedev(1, 3))
    file.write_text(
        "generate:\n  class: card\n  deviceIds: ['0']\n  noAllDevice: true\n"
        "  deviceNameStrategies: [uuid]\n  createDeviceNodes: true\n  vendor: example.com\n"
        f"  outputFile: {tmp_path}/gpus.yaml\n  csvFiles: [/etc/x.csv]\n"
        "  csvCompatContainerRoot: /usr/local/cuda/compat\n"
        "  featureFlags: [enable-coherent-annotations, disable-ipc-discoverer]\n"
    )
    words = ["generate-cdi", *node.options, "--mode", mode]
    done = call(*words)
    assert done.exit_code == 0, done.stderr
    if mode in ("nvml", "proc"):
        spec = yaml.safe_load((tmp_path / "gpus.yaml").read_text())
        assert spec["kind"] == "example.com/card"
        return
    spec = yaml.safe_load(done.stdout)
    kind, names = {
        "management": ("example.com/gpu", ["all"]),
        "imex": ("example.com/imex-channel", ["3", "all"]),
    }[mode]
    assert spec["kind"] == kind
    assert [device["name"] for device in spec["devices"]] == names
    assert call(*words, "--csv-file", "/etc/x.csv").exit_code == 2
    assert not (tmp_path / "gpus.yaml").exists()


def test_tegra_settings_are_ignored_in_other_modes(file: Path, tmp_path: Path) -> None:
    file.write_text("generate: {csvFiles: [/site/devices.csv], csvIgnorePatterns: ['*/nv*']}\n")
    words = ("generate-cdi", "--driver-root", str(tmp_path), "--host-root", str(tmp_path))
    assert "GH1213" in call(*words, "--mode", "gds").stderr
    assert "GH1221" in call(*words, "--mode", "csv").stderr
    file.write_text("generate: {csvFiles: [/site/devices.csv], mode: gds}\n")
    assert "--csv-" in call(*words).stderr


def test_output_file_of_the_settings(file: Path, tmp_path: Path) -> None:
    """It is for this node: a dump goes to standard output. A file of the caller has its own
    format.
    """
    named, other = tmp_path / "nvidia.json", tmp_path / "other.yaml"
    file.write_text(f"generate: {{outputFile: {named}, format: json}}\n")
    assert json.loads(generated().stdout)["kind"] == "nvidia.com/gpu"
    assert not named.exists()
    assert generated("--output-file", str(other)).exit_code == 0
    assert yaml.safe_load(other.read_text())["kind"] == "nvidia.com/gpu"


@needs_root
def test_output_without_an_option_is_the_file_or_standard_output(
    file: Path, tmp_path: Path
) -> None:
    node = make_node(tmp_path / "node", "t4")
    named = tmp_path / "nvidia.yaml"
    file.write_text(f"generate: {{outputFile: {named}, deviceNameStrategies: [uuid]}}\n")
    printed = call("generate-cdi", *node.options, "--output-file", "-")
    assert printed.exit_code == 0, printed.stderr
    assert not named.exists()
    assert call("generate-cdi", *node.options).stdout == ""
    assert yaml.safe_load(named.read_text()) == yaml.safe_load(printed.stdout)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("generate: {mode: nvmll}", "line 1: generate.mode: it must be"),
        ("generate: {deviceIds: 0}", "generate.deviceIds: it must be a list"),
        ("generate: {noAllDevice: 1}", "generate.noAllDevice: it must be true or false"),
        ("generate: {driverCapabilities: [cuda]}", "generate.driverCapabilities.0: it must be"),
    ],
)
def test_broken_section_is_a_fault(text: str, sentence: str, file: Path) -> None:
    """The error is reported before any change; --help does not read the file."""
    file.write_text(text + "\n")
    failed = generated()
    assert (failed.exit_code, failed.stdout) == (1, "")
    assert f"Error GH1530: {file}: " in failed.stderr
    assert sentence in failed.stderr
    assert call("generate-cdi", "--help").exit_code == 0


@needs_root
def test_driver_roots_apply_to_every_command(
    file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """inventory and generate-cdi use driver.root; an option takes precedence."""
    node = make_node(tmp_path / "node", "t4")
    file.write_text(f"driver: {{root: {node.driver_root}, devRoot: {node.dev_root}}}\n")
    shown = call("inventory", "-o", "json")
    assert shown.exit_code == 0, shown.stderr
    document = json.loads(shown.stdout)
    assert (document["driver_root"], document["dev_root"]) == (node.driver_root, node.dev_root)
    missed = call("inventory", "--driver-root", str(tmp_path / "state"))
    assert (missed.exit_code, "Error GH1200" in missed.stderr) == (1, True)
    by_variable = call("inventory", GPUHOOK_DRIVER_ROOT=str(tmp_path))
    assert "Error GH1200" in by_variable.stderr
    file.write_text("driver: {root: driver}\n")
    broken = call("inventory", "-o", "json")
    assert f"warning: {file}: line 1: driver.root: it must be" in broken.stderr
