# SPDX-License-Identifier: Apache-2.0
"""The status of this node's drivers, from their files and sockets: no API server is needed."""

from __future__ import annotations

from gpuhook.device_plugin.kubelet import grpc_endpoint
from gpuhook.dra.kubelet.status_service import state_at
from gpuhook.dra.node_drivers import kubelet_claims
from gpuhook.dra.node_drivers.driver_files import node_drivers
from gpuhook.errors import GpuhookError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from gpuhook.dra.claims.prepared_claim import PreparedClaim
    from gpuhook.dra.node_drivers.driver_files import DriverFiles, NodePlace

    Pods = Mapping[tuple[str, str], list[str]]

SCHEMA = "gpuhook/dra-status/v1"


def status(place: NodePlace) -> dict[str, Any]:
    """Return the document gpuhook/dra-status/v1."""
    drivers = node_drivers(place)
    pods: Pods = {}
    trouble = ""
    try:
        pods = kubelet_claims.using_pods(place.kubelet, {one.name for one in drivers})
    except GpuhookError as error:
        trouble = error.message
    return {
        "schema": SCHEMA,
        "kubelet": {"root": place.kubelet, "trouble": trouble},
        "drivers": [_driver(one, pods) for one in drivers],
    }


def _driver(driver: DriverFiles, pods: Pods) -> dict[str, Any]:
    claims, trouble = driver.claims()
    return {
        "name": driver.name,
        "directory": driver.directory,
        "sockets": [_socket(path) for path in driver.sockets()],
        "registrations": [
            {"path": path, "listens": not grpc_endpoint.is_dead(path)}
            for path in driver.registrations()
        ],
        "checkpoint": {"path": driver.checkpoint.path, "trouble": trouble},
        "claims": [_claim(one, pods) for one in claims.values()],
    }


def _socket(path: str) -> dict[str, Any]:
    """Return a socket with the state of the driver that listens there; `state` null: none."""
    if grpc_endpoint.is_dead(path):
        return {"path": path, "trouble": "no process listens", "state": None}
    state, trouble = state_at(path)
    return {"path": path, "trouble": trouble, "state": state or None}


def _claim(prepared: PreparedClaim, pods: Pods) -> dict[str, Any]:
    name = prepared.claim.name
    return {
        "namespace": name.namespace,
        "name": name.name,
        "uid": name.uid,
        "complete": prepared.is_complete,
        "devices": [
            {
                "request": result.request,
                "device": held.name,
                "uuid": held.uuid,
                "share": result.share_id or None,
                "admin": held.is_admin,
            }
            for result, held in zip(prepared.claim.devices, prepared.held, strict=True)
        ],
        "pods": pods.get((name.namespace, name.name), []),
    }
