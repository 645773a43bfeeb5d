# SPDX-License-Identifier: Apache-2.0
"""The claims that the kubelet keeps, and the pods that use them.

A pod does not end before all drivers of its claims have answered. The kubelet's file has the claims
for which it will call a driver again (upstream: pkg/kubelet/cm/dra/state).
"""

from __future__ import annotations

import asyncio
import os
from dataclasses import dataclass

from gpuhook.errors import GpuhookError, fault
from gpuhook.host import documents
from gpuhook.host.hot import files

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Collection
    from typing import Any

_STATE = "dra_manager_state"
_SOCKET = "pod-resources/kubelet.sock"
_MAX_STATE = 64 << 20


@dataclass(frozen=True, slots=True)
class KubeletClaim:
    """A claim of the kubelet's file, and the UIDs of its pods."""

    namespace: str
    name: str
    uid: str
    drivers: frozenset[str]
    pods: tuple[str, ...]


def kubelet_claims(root: str) -> list[KubeletClaim]:
    """Return the claims in the file of the kubelet with this root directory; raises GH2645."""
    path = os.path.join(root, _STATE)
    try:
        content = documents.parse_json_object(files.read(path, _MAX_STATE))
        return [_claim(one) for one in _entries(content)]
    except FileNotFoundError:
        return []
    except OSError as error:
        raise fault("GH2645", path=path, reason=error.strerror or error) from error
    except (GpuhookError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise fault("GH2645", path=path, reason=f"unknown content: {error!r}") from error


def _entries(content: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the entries; before Kubernetes 1.32 the file has no document in a document."""
    data = documents.parse_json_object(content["Data"]) if "Data" in content else content
    for key in ("ClaimInfoStateList", "Entries", "entries"):
        if data.get(key):
            return list(data[key])
    return []


def _claim(one: dict[str, Any]) -> KubeletClaim:
    return KubeletClaim(
        one["Namespace"],
        one["ClaimName"],
        one["ClaimUID"],
        frozenset(one["DriverState"] or ()),
        tuple(sorted(one["PodUIDs"] or ())),
    )


def using_pods(root: str, drivers: Collection[str]) -> dict[tuple[str, str], list[str]]:
    """Return the pods that use each claim of these drivers, by namespace and name of the claim.

    They are the running ones if the pod resources API answers, else the UIDs in the kubelet's file.
    Raises GH2645.
    """
    from gpuhook.device_plugin.metrics import unit_holders

    holdings = asyncio.run(unit_holders.ask(os.path.join(root, _SOCKET)))
    found: dict[tuple[str, str], list[str]] = {}
    if holdings.reason:
        for claim in kubelet_claims(root):
            if claim.pods and not claim.drivers.isdisjoint(drivers):
                pods = [f"the pod with UID {uid}" for uid in claim.pods]
                found[claim.namespace, claim.name] = pods
        return found
    for holder, one in holdings.claims:
        if one.driver in drivers:
            pods = found.setdefault((one.namespace, one.claim), [])
            name = f"{holder.namespace}/{holder.pod}"
            pods += [] if name in pods else [name]
    return found
