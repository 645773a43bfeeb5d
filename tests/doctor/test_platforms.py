# SPDX-License-Identifier: Apache-2.0
"""A Jetson and WSL with a spec of gpuhook."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from gpuhook.cli import main
from gpuhook.doctor.check import FAILED, OK
from gpuhook.doctor.commands import spec_regeneration
from gpuhook.doctor.facts import driver_facts
from gpuhook.doctor.facts.spec_facts import GPUHOOK, SpecFile
from gpuhook.vendors.nvidia.inventory import dump_file
from gpuhook.vendors.nvidia.spec.generate_options import Choices
from gpuhook.vendors.nvidia.spec.gpu_spec import describe
from tests.doctor.case import is_root
from tests.doctor.test_driver_checks import bare, found, looked, troubles
from tests.simulated import elf_maker, tegra_node, wsl_node

pytestmark = pytest.mark.skipif(not is_root(), reason="device nodes need root")
MAKERS = {"jetson": tegra_node.make, "wsl": wsl_node.make}
WITHOUT_HOOK = {("specs.hooks", "/etc/cdi/nvidia.yaml runs the hook /usr/bin/gpuhook-hook")}


def node(root: Path, kind: str) -> None:
    """Make a system below `root` with the spec that generate-cdi would write on it."""
    made = MAKERS[kind](root)
    words = ["generate-cdi", *made.options]
    done = CliRunner().invoke(main, words, env={"GPUHOOK_CONFIG": "/none"})
    assert done.exit_code == 0, done.stderr
    text = done.stdout.replace(f"- {root}\n", "- /\n").replace(str(root), "")
    (root / "etc/cdi").mkdir(parents=True)
    (root / "etc/cdi/nvidia.yaml").write_text(text)


@pytest.mark.parametrize("kind", MAKERS)
def test_a_spec_of_such_a_system_is_well(kind: str, tmp_path: Path) -> None:
    """Only the hook, which is not installed below that root, is missing."""
    node(tmp_path, kind)
    told = {(name, said.partition(",")[0]) for name, said in troubles(looked(bare(tmp_path)))}
    assert told == WITHOUT_HOOK
    assert found(bare(tmp_path), "specs.fresh")[0].status == OK
    assert found(bare(tmp_path), "specs.present")[0].status == OK


def test_a_changed_jetson(tmp_path: Path) -> None:
    """Another release and another libcuda make its spec stale."""
    node(tmp_path, "jetson")
    (tmp_path / "sys/module/nvidia/version").unlink()
    cuda = f"{tmp_path}{tegra_node.NVIDIA}/libcuda.so.1.1"
    elf_maker.write(cuda, "libcuda.so.1", needed=("libc.so.6", "libnvrm_gpu.so", "libnvos.so"))
    (finding,) = found(bare(tmp_path), "specs.fresh")
    assert finding.status == FAILED
    assert "driver: was 540.4.0, is R36.4.3" in finding.message
    assert "libcuda.so.1.1 was replaced" in finding.message


def test_a_jetson_has_a_gpu(tmp_path: Path) -> None:
    node(tmp_path, "jetson")
    (finding,) = found(bare(tmp_path), "driver.gpu")
    assert (finding.status, "the GPU is a part of the chip" in finding.message) == (OK, True)


@pytest.mark.parametrize("is_whole", [False, True])
def test_a_spec_that_nvml_does_not_tell_is_not_written_anew(
    is_whole: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A spec of a Tegra is not fixed, whatever NVML reports."""
    known = dump_file.load("t4")
    document: Any = describe(known, Choices()).spec
    if is_whole:
        document["containerEdits"]["hooks"][0]["args"].append("--whole")
    (tmp_path / "x").touch()
    here = bare(tmp_path)
    status = here.tree.status("/x")
    assert status is not None
    one = SpecFile("/etc/cdi/nvidia.yaml", status, document, None, GPUHOOK)
    monkeypatch.setattr(driver_facts, "inventory_of", lambda _: known)
    monkeypatch.setattr(here.tree, "root", "/")
    assert (spec_regeneration.spec_fix(here, one) is None) == is_whole
