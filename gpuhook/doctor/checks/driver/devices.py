# SPDX-License-Identifier: Apache-2.0
"""The driver's device nodes: they are there, and are what the kernel module says."""

from __future__ import annotations

from functools import partial

from gpuhook.doctor.check import DEVICES, FAILED, WARNING, Check, Finding, absent, ok
from gpuhook.doctor.facts import device_facts as devices
from gpuhook.doctor.facts import driver_facts as facts
from gpuhook.doctor.facts import spec_facts as specs
from gpuhook.vendors.nvidia.hot import mig_capabilities

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

    from gpuhook.doctor.check import ExaminedNode
    from gpuhook.doctor.facts.device_facts import RequiredNode

_NO_DRIVER = "no kernel module is loaded"
_MEANINGS = {
    devices.CONTROL: 'no program of a container reaches the driver: nvidia-smi says "Failed to '
    'initialize NVML"',
    devices.UVM: "nvidia-smi works, and CUDA does not: cuInit fails with CUDA_ERROR_UNKNOWN (999) "
    'or CUDA_ERROR_NO_DEVICE, and PyTorch says "CUDA unknown error - this may be due to an '
    'incorrectly set up environment"',
    devices.UVM_TOOLS: "debuggers and profilers (cuda-gdb, Nsight) do not see unified memory",
    devices.MODESET: "graphics (EGL, Vulkan with a display) find no GPU",
}
_GPU = (
    'no container can use this GPU: nvidia-smi says "No devices were found" or counts one GPU '
    'less, and engines say "no such file or directory" of the node'
)
_OPTIONAL = (devices.UVM_TOOLS, devices.MODESET)


def _control(path: str, node: ExaminedNode) -> Iterable[Finding]:
    wanted = devices.control()[path]
    place = devices.place(node, wanted)
    if not facts.module_version(node):
        return [absent(_NO_DRIVER)]
    number = devices.major(node, wanted)
    if number is None and path in (devices.UVM, devices.UVM_TOOLS):
        return (
            [absent("the module nvidia-uvm is not loaded")]
            if path in _OPTIONAL
            else [
                Finding(
                    FAILED,
                    f"the kernel module nvidia-uvm is not loaded: it is not in {facts.DEVICES}",
                    meaning=_MEANINGS[path],
                    command=f"{devices.command(node)} --load-kernel-modules",
                    looked_at=(facts.DEVICES, place),
                )
            ]
        )
    if devices.device_status(node, wanted) is not None:
        return [ok(f"{place} is there", place)]
    users = specs.naming(node, place)
    if path in _OPTIONAL and not users:
        return [_optional(node, path, place)]
    refused = f"; engines refuse what {', '.join(users)} describes" if users else ""
    return [_missing(node, wanted, _MEANINGS[path] + refused)]


def _optional(node: ExaminedNode, path: str, place: str) -> Finding:
    if path == devices.MODESET:
        return absent(f"{place} is not there: this node does no graphics", place)
    said = f"{place} is missing"
    return Finding(WARNING, said, place, _MEANINGS[path], devices.command(node), (place,))


def _missing(node: ExaminedNode, wanted: RequiredNode, meaning: str) -> Finding:
    place = devices.place(node, wanted)
    return Finding(
        FAILED,
        f"{place} is missing",
        subject=place,
        meaning=meaning,
        command=devices.command(node),
        looked_at=(place, facts.DEVICES),
        mend=devices.mend(node, wanted),
    )


def _gpus(node: ExaminedNode) -> Iterable[Finding]:
    if not facts.module_version(node):
        return [absent(_NO_DRIVER)]
    wanted = devices.of_gpus(node)
    lacking = [one for one in wanted if devices.device_status(node, one) is None]
    if lacking:
        return [_missing(node, one, _GPU) for one in lacking]
    if not wanted:
        return [absent("the kernel module has no GPU that works", facts.GPUS)]
    places = [devices.place(node, one) for one in wanted]
    return [ok(f"{', '.join(places)}: one for each GPU", *places)]


def _capabilities(node: ExaminedNode) -> Iterable[Finding]:
    wanted = devices.of_capabilities(node)
    if not wanted:
        return [absent("there are no MIG devices", mig_capabilities.CAPABILITIES)]
    lacking = [one for one in wanted if devices.device_status(node, one) is None]
    meaning = (
        'containers do not get the MIG device that it opens: engines say "no such file or '
        'directory", CUDA finds no device, and specs are made without it'
    )
    if lacking:
        return [_missing(node, one, meaning) for one in lacking]
    places = [devices.place(node, one) for one in wanted]
    return [ok(f"all {len(wanted)} nodes of MIG's capabilities are there", *places)]


def _numbers(node: ExaminedNode) -> Iterable[Finding]:
    if not facts.module_version(node):
        return [absent(_NO_DRIVER)]
    found = [finding for one in devices.every(node) for finding in _wrong(node, one)]
    return found or [ok(f"the device nodes have the numbers of {facts.DEVICES}", facts.DEVICES)]


def _wrong(node: ExaminedNode, wanted: RequiredNode) -> Iterable[Finding]:
    place, status = devices.place(node, wanted), devices.device_status(node, wanted)
    number = devices.major(node, wanted)
    if status is None or number is None:
        return
    is_node = status.is_character_device
    if is_node and (status.major, status.minor) == (number, wanted.minor):
        return
    is_what = f"the device {status.major}:{status.minor}" if is_node else "no device node"
    if status.is_directory:
        is_what = "a directory"
    yield Finding(
        FAILED,
        f"{place} is {is_what}, and the kernel module has {number}:{wanted.minor}",
        subject=place,
        meaning='opening it reaches another driver or none: nvidia-smi says "Failed to '
        'initialize NVML: Unknown Error", CUDA CUDA_ERROR_UNKNOWN (999) or CUDA_ERROR_NO_DEVICE, '
        'open(2) "No such device or address"',
        command=f"rm -rf {place} && {devices.command(node)}"
        if status.is_directory
        else devices.command(node, is_wrong=True),
        looked_at=(place, facts.DEVICES),
        mend=devices.mend(node, wanted, is_there=True) if is_node else None,
    )


def _permissions(node: ExaminedNode) -> Iterable[Finding]:
    if not facts.module_version(node):
        return [absent(_NO_DRIVER)]
    wanted = [*devices.control().values(), *devices.of_gpus(node)]
    found = [finding for one in wanted for finding in _closed(node, one)]
    return found or [ok("every user may open the driver's device nodes")]


def _closed(node: ExaminedNode, wanted: RequiredNode) -> Iterable[Finding]:
    place, status = devices.place(node, wanted), devices.device_status(node, wanted)
    if status is None or not status.is_character_device or status.permissions & 0o006 == 0o006:
        return
    has_group = status.gid and status.permissions & 0o060 == 0o060
    who = f"root and the group {status.gid}" if has_group else "root"
    yield Finding(
        WARNING,
        f"{place} has mode {status.permissions:04o}: only {who} may open it",
        subject=place,
        meaning="containers whose processes are of another user or group, and rootless ones, get "
        '"Failed to initialize NVML: Insufficient Permissions" and CUDA_ERROR_OPERATING_SYSTEM',
        command=f"chmod 0666 {place} && echo 'options nvidia NVreg_DeviceFileMode=0666' > "
        "/etc/modprobe.d/nvidia-device-files.conf",
        looked_at=(place, facts.PARAMS),
    )


_DRIVER = ("driver.module",)

CHECKS: tuple[Check, ...] = (
    Check(
        "devices.control",
        DEVICES,
        "/dev/nvidiactl is there",
        partial(_control, devices.CONTROL),
        needs=_DRIVER,
    ),
    Check("devices.gpus", DEVICES, "Every GPU has its device node", _gpus, needs=_DRIVER),
    Check(
        "devices.uvm",
        DEVICES,
        "/dev/nvidia-uvm is there, without which CUDA does not start",
        partial(_control, devices.UVM),
        needs=_DRIVER,
    ),
    Check(
        "devices.uvm-tools",
        DEVICES,
        "/dev/nvidia-uvm-tools is there",
        partial(_control, devices.UVM_TOOLS),
        needs=(*_DRIVER, "devices.uvm"),
    ),
    Check(
        "devices.modeset",
        DEVICES,
        "/dev/nvidia-modeset is there, where graphics are given to containers",
        partial(_control, devices.MODESET),
        needs=_DRIVER,
    ),
    Check(
        "devices.capabilities",
        DEVICES,
        "Every MIG device has the nodes that open it",
        _capabilities,
        needs=_DRIVER,
    ),
    Check(
        "devices.numbers",
        DEVICES,
        "The device nodes have the majors and minors of the kernel module",
        _numbers,
        needs=_DRIVER,
    ),
    Check(
        "devices.permissions",
        DEVICES,
        "Users other than root may open the device nodes",
        _permissions,
        needs=(*_DRIVER, "devices.numbers"),
    ),
)
