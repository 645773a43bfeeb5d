# SPDX-License-Identifier: Apache-2.0
"""Mode nvml: GPUs and MIG instances, as the driver's own library reports them."""

from __future__ import annotations

from dataclasses import replace

from gpuhook.vendors.nvidia.inventory import discover
from gpuhook.vendors.nvidia.nvml import coherence
from gpuhook.vendors.nvidia.spec import gpu_spec

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gpuhook.vendors.nvidia.inventory.inventory import Node
    from gpuhook.vendors.nvidia.spec.generate_options import Choices, Described, ModeRoots


def node(place: ModeRoots, *, explicit_libraries: bool = False) -> Node:
    """Return the node at `place`; raises the faults of discover.node()."""
    return discover.node(
        place.roots,
        nvml_library_path=place.nvml_library,
        library_search_paths=place.library_search_paths,
        config_search_paths=place.config_search_paths,
        create_nodes=place.create_nodes,
        explicit_libraries=explicit_libraries,
        files_dir=place.files_dir,
    )


def describe(place: ModeRoots, choices: Choices) -> Described:
    """Return the spec of the node at `place`; raises as discover.node() and gpu_spec.describe()."""
    found = node(place, explicit_libraries=choices.explicit_libraries)
    if choices.coherent and found.driver.nvml:
        found = replace(found, gpus=coherence.with_coherence(found.gpus, found.driver.nvml))
    return gpu_spec.describe(found, choices)
