# SPDX-License-Identifier: Apache-2.0
"""The checks of Dynamic Resource Allocation on healthy nodes, and with partial information."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import tests.doctor.parts  # noqa: F401 # registers what healthy nodes have
from gpuhook.node_facts.check import FAILED, NOT_APPLICABLE, OK, WARNING, ExaminedNode, Finding
from gpuhook.node_facts.sources import dra_files, node_readings
from gpuhook.node_facts.sources.node_readings import Readings
from gpuhook.node_facts.sources.node_tree import DirectoryTree
from tests.doctor.broken import dra
from tests.doctor.case import FaultCase, is_root
from tests.doctor.parts.kubernetes import KUBELET
from tests.doctor.test_kubernetes_checks import _findings

pytestmark = pytest.mark.skipif(not is_root(), reason="device nodes need root")
Fresh = Callable[[str], FaultCase]


def own(node: ExaminedNode) -> dict[str, Finding]:
    return {name: one for name, one in _findings(node).items() if name.startswith("dra.")}


def test_node_with_a_driver_is_healthy(fresh: Fresh) -> None:
    case = fresh("t4")
    dra.healthy_driver(case)
    examination = case.examine()
    bad = [(r.check.id, r.finding.message) for r in examination.of(FAILED)]
    bad += [(r.check.id, r.finding.message) for r in examination.of(WARNING)]
    assert bad == []
    assert {name: one.status for name, one in own(case.examined()).items()} == dict.fromkeys(
        (
            "dra.registration", "dra.rivals", "dra.double-offer", "dra.cdi", "dra.prepared",
            "dra.api", "dra.slices", "dra.extended-resources", "dra.permissions",
        ),
        OK,
    )  # fmt: skip


def test_node_without_a_driver_has_no_finding(fresh: Fresh) -> None:
    """A device plugin alone, with or without a cluster that has DRA."""
    case = fresh("t4")
    assert {one.status for one in own(case.examined()).values()} == {NOT_APPLICABLE}
    with_driver = fresh("h100x8")
    dra.healthy_driver(with_driver)
    case.readings[node_readings.API]["dra"] = with_driver.readings[node_readings.API]["dra"]
    found = own(case.examined())
    assert FAILED not in {one.status for one in found.values()}
    assert found["dra.extended-resources"].status == NOT_APPLICABLE


def test_files_only_have_no_failure(fresh: Fresh) -> None:
    """Without readings, no one knows whether a process listens."""
    case = fresh("t4")
    dra.healthy_driver(case)
    found = own(ExaminedNode(DirectoryTree(str(case.root)), Readings({})))
    assert FAILED not in {one.status for one in found.values()}
    assert (found["dra.registration"].status, found["dra.api"].status) == (OK, NOT_APPLICABLE)


@pytest.mark.parametrize("part", ["slices", "classes", "drivers"])
def test_refused_parts_are_reported(part: str, fresh: Fresh) -> None:
    case = fresh("t4")
    dra.healthy_driver(case)
    data = case.readings[node_readings.API]["dra"]
    del data[part]
    data["refused"] = {part: f"{part} is forbidden"}
    found = own(case.examined()).values()
    reasons = [one.message for one in found if one.status == NOT_APPLICABLE]
    assert reasons == [f"the API server refuses {part}: {part} is forbidden"]


def test_refused_data_is_reported(fresh: Fresh) -> None:
    case = fresh("t4")
    dra.healthy_driver(case)
    api = case.readings[node_readings.API]
    del api["dra"]
    api["refused"] = {"dra": "no"}
    assert own(case.examined())["dra.api"].message == "the API server: no"


def test_pods_that_do_not_end_are_named(fresh: Fresh) -> None:
    case = fresh("t4")
    dra._gone_with_claims(case)
    finding = own(case.examined())["dra.prepared"]
    assert "default/claim" in finding.message
    assert "default/train-0 do not end" in finding.message
    assert "gpuhook dra drain" in finding.command


def test_other_drivers_are_no_gpu_drivers(fresh: Fresh) -> None:
    case = fresh("t4")
    dra.healthy_driver(case)
    dra.write_state(case, {"dra.cpu": ["default/cpus"]})
    assert own(case.examined())["dra.prepared"].status == OK


@pytest.mark.parametrize(
    "content",
    ["", "{", "[]", '{"Data": 1}', '{"Data": "{"}', '{"Data": "[]"}', '{"Data": "{}"}',
     '{"Data": "{\\"Entries\\": [1]}"}', '{"Data": "{\\"Entries\\": [{\\"DriverState\\": 1}]}"}',
     '{"version": "v1", "entries": []}', "\x00" * 100, '{"Data": "{\\"Entries\\": null}"}'],
)  # fmt: skip
def test_damaged_state_of_the_kubelet_is_no_claim(content: str, fresh: Fresh) -> None:
    case = fresh("t4")
    dra.healthy_driver(case)
    case.write(f"{KUBELET}/dra_manager_state", content)
    assert own(case.examined())["dra.prepared"].status == NOT_APPLICABLE


@pytest.mark.parametrize(
    ("name", "driver"),
    [
        ("gpu.nvidia.com-reg.sock", "gpu.nvidia.com"),
        (f"gpu.nvidia.com-{dra.UID}-reg.sock", "gpu.nvidia.com"),
        ("csi.example.com-reg.sock", "csi.example.com"),
        ("gpu.nvidia.com.sock", ""),
        ("-reg.sock", ""),
    ],
)
def test_names_of_registration_sockets(name: str, driver: str) -> None:
    assert dra_files.driver_of(name) == driver


def test_odd_answers_of_the_api_server(fresh: Fresh) -> None:
    case = fresh("t4")
    dra.healthy_driver(case)
    odd: list[Any] = [{}, {"slices": 5}, {"versions": None, "minor": "x"}, {"classes": [{}]}]
    for data in odd:
        case.readings[node_readings.API]["dra"] = data
        assert own(case.examined())
