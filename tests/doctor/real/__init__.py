# SPDX-License-Identifier: Apache-2.0
"""Healthy nodes with the files of their distribution and vendors."""

from __future__ import annotations

from tests.doctor.real import clouds, clusters, others, workstations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from tests.doctor.real.machines import RealNode


def nodes() -> list[RealNode]:
    """Return all nodes."""
    return [*workstations.NODES, *clusters.NODES, *clouds.NODES, *others.NODES]
