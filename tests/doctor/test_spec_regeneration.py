# SPDX-License-Identifier: Apache-2.0
"""--fix generates gpuhook's spec again with its options, and never with more devices."""

from __future__ import annotations

import json

import pytest

import tests.doctor.parts  # noqa: F401 # registers what healthy nodes have
from gpuhook.cdi import spec_file
from gpuhook.doctor.commands import spec_regeneration
from gpuhook.errors import GpuhookError
from gpuhook.node_facts.check import ExaminedNode
from gpuhook.node_facts.sources import node_readings
from gpuhook.node_facts.sources.node_readings import Readings
from gpuhook.vendors.nvidia.doctor.facts import nvidia_specs
from gpuhook.vendors.nvidia.inventory import dump
from gpuhook.vendors.nvidia.spec import spec_records
from gpuhook.vendors.nvidia.spec.generate_options import Choices
from gpuhook.vendors.nvidia.spec.gpu_spec import describe
from tests.doctor.case import FaultCase, is_root
from tests.doctor.parts import driver
from tests.doctor.test_driver_checks import LiveTree, findings_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from gpuhook.node_facts.check import Fix

pytestmark = pytest.mark.skipif(not is_root(), reason="device nodes need root")


def spec_fix_of(case: FaultCase) -> Fix | None:
    """Return the fix for the only spec of a node that plays this machine."""
    document = dump.as_dict(case.node.node)
    node = ExaminedNode(LiveTree(case.root), Readings({node_readings.INVENTORY: lambda: document}))
    [one] = nvidia_specs.spec_files(node)
    return spec_regeneration.spec_fix(node, one)


@pytest.mark.parametrize("profile", ["t4", "a100-mig"])
def test_fix_of_a_spec_with_all_gpus(profile: str, fresh: Callable[[str], FaultCase]) -> None:
    fix = spec_fix_of(fresh(profile))
    assert fix is not None
    assert fix.description == f"regenerate {driver.SPEC} for this node"


def test_fix_of_a_spec_from_an_earlier_boot(
    fresh: Callable[[str], FaultCase],
) -> None:
    case = fresh("t4")
    case.write("/proc/sys/kernel/random/boot_id", "e0a1c7de-33f5-4f5b-9a51-6d8e1f6d7c11\n")
    document = dump.as_dict(case.node.node)
    node = ExaminedNode(LiveTree(case.root), Readings({node_readings.INVENTORY: lambda: document}))
    [failed] = findings_of(node, "specs.fresh")
    assert failed.fix is not None
    [failed] = findings_of(case.examined(), "specs.fresh")
    assert failed.fix is None


def test_spec_with_some_gpus_has_no_fix(fresh: Callable[[str], FaultCase]) -> None:
    case = fresh("h100x8")
    made = describe(driver.own(case), Choices(device_ids=("0", "1"))).spec
    case.write(driver.SPEC, spec_file.document(made, "yaml"))
    assert spec_fix_of(case) is None


def test_spec_for_some_capabilities_has_no_fix(fresh: Callable[[str], FaultCase]) -> None:
    case = fresh("t4")
    made = describe(driver.own(case), Choices(capabilities=frozenset({"compute"}))).spec
    case.write(driver.SPEC, spec_file.document(made, "yaml"))
    assert spec_fix_of(case) is None


def test_spec_of_the_toolkit_has_no_fix(fresh: Callable[[str], FaultCase]) -> None:
    case = fresh("t4")
    document = driver.toolkit_spec(case)
    case.remove(driver.SPEC)
    case.write("/etc/cdi/nvidia.json", json.dumps(document))
    assert spec_fix_of(case) is None


def test_write_has_the_choices_and_the_state(
    fresh: Callable[[str], FaultCase], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GPUHOOK_STATE_DIR", str(tmp_path / "state"))
    case = fresh("t4")
    path = str(tmp_path / "nvidia.yaml")
    choices = Choices(strategies=("uuid",), with_all=False, host_root=str(case.root))
    for _ in range(2):
        spec_regeneration.write(path, choices, str(case.root))
        [device] = spec_file.read(path)["devices"]
        assert device["name"] == case.node.node.gpus[0].uuid
    assert json.loads((tmp_path / "state/node.json").read_bytes())["spec"]["path"] == path


@pytest.mark.parametrize("fails", [False, True])
def test_spec_with_recorded_options_is_refreshed(
    fails: bool,
    fresh: Callable[[str], FaultCase],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A spec with some of the GPUs keeps these GPUs."""
    monkeypatch.setenv("GPUHOOK_STATE_DIR", str(tmp_path / "state"))
    program = tmp_path / "gpuhook"
    program.write_text(
        f'#!/bin/sh\necho "$*" >> {tmp_path}/calls\necho "Error GH1206: x: no"\nexit {int(fails)}\n'
    )
    program.chmod(0o755)
    monkeypatch.setattr("sys.argv", [str(program)])
    case = fresh("h100x8")
    made = describe(driver.own(case), Choices(device_ids=("0", "1"))).spec
    case.write(driver.SPEC, spec_file.document(made, "yaml"))
    spec_records.remember(spec_records.Generated(driver.SPEC, ["--output-file", driver.SPEC]))
    fix = spec_fix_of(case)
    assert fix is not None
    assert fix.description == f"regenerate {driver.SPEC} with its original options"
    if fails:
        with pytest.raises(
            GpuhookError, match="cannot regenerate the CDI specs of this node: GH1206: x: no"
        ):
            fix.apply()
    else:
        fix.apply()
    assert (tmp_path / "calls").read_text() == "refresh --force\n"
