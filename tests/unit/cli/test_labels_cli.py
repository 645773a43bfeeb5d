# SPDX-License-Identifier: Apache-2.0
"""`gpuhook labels`: printed once, or kept in the file for Node Feature Discovery."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import IO

import pytest
from click.testing import CliRunner, Result

from gpuhook.cli import main
from gpuhook.cli.node import labels
from gpuhook.device_plugin.config.configuration import LabelFlags
from gpuhook.vendors.amd.amd_vendor import AmdVendor
from tests.simulated import amd_tree
from tests.simulated.node import SimulatedNode, make_node

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

SEED = """\
version: v1
flags:
  migStrategy: none
sharing:
  timeSlicing:
    resources:
      - name: nvidia.com/gpu
        replicas: 4
"""


def run(*arguments: str, **env: str) -> Result:
    return CliRunner().invoke(main, ["labels", *arguments], prog_name="gpuhook", env=env)


def read(text: str) -> dict[str, str]:
    return dict(line.split("=", 1) for line in text.splitlines())


@pytest.fixture
def seed(tmp_path: Path) -> str:
    path = tmp_path / "default"
    path.write_text(SEED)
    return str(path)


def test_labels_of_the_seed_configuration(seed: str) -> None:
    """The T4 with the seeds' configuration has the labels that the seeds show."""
    shown = run("--inventory", "t4", "--config-file", seed, "--no-timestamp")
    assert shown.exit_code == 0, shown.stderr
    found = read(shown.stdout)
    expected = {
        "gpu.replicas": "4",
        "gpu.count": "1",
        "gpu.product": "Tesla-T4-SHARED",
        "gpu.sharing-strategy": "time-slicing",
        "gpu.replica-memory": "3840",
    }
    assert {name: found[f"nvidia.com/{name}"] for name in expected} == expected
    assert "nvidia.com/gfd.timestamp" not in found


def test_variables_of_gpu_feature_discovery(seed: str, tmp_path: Path) -> None:
    """A container for GPU Feature Discovery is configured by the same environment."""
    path = tmp_path / "features.d" / "gfd"
    env = {
        "GFD_CONFIG_FILE": seed,
        "GFD_MIG_STRATEGY": "mixed",
        "GFD_NO_TIMESTAMP": "true",
        "GFD_ONESHOT": "true",
        "GFD_SLEEP_INTERVAL": "60s",
        "GFD_OUTPUT_FILE": str(path),
        "CONFIG_FILE": "/nowhere",
    }
    written = run("--inventory", "a100-mig", **env)
    assert (written.exit_code, written.stdout) == (0, ""), written.stderr
    found = read(path.read_text())
    assert found["nvidia.com/mig.strategy"] == "mixed"
    assert found["nvidia.com/gpu.replicas"] == "4"
    assert "nvidia.com/gfd.timestamp" not in found


def test_json_output_fits_its_schema(seed: str) -> None:
    shown = run("--inventory", "t4", "-o", "json", "--config-file", seed, "--accelerator-label")
    document = json.loads(shown.stdout)
    assert document["schema"] == "gpuhook/labels/v1"
    assert document["labels"]["accelerator"] == "nvidia-tesla-t4"
    assert abs(int(document["labels"]["nvidia.com/gfd.timestamp"]) - time.time()) < 600


def test_strategy_single_on_unlike_gpus() -> None:
    """The label is INVALID, and a message has the reason."""
    shown = run("--inventory", "a100-mig", "--mig-strategy", "single")
    assert shown.exit_code == 0
    found = read(shown.stdout)
    assert found["nvidia.com/gpu.product"] == "NVIDIA-A100-SXM4-40GB-MIG-INVALID"
    assert found["nvidia.com/gpu.count"] == "0"
    assert "migStrategy single cannot offer" in shown.stderr


@pytest.mark.parametrize(
    ("arguments", "env", "code"),
    [
        (["--config-file", "/nowhere"], {}, "GH1801"),
        (["--mig-strategy", "some"], {}, "GH1803"),
        ([], {"GFD_ONESHOT": "perhaps"}, "GH1803"),
        (["--interval", "soon"], {}, "--interval: "),
    ],
)
def test_bad_options_are_refused(arguments: list[str], env: dict[str, str], code: str) -> None:
    """The error names the option, and nothing is printed."""
    failed = run("--inventory", "t4", *arguments, **env)
    assert (failed.exit_code, failed.stdout) == (1 if code == "GH1801" else 2, "")
    assert code in failed.stderr


def test_node_without_a_driver(tmp_path: Path) -> None:
    """The command fails, or with an option prints the labels that it knows."""
    roots = [f"--{name}-root={tmp_path}" for name in ("driver", "host")]
    failed = run(*roots)
    assert (failed.exit_code, failed.stdout) == (1, "")
    shown = run(*roots, "--no-timestamp", "--fail-on-init-error=false")
    assert (shown.exit_code, shown.stdout) == (0, "nvidia.com/vgpu.present=false\n")
    assert "warning: " in shown.stderr


@pytest.fixture
def node(tmp_path: Path) -> SimulatedNode:
    return make_node(tmp_path / "node", "t4", real_nodes=False)


def test_facts_of_this_machine(node: SimulatedNode) -> None:
    """Machine and mode come from the node's own /sys."""
    dmi = Path(node.host_root) / "sys/class/dmi/id"
    dmi.mkdir(parents=True)
    (dmi / "product_name").write_text("g4dn.xlarge\n")
    pci = Path(node.host_root) / "sys/bus/pci/devices/0000:00:1e.0"
    pci.mkdir(parents=True, exist_ok=True)
    (pci / "class").write_text("0x030200\n")
    shown = run(*node.options)
    assert shown.exit_code == 0, shown.stderr
    found = read(shown.stdout)
    assert found["nvidia.com/gpu.machine"] == "g4dn.xlarge"
    assert found["nvidia.com/gpu.mode"] == "compute"
    assert "nvidia.com/gpu.clique" not in found


def _until(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.01)


def _started(
    seed: str, path: Path, *arguments: str, stderr: IO[bytes] | None = None
) -> subprocess.Popen[bytes]:
    program = "import sys; from gpuhook.cli import main; main(prog_name='gpuhook')"
    options = ["--inventory", "t4", "--config-file", seed, "--output-file", str(path)]
    return subprocess.Popen(
        [sys.executable, "-c", program, "labels", *options, *arguments],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        stderr=stderr,
    )


def test_repeated_run_rereads_its_configuration_at_sighup(seed: str, tmp_path: Path) -> None:
    """SIGHUP rereads the configuration, a broken one has no effect, and the exit removes the file.

    The configuration is read only at SIGHUP; at each interval the facts of the node are read.
    """
    path = tmp_path / "features.d" / "gfd"
    log = tmp_path / "log"
    options = ("--interval", "1h", "--no-timestamp", "--remove-labels-on-exit")
    with (
        log.open("wb") as stream,
        _started(seed, path, *options, stderr=stream) as process,
    ):
        try:
            _until(path.exists)
            assert read(path.read_text())["nvidia.com/gpu.replicas"] == "4"
            Path(seed).write_text("version: v2\n")
            process.send_signal(signal.SIGHUP)
            _until(lambda: "the labels are not updated" in log.read_text())
            assert read(path.read_text())["nvidia.com/gpu.replicas"] == "4"
            Path(seed).write_text(SEED.replace("4", "8"))
            process.send_signal(signal.SIGHUP)
            _until(lambda: read(path.read_text())["nvidia.com/gpu.replicas"] == "8")
            process.send_signal(signal.SIGTERM)
            assert process.wait(20) == 0
        finally:
            process.kill()
    assert not path.exists()


@pytest.mark.parametrize(
    "arguments", [["--interval", "infinite", "--remove-labels-on-exit"], ["--interval", "1h"]]
)
def test_label_file_is_kept_at_exit(seed: str, tmp_path: Path, arguments: list[str]) -> None:
    """With an infinite interval, or by default, the file remains after the process."""
    path = tmp_path / "gfd"
    with _started(seed, path, *arguments) as process:
        try:
            _until(path.exists)
            process.terminate()
            assert process.wait(20) == 0
        finally:
            process.kill()
    assert path.exists()


@pytest.mark.parametrize(
    ("arguments", "env", "told"),
    [
        (("--interval", "5"), {}, "--interval: must be 0.1s or longer"),
        ((), {"GFD_MIG_STRATEGY": "x"}, "variable GFD_MIG_STRATEGY: must be one of"),
        ((), {"MIG_STRATEGY": "x"}, "variable MIG_STRATEGY: must be one of"),
    ],
)
def test_bad_value_is_reported_by_the_name_that_set_it(
    arguments: tuple[str, ...], env: dict[str, str], told: str
) -> None:
    """Not by the name of the plugin's setting."""
    failed = run("--inventory", "t4", *arguments, **env)
    assert failed.exit_code == 2
    assert told in failed.stderr


def test_output_file_error_names_the_given_path(tmp_path: Path) -> None:
    """Not the path of a temporary file."""
    failed = run("--inventory", "t4", "--output-file", str(tmp_path))
    assert failed.exit_code == 1
    assert f"{tmp_path}: Is a directory" in failed.stderr


def test_repeated_run_defaults_to_the_file_of_nfd() -> None:
    """GPU Feature Discovery accepts an interval without an output file."""
    said: dict[str, tuple[str, ...]] = dict.fromkeys(labels._OPTIONS, ())
    said |= {"interval": ("60s",), "oneshot": ()}
    asked = labels._update(said)
    assert (asked.goes_on, asked.path) == (True, LabelFlags().output_file)
    assert labels._update(said | {"output-file": ("",)}).path == ""
    assert labels._update(said | {"interval": ()}).path == ""


def test_file_of_the_earlier_path_is_removed(seed: str, tmp_path: Path) -> None:
    """NFD reads all files of its directory, also those that are no longer written."""
    first, second = tmp_path / "features.d" / "first", tmp_path / "features.d" / "second"
    text = "flags: {gfd: {outputFile: %s}}\n"
    Path(seed).write_text(text % first)
    command = [sys.executable, "-m", "gpuhook", "labels", "--inventory", "t4"]
    with subprocess.Popen(
        [*command, "--config-file", seed, "--interval", "1h"],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    ) as process:
        try:
            _until(first.exists)
            Path(seed).write_text(text % second)
            process.send_signal(signal.SIGHUP)
            _until(second.exists)
            assert not first.exists()
            process.terminate()
            assert process.wait(20) == 0
        finally:
            process.kill()


VRAM = {"mi300x8": ("192G", 8), "mi300x-cpx": ("24G", 64), "mixed": ("64G", 2)}


@pytest.mark.parametrize("profile", VRAM)
def test_labels_of_amd_profiles(profile: str) -> None:
    size, count = VRAM[profile]
    shown = run("--inventory", profile, "--no-timestamp")
    assert (shown.exit_code, shown.stderr) == (0, "")
    found = read(shown.stdout)
    assert found["amd.com/gpu.vram"] == found["beta.amd.com/gpu.vram"] == size
    assert found[f"beta.amd.com/gpu.vram.{size}"] == found["amd.com/gpu.count"] == str(count)
    assert found["amd.com/gpu.replicas"] == "1"
    assert ("nvidia.com/gpu.count" in found) == (profile == "mixed")


def test_kinds_of_labels_are_chosen() -> None:
    options = ("--inventory", "mi300x-cpx", "--no-timestamp")
    shown = run(*options, "--device-labels=vram,compute-memory-partition")
    found = {name for name in read(shown.stdout) if name.startswith(("amd.com", "beta"))}
    shared = {f"amd.com/gpu.{one}" for one in ("count", "replicas", "sharing-strategy", "memory",
                                               "replica-memory")}  # fmt: skip
    assert found - shared == {
        "amd.com/gpu.vram",
        "beta.amd.com/gpu.vram",
        "beta.amd.com/gpu.vram.24G",
        "amd.com/gpu.compute-memory-partition",
    }
    refused = run(*options, "--device-labels=colour")
    assert (refused.exit_code, refused.stdout) == (2, "")
    assert "--device-labels" in refused.stderr


def test_replicas_of_amd_gpus(tmp_path: Path) -> None:
    path = tmp_path / "default"
    path.write_text(SEED.replace("nvidia.com", "amd.com"))
    shown = run("--inventory", "mi300x8", "--config-file", str(path), "--no-timestamp")
    found = read(shown.stdout)
    assert found["amd.com/gpu.replicas"] == "4"
    assert found["amd.com/gpu.sharing-strategy"] == "time-slicing"


def test_node_with_amd_gpus_only(tmp_path: Path) -> None:
    """Facts come from its /sys; that NVIDIA's driver is missing is no fault there."""
    tree = amd_tree.build(tmp_path, "mi300x8")
    roots = [f"--{name}-root={tree.root}" for name in ("driver", "dev", "host")]
    shown = run(*roots, "--device-labels=vram,family,firmware")
    assert shown.exit_code == 0
    assert "nvidia" not in shown.stderr.lower().replace(str(tmp_path), "")
    found = read(shown.stdout)
    assert found["amd.com/gpu.vram"] == "192G"
    assert found["beta.amd.com/gpu.family.AI"] == "8"
    assert found["beta.amd.com/gpu.firmware.MEC.fw.139"] == "8"
    assert not any(name.startswith("nvidia.com") for name in found)


def test_node_with_both_vendors_of_which_one_loses_its_driver(
    node: SimulatedNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    tree = amd_tree.build(node.host_root, "radeon")
    found = read(run(*node.options).stdout)
    assert found["nvidia.com/gpu.count"] == "1"
    assert found["beta.amd.com/gpu.device-id.744c"] == "1"
    failed = run(*node.options, "--nvml-library=/nowhere")
    assert failed.exit_code == 0
    assert "warning: " in failed.stderr
    assert "beta.amd.com/gpu.device-id.744c=1\n" in failed.stdout
    assert "nvidia.com/gpu.count" not in failed.stdout
    (tree.root / "sys/module/amdgpu").rename(tree.root / "sys/module/other")
    left = read(run(*node.options).stdout)
    assert {name for name in left if "amd.com" in name} == set()
    assert left["nvidia.com/gpu.count"] == "1"
    (tree.root / "sys/module/other").rename(tree.root / "sys/module/amdgpu")
    monkeypatch.setattr(AmdVendor, "plugin_part", lambda *_: 1 / 0)
    failed = run(*node.options)
    assert read(failed.stdout)["nvidia.com/gpu.count"] == "1"
    assert re.search(r"warning: AMD: .*division by zero", failed.stderr)
