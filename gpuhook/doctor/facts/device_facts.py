# SPDX-License-Identifier: Apache-2.0
"""The device nodes that a driver needs, and what the files of a node tell of each."""

from __future__ import annotations

import os
import shlex
from contextlib import suppress
from dataclasses import dataclass
from functools import partial

from gpuhook.doctor.check import Mend
from gpuhook.doctor.facts import driver_facts as facts
from gpuhook.doctor.facts import driver_user_space, gpu_loss
from gpuhook.vendors.nvidia.devices import driver_nodes, mig_nodes
from gpuhook.vendors.nvidia.hot import mig_capabilities, vocabulary

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gpuhook.doctor.check import ExaminedNode
    from gpuhook.node.node_tree import Status

_MODE = 0o666
CONTROL, UVM, UVM_TOOLS, MODESET = (
    driver_nodes.CONTROL_NODES[0],
    *driver_nodes.CONTROL_NODES[2:],
    (driver_nodes.CONTROL_NODES[1]),
)


@dataclass(frozen=True, slots=True)
class RequiredNode:
    """A device node that there should be: its major goes by one of `names` in /proc/devices."""

    path: str  # as containers see it
    names: tuple[str, ...]
    minor: int
    mode: int | None = None  # None: as the module's parameters say


def control() -> dict[str, RequiredNode]:
    """Return the control nodes, by path."""
    found = (
        RequiredNode(CONTROL, driver_nodes.FRONTEND, 255),
        RequiredNode(UVM, driver_nodes.UVM, 0),
        RequiredNode(UVM_TOOLS, driver_nodes.UVM, 1),
        RequiredNode(MODESET, driver_nodes.MODESET, 254),
    )
    return {one.path: one for one in found}


def of_gpus(node: ExaminedNode) -> list[RequiredNode]:
    """Return the nodes of the GPUs that the module drives and that are not lost."""
    lost = facts.lost_minors(node) | {gpu.minor for gpu in gpu_loss.missing(node)}
    minors = [gpu.minor for gpu in facts.gpus(node) if gpu.minor is not None]
    return [
        RequiredNode(f"/dev/nvidia{minor}", driver_nodes.FRONTEND, minor)
        for minor in sorted(minors)
        if minor not in lost
    ]


def of_capabilities(node: ExaminedNode) -> list[RequiredNode]:
    """Return the nodes that open the MIG devices there are."""
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


def every(node: ExaminedNode) -> list[RequiredNode]:
    """Return all nodes that may be there."""
    return [*control().values(), *of_gpus(node), *of_capabilities(node)]


def dev_root(node: ExaminedNode) -> str:
    """Return the directory whose /dev has the driver's nodes."""
    if node.dev_root != "/":
        return node.dev_root
    root = driver_user_space.driver_user_space(node).root
    has_own = node.tree.status(driver_user_space.at(root, CONTROL)) is not None
    has_host = node.tree.status(CONTROL) is not None
    return root if has_own and not has_host else "/"


def place(node: ExaminedNode, wanted: RequiredNode) -> str:
    """Return the node's path of a device node."""
    return driver_user_space.at(dev_root(node), wanted.path)


def device_status(node: ExaminedNode, wanted: RequiredNode) -> Status | None:
    """Return what is at the place of a device node, None for nothing."""
    return node.tree.status(place(node, wanted))


def major(node: ExaminedNode, wanted: RequiredNode) -> int | None:
    """Return the major that the kernel gave the module, None where it gave none."""
    numbers = facts.majors(node)
    return next((numbers[name] for name in wanted.names if name in numbers), None)


def mode(node: ExaminedNode, wanted: RequiredNode) -> int:
    """Return the permission bits that the node should have."""
    if wanted.mode is not None:
        return wanted.mode
    text = facts.params(node).get("DeviceFileMode", "")
    return int(text) & 0o777 if text.isdigit() else _MODE


def command(node: ExaminedNode, *, is_wrong: bool = False) -> str:
    """Return the command that makes the nodes that lack, and those that are wrong if any is."""
    root = dev_root(node)
    place = "" if root == "/" else f" --dev-root {shlex.quote(root)}"
    return "gpuhook system create-device-nodes" + place + " --replace" * is_wrong


def mend(node: ExaminedNode, wanted: RequiredNode, *, is_there: bool = False) -> Mend | None:
    """Return what makes the node, on this machine alone; a wrong one that `is_there` goes first."""
    number = major(node, wanted)
    if number is None or node.tree.root != "/":
        return None
    path, bits = place(node, wanted), mode(node, wanted)
    first = f"remove {path}, and make it anew as" if is_there else f"make {path},"
    says = f"{first} the character device {number}:{wanted.minor} with mode {bits:04o}"
    apply = partial(_make, path, number, wanted.minor, bits, is_there=is_there)
    return Mend(says, apply)


def _make(path: str, major: int, minor: int, mode: int, *, is_there: bool) -> None:
    if is_there:
        with suppress(FileNotFoundError):
            os.unlink(path)
    mig_nodes.make(path, major, minor, mode)
