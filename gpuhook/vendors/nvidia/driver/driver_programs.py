# SPDX-License-Identifier: Apache-2.0
"""Where the programs of a node's driver are, as this process runs them."""

from __future__ import annotations

import os
import shutil

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gpuhook.vendors.nvidia.inventory.inventory import Node


def path(node: Node, name: str) -> str:
    """Return the driver's own program `name`, else the one on the search path, else the name."""
    for file in node.files:
        if os.path.basename(file.container_path) == name:
            return file.host_path
    return shutil.which(name) or name
