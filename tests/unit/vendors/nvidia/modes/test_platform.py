# SPDX-License-Identifier: Apache-2.0
"""Mode auto: the platform of a node, by its files and, on a Tegra, by NVML."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from gpuhook.cli import main
from gpuhook.vendors.nvidia import discover
from gpuhook.vendors.nvidia.hot import host_fingerprint
from gpuhook.vendors.nvidia.modes import mode_table
from tests.simulated import nvml_profile, tegra_node, wsl_node
from tests.simulated.node import make_node

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="device nodes are made by root")
RELEASE = "# R36 (release), REVISION: 4.3, GCID: 38968081\n"


def chosen(root: Path, mode: str = mode_table.AUTO) -> str:
    return mode_table.chosen(mode, discover.roots(str(root), None, str(root)))


def write(root: Path, path: str, text: str = "") -> None:
    place = root / path
    place.parent.mkdir(parents=True, exist_ok=True)
    place.write_text(text)


def test_other_machines(tmp_path: Path) -> None:
    assert chosen(tmp_path) == mode_table.NVML


@pytest.mark.parametrize("path", ["dev/dxg", "usr/lib/wsl/lib/libdxcore.so"])
def test_wsl_by_its_files(path: str, tmp_path: Path) -> None:
    write(tmp_path, path)
    write(tmp_path, "etc/nv_tegra_release", RELEASE)
    assert chosen(tmp_path) == mode_table.WSL


@pytest.mark.parametrize(
    ("path", "text"),
    [("etc/nv_tegra_release", RELEASE), ("sys/devices/soc0/family", "Tegra\n")],
)
def test_tegra_without_nvml(path: str, text: str, tmp_path: Path) -> None:
    write(tmp_path, path, text)
    assert chosen(tmp_path) == mode_table.CSV


def test_other_system_on_a_chip(tmp_path: Path) -> None:
    write(tmp_path, "sys/devices/soc0/family", "Snapdragon\n")
    assert chosen(tmp_path) == mode_table.NVML


@pytest.mark.parametrize(
    ("names", "mode"),
    [
        (["Orin (nvgpu)"], mode_table.CSV),
        (["NVIDIA Thor"], mode_table.CSV),
        (["NVIDIA Thor", "NVIDIA RTX PRO 6000"], mode_table.NVML),
        (["Tesla T4"], mode_table.NVML),
    ],
)
def test_tegra_by_the_names_of_its_gpus(names: list[str], mode: str, tmp_path: Path) -> None:
    """If all GPUs are integrated, it is a Tegra; with a discrete one it is a usual machine."""
    made = make_node(tmp_path, "h100x8", real_nodes=False)
    gpus = tuple(replace(gpu, name=name) for gpu, name in zip(made.node.gpus, names, strict=False))
    facts = replace(made.node, gpus=gpus)
    Path(made.nvml_profile).write_text(nvml_profile.text(facts), encoding="utf-8")
    write(tmp_path, "etc/nv_tegra_release", RELEASE)
    assert chosen(tmp_path) == mode


@pytest.mark.parametrize("mode", [mode_table.NVML, mode_table.CSV, mode_table.WSL])
def test_chosen_mode_applies(mode: str, tmp_path: Path) -> None:
    write(tmp_path, "dev/dxg")
    assert chosen(tmp_path, mode) == mode


@pytest.mark.parametrize("path", ["etc/nv_tegra_release", "sys/module/nvgpu/refcnt"])
def test_tegra_has_a_driver(path: str, tmp_path: Path) -> None:
    assert not host_fingerprint.driver_is_loaded(str(tmp_path))
    write(tmp_path, path, RELEASE)
    assert host_fingerprint.driver_is_loaded(str(tmp_path))


@pytest.mark.parametrize(
    ("text", "release"),
    [
        (RELEASE, "R36.4.3"),
        ("# R32 (release), REVISION: 7.4, GCID: 1, BOARD: t210ref, DATE: today\n", "R32.7.4"),
        ("# R36\n", "R36"),
        ("REVISION:\n", "REVISION:"),
        ("#\n", ""),
        ("", ""),
    ],
)
def test_release_of_a_tegra(text: str, release: str, tmp_path: Path) -> None:
    write(tmp_path, "etc/nv_tegra_release", text)
    assert host_fingerprint.tegra_release(str(tmp_path)) == release


def test_release_is_part_of_the_fingerprint(tmp_path: Path) -> None:
    write(tmp_path, "etc/nv_tegra_release", RELEASE)
    before = host_fingerprint.fingerprint(str(tmp_path), "")
    write(tmp_path, "etc/nv_tegra_release", RELEASE.replace("4.3", "4.4"))
    after = host_fingerprint.fingerprint(str(tmp_path), "")
    assert host_fingerprint.differences(before, after) == ["driver: was R36.4.3, is R36.4.4"]


def generate(*words: str, **env: str) -> Result:
    own = {"GPUHOOK_STATE_DIR": "/proc/gpuhook", "GPUHOOK_CONFIG": "/proc/none.yaml", **env}
    return CliRunner().invoke(main, ["generate-cdi", *words], env=own, prog_name="gpuhook")


@needs_root
def test_generate_cdi_on_each_platform(tmp_path: Path) -> None:
    """Auto describes them, under any kind, and reports missing files."""
    jetson = tegra_node.make(tmp_path / "jetson")
    windows = wsl_node.make(tmp_path / "wsl")
    done = generate(*jetson.options, "--format", "json", "--vendor", "example.com")
    assert done.exit_code == 0, done.stderr
    assert json.loads(done.stdout)["kind"] == "example.com/gpu"
    assert "warning: missing on this system: /dev/nvsciipc" in done.stderr
    path = tmp_path / "cdi/nvidia.yaml"
    done = generate(*windows.options, "--output-file", str(path))
    assert done.exit_code == 0, done.stderr
    assert f"wrote {path}: nvidia.com/gpu all" in done.stderr


@needs_root
@pytest.mark.parametrize("form", ["ours", "toolkit", "environment"])
def test_options_of_csv(form: str, tmp_path: Path) -> None:
    """They have our names, NVIDIA toolkit's names, and variables."""
    made = tegra_node.make(tmp_path / "jetson")
    (tmp_path / "one.csv").write_text("dev, /dev/nvmap\nlib, /etc/nv_tegra_release\n")
    (tmp_path / "two.csv").write_text(
        f"dev, /dev/nvidia0\nsym, {tegra_node.LIBRARIES}/libcuda.so\n"
    )
    files = [str(tmp_path / "one.csv"), str(tmp_path / "two.csv")]
    words: list[str] = []
    env: dict[str, str] = {}
    if form == "environment":
        env = {
            "GPUHOOK_GENERATE_CDI_CSV_FILE": ":".join(files),
            "GPUHOOK_GENERATE_CDI_CSV_IGNORE_PATTERN": "**/*.so",
            "GPUHOOK_GENERATE_CDI_CSV_COMPAT_CONTAINER_ROOT": "/opt/compat",
        }
    else:
        mark = "-" if form == "ours" else "."
        words = [word for file in files for word in (f"--csv{mark}file", file)]
        words += [f"--csv{mark}ignore-pattern", "**/*.so"]
        words += [f"--csv{mark}compat-container-root", "/opt/compat"]
    done = generate(*made.options, "--mode", "csv", "--format", "json", *words, **env)
    assert done.exit_code == 0, done.stderr
    spec = json.loads(done.stdout)
    paths = [node["path"] for node in spec["devices"][0]["containerEdits"]["deviceNodes"]]
    assert paths == ["/dev/nvidia0", "/dev/nvmap"]
    mounts = [mount["containerPath"] for mount in spec["containerEdits"]["mounts"]]
    assert mounts == ["/etc/nv_tegra_release"]
    assert "csv.file" not in generate("--help").stdout


@pytest.mark.parametrize("mode", ["nvml", "wsl"])
def test_options_of_csv_have_no_effect_elsewhere(mode: str) -> None:
    done = generate("--mode", mode, "--csv-file", "x.csv")
    assert done.exit_code == 2
    assert f"--csv-... have no effect with --mode {mode}" in done.stderr
