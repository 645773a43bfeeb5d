# SPDX-License-Identifier: Apache-2.0
"""Rules for all checks of doctor."""

from __future__ import annotations

import importlib
import pkgutil
import re
from pathlib import Path

import pytest
from click.testing import CliRunner

from gpuhook.cli import main
from gpuhook.doctor import checks as doctor_checks
from gpuhook.doctor.check_list import checks, section_titles
from gpuhook.doctor.examination import examine
from gpuhook.node_facts.check import FAILED, Check, ExaminedNode
from gpuhook.node_facts.sources.node_readings import Readings
from gpuhook.node_facts.sources.node_tree import DirectoryTree
from gpuhook.vendors.catalogue import vendors

ID = re.compile(r"[a-z0-9-]+\.[a-z0-9-]+")


def test_each_check_has_its_own_id() -> None:
    ids = [check.id for check in checks()]
    assert len(set(ids)) == len(ids)
    assert [one for one in ids if not ID.fullmatch(one)] == []


def test_each_check_is_listed() -> None:
    """A Check that is in no CHECKS, or whose module is in no list, would never run."""
    of_vendors = [f"gpuhook.vendors.{vendor.name}.doctor" for vendor in vendors()]
    packages = [doctor_checks, *map(importlib.import_module, of_vendors)]
    made: set[str] = set()
    for package in packages:
        for info in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            values = vars(importlib.import_module(info.name)).values()
            made |= {value.id for value in values if isinstance(value, Check)}
    assert made - {check.id for check in checks()} == set()


def test_each_check_has_a_section_and_a_title() -> None:
    for check in checks():
        assert check.section in section_titles()
        assert len(check.title.split()) > 2, check.id
        assert not check.title.endswith("."), check.id


def test_needed_checks_exist() -> None:
    ids = {check.id for check in checks()}
    assert {need for check in checks() for need in check.needs} <= ids


def test_empty_tree_has_no_fault_of_gpuhook(tmp_path: Path) -> None:
    """gpuhook's own checks find no fault in an empty tree."""
    node = ExaminedNode(DirectoryTree(str(tmp_path)), Readings({}))
    found = examine(node, checks())
    ours = [one for one in found.results if one.check.section in ("gpuhook", "containers")]
    assert len(ours) >= 12
    assert {one.finding.status for one in ours} == {"not-applicable"}
    assert all(one.finding.status != FAILED or one.finding.command for one in found.results)


@pytest.mark.parametrize("is_late", [False, True])
def test_unreadable_container_is_mentioned(is_late: bool, tmp_path: Path) -> None:
    late = {"where": "late", "code": "GH1760", "message": "no answer", "hint": "wait"}
    found = {"containers": [], "trouble": [late] * is_late, "looked_at": 0}
    node = ExaminedNode(DirectoryTree(str(tmp_path)), Readings({"containers": lambda: found}))
    (result,) = examine(node, checks(), ["containers.access"]).results
    message = f"no {'other ' * is_late}running container has or requests a GPU"
    assert result.finding.message == message


def test_machine_without_gpus_is_reported_with_quiet(tmp_path: Path) -> None:
    (tmp_path / "proc").mkdir()
    words = ["doctor", "--quiet", "--root", str(tmp_path)]
    shown = CliRunner().invoke(main, [*words, "--checks", "driver.gpu"])
    assert shown.exit_code == 0
    assert shown.stderr == "this machine has no NVIDIA GPU\n"
    (tmp_path / "proc/driver/nvidia/gpus/0000:00:1e.0").mkdir(parents=True)
    shown = CliRunner().invoke(main, ["doctor", "--root", str(tmp_path), "--checks", "driver.gpu"])
    assert "the driver has 1 GPU\n" in shown.stdout
    assert shown.stderr == "1 ok\n"


def test_directory_without_a_node_is_refused(tmp_path: Path) -> None:
    (tmp_path / "passwd").touch()
    for name in ("doctor", "support-bundle"):
        shown = CliRunner().invoke(main, [name, "--root", str(tmp_path)])
        assert shown.exit_code == 1
        assert (
            f"GH1900: {tmp_path} does not contain the files of a node: it has no etc"
            in shown.stderr
        )
