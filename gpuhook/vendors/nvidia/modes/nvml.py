# SPDX-License-Identifier: Apache-2.0
"""Mode nvml: GPUs and MIG instances, as the driver's own library reports them."""

from __future__ import annotations

from dataclasses import replace

from gpuhook.vendors.nvidia import discover
from gpuhook.vendors.nvidia.nvml import coherence
from gpuhook.vendors.nvidia.spec import gpu_spec

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gpuhook.vendors.nvidia.discover import Roots
    from gpuhook.vendors.nvidia.spec.generate_options import Choices, Described


def describe(where: Roots, choices: Choices) -> Described:
    """Return the spec of the node at `where`; raises as discover.node() and gpu_spec.describe()."""
    found = discover.node(
        where, create_nodes=choices.create_nodes, explicit_libraries=choices.explicit_libraries
    )
    if choices.coherent and found.driver.nvml:
        found = replace(found, gpus=coherence.with_coherence(found.gpus, found.driver.nvml))
    return gpu_spec.describe(found, choices)
