# SPDX-License-Identifier: Apache-2.0
"""Broken nodes of a cluster with a driver of Dynamic Resource Allocation."""

from __future__ import annotations

import json
import shutil
from typing import Any

from gpuhook.node_facts.sources import node_readings
from tests.doctor.broken import kubernetes as plugin_nodes
from tests.doctor.case import Broken, FaultCase
from tests.doctor.parts import kubernetes
from tests.doctor.parts.engines import CRI, DROP_IN
from tests.doctor.parts.kubernetes import KUBELET, add_socket, process, processes

DRIVER = "gpu.nvidia.com"
REGISTRATION = f"{KUBELET}/plugins_registry/{DRIVER}-reg.sock"
SERVICE = f"{KUBELET}/plugins/{DRIVER}/dra.sock"
UID = "0c0ffee0-2222-4222-8333-444455556666"
REFUSED = "Connection refused"


def healthy_driver(case: FaultCase) -> None:
    """Replace the device plugin of a healthy node by gpuhook's driver."""
    plugin_nodes._no_sockets(case)
    plugin_nodes._without(case, "nvidia-device-p")
    shutil.rmtree(case.path(f"{KUBELET}/pods"))
    kubernetes.write_checkpoint(case, {})
    for path in (REGISTRATION, SERVICE):
        add_socket(case, path)
    case.readings[node_readings.DRA_SOCKETS] = {REGISTRATION: "", SERVICE: ""}
    argv = ("/usr/bin/python3", "/usr/bin/gpuhook", "dra", "run")
    processes(case).append(process(2000, "gpuhook", *argv))
    _enable_cdi(case)
    api = case.readings[node_readings.API]
    api["node"]["allocatable"] = api["node"]["capacity"] = {"cpu": "8"}
    api["daemonSets"] = []
    names = [f"gpu-{number}" for number in range(len(case.node.node.gpus))]
    api["dra"] = {
        "minor": 36,
        "versions": ["v1", "v1beta2", "v1beta1"],
        "slices": [
            {"driver": DRIVER, "pool": "n", "generation": 1, "count": 1, "devices": names,
             "replicas": False}
        ],
        "classes": [{"name": DRIVER, "extendedResourceName": "nvidia.com/gpu"}],
        "drivers": [
            {"namespace": "gpu", "name": "gpuhook-dra", "serviceAccount": "gpuhook-dra",
             "missing": []}
        ],
        "terminating": [],
        "refused": {},
    }  # fmt: skip
    write_state(case, {DRIVER: ["default/claim"]})


def write_state(case: FaultCase, claims: dict[str, list[str]]) -> None:
    """Write the kubelet's file of prepared claims."""
    entries = [
        {"ClaimUID": UID, "Namespace": one.partition("/")[0], "ClaimName": one.partition("/")[2],
         "PodUIDs": {UID: {}}, "DriverState": {driver: {"Devices": []}}}
        for driver, names in claims.items() for one in names
    ]  # fmt: skip
    data = {"kind": "DRACheckpoint", "apiVersion": "checkpoint.dra.kubelet.k8s.io/v1"}
    content = {"Data": json.dumps({**data, "Entries": entries}), "Checksum": 1}
    case.write(f"{KUBELET}/dra_manager_state", json.dumps(content), 0o600)


def _enable_cdi(case: FaultCase) -> None:
    """Enable CDI in the file that replaces the plugin's other ones, as containerd 1.7 reads it."""
    text = case.path(DROP_IN).read_text(encoding="utf-8")
    case.write(DROP_IN, f"{text}\n[{CRI}]\n  enable_cdi = true\n")


def _dra(case: FaultCase) -> dict[str, Any]:
    found: dict[str, Any] = case.readings[node_readings.API]["dra"]
    return found


def _killed(case: FaultCase) -> None:
    healthy_driver(case)
    case.readings[node_readings.DRA_SOCKETS] = {REGISTRATION: REFUSED, SERVICE: REFUSED}
    write_state(case, {})


def _no_service(case: FaultCase) -> None:
    healthy_driver(case)
    case.remove(SERVICE)


def _old_socket(case: FaultCase) -> None:
    healthy_driver(case)
    old = f"{KUBELET}/plugins_registry/{DRIVER}-{UID}-reg.sock"
    add_socket(case, old)
    case.readings[node_readings.DRA_SOCKETS][old] = REFUSED


def _vendors_driver_too(case: FaultCase) -> None:
    healthy_driver(case)
    processes(case).append(process(2100, "gpu-kubelet-plugin", "/usr/bin/gpu-kubelet-plugin"))


def _two_registrations(case: FaultCase) -> None:
    healthy_driver(case)
    second = f"{KUBELET}/plugins_registry/{DRIVER}-{UID}-reg.sock"
    add_socket(case, second)
    case.readings[node_readings.DRA_SOCKETS][second] = ""


def _plugin_too(case: FaultCase) -> None:
    healthy_driver(case)
    registered = {"nvidia.com/gpu": [gpu.uuid or "" for gpu in case.node.node.gpus]}
    kubernetes.write_checkpoint(case, registered)


def _cdi_off(case: FaultCase) -> None:
    healthy_driver(case)
    text = case.path(DROP_IN).read_text(encoding="utf-8")
    case.write(DROP_IN, text.replace("enable_cdi = true", "enable_cdi = false"))


def _other_cdi_directory(case: FaultCase) -> None:
    healthy_driver(case)
    text = case.path(DROP_IN).read_text(encoding="utf-8")
    text = text.replace("enable_cdi = true", 'enable_cdi = true\n  cdi_spec_dirs = ["/etc/cdi"]')
    case.write(DROP_IN, text)
    specs = case.path("/etc/cdi/x").parent
    for spec in case.path("/var/run/cdi/x").parent.glob("*"):
        shutil.copy(spec, specs)


def _gone_with_claims(case: FaultCase) -> None:
    healthy_driver(case)
    shutil.rmtree(case.path(REGISTRATION).parent)
    _dra(case)["terminating"] = ["default/train-0"]
    _dra(case)["slices"] = []


def _no_api(case: FaultCase) -> None:
    healthy_driver(case)
    case.readings[node_readings.API]["dra"] = {"minor": 31, "versions": []}


def _old_server(case: FaultCase) -> None:
    healthy_driver(case)
    _dra(case)["minor"] = 34


def _gate_off(case: FaultCase) -> None:
    healthy_driver(case)
    _dra(case)["slices"][0]["replicas"] = True


def _no_slices(case: FaultCase) -> None:
    healthy_driver(case)
    _dra(case)["slices"] = []


def _incomplete_pool(case: FaultCase) -> None:
    healthy_driver(case)
    _dra(case)["slices"][0] |= {"count": 2, "generation": 4}


def _empty_pool(case: FaultCase) -> None:
    healthy_driver(case)
    _dra(case)["slices"][0]["devices"] = []


def _stale_count(case: FaultCase) -> None:
    healthy_driver(case)
    case.readings[node_readings.API]["node"]["allocatable"]["nvidia.com/gpu"] = "4"


def _same_resource(case: FaultCase) -> None:
    healthy_driver(case)
    _dra(case)["classes"].append({"name": "other", "extendedResourceName": "nvidia.com/gpu"})


def _no_permission(case: FaultCase) -> None:
    healthy_driver(case)
    _dra(case)["drivers"][0]["missing"] = ["create resourceslices"]


def _no_status(case: FaultCase) -> None:
    healthy_driver(case)
    _dra(case)["drivers"][0]["missing"] = ["associated-node:update resourceclaims/driver"]


BROKEN = [
    Broken("dra-driver-killed", "dra.registration", _killed),
    Broken("dra-service-missing", "dra.registration", _no_service),
    Broken("dra-socket-of-an-old-pod", "dra.registration", _old_socket, is_warning=True),
    Broken("two-dra-drivers", "dra.rivals", _vendors_driver_too),
    Broken("two-dra-registrations", "dra.rivals", _two_registrations, is_warning=True),
    Broken("device-plugin-beside-dra", "dra.double-offer", _plugin_too, is_warning=True),
    Broken("dra-without-cdi", "dra.cdi", _cdi_off),
    Broken("dra-other-cdi-directory", "dra.cdi", _other_cdi_directory),
    Broken("dra-driver-gone-with-claims", "dra.prepared", _gone_with_claims),
    Broken("dra-api-missing", "dra.api", _no_api),
    Broken("dra-of-an-old-server", "dra.api", _old_server, is_warning=True),
    Broken("dra-gate-off", "dra.api", _gate_off, is_warning=True),
    Broken("dra-no-slices", "dra.slices", _no_slices),
    Broken("dra-pool-incomplete", "dra.slices", _incomplete_pool),
    Broken("dra-pool-empty", "dra.slices", _empty_pool, "h100x8", is_warning=True),
    Broken("dra-stale-plugin-count", "dra.extended-resources", _stale_count),
    Broken("dra-same-resource", "dra.extended-resources", _same_resource, is_warning=True),
    Broken("dra-permissions-missing", "dra.permissions", _no_permission),
    Broken("dra-status-permission-missing", "dra.permissions", _no_status, is_warning=True),
]
