# SPDX-License-Identifier: Apache-2.0
"""What every container with a vendor's devices gets: the driver's files and the control nodes."""

from __future__ import annotations

from gpuhook.request.resolve import NOTHING_BUT_FILES, resolve_names

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gpuhook.cdi.hot.container_edits import ContainerEdits
    from gpuhook.vendors.interface import VendorNode


def common_edits(node: VendorNode) -> ContainerEdits:
    """Return the edits without devices, for all capabilities. Raises GH1104 without a spec."""
    return resolve_names([NOTHING_BUT_FILES], frozenset(node.capability_words), node).edits
