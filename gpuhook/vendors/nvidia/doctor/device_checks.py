# SPDX-License-Identifier: Apache-2.0
"""The driver's device nodes: they exist, and their numbers are those of the kernel module."""

from __future__ import annotations

from functools import partial

from gpuhook.node_facts.check import FAILED, WARNING, Check, Finding, absent, check, ok, unless
from gpuhook.vendors.nvidia.doctor.facts import device_facts as devices
from gpuhook.vendors.nvidia.doctor.facts import driver_facts as facts
from gpuhook.vendors.nvidia.doctor.facts import nvidia_specs as specs
from gpuhook.vendors.nvidia.hot import mig_capabilities

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

    from gpuhook.node_facts.check import ExaminedNode, Findings
    from gpuhook.vendors.nvidia.doctor.facts.device_facts import RequiredNode

_MEANINGS = {
    devices.CONTROL: 'no program in a container can reach the driver: nvidia-smi prints "Failed to '
    'initialize NVML"',
    devices.UVM: "nvidia-smi works, but CUDA does not: cuInit fails with CUDA_ERROR_UNKNOWN (999) "
    'or CUDA_ERROR_NO_DEVICE, and PyTorch prints "CUDA unknown error - this may be due to an '
    'incorrectly set up environment"',
    devices.UVM_TOOLS: "debuggers and profilers (cuda-gdb, Nsight) do not see unified memory",
    devices.MODESET: "graphics (EGL, Vulkan with a display) find no GPU",
}
_GPU = (
    'no container can use this GPU: nvidia-smi prints "No devices were found" or lists one GPU '
    'less, and engines print "no such file or directory" for the node'
)
_OPTIONAL = (devices.UVM_TOOLS, devices.MODESET)


_DRIVER = ("driver.module",)


def _control_check(path: str, identity: str, title: str, *needs: str) -> Check:
    """Return the check of a control node."""
    return check(identity, title, needs=(*_DRIVER, *needs))(
        unless(facts.no_module)(partial(_control, path))
    )


def _control(path: str, node: ExaminedNode) -> Finding:
    required = devices.control_nodes()[path]
    place = devices.node_path(node, required)
    if devices.node_major(node, required) is None and path in (devices.UVM, devices.UVM_TOOLS):
        if path in _OPTIONAL:
            return absent("the module nvidia-uvm is not loaded")
        return Finding(
            FAILED,
            f"the kernel module nvidia-uvm is not loaded: it is not in {facts.DEVICES}",
            meaning=_MEANINGS[path],
            command=f"{devices.nodes_command(node)} --load-kernel-modules",
            looked_at=(facts.DEVICES, place),
        )
    if devices.device_status(node, required) is not None:
        return ok(f"{place} exists", place)
    users = specs.specs_with_node(node, place)
    if path in _OPTIONAL and not users:
        return _optional(node, path, place)
    refused = f"; engines refuse the devices of {', '.join(users)}" if users else ""
    return _missing(node, required, _MEANINGS[path] + refused)


def _optional(node: ExaminedNode, path: str, place: str) -> Finding:
    if path == devices.MODESET:
        return absent(f"{place} does not exist: this node has no graphics", place)
    message = f"{place} is missing"
    return Finding(WARNING, message, place, _MEANINGS[path], devices.nodes_command(node), (place,))


def _missing(node: ExaminedNode, required: RequiredNode, meaning: str) -> Finding:
    place = devices.node_path(node, required)
    return Finding(
        FAILED,
        f"{place} is missing",
        subject=place,
        meaning=meaning,
        command=devices.nodes_command(node),
        looked_at=(place, facts.DEVICES),
        fix=devices.node_fix(node, required),
    )


@check("devices.gpus", "Every GPU has its device node", needs=_DRIVER)
@unless(facts.no_module)
def _gpus(node: ExaminedNode) -> Findings:
    required = devices.gpu_nodes(node)
    lacking = [one for one in required if devices.device_status(node, one) is None]
    if lacking:
        return [_missing(node, one, _GPU) for one in lacking]
    if not required:
        return absent("the kernel module has no working GPU", facts.GPUS)
    places = [devices.node_path(node, one) for one in required]
    return ok(f"{', '.join(places)}: one for each GPU", *places)


@check(
    "devices.capabilities", "Every MIG device has the device nodes for opening it", needs=_DRIVER
)
def _capabilities(node: ExaminedNode) -> Findings:
    required = devices.capability_nodes(node)
    if not required:
        return absent("the node has no MIG devices", mig_capabilities.CAPABILITIES)
    lacking = [one for one in required if devices.device_status(node, one) is None]
    meaning = (
        'containers do not get its MIG device: engines print "no such file or directory", CUDA '
        "finds no device, and new specs do not contain it"
    )
    if lacking:
        return [_missing(node, one, meaning) for one in lacking]
    places = [devices.node_path(node, one) for one in required]
    return ok(f"all {len(required)} nodes of MIG capabilities exist", *places)


@check(
    "devices.numbers",
    "The device nodes have the majors and minors of the kernel module",
    needs=_DRIVER,
)
@unless(facts.no_module)
def _numbers(node: ExaminedNode) -> Findings:
    found = [finding for one in devices.all_nodes(node) for finding in _wrong(node, one)]
    return found or [ok(f"the device node numbers match {facts.DEVICES}", facts.DEVICES)]


def _wrong(node: ExaminedNode, required: RequiredNode) -> Iterable[Finding]:
    place, status = devices.node_path(node, required), devices.device_status(node, required)
    number = devices.node_major(node, required)
    if status is None or number is None:
        return
    is_node = status.is_character_device
    if is_node and (status.major, status.minor) == (number, required.minor):
        return
    kind = f"the device {status.major}:{status.minor}" if is_node else "no device node"
    if status.is_directory:
        kind = "a directory"
    yield Finding(
        FAILED,
        f"{place} is {kind}, but the kernel module has {number}:{required.minor}",
        subject=place,
        meaning='opening it reaches a different driver or none: nvidia-smi prints "Failed to '
        'initialize NVML: Unknown Error", CUDA CUDA_ERROR_UNKNOWN (999) or CUDA_ERROR_NO_DEVICE, '
        'open(2) "No such device or address"',
        command=f"rm -rf {place} && {devices.nodes_command(node)}"
        if status.is_directory
        else devices.nodes_command(node, is_wrong=True),
        looked_at=(place, facts.DEVICES),
        fix=devices.node_fix(node, required, is_there=True) if is_node else None,
    )


@check(
    "devices.permissions",
    "Users other than root can open the device nodes",
    needs=(*_DRIVER, "devices.numbers"),
)
@unless(facts.no_module)
def _permissions(node: ExaminedNode) -> Findings:
    required = [*devices.control_nodes().values(), *devices.gpu_nodes(node)]
    found = [finding for one in required for finding in _closed(node, one)]
    return found or [ok("every user can open the driver's device nodes")]


def _closed(node: ExaminedNode, required: RequiredNode) -> Iterable[Finding]:
    place, status = devices.node_path(node, required), devices.device_status(node, required)
    if status is None or not status.is_character_device or status.permissions & 0o006 == 0o006:
        return
    has_group = status.gid and status.permissions & 0o060 == 0o060
    users = f"root and the group {status.gid}" if has_group else "root"
    yield Finding(
        WARNING,
        f"{place} has mode {status.permissions:04o}: only {users} can open it",
        subject=place,
        meaning=(
            "containers whose processes run as another user or group, and rootless containers get "
            '"Failed to initialize NVML: Insufficient Permissions" and CUDA_ERROR_OPERATING_SYSTEM'
        ),
        command=f"chmod 0666 {place} && echo 'options nvidia NVreg_DeviceFileMode=0666' > "
        "/etc/modprobe.d/nvidia-device-files.conf",
        looked_at=(place, facts.PARAMS),
    )


CHECKS = (
    _control_check(devices.CONTROL, "devices.control", "The control node /dev/nvidiactl exists"),
    _gpus,
    _control_check(devices.UVM, "devices.uvm", "/dev/nvidia-uvm, which CUDA needs, exists"),
    _control_check(
        devices.UVM_TOOLS,
        "devices.uvm-tools",
        "/dev/nvidia-uvm-tools exists for profilers",
        "devices.uvm",
    ),
    _control_check(
        devices.MODESET,
        "devices.modeset",
        "/dev/nvidia-modeset exists if containers get graphics",
    ),
    _capabilities,
    _numbers,
    _permissions,
)
