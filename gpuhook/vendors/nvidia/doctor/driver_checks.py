# SPDX-License-Identifier: Apache-2.0
"""The driver: its kernel module is loaded, drives the GPUs, and matches its libraries."""

from __future__ import annotations

from gpuhook.node_facts import package_commands
from gpuhook.node_facts.check import FAILED, WARNING, Finding, absent, check, ok
from gpuhook.node_facts.pci_facts import FOR_GUESTS
from gpuhook.node_facts.sources import node_tree
from gpuhook.vendors.nvidia.doctor.facts import driver_facts as facts
from gpuhook.vendors.nvidia.doctor.facts import driver_user_space, gpu_loss
from gpuhook.vendors.nvidia.doctor.facts import nvidia_specs as specs
from gpuhook.vendors.nvidia.hot.host_fingerprint import TEGRA_RELEASE

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gpuhook.node_facts.check import ExaminedNode, Findings

BUS = "driver.bus"
_RELEASE = "/proc/sys/kernel/osrelease"
_SECURE_BOOT = "/sys/firmware/efi/efivars/SecureBoot-8be4df61-93ca-11d2-aa0d-00e098032b8c"
_MODULE_NAMES = ("/nvidia.ko", "/nvidia-current.ko")
_NO_NVML = (
    "nvidia-smi prints \"NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA "
    'driver", and GPU containers do not start: "nvidia-container-cli: initialization error: nvml '
    'error: driver not loaded"'
)
_MISMATCH = (
    'nvidia-smi prints "Failed to initialize NVML: Driver/library version mismatch", and GPU '
    'containers do not start, with "nvml error: driver/library version mismatch"'
)
_RELOAD = (
    "systemctl reboot  # or, after all programs that use a GPU have stopped: "
    "rmmod nvidia_uvm nvidia_drm nvidia_modeset nvidia && modprobe nvidia"
)
# The keys with which DKMS signs modules, by distribution.
_KEYS = ("/var/lib/shim-signed/mok/MOK.der", "/var/lib/dkms/mok.pub")


@check("driver.gpu", "The machine has an NVIDIA GPU")
def _gpu(node: ExaminedNode) -> Findings:
    if facts.is_wsl(node):
        return ok("/dev/dxg exists: the GPUs are those of Windows (WSL)", "/dev/dxg")
    if facts.is_tegra(node):
        return ok(f"{TEGRA_RELEASE} exists: the GPU is part of the chip", TEGRA_RELEASE)
    found = facts.pci_gpus(node)
    if found:
        buses = ", ".join(one.bus_id for one in found)
        return ok(f"NVIDIA GPUs on the PCI bus: {buses}", facts.PCI)
    if gpu_loss.missing_gpus(node):
        return _fallen(node)
    return _without_bus(node)


def _without_bus(node: ExaminedNode) -> Finding:
    """Return the finding for a machine without a GPU on its PCI bus."""
    if facts.gpus(node):
        return ok(f"the driver has {facts.gpu_count(len(facts.gpus(node)))}", facts.GPUS)
    if facts.module_version(node):
        message = "the nvidia kernel module is loaded, but the PCI bus has no NVIDIA GPU"
        return absent(message, facts.PCI, facts.GPUS)
    return absent("this machine has no NVIDIA GPU", facts.PCI, facts.GPUS, "/dev/dxg")


@check(
    BUS, "The PCI bus has every GPU that CDI specs and containers refer to", needs=("driver.gpu",)
)
def _bus(node: ExaminedNode) -> Findings:
    if gpu_loss.missing_gpus(node):
        return _fallen(node)
    if not gpu_loss.named_gpus(node):
        return absent("no CDI spec or container refers to a GPU")
    return ok("no CDI spec or container refers to a missing GPU", facts.PCI)


def _fallen(node: ExaminedNode) -> Finding:
    """Return the finding that names the missing GPUs, their specs and their containers."""
    gone, named = gpu_loss.missing_gpus(node), gpu_loss.named_gpus(node)
    paths = tuple(dict.fromkeys(path for gpu in gone for path in gpu.specs))
    files = [one for one in specs.valid_specs(node) if one.path in paths]
    is_total = len(gone) == len(named) and not facts.pci_gpus(node)
    count = _all(len(gone)) if is_total else f"{len(gone)} of {len(named)} GPUs"
    are = "are" if len(gone) > 1 else "is"
    described = f"; described by {', '.join(paths)}" if paths else ""
    rewrite = [f"rm {one.path}" if is_total else specs.rewrite_command(node, one) for one in files]
    removed = f". If it was removed on purpose: {' && '.join(dict.fromkeys(rewrite))}"
    return Finding(
        FAILED,
        f"{count} {are} missing from the PCI bus: {', '.join(map(str, gone))}{described}",
        meaning="a GPU fell off the bus (Xid 79) or was removed: programs that use it fail, "
        "containers that request it do not start, and nvidia-smi prints "
        '"Unable to determine the device handle for GPU" or "No devices were found"',
        command="dmesg | grep -iE 'xid|nvrm|pcieport'; systemctl reboot  # if the GPU is "
        "still missing, check the card, its power supply and its slot" + removed * bool(rewrite),
        looked_at=(facts.PCI, facts.GPUS, *paths),
    )


@check("driver.nouveau", "nouveau does not drive the GPUs", needs=("driver.gpu",))
def _nouveau(node: ExaminedNode) -> Findings:
    if not facts.has_gpu(node):
        return absent("this machine has no NVIDIA GPU", facts.PCI)
    held = [one.bus_id for one in facts.pci_gpus(node) if one.driver == "nouveau"]
    is_loaded = node.tree.status("/sys/module/nouveau") is not None
    looked = ("/sys/module/nouveau", facts.PCI)
    if not held and (not is_loaded or facts.module_version(node)):
        return ok("nouveau drives no GPU", *looked)
    buses = ", ".join(held) or "the GPUs"
    has_nvidia = any(one.driver == "nvidia" for one in facts.pci_gpus(node))
    return Finding(
        WARNING if has_nvidia else FAILED,
        f"the kernel's own driver nouveau is loaded and drives {buses}",
        meaning=f"NVIDIA's module cannot drive a GPU that nouveau drives. {_NO_NVML}",
        command="printf 'blacklist nouveau\\noptions nouveau modeset=0\\n' > "
        "/etc/modprobe.d/blacklist-nouveau.conf && (update-initramfs -u || dracut --force) && "
        "systemctl reboot",
        looked_at=looked,
    )


@check("driver.module", "NVIDIA's kernel module is loaded", needs=("driver.nouveau",))
def _module(node: ExaminedNode) -> Findings:
    if facts.is_wsl(node):
        return absent("WSL has no NVIDIA kernel module: Windows has the driver")
    if facts.is_tegra(node):
        return absent("a Tegra has a different kind of driver")
    if {one.driver for one in facts.pci_gpus(node)} == {FOR_GUESTS}:
        return absent("all GPUs are reserved for virtual machines (vfio-pci)", facts.PCI)
    if not facts.has_gpu(node):
        return absent("this machine has no NVIDIA GPU", facts.PCI)
    version = facts.module_version(node)
    if version:
        kind = "open kernel module" if facts.is_open_module(node) else "kernel module"
        return ok(f"the {kind} {version} is loaded", facts.VERSION, facts.PROC_VERSION)
    return _unloaded(node)


def _unloaded(node: ExaminedNode) -> Finding:
    """Return the finding that the module is not loaded, with the reason that the files show."""
    release = node_tree.line(node.tree, _RELEASE)
    listing = f"/lib/modules/{release}/modules.dep"
    looked = (facts.VERSION, facts.PROC_VERSION, listing, _SECURE_BOOT)
    known = node_tree.text(node.tree, listing) if release else None
    if known is not None and not any(name in known for name in _MODULE_NAMES):
        message = f"the nvidia kernel module is not loaded: the kernel {release} has none"
        names = ("linux-headers-$(uname -r)", "kernel-devel-$(uname -r)")
        headers = package_commands.install(node.tree, *names)
        command = f"{headers} && dkms autoinstall && modprobe nvidia"
    elif _is_secure_boot(node):
        message = (
            "the nvidia kernel module is not loaded, and Secure Boot is on: the kernel refuses "
            "modules that are not signed with a key it trusts (modprobe: 'Key was rejected by "
            "service' or 'Required key not available')"
        )
        key = next((path for path in _KEYS if node.tree.status(path)), _KEYS[-1])
        command = (
            f"mokutil --import {key} && systemctl reboot  # then enroll the key in the blue screen"
        )
    else:
        message = "the nvidia kernel module is not loaded"
        command = "modprobe nvidia && nvidia-smi || dmesg | grep -i nvrm"
    return Finding(FAILED, message, meaning=_NO_NVML, command=command, looked_at=looked)


def _is_secure_boot(node: ExaminedNode) -> bool:
    """Return whether Secure Boot is on: four bytes of attributes, then one that is 1."""
    return (node.tree.read(_SECURE_BOOT, 16) or b"")[4:5] == b"\1"


@check(
    "driver.version",
    "The driver's libraries match the kernel module",
    needs=("driver.module",),
)
def _version(node: ExaminedNode) -> Findings:
    module, space = facts.module_version(node), driver_user_space.driver_user_space(node)
    if not module:
        return absent("no NVIDIA kernel module for PCI GPUs is loaded")
    if not space.current:
        return absent(f"no libraries of the driver are below {space.root}")
    looked = (facts.VERSION, *(p for known in space.versions.values() for p in known.values()))
    wrong = {stem: version for stem, version in space.current.items() if version != module}
    if not wrong:
        message = f"kernel module, libcuda and libnvidia-ml have version {module}"
        return ok(message, *looked)
    names = " and ".join(f"{stem}.1 is {version}" for stem, version in wrong.items())
    has_files = all(module in space.versions[stem] for stem in wrong)
    command = f"ldconfig # creates links to the files of {module}" if has_files else _RELOAD
    return Finding(
        FAILED,
        f"the loaded kernel module is {module}, but {names}",
        meaning=_MISMATCH,
        command=command,
        looked_at=looked,
    )


def _all(count: int) -> str:
    return f"all {count} GPUs" if count > 1 else "the only GPU" if count else "no GPU"


@check(
    "driver.bound", "The kernel module drives every GPU on the PCI bus", needs=("driver.module",)
)
def _bound(node: ExaminedNode) -> Findings:
    found = facts.pci_gpus(node)
    if not found:
        return absent("the PCI bus has no GPU", facts.PCI)
    others = [one for one in found if one.driver not in ("nvidia", "nouveau", FOR_GUESTS)]
    guests = [one.bus_id for one in found if one.driver == FOR_GUESTS]
    if not others:
        besides = f", but {', '.join(guests)}: reserved for virtual machines" if guests else ""
        message = (
            f"the nvidia driver drives {_all(len(found) - len(guests))} on the PCI bus{besides}"
        )
        return ok(message, facts.PCI) if len(guests) < len(found) else absent(message, facts.PCI)
    return [
        Finding(
            WARNING,
            f"the driver of {one.bus_id} is {one.driver or 'none'}, not nvidia",
            subject=one.bus_id,
            meaning="no container gets this GPU: nvidia-smi and the node's resources do not "
            "include it",
            command=f"dmesg | grep -i {one.bus_id}  # this driver may not support the GPU",
            looked_at=(f"{facts.PCI}/{one.bus_id}/driver",),
        )
        for one in others
    ]


CHECKS = (_gpu, _bus, _nouveau, _module, _bound, _version)
