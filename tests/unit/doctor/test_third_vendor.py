# SPDX-License-Identifier: Apache-2.0
"""doctor has the checks of any vendor, in that vendor's own section."""

from __future__ import annotations

import pytest
from click.testing import CliRunner

from gpuhook.cli import main
from gpuhook.doctor import check_list, doctor_text, reading_collectors
from gpuhook.doctor.examination import examine
from gpuhook.errors import GpuhookError, fault
from gpuhook.node_facts.check import FAILED, ExaminedNode, Finding, absent, check
from gpuhook.node_facts.sources.node_readings import Readings
from gpuhook.node_facts.sources.node_tree import DirectoryTree
from gpuhook.vendors.amd.amd_vendor import AmdVendor
from gpuhook.vendors.catalogue import vendors
from gpuhook.vendors.vendor_checks import VendorChecks
from gpuhook.vendors.vendor_inventory import NodePlace

TYPE_CHECKING = False
if TYPE_CHECKING:
    from pathlib import Path
    from typing import Any


@check("third.gpu", "The machine has a GPU of a third vendor")
def _gpu(node: ExaminedNode) -> Finding:
    if node.tree.status("/dev/third0") is None:
        return absent("this machine has no third GPU")
    return Finding(FAILED, "/dev/third0 is broken", command="replace it")


class ThirdVendor(AmdVendor):
    """A vendor whose driver is asked, and whose only check is of a node."""

    name = "third"

    def doctor_checks(self) -> VendorChecks:
        return VendorChecks((_gpu,), {"third": "Third GPUs"}, presence=_gpu.id)

    def driver_dump(self, place: NodePlace) -> dict[str, Any]:  # type: ignore[override]
        return {"third": place.host_root}


class SilentVendor(AmdVendor):
    """A vendor whose driver does not answer."""

    def driver_dump(self, place: NodePlace) -> None:
        raise fault("GH1200", root=place.host_root, looked="nothing")


@pytest.fixture
def _third(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(check_list, "vendors", lambda: (*vendors(), ThirdVendor()))


@pytest.mark.usefixtures("_third")
def test_checks_are_in_a_section_after_those_of_other_vendors(tmp_path: Path) -> None:
    shown = CliRunner().invoke(main, ["doctor", "--list", "-o", "name"]).stdout.splitlines()
    at = shown.index("third.gpu")
    assert shown[at - 1].startswith("amd.")
    assert shown[at + 1].startswith("specs.")
    (tmp_path / "dev").mkdir()
    (tmp_path / "dev/third0").touch()
    node = ExaminedNode(DirectoryTree(str(tmp_path)), Readings({}))
    found = examine(node, check_list.checks(), ["third.gpu"])
    assert found.of(FAILED)[0].check.id == "third.gpu"
    assert "Third GPUs" in doctor_text.lines(found, is_all=True)
    assert doctor_text.without_gpu(found) == []


@pytest.mark.usefixtures("_third")
def test_node_without_gpus_has_none_of_any_vendor(tmp_path: Path) -> None:
    node = ExaminedNode(DirectoryTree(str(tmp_path)), Readings({}))
    reasons = doctor_text.without_gpu(examine(node, check_list.checks()))
    assert [reason.partition(" has no ")[2] for reason in reasons] == [
        "NVIDIA GPU", "AMD GPU", "third GPU",
    ]  # fmt: skip


def test_driver_that_fails_does_not_hide_the_answers_of_another(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    place = NodePlace(host_root="/node")
    monkeypatch.setattr(reading_collectors, "vendors", lambda: (SilentVendor(), ThirdVendor()))
    assert reading_collectors.driver_dump(place) == {"third": "/node"}
    monkeypatch.setattr(reading_collectors, "vendors", lambda: (SilentVendor(), AmdVendor()))
    with pytest.raises(GpuhookError, match="below the driver root"):
        reading_collectors.driver_dump(place)
