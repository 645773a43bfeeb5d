# SPDX-License-Identifier: Apache-2.0
"""Device nodes of GPUs and instances that the node no longer has."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from gpuhook.vendors.nvidia.devices import stale_nodes
from gpuhook.vendors.nvidia.hot import mig_capabilities
from tests.simulated.node import make_node

CAP = "/dev/nvidia-caps/nvidia-cap"
ALL = ["/dev/nvidiactl", "/dev/nvidia-uvm", "/dev/nvidia0", "/dev/nvidia2", f"{CAP}66", f"{CAP}75"]


def test_existing_devices_have_no_stale_nodes(tmp_path: Path) -> None:
    made = make_node(tmp_path, "a100-mig", real_nodes=False)
    assert stale_nodes.of_paths(ALL, made.host_root) == []
    assert stale_nodes.of_paths(["/dev/null", "/dev/dri/card0", f"{CAP}1"], made.host_root) == []


def test_nodes_of_a_removed_gpu_and_instance_are_stale(tmp_path: Path) -> None:
    made = make_node(tmp_path, "a100-mig", real_nodes=False)
    driver = Path(made.host_root, "proc/driver/nvidia")
    (gone,) = [p for p in (driver / "gpus").iterdir() if "Minor: \t 2" in _information(p)]
    shutil.rmtree(gone)
    shutil.rmtree(driver / "capabilities/gpu0/mig/gi7")
    assert stale_nodes.of_paths(ALL, made.host_root) == ["/dev/nvidia2", f"{CAP}66"]


def test_unknown_devices_have_no_stale_nodes(tmp_path: Path) -> None:
    """Without a driver, and with a GPU of unknown minor."""
    assert stale_nodes.of_paths(ALL, str(tmp_path)) == []
    made = make_node(tmp_path, "t4", real_nodes=False)
    (gpu,) = Path(made.host_root, "proc/driver/nvidia/gpus").iterdir()
    (gpu / "information").write_text("Model: x\n")
    assert stale_nodes.of_paths(ALL, made.host_root) == []


def test_possible_instances_are_parsed_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """mig-minors lists thousands of instances; a command looks into hundreds of containers."""
    made = make_node(tmp_path, "a100-mig", real_nodes=False)
    stale_nodes.possible_instances.cache_clear()
    texts: list[str] = []

    def parsed(text: str) -> dict[str, int]:
        texts.append(text)
        return parse(text)

    parse = mig_capabilities.parse_minors
    monkeypatch.setattr(mig_capabilities, "parse_minors", parsed)
    for _ in range(3):
        assert stale_nodes.of_paths(ALL, made.host_root) == []
    assert len(texts) == 1


def _information(path: Path) -> str:
    return (path / "information").read_text()
