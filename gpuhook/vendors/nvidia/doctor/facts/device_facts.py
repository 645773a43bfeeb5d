# SPDX-License-Identifier: Apache-2.0
"""The device nodes that a driver needs, and their state on the node."""

from __future__ import annotations

import os
import shlex
from contextlib import suppress
from dataclasses import dataclass
from functools import partial

from gpuhook.node_facts.check import Fix, fact
from gpuhook.vendors.nvidia.devices import driver_nodes, mig_nodes
from gpuhook.vendors.nvidia.doctor.facts import driver_facts as facts
from gpuhook.vendors.nvidia.doctor.facts import driver_user_space, gpu_loss
from gpuhook.vendors.nvidia.hot import mig_capabilities, vocabulary

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gpuhook.node_facts.check import ExaminedNode
    from gpuhook.node_facts.sources.node_tree import Status

_MODE = 0o666
CONTROL, MODESET, UVM, UVM_TOOLS = driver_nodes.CONTROL_NODES


@dataclass(frozen=True, slots=True)
class RequiredNode:
    """A device node that should exist; /proc/devices has its major under one of `names`."""

    path: str  # as containers see it
    names: tuple[str, ...]
    minor: int
    mode: int | None = None  # None: the default of the module's parameters


def control_nodes() -> dict[str, RequiredNode]:
    """Return the control nodes, by path."""
    paths = (CONTROL, UVM, UVM_TOOLS, MODESET)
    return {path: RequiredNode(path, *driver_nodes.CONTROL_NODES[path]) for path in paths}


def gpu_nodes(node: ExaminedNode) -> list[RequiredNode]:
    """Return the nodes of the GPUs that the module drives, without lost ones."""
    lost = facts.lost_minors(node) | {gpu.minor for gpu in gpu_loss.missing_gpus(node)}
    minors = [gpu.minor for gpu in facts.gpus(node) if gpu.minor is not None]
    return [
        RequiredNode(f"/dev/nvidia{minor}", driver_nodes.FRONTEND, minor)
        for minor in sorted(minors)
        if minor not in lost
    ]


def capability_nodes(node: ExaminedNode) -> list[RequiredNode]:
    """Return the nodes of the capabilities of the MIG devices."""
    known = {one.minor: one for one in facts.capabilities(node).values()}
    return [
        RequiredNode(
            vocabulary.capability_node(minor),
            (mig_capabilities.MAJOR_NAME,),
            minor,
            one.mode,
        )
        for minor, one in sorted(known.items())
    ]


def all_nodes(node: ExaminedNode) -> list[RequiredNode]:
    """Return the nodes of all kinds."""
    return [*control_nodes().values(), *gpu_nodes(node), *capability_nodes(node)]


@fact
def dev_root(node: ExaminedNode) -> str:
    """Return the directory whose dev/ has the driver's nodes."""
    if node.dev_root != "/":
        return node.dev_root
    root = driver_user_space.driver_user_space(node).root
    has_own = node.tree.status(driver_user_space.at(root, CONTROL)) is not None
    has_host = node.tree.status(CONTROL) is not None
    return root if has_own and not has_host else "/"


def node_path(node: ExaminedNode, required: RequiredNode) -> str:
    """Return the path of a device node on the node."""
    return driver_user_space.at(dev_root(node), required.path)


def device_status(node: ExaminedNode, required: RequiredNode) -> Status | None:
    """Return the status of the file at the path of a device node, None if there is none."""
    return node.tree.status(node_path(node, required))


def node_major(node: ExaminedNode, required: RequiredNode) -> int | None:
    """Return the major that the kernel assigned to the module, None if there is none."""
    numbers = facts.majors(node)
    return next((numbers[name] for name in required.names if name in numbers), None)


def node_mode(node: ExaminedNode, required: RequiredNode) -> int:
    """Return the permission bits that a device node should have."""
    if required.mode is not None:
        return required.mode
    text = facts.params(node).get("DeviceFileMode", "")
    return int(text) & 0o777 if text.isdigit() else _MODE


def nodes_command(node: ExaminedNode, *, is_wrong: bool = False) -> str:
    """Return the command that makes missing nodes, and replaces wrong ones if `is_wrong`."""
    root = dev_root(node)
    place = "" if root == "/" else f" --dev-root {shlex.quote(root)}"
    return "gpuhook system create-device-nodes" + place + " --replace" * is_wrong


def node_fix(node: ExaminedNode, required: RequiredNode, *, is_there: bool = False) -> Fix | None:
    """Return the fix that makes a node of this machine; `is_there`: it replaces a wrong one."""
    number = node_major(node, required)
    if number is None or node.tree.root != "/":
        return None
    path, bits = node_path(node, required), node_mode(node, required)
    first = f"replace {path} by" if is_there else f"make {path},"
    description = f"{first} the character device {number}:{required.minor} with mode {bits:04o}"
    apply = partial(_make, path, number, required.minor, bits, is_there=is_there)
    return Fix(description, apply)


def _make(path: str, major: int, minor: int, mode: int, *, is_there: bool) -> None:
    if is_there:
        with suppress(FileNotFoundError):
            os.unlink(path)
    mig_nodes.make(path, major, minor, mode)
