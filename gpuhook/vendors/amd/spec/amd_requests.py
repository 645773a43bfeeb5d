# SPDX-License-Identifier: Apache-2.0
"""What requests of containers for AMD GPUs mean (request_interface.py).

No variable of an image requests GPUs or requires a version of the driver, and the driver has no
capabilities. The fault of a wrong name has the reason.
"""

from __future__ import annotations

from gpuhook.vendors.container_requests import JudgedRequirements, RequestingImages

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Collection, Mapping
    from typing import Any

    from gpuhook.vendors.amd.inventory.amd_inventory import AmdNode
    from gpuhook.vendors.interface import VendorNode

RUNTIME_CLASSES = ("amd",)
REQUESTING_IMAGES: RequestingImages | None = None
PROCESS_LIST = "amd-smi"


def lacking_capabilities(path: str, capabilities: frozenset[str]) -> frozenset[str]:  # noqa: ARG001
    """Return none: a container gets all nodes of its devices."""
    return frozenset()


def notes(
    spec: dict[str, Any],  # noqa: ARG001
    node: VendorNode,  # noqa: ARG001
    inventory: AmdNode | None,  # noqa: ARG001
    refused: Collection[str],  # noqa: ARG001
    *,
    has_devices: bool,  # noqa: ARG001
) -> list[str]:
    """Return none: a request has no parts other than the names of devices."""
    return []


def judged_requirements(
    environment: Mapping[str, str],  # noqa: ARG001
    inventory: AmdNode | None,  # noqa: ARG001
    nodes: Collection[str],  # noqa: ARG001
) -> JudgedRequirements:
    """Return none: images have their own ROCm, which works with a range of drivers."""
    return JudgedRequirements()
