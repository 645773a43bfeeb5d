# SPDX-License-Identifier: Apache-2.0
"""The checks of Kubernetes with partial information, and with other ways to offer GPUs."""

from __future__ import annotations

import shutil

import pytest

import tests.doctor.parts  # noqa: F401 # registers what healthy nodes have
from gpuhook.doctor.check_list import checks
from gpuhook.doctor.examination import examine
from gpuhook.errors import fault
from gpuhook.node_facts.check import FAILED, NOT_APPLICABLE, OK, WARNING, ExaminedNode
from gpuhook.node_facts.sources import node_readings
from gpuhook.node_facts.sources.node_readings import Readings
from gpuhook.node_facts.sources.node_tree import DirectoryTree
from tests.doctor.broken import kubernetes as broken
from tests.doctor.case import is_root
from tests.doctor.parts import kubernetes as parts

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from gpuhook.node_facts.check import Finding
    from tests.doctor.case import FaultCase

pytestmark = pytest.mark.skipif(not is_root(), reason="device nodes need root")
CHECKS = [one.id for one in checks() if one.section == "kubernetes"]


def _findings(node: ExaminedNode) -> dict[str, Finding]:
    """Return the worst finding of each check."""
    findings: dict[str, Finding] = {}
    for one in examine(node, checks(), CHECKS).results:
        if one.check.section == "kubernetes":
            findings.setdefault(one.check.id, one.finding)
    return findings


def _statuses(node: ExaminedNode) -> set[str]:
    return {finding.status for finding in _findings(node).values()}


def test_machine_outside_a_cluster_is_not_applicable(
    fresh: Callable[[str], FaultCase],
) -> None:
    case = fresh("t4")
    shutil.rmtree(case.path("/var/lib/kubelet"))
    broken._without(case, "kubelet")
    del parts.units(case)["kubelet.service"]
    assert _statuses(case.examined()) == {NOT_APPLICABLE}


def test_leftovers_of_a_cluster_are_not_applicable(fresh: Callable[[str], FaultCase]) -> None:
    case = fresh("t4")
    broken._no_plugin(case)
    broken._without(case, "kubelet")
    del parts.units(case)["kubelet.service"]
    case.remove(f"{parts.PLUGINS}/kubelet.sock")
    case.remove(f"{parts.KUBELET}/config.yaml")
    findings = _findings(case.examined())
    assert {finding.status for finding in findings.values()} == {NOT_APPLICABLE}
    assert "no unit starts a kubelet" in findings["kubelet.plugin-directory"].message


def test_files_only_have_no_failure(healthy: Callable[[str], FaultCase]) -> None:
    case = healthy("t4")
    node = ExaminedNode(DirectoryTree(str(case.root)), Readings({}))
    findings = _findings(node)
    assert FAILED not in {finding.status for finding in findings.values()}
    assert findings["plugin.registration"].status == OK


def test_files_without_sockets_have_no_failure(fresh: Callable[[str], FaultCase]) -> None:
    """An archive of a node's files has no sockets."""
    case = fresh("t4")
    for path in case.path(f"{parts.PLUGINS}/x").parent.glob("*.sock"):
        path.unlink()
    case.remove("/var/lib/kubelet/pod-resources/kubelet.sock")
    assert FAILED not in _statuses(ExaminedNode(DirectoryTree(str(case.root)), Readings({})))


def test_plugin_check_without_an_inventory_is_not_applicable(
    fresh: Callable[[str], FaultCase],
) -> None:
    case = fresh("t4")
    broken._no_plugin(case)

    def no_driver() -> None:
        raise fault("GH1905", reason="any fault will do")

    documents = case.readings
    collectors = {name: (lambda name=name: documents[name]) for name in documents}
    readings = Readings({**collectors, node_readings.INVENTORY: no_driver})
    findings = _findings(ExaminedNode(DirectoryTree(str(case.root)), readings))
    assert findings["plugin.running"].status == NOT_APPLICABLE
    assert "GH1905" in findings["plugin.running"].message


def test_dra_driver_needs_no_plugin(fresh: Callable[[str], FaultCase]) -> None:
    case = fresh("t4")
    broken._no_plugin(case)
    case.path("/var/lib/kubelet/plugins/gpu.nvidia.com/dra.sock")
    assert _findings(case.examined())["plugin.running"].status == NOT_APPLICABLE


def test_error_of_a_plugins_log_is_in_the_finding(fresh: Callable[[str], FaultCase]) -> None:
    case = fresh("t4")
    broken._plugin_without_driver(case)
    finding = _findings(case.examined())["plugin.running"]
    assert "ERROR_LIBRARY_NOT_FOUND" in finding.message
    assert finding.command.startswith(
        "kubectl describe pod -n nvidia-device-plugin nvdp-nvidia-device-plugin-x7k2p && kubectl "
        "-n nvidia-device-plugin rollout restart daemonset/nvdp-nvidia-device-plugin"
    )


def test_missing_class_that_no_pod_needs_is_a_warning(fresh: Callable[[str], FaultCase]) -> None:
    case = fresh("t4")
    broken._no_runtime_class(case)
    text = case.path(parts.CONFIG).read_text(encoding="utf-8")
    plugin = "flags:\n  plugin:\n    deviceListStrategy: [cdi-cri]\n"
    case.write(parts.CONFIG, text.replace("flags:\n", plugin))
    assert _findings(case.examined())["runtime-class.exists"].status == WARNING


def test_runtime_class_in_a_manifest_of_k3s(fresh: Callable[[str], FaultCase]) -> None:
    case = fresh("t4")
    broken._no_runtime_class(case)
    del case.readings[node_readings.API]
    assert _findings(case.examined())["runtime-class.exists"].status == NOT_APPLICABLE
    manifest = (
        "apiVersion: node.k8s.io/v1\nkind: RuntimeClass\nmetadata:\n  name: nvidia\n"
        "handler: nvidia\n---\n- odd\n---\nkind: RuntimeClass\nmetadata: odd\n"
    )
    case.write(parts.K3S_MANIFEST, manifest)
    assert _findings(case.examined())["runtime-class.exists"].status == OK


def test_node_label_selects_the_plugins_configuration(fresh: Callable[[str], FaultCase]) -> None:
    case = fresh("t4")
    case.write(parts.CONFIG.replace("/default", "/strange"), "version: v9\nflags: {}\n")
    assert _findings(case.examined())["plugin.config"].status == WARNING
    case.readings[node_readings.API]["node"]["labels"]["nvidia.com/device-plugin.config"] = (
        "strange"
    )
    finding = _findings(case.examined())["plugin.config"]
    assert finding.status == FAILED
    assert "daemonset nvdp-nvidia-device-plugin" in finding.command


def test_configuration_file_of_a_plugin_without_a_pod(fresh: Callable[[str], FaultCase]) -> None:
    case = fresh("t4")
    shutil.rmtree(case.path("/var/lib/kubelet/pods"))
    case.write("/etc/nvidia-plugin.yaml", "version: v9\n")
    parts.processes(case)[-1]["argv"] = [
        "/usr/bin/nvidia-device-plugin",
        "--config-file",
        "/etc/nvidia-plugin.yaml",
    ]
    finding = _findings(case.examined())["plugin.config"]
    assert finding.status == FAILED
    assert finding.command.endswith("sudoedit /etc/nvidia-plugin.yaml")


@pytest.mark.parametrize("name", [node_readings.API, node_readings.PROCESSES, node_readings.UNITS])
@pytest.mark.parametrize("odd", [[], {}, "text", 7, [1, {}], {"node": [], "runtimeClasses": "x"}])
def test_invalid_readings_do_not_crash(
    fresh: Callable[[str], FaultCase], name: str, odd: object
) -> None:
    case = fresh("t4")
    case.readings[name] = odd
    assert _findings(case.examined())
