# SPDX-License-Identifier: Apache-2.0
"""The device nodes of each GPU of a Tegra system.

The CSV files name the nodes of the integrated GPU. A discrete GPU (IGX, Thor) has the node of its
minor number; if that is /dev/nvidia1, which the files give to the integrated GPU, that GPU has
/dev/nvidia2 instead.
"""

from __future__ import annotations

import re
from dataclasses import replace

from gpuhook.vendors.nvidia.devices.driver_nodes import CONTROL_NODES
from gpuhook.vendors.nvidia.modes.tegra.csv_files import Line
from gpuhook.vendors.nvidia.modes.tegra.soc import is_integrated
from gpuhook.vendors.nvidia.spec import device_selection

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gpuhook.vendors.nvidia.inventory.inventory import DeviceNode, Gpu
    from gpuhook.vendors.nvidia.modes.tegra.soc import Soc
    from gpuhook.vendors.nvidia.modes.tegra.tegra_files import Search
    from gpuhook.vendors.nvidia.spec.generate_options import Choices

_OF_A_GPU = re.compile(r"/dev/nvidia[0-9]+")
_SHARED, _INSTEAD = "/dev/nvidia1", "/dev/nvidia2"

Own = list[tuple["Gpu", list["DeviceNode"]]]


def tegra_devices(
    soc: Soc, named: dict[str, DeviceNode], search: Search, choices: Choices
) -> tuple[Own, list[str]]:
    """Return ([(GPU, its nodes), ...], why others are skipped).

    `named` are the nodes that the CSV files name. Without `multiple_csv_devices`, the first GPU has
    all of them.
    """
    if not choices.multiple_csv_devices:
        return [(soc.gpus[0], list(named.values()))] if named else [], []
    cards = [gpu for gpu in soc.gpus if not is_integrated(gpu)]
    taken = {device_selection.node_path(gpu) for gpu in cards}
    own = {path: node for path, node in named.items() if path not in taken}
    if _SHARED in taken:
        own.update(search.of([Line("dev", _INSTEAD)]).nodes)
    found: Own = []
    left_out = []
    for gpu in soc.gpus:
        reason, nodes = "", own
        if gpu in cards:
            reason = _trouble(gpu)
            nodes = search.of(
                [Line("dev", path) for path in (device_selection.node_path(gpu), *CONTROL_NODES)]
            ).nodes
        if not reason and not nodes:
            reason = "no device node in the system's files exists"
        if not reason and gpu in cards and not any(map(_OF_A_GPU.fullmatch, nodes)):
            reason = f"{device_selection.node_path(gpu)}: no such device node"
        if reason:
            left_out.append(f"GPU {gpu.index} is omitted from the spec: {reason}")
        else:
            found.append((gpu, list(nodes.values())))
    return found, left_out


def chosen(found: Own, ids: tuple[str, ...]) -> Own:
    """Return those GPUs that `ids` name, all without ids; raises GH1511 for an unknown id."""
    if not ids or device_selection.EVERY in ids:
        return found
    gpus = tuple(replace(gpu, instances=()) for gpu, _ in found)  # only whole GPUs are described
    indices = {device_selection.device(gpus, one)[0].index for one in ids}
    return [(gpu, nodes) for gpu, nodes in found if gpu.index in indices]


def _trouble(gpu: Gpu) -> str:
    reason = device_selection.gpu_trouble(gpu)
    if not reason and device_selection.is_divided(gpu):
        reason = "it is in MIG mode; only --mode nvml describes MIG instances"
    return reason
