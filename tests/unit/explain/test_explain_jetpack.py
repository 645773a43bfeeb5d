# SPDX-License-Identifier: Apache-2.0
"""The output of explain for NVIDIA_REQUIRE_JETPACK, on a Tegra and on other nodes."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from gpuhook.cli import main
from tests.simulated import tegra_node

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="device nodes are made by root")
ALL = "NVIDIA_REQUIRE_JETPACK=csv-mounts=all"
FURTHER = "nvidia.com/gpu=csv-mounts-all"


@pytest.fixture
def jetson(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, installed_hook: str) -> Path:
    """Give a Jetson with its spec as this machine."""
    made = tegra_node.make(tmp_path / "node")
    config = tmp_path / "config.yaml"
    config.write_text(json.dumps({"cdi": {"specDirs": [str(tmp_path / "cdi")]}}))
    monkeypatch.setenv("GPUHOOK_CONFIG", str(config))
    monkeypatch.setenv("GPUHOOK_STATE_DIR", str(tmp_path / "state"))
    monkeypatch.setenv("GPUHOOK_HOST_ROOT", made.host_root)
    words = ["generate-cdi", *made.options, "--output-file", str(tmp_path / "cdi/nvidia.yaml")]
    assert CliRunner().invoke(main, words).exit_code == 0
    return Path(made.host_root)


def explained_container(*env: str) -> dict[str, Any]:
    """Return the explanation of a container with these variables."""
    words = [word for entry in env for word in ("--env", entry)]
    done = CliRunner().invoke(main, ["explain", *words, "-o", "json"])
    assert done.stdout, done.stderr
    (container,) = json.loads(done.stdout)["containers"]
    return dict(container)


def test_further_files_are_a_device(jetson: Path) -> None:
    container = explained_container("NVIDIA_VISIBLE_DEVICES=all", ALL)
    assert container["result"] == "gets"
    assert [one["device"] for one in container["devices"]] == ["nvidia.com/gpu=all", FURTHER]
    adds = f"{ALL} adds {FURTHER}: the entries of all CSV files of this Tegra"
    assert any(note.startswith(adds) for note in container["notes"])
    assert "/usr/src/jetson_multimedia_api" in container["changes"]["mounts"]


def test_all_does_not_include_the_further_files(jetson: Path, tmp_path: Path) -> None:
    """Without a device `all` in the spec, `all` means its GPUs."""
    words = ["generate-cdi", f"--driver-root={jetson}", f"--host-root={jetson}"]
    words += ["--no-all-device", "--output-file", str(tmp_path / "cdi/nvidia.yaml")]
    assert CliRunner().invoke(main, words).exit_code == 0
    named = [one["device"] for one in explained_container("NVIDIA_VISIBLE_DEVICES=all")["devices"]]
    assert named == ["nvidia.com/gpu=0"]
    named = [
        one["device"] for one in explained_container("NVIDIA_VISIBLE_DEVICES=all", ALL)["devices"]
    ]
    assert named == ["nvidia.com/gpu=0", FURTHER]


@pytest.mark.parametrize(
    ("env", "sentence"),
    [
        (["NVIDIA_VISIBLE_DEVICES=0", ALL + "x"], "requests nothing: only csv-mounts=all has"),
        ([ALL], "adds nothing to a container without a GPU"),
    ],
)
def test_values_that_add_nothing(env: list[str], sentence: str, jetson: Path) -> None:
    container = explained_container(*env)
    assert any(sentence in note for note in container["notes"])
    assert FURTHER not in [one["device"] for one in container["devices"]]


def test_node_without_further_files(jetson: Path, tmp_path: Path) -> None:
    spec = tmp_path / "cdi/nvidia.yaml"
    spec.write_text(spec.read_text().replace("csv-mounts-all", "others"))
    container = explained_container("NVIDIA_VISIBLE_DEVICES=0", ALL)
    assert (
        f"{ALL} adds nothing: no spec on this node contains the additional files of a Tegra"
        in container["notes"]
    )


def test_no_note_without_the_variable(jetson: Path) -> None:
    assert not any(
        "JETPACK" in note for note in explained_container("NVIDIA_VISIBLE_DEVICES=0")["notes"]
    )


def test_capabilities_leave_out_no_file(jetson: Path) -> None:
    """The files of a Tegra belong together."""
    container = explained_container(
        "NVIDIA_VISIBLE_DEVICES=0", "NVIDIA_DRIVER_CAPABILITIES=utility"
    )
    assert container["capabilities"]["effective"] == ["utility"]
    assert container["capabilities"]["left_out"] == []
    assert f"{tegra_node.NVIDIA}/libEGL_nvidia.so.0" in container["changes"]["mounts"]
