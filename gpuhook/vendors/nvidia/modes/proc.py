# SPDX-License-Identifier: Apache-2.0
"""Mode proc: GPUs and MIG instances by the files of the kernel and of the driver alone.

No library is loaded and no GPU is initialised: for nodes on which NVML cannot be loaded, and for
those that need not wait for it. What only NVML knows (memory, architecture, today's UUIDs of MIG
instances) is unknown then.
"""

from __future__ import annotations

from gpuhook.errors import fault
from gpuhook.vendors.nvidia import gather, proc_gpus, spec

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gpuhook.vendors.nvidia.choices import Choices, Described
    from gpuhook.vendors.nvidia.inventory import Node
    from gpuhook.vendors.nvidia.modes.place import Place


def node(place: Place) -> Node:
    """Return the node at `place`; GH1121 without a loaded driver, and as gather.assembled."""
    told = proc_gpus.told(place.roots)
    if told.driver.module_version is None:
        raise fault("GH1121", root=place.roots.host)
    return gather.assembled(
        place.roots,
        told,
        library_search_paths=place.library_search_paths,
        config_search_paths=place.config_search_paths,
        create_nodes=place.create_nodes,
    )


def describe(place: Place, choices: Choices) -> Described:
    """Return the spec of the node at `place`; raises as node() and spec.describe do."""
    return spec.describe(node(place), choices)
