# SPDX-License-Identifier: Apache-2.0
"""The claims that the kubelet keeps, and the pods that use them.

A pod does not end before all drivers of its claims have answered. The kubelet's file has the claims
for which it will call a driver again (upstream: pkg/kubelet/cm/dra/state).
"""

from __future__ import annotations

import os

from gpuhook.errors import GpuhookError, fault
from gpuhook.host.hot import files
from gpuhook.node_facts.sources import dra_files

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Collection

    from gpuhook.node_facts.sources.dra_files import KubeletClaim


def kubelet_claims(root: str) -> list[KubeletClaim]:
    """Return the claims in the file of the kubelet with this root directory; raises GH2645."""
    path = os.path.join(root, dra_files.STATE)
    try:
        return dra_files.kubelet_claims(files.read(path, dra_files.MAX_STATE))
    except FileNotFoundError:
        return []
    except OSError as error:
        raise fault("GH2645", path=path, reason=error.strerror or error) from error
    except (GpuhookError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise fault("GH2645", path=path, reason=f"unknown content: {error!r}") from error


def using_pods(root: str, drivers: Collection[str]) -> dict[tuple[str, str], list[str]]:
    """Return the pods that use each claim of these drivers, by namespace and name of the claim.

    They are the running ones if the pod resources API answers, else the UIDs in the kubelet's file.
    Raises GH2645.
    """
    from gpuhook.device_plugin.metrics import unit_holders

    holdings = unit_holders.holdings(root)
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
