# SPDX-License-Identifier: Apache-2.0
"""`gpuhook device-plugin`: its options, --validate, and the launch of the plugin."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import types
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner, Result

from gpuhook.cli import main
from gpuhook.cli.options import plugin_command
from gpuhook.device_plugin.config import configuration
from gpuhook.device_plugin.config.config_reader import read
from gpuhook.device_plugin.config.launch_options import Launch
from gpuhook.device_plugin.config.plugin_options import OPTIONS
from gpuhook.errors import GpuhookError
from gpuhook.kernel import process

REPOSITORY = Path(__file__).parents[4]
GOOD = "sharing: {timeSlicing: {resources: [{name: nvidia.com/gpu, replicas: 4}]}}\n"
WRONG = """\
version: v1
flags:
  renameByDefault: true
sharing:
  timeSlicing:
    resources:
    - name: nvidia.com/gpu
      replicas: "4"
"""
WARNING = (
    "{file}:3:3: warning: flags.renameByDefault: unknown key, ignored\n"
    "  hint: did you mean sharing.timeSlicing.renameByDefault?\n"
)
ERROR = (
    "{file}:8:17: error: sharing.timeSlicing.resources[0].replicas: must be an integer, found the "
    'text "4"\n'
)


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the path of a configuration; no variable of the plugin is set."""
    for option in OPTIONS:
        for variable in option.variables:
            monkeypatch.delenv(variable, raising=False)
    return tmp_path / "config.yaml"


def plugin(*arguments: str, **environ: str) -> Result:
    return CliRunner().invoke(main, ["device-plugin", *arguments], prog_name="gpuhook", env=environ)


def test_validate_prints_all_findings(file: Path) -> None:
    """Each finding is a line with its place; errors have exit status 1."""
    file.write_text(WRONG)
    completed = plugin("--validate", str(file))
    assert completed.stdout == (WARNING + ERROR).format(file=file)
    assert completed.exit_code == 1


def test_validate_reports_limits_and_interposers(file: Path) -> None:
    file.write_text(
        "sharing:\n"
        "  timeSlicing:\n"
        "    resources:\n"
        "    - {name: gpu, replicas: 4, memory: 64Mi, interposer: hami}\n"
        "    - {name: t4, replicas: 2, interposer: hami, hints: [jax]}\n"
    )
    completed = plugin("--validate", str(file))
    assert completed.exit_code == 1
    assert completed.stdout == (
        f"{file}:4:40: error: sharing.timeSlicing.resources[0].memory: must be 256Mi or more, "
        'found the text "64Mi"\n'
        "  hint: a CUDA context and its libraries alone need this much\n"
        f"{file}:5:43: error: sharing.timeSlicing.resources[1].interposer: hami is not in "
        "gpuhook.interposers\n"
        "  hint: add it to gpuhook.interposers\n"
        f"{file}:5:56: warning: sharing.timeSlicing.resources[1].hints: has no effect without a "
        "limit: hints are computed from it\n"
        "  hint: set `memory: fair`, or an amount\n"
    )


def test_warnings_are_valid_unless_strict(file: Path) -> None:
    """A file with a warning is valid, and invalid with --strict-config."""
    file.write_text(WRONG.replace('"4"', "4"))
    completed = plugin("--validate", str(file))
    assert (completed.exit_code, completed.stdout) == (
        0,
        WARNING.format(file=file) + f"{file}: valid\n",
    )
    for strict in (["--strict-config"], ["--strict-config", "true"]):
        assert plugin("--validate", str(file), *strict).exit_code == 1
    assert plugin("--validate", str(file), GPUHOOK_STRICT_CONFIG="1").exit_code == 1
    assert plugin("--validate", str(file), "--strict-config=false").exit_code == 0


def test_validate_prints_json(file: Path) -> None:
    file.write_text(WRONG)
    document = json.loads(plugin("--validate", str(file), "-o", "json").stdout)
    assert document["valid"] is False
    assert document["schema"] == "gpuhook/device-plugin-findings/v1"
    assert document["findings"][1] == {
        "severity": "error",
        "path": "sharing.timeSlicing.resources[0].replicas",
        "source": str(file),
        "line": 8,
        "column": 17,
        "message": 'must be an integer, found the text "4"',
        "hint": None,
    }


def test_validate_checks_options_and_variables(file: Path) -> None:
    """They are checked together with the file."""
    file.write_text(GOOD)
    completed = plugin("--validate", str(file), PASS_DEVICE_SPECS="maybe")
    assert completed.exit_code == 1
    assert completed.stdout.startswith("the environment variable PASS_DEVICE_SPECS: error: ")


def test_validate_runs_without_grpcio(file: Path) -> None:
    """The process exits with the status of the validation."""
    file.write_text(WRONG)
    code = (
        "import sys; sys.modules['grpc'] = None\n"
        "from gpuhook.cli import main; main(prog_name='gpuhook')"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, "device-plugin", "--validate", str(file)],
        env={"PATH": os.environ["PATH"], "PYTHONPATH": str(REPOSITORY)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout, done.stderr) == (
        1,
        (WARNING + ERROR).format(file=file),
        "",
    )


def test_print_config_merges_all_sources(file: Path) -> None:
    """The output is a file with the same meaning."""
    file.write_text(GOOD)
    environ = {"CONFIG_FILE": str(file), "MIG_STRATEGY": "single"}
    completed = plugin("--print-config", "--pass-device-specs", "--gds-enabled", "false", **environ)
    made = read(completed.stdout.encode(), "printed").configuration
    assert made is not None
    assert made.flags.mig_strategy == "single"
    assert made.flags.plugin.pass_device_specs is True
    assert made.sharing.resources[0].replicas == 4
    both = plugin("--validate", str(file), "--print-config")
    assert yaml.safe_load(both.stdout)["flags"]["migStrategy"] == "none"


def test_print_schema_prints_the_json_schema(file: Path) -> None:
    assert plugin("--print-schema").stdout == configuration.schema_text()


@pytest.mark.parametrize("option", ["--print-config", "--validate"])
def test_print_schema_excludes_other_outputs(option: str, file: Path) -> None:
    file.write_text("version: v1")
    words = [option, str(file)] if option == "--validate" else [option]
    done = plugin("--print-schema", *words)
    assert (done.exit_code, done.stdout) == (2, "")
    assert f"{option} and --print-schema cannot be used together" in done.stderr


def test_start_with_an_invalid_configuration_is_a_fault(file: Path) -> None:
    file.write_text(WRONG)
    completed = plugin("--config-file", str(file), "--print-config")
    assert completed.exit_code == 1
    assert f"Error GH1800: the configuration has an error: {file}:8:17: sharing" in completed.stderr
    assert "Error GH1803: the environment variable MIG_STRATEGY: must be one of" in (
        plugin(MIG_STRATEGY="x").stderr
    )


@pytest.fixture
def launches(monkeypatch: pytest.MonkeyPatch) -> list[Launch]:
    """Replace the plugin by a function that records its launch and returns status 3."""
    recorded: list[Launch] = []

    def run(launch: Launch) -> int:
        recorded.append(launch)
        return 3

    module = types.ModuleType("gpuhook.device_plugin.plugin_process")
    monkeypatch.setattr(module, "run", run, raising=False)
    monkeypatch.setitem(sys.modules, module.__name__, module)
    return recorded


def test_plugin_is_launched_with_the_options(file: Path, launches: list[Launch]) -> None:
    """The plugin's status is the exit status of the command."""
    file.write_text(GOOD)
    completed = plugin(
        "--config-file",
        str(file),
        "--device-list-strategy",
        "envvar",
        "--device-list-strategy",
        "cdi-cri",
        "--driver-root",
        "/driver",
        KUBELET_SOCKET="",
        NODE_NAME="node-1",
    )
    assert completed.exit_code == 3
    (launch,) = launches
    assert launch.source.file == str(file)
    assert (launch.kubelet_socket, launch.node_name) == ("", "node-1")
    assert {path: over.value for path, over in launch.overrides.items()} == {
        "flags.nvidiaDriverRoot": "/driver",
        "flags.plugin.deviceListStrategy": ("envvar", "cdi-cri"),
    }


def test_warnings_are_printed_at_the_start(file: Path, launches: list[Launch]) -> None:
    completed = plugin(CDI_FEATURE_FLAGS="x")
    assert completed.exit_code == 3
    assert "CDI_FEATURE_FLAGS: warning: has no effect" in completed.stderr


@pytest.mark.parametrize("module", ["grpc", "google.protobuf"])
def test_missing_package_is_a_fault(
    module: str, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The hint has the command to install it."""

    def import_module(name: str) -> types.ModuleType:
        raise ModuleNotFoundError(f"No module named {module!r}", name=module)

    monkeypatch.delitem(sys.modules, "gpuhook.device_plugin.plugin_process", raising=False)
    monkeypatch.setattr("gpuhook.cli.options.plugin_command.importlib.import_module", import_module)
    with pytest.raises(GpuhookError) as caught:
        plugin_command._module("gpuhook.device_plugin.plugin_process", ())
    assert caught.value.code == "GH1805"
    assert "pip install 'gpuhook[plugin]'" in caught.value.hint


def test_help_has_every_option_and_variable(file: Path) -> None:
    completed = " ".join(plugin("--help-all").stdout.split())
    for option in OPTIONS:
        assert f"--{option.name}" in completed
        assert all(variable in completed for variable in option.variables)


NAMED = """\
import sys
from gpuhook.kernel import process
process.rename(sys.argv[1])
print(open("/proc/self/cmdline").read().split("\\0")[0], open("/proc/self/comm").read().strip())
print(sys.argv[2], sys.prefix)
"""


def test_rename_changes_the_process_name() -> None:
    """Python keeps its arguments and prefix."""
    done = subprocess.run(
        [sys.executable, "-c", NAMED, "nvidia-device-plugin", "kept"],
        env={"PYTHONPATH": str(REPOSITORY)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.splitlines() == [
        "nvidia-device-plugin nvidia-device-p",
        f"kept {sys.prefix}",
    ]


@pytest.mark.parametrize("name", ["", "x" * 1_000_000, "a\0b"])
def test_too_long_process_name_is_refused(name: str) -> None:
    before = Path("/proc/self/cmdline").read_bytes()
    with pytest.raises(GpuhookError) as caught:
        process.rename(name)
    assert caught.value.code == "GH1806"
    assert Path("/proc/self/cmdline").read_bytes() == before


LIMITED = (
    "sharing: {timeSlicing: {resources: [{name: nvidia.com/gpu, replicas: 4, memory: 4Gi}]}}\n"
)
TOO_MUCH = (
    "{file}:1:37: error: sharing.timeSlicing.resources[0]: nvidia.com/gpu: 4 replicas of 4096 MiB "
    "are 16384 MiB, and a Tesla T4 has only 15360 MiB, less 256 MiB of reserve (GH1847)\n"
    "  hint: lower `replicas` or `memory`, or set `oversubscribe: true` to exceed it\n"
)


def test_validate_with_an_inventory_checks_limits(file: Path) -> None:
    file.write_text(LIMITED)
    completed = plugin("--validate", str(file), "--inventory", "t4")
    assert (completed.exit_code, completed.stdout) == (1, TOO_MUCH.format(file=file))
    assert plugin("--validate", str(file), GPUHOOK_INVENTORY="t4").exit_code == 1
    large = plugin("--validate", str(file), "--inventory", "h100x8")
    assert (large.exit_code, large.stdout) == (0, f"{file}: valid on h100x8\n")
    document = json.loads(plugin("--validate", str(file), "--inventory", "t4", "-o", "json").stdout)
    assert (document["valid"], document["node"]) == (False, "t4")
    (finding,) = document["findings"]
    assert (finding["severity"], finding["line"], finding["column"]) == ("error", 1, 37)


def test_validate_with_an_inventory_has_the_warnings_of_the_offer(file: Path) -> None:
    file.write_text(LIMITED.replace("4Gi", "fair").replace("replicas: 4", "replicas: 20"))
    completed = plugin("--validate", str(file), "--inventory", "t4")
    assert completed.exit_code == 0
    assert "20 replicas of Tesla T4 have 755 MiB of memory each" in completed.stdout


@pytest.mark.parametrize("word", ["memory: 512Mi", "memory: fair"])
def test_validate_without_an_inventory_reports_unchecked_limits(file: Path, word: str) -> None:
    file.write_text(LIMITED.replace("memory: 4Gi", word))
    completed = plugin("--validate", str(file))
    unchecked = "limits and units were not checked: pass --inventory, such as t4"
    assert completed.exit_code == 0
    assert completed.stdout == f"{file}: valid\n{file}: {unchecked}\n"
    file.write_text(GOOD)
    assert plugin("--validate", str(file)).stdout == f"{file}: valid\n"


def test_reserve_above_the_memory_is_an_error(file: Path) -> None:
    file.write_text(LIMITED.replace("4Gi", "fair") + "gpuhook: {memoryReserve: 20Gi}\n")
    completed = plugin("--validate", str(file), "--inventory", "t4")
    assert (
        "a reserve of 20480 MiB leaves nothing of the 15360 MiB of a Tesla T4" in completed.stdout
    )
    assert completed.stdout.endswith("  hint: lower gpuhook.memoryReserve\n")
