# SPDX-License-Identifier: Apache-2.0
"""A Jetson and WSL with a spec of gpuhook."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from gpuhook.cli import main
from gpuhook.doctor.commands import spec_regeneration
from gpuhook.node_facts.cdi_specs import SpecFile
from gpuhook.node_facts.check import FAILED, OK
from gpuhook.vendors.nvidia.doctor.facts import driver_facts
from gpuhook.vendors.nvidia.doctor.facts.nvidia_specs import GPUHOOK
from gpuhook.vendors.nvidia.inventory import dump_file
from gpuhook.vendors.nvidia.spec.generate_options import Choices
from gpuhook.vendors.nvidia.spec.gpu_spec import describe
from tests.doctor.case import is_root
from tests.doctor.test_driver_checks import (
    examine_drivers,
    failures_and_warnings,
    files_only,
    findings_of,
)
from tests.simulated import elf_maker, tegra_node, wsl_node

pytestmark = pytest.mark.skipif(not is_root(), reason="device nodes need root")
MAKERS = {"jetson": tegra_node.make, "wsl": wsl_node.make}
WITHOUT_HOOK = {("specs.hooks", "/etc/cdi/nvidia.yaml runs the hook /usr/bin/gpuhook-hook")}


def make_system(root: Path, kind: str) -> None:
    """Make a system below `root`, with the spec that generate-cdi writes on it."""
    made = MAKERS[kind](root)
    words = ["generate-cdi", *made.options, "--hook-path", "/usr/bin/gpuhook-hook"]
    done = CliRunner().invoke(main, words, env={"GPUHOOK_CONFIG": "/none"})
    assert done.exit_code == 0, done.stderr
    text = done.stdout.replace(f"- {root}\n", "- /\n").replace(str(root), "")
    (root / "etc/cdi").mkdir(parents=True)
    (root / "etc/cdi/nvidia.yaml").write_text(text)


@pytest.mark.parametrize("kind", MAKERS)
def test_only_the_hook_is_missing(kind: str, tmp_path: Path) -> None:
    """The hook is not installed below that root; the spec has no other finding."""
    make_system(tmp_path, kind)
    findings = {
        (name, message.partition(",")[0])
        for name, message in failures_and_warnings(examine_drivers(files_only(tmp_path)))
    }
    assert findings == WITHOUT_HOOK
    assert findings_of(files_only(tmp_path), "specs.fresh")[0].status == OK
    assert findings_of(files_only(tmp_path), "specs.present")[0].status == OK


def test_changed_jetson_has_a_stale_spec(tmp_path: Path) -> None:
    """The release and libcuda have changed."""
    make_system(tmp_path, "jetson")
    (tmp_path / "sys/module/nvidia/version").unlink()
    cuda = f"{tmp_path}{tegra_node.NVIDIA}/libcuda.so.1.1"
    elf_maker.write(cuda, "libcuda.so.1", needed=("libc.so.6", "libnvrm_gpu.so", "libnvos.so"))
    (finding,) = findings_of(files_only(tmp_path), "specs.fresh")
    assert finding.status == FAILED
    assert "driver: was 540.4.0, is R36.4.3" in finding.message
    assert "libcuda.so.1.1 was replaced" in finding.message


def test_jetson_has_a_gpu(tmp_path: Path) -> None:
    make_system(tmp_path, "jetson")
    (finding,) = findings_of(files_only(tmp_path), "driver.gpu")
    assert (finding.status, "the GPU is part of the chip" in finding.message) == (OK, True)


@pytest.mark.parametrize("is_whole", [False, True])
def test_spec_of_a_tegra_has_no_fix(
    is_whole: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has no fix, whatever NVML reports."""
    known = dump_file.load("t4")
    document: Any = describe(known, Choices()).spec
    if is_whole:
        document["containerEdits"]["hooks"][0]["args"].append("--whole")
    (tmp_path / "x").touch()
    node = files_only(tmp_path)
    status = node.tree.status("/x")
    assert status is not None
    one = SpecFile("/etc/cdi/nvidia.yaml", status, document, None, GPUHOOK)
    monkeypatch.setattr(driver_facts, "inventory_of", lambda _: known)
    monkeypatch.setattr(node.tree, "root", "/")
    assert (spec_regeneration.spec_fix(node, one) is None) == is_whole
