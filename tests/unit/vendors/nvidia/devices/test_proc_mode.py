# SPDX-License-Identifier: Apache-2.0
"""Mode proc: GPUs and MIG instances without NVML, and when `auto` uses it."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from gpuhook.cdi import spec_file as spec_files
from gpuhook.cli import main
from gpuhook.vendors.nvidia import discover
from gpuhook.vendors.nvidia.devices import proc_gpus
from gpuhook.vendors.nvidia.inventory.inventory import DriverAnswer
from tests.simulated.node import SimulatedNode, make_node

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gpuhook.cdi.hot.container_edits import Spec

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="device nodes are made by root")
GPUS = "proc/driver/nvidia/gpus"


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GPUHOOK_STATE_DIR", str(tmp_path / "state"))
    monkeypatch.setenv("GPUHOOK_CONFIG", str(tmp_path / "no-settings.yaml"))


def generated(made: SimulatedNode, *options: str) -> tuple[Spec, Result]:
    words = ["generate-cdi", *made.options, "--hook-path", "/usr/bin/gpuhook-hook", *options]
    done = CliRunner().invoke(main, words, prog_name="gpuhook")
    assert done.exit_code == 0, done.stderr
    return spec_files.parser(".yaml")(done.stdout.encode(), "spec"), done


def read_proc(made: SimulatedNode) -> DriverAnswer:
    return proc_gpus.read_proc(discover.roots(made.driver_root, made.dev_root, made.host_root))


def without_gpu_facts(spec: Spec) -> tuple[Spec, list[str]]:
    """Return the spec without the hook's arguments about the GPUs, and these arguments."""
    args = spec["containerEdits"]["hooks"][0]["args"]
    told = [args[at + 1] for at, word in enumerate(args) if word == "--gpus"]
    for text in told:
        at = args.index(text)
        del args[at - 1 : at + 1]
    return spec, told


@pytest.mark.parametrize("profile", ["t4", "h100x8"])
def test_spec_equals_that_of_mode_nvml(tmp_path: Path, profile: str) -> None:
    """Nodes, mounts and CUDA version; brands and compute capabilities are unknown."""
    made = make_node(tmp_path, profile)
    plain, sorts = without_gpu_facts(generated(made, "--mode", "proc")[0])
    full, known = without_gpu_facts(generated(made, "--mode", "nvml")[0])
    assert plain == full
    assert (bool(sorts), bool(known)) == (False, True)
    assert "--cuda-version" in plain["containerEdits"]["hooks"][0]["args"]


def test_facts_that_nvml_reported_are_kept(tmp_path: Path) -> None:
    """For the same GPUs and the same driver; a brand does not apply to another driver."""
    made = make_node(tmp_path / "node", "h100x8")
    output = ("--output-file", str(tmp_path / "nvidia.yaml"))
    words = ["generate-cdi", *made.options, "--hook-path", "/usr/bin/gpuhook-hook"]
    for mode in ("nvml", "proc"):
        done = CliRunner().invoke(main, [*words, "--mode", mode, *output], prog_name="gpuhook")
        assert done.exit_code == 0, done.stderr
    found = without_gpu_facts(generated(made, "--mode", "proc")[0])[1]
    assert found == without_gpu_facts(generated(made, "--mode", "nvml")[0])[1] == ["0-7=9.0,nvidia"]
    known = tmp_path / "state/node.json"
    document = json.loads(known.read_text())
    document["driver"]["module_version"] = "550.163.01"
    document["gpus"][0]["uuid"] = "GPU-another"
    known.write_text(json.dumps(document))
    assert without_gpu_facts(generated(made, "--mode", "proc")[0])[1] == ["1-7=9.0,"]


def test_facts_of_the_node(tmp_path: Path) -> None:
    made = make_node(tmp_path, "h100x8")
    found = read_proc(made)
    assert [g.index for g in found.gpus] == list(range(8))
    for mine, its in zip(found.gpus, made.node.gpus, strict=True):
        assert (mine.uuid, mine.minor, mine.pci_bus_id, mine.name) == (
            its.uuid, its.minor, its.pci_bus_id, its.name,
        )  # fmt: skip
        assert (mine.memory_bytes, mine.architecture, mine.mig_mode) == (None, None, None)
    assert (found.driver.version, found.driver.cuda) == ("580.95.05", "13.0")
    assert found.driver.nvml is None


def test_no_library_is_loaded(tmp_path: Path) -> None:
    """NVML would fail; a GPU that was never used has no UUID."""
    made = make_node(tmp_path, "t4")
    Path(made.nvml_profile).write_text("init 999\n")
    information = next(Path(made.host_root, GPUS).glob("*/information"))
    text = information.read_text()
    uuid = str(made.node.gpus[0].uuid)
    information.write_text(text.replace(uuid, "GPU-????????-????-????-????-????????????"))
    spec, done = generated(made, "--mode", "proc")
    assert [device["name"] for device in spec["devices"]] == ["0", "all"]
    assert "warning" not in done.stderr


def test_order_is_that_of_the_bus(tmp_path: Path) -> None:
    """Domains with five digits come after those with four, whatever the order of their names is."""
    made = make_node(tmp_path, "t4")
    gpus = Path(made.host_root, GPUS)
    (gpus / "10000:01:00.0").mkdir()
    (gpus / "10000:01:00.0/information").write_text("Device Minor: 1\nGPU Excluded: No\n")
    (gpus / "0000:af:00.0").mkdir()
    (gpus / "0000:af:00.0/information").write_text("Device Minor: 2\n")
    assert [gpu.minor for gpu in read_proc(made).gpus] == [0, 2, 1]


def test_excluded_gpus_have_no_index(tmp_path: Path) -> None:
    """As in NVML, the next GPU has the index; a warning names the excluded one."""
    made = make_node(tmp_path, "h100x8")
    first = min(Path(made.host_root, GPUS).iterdir()) / "information"
    first.write_text(first.read_text().replace("GPU Excluded:\t No", "GPU Excluded:\t Yes"))
    spec, done = generated(made, "--mode", "proc")
    assert "7" not in [device["name"] for device in spec["devices"]]
    nodes = spec["devices"][0]["containerEdits"]["deviceNodes"]
    assert [node["path"] for node in nodes] == [f"/dev/nvidia{made.node.gpus[1].minor}"]
    assert "NVreg_ExcludedGpus" in done.stderr


def test_mig_instances_are_listed_by_index(tmp_path: Path) -> None:
    """Each instance has its nodes; a GPU with instances is not offered as a whole."""
    made = make_node(tmp_path, "a100-mig")
    by_nvml, _ = generated(made, "--mode", "nvml", "--device-name-strategy", "index")
    by_proc, done = generated(made, "--mode", "proc", "--device-name-strategy", "index")
    known = {one["name"]: one["containerEdits"] for one in by_nvml["devices"]}
    found = {one["name"]: one["containerEdits"] for one in by_proc["devices"]}
    assert "0" not in found
    assert "1" not in found
    assert {name: found[name] for name in ("0:0", "0:1", "2", "all")} == {
        name: known[name] for name in ("0:0", "0:1", "2", "all")
    }
    own = [name for name in known if name.startswith("1:")]
    assert len([name for name in found if name.startswith("1:")]) == len(own)
    assert "MIG instances are named only by index" in done.stderr


def test_gpu_in_mig_mode_without_a_device_is_left_out(tmp_path: Path) -> None:
    made = make_node(tmp_path, "a100-mig")
    capabilities = Path(made.host_root, "proc/driver/nvidia/capabilities")
    for compute_instance in capabilities.glob("gpu0/mig/gi*/ci*"):
        shutil.rmtree(compute_instance)
    spec, done = generated(made, "--mode", "proc")
    names = [device["name"] for device in spec["devices"]]
    assert not [name for name in names if name == "0" or name.startswith("0:")]
    assert (
        "GPU 0 is omitted from the spec: it is in MIG mode and has no MIG instance" in done.stderr
    )


def test_legacy_names_of_instances_are_accepted(tmp_path: Path) -> None:
    """MIG-GPU-<uuid>/<gi>/<ci> names an instance whose new UUID only NVML knows."""
    made = make_node(tmp_path, "a100-mig")
    first = made.node.gpus[0]
    one = first.instances[0]
    old = f"MIG-{first.uuid}/{one.gpu_instance}/{one.compute_instance}"
    spec, _ = generated(made, "--mode", "proc", "--device-id", old)
    assert [device["name"] for device in spec["devices"]] == ["0:0", "all"]


@pytest.mark.parametrize("how", ["gone", "broken"])
def test_auto_uses_proc_if_nvml_fails(tmp_path: Path, how: str) -> None:
    made = make_node(tmp_path, "t4")
    expected, _ = generated(made, "--mode", "proc")
    if how == "broken":
        Path(made.nvml_library).write_bytes(b"\x7fELF and no more")
    else:
        for name in Path(made.nvml_library).parent.glob("libnvidia-ml.so*"):
            name.unlink()
    words = ["generate-cdi", *made.options, "--hook-path", "/usr/bin/gpuhook-hook"]
    done = CliRunner().invoke(main, words, prog_name="gpuhook")
    if how == "gone":
        assert done.exit_code == 0, done.stderr
        assert "warning: GH1200: " in done.stderr
    else:
        assert "warning: GH1202: " in done.stderr
    assert "described by /proc alone" in done.stderr
    found = spec_files.parser(".yaml")(done.stdout.encode(), "spec")
    assert found["devices"] == expected["devices"]
    refused = CliRunner().invoke(main, [*words, "--mode", "nvml"], prog_name="gpuhook")
    assert refused.exit_code == 1


def test_auto_refuses_a_version_mismatch(tmp_path: Path) -> None:
    """With an NVML of a version other than the module, CUDA would not run."""
    made = make_node(tmp_path, "t4")
    Path(made.nvml_profile).write_text("init 18\n")
    Path(made.host_root, "sys/module/nvidia/version").write_text("570.1\n")
    words = ["generate-cdi", *made.options]
    done = CliRunner().invoke(main, words, prog_name="gpuhook")
    assert done.exit_code == 1
    assert "GH1203" in done.stderr


def test_missing_driver_is_a_fault(tmp_path: Path) -> None:
    """With `auto` the fault is that of NVML."""
    words = ["generate-cdi", f"--host-root={tmp_path}", f"--driver-root={tmp_path}"]
    for mode, code in (("proc", "GH1121"), ("auto", "GH1200")):
        done = CliRunner().invoke(main, [*words, "--mode", mode], prog_name="gpuhook")
        assert done.exit_code == 1
        assert f"Error {code}" in done.stderr


@pytest.mark.parametrize(
    ("version", "cuda"),
    [
        ("580.95.05", "13.0"),
        ("535.183.01", "12.2"),
        ("470.256.02", "11.4"),
        ("565.57.01", None),
        ("999.1", None),
        ("", None),
        (None, None),
        ("x.y", None),
    ],
)
def test_cuda_version_of_a_driver(version: str | None, cuda: str | None) -> None:
    assert proc_gpus.cuda_version(version) == cuda
