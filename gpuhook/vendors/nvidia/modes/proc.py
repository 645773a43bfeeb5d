# SPDX-License-Identifier: Apache-2.0
"""Mode proc: GPUs and MIG instances by the files of the kernel and of the driver alone.

No library is loaded and no GPU is initialised: for nodes on which NVML cannot be loaded, or takes
too long. Facts that only NVML has (memory, UUIDs of MIG instances) are unknown. Compute capability
and brand are known for GPUs that NVML described before.
"""

from __future__ import annotations

from dataclasses import replace

from gpuhook.errors import fault
from gpuhook.vendors.nvidia import discover
from gpuhook.vendors.nvidia.devices import proc_gpus
from gpuhook.vendors.nvidia.hot import node_json
from gpuhook.vendors.nvidia.spec import gpu_spec

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gpuhook.vendors.nvidia.discover import Roots
    from gpuhook.vendors.nvidia.inventory.inventory import Gpu, Node
    from gpuhook.vendors.nvidia.spec.generate_options import Choices, Described


def describe(where: Roots, choices: Choices) -> Described:
    """Return the spec of the node at `where`.

    Raises GH1121 without a loaded driver, else as discover.node() and gpu_spec.describe() do.
    """
    answer = proc_gpus.read_proc(where)
    if answer.driver.module_version is None:
        raise fault("GH1121", root=where.host)
    found = discover.node(
        where,
        answer,
        create_nodes=choices.create_nodes,
        explicit_libraries=choices.explicit_libraries,
    )
    return gpu_spec.describe(replace(found, gpus=_with_sorts(found)), choices)


def _with_sorts(found: Node) -> tuple[Gpu, ...]:
    """Return the GPUs with the facts for requirements that node.json has for the same GPUs.

    A chip keeps its compute capability; the driver defines the brand.
    """
    _, _, module, known = node_json.versions_and_kinds()
    sorts = {uuid: (capability, brand) for _, uuid, capability, brand in known if uuid}
    is_same_driver = bool(module) and module == found.driver.module_version
    whole = []
    for gpu in found.gpus:
        capability, brand = sorts.get(gpu.uuid or "", ("", ""))
        brand = brand if is_same_driver else ""
        whole.append(replace(gpu, compute_capability=capability or None, brand=brand or None))
    return tuple(whole)
