# SPDX-License-Identifier: Apache-2.0
"""The driver: its kernel module is loaded, has the GPUs, and is of its libraries' version."""

from __future__ import annotations

from gpuhook.doctor.check import DRIVER, FAILED, WARNING, Check, Finding, absent, ok
from gpuhook.doctor.facts import driver_facts as facts
from gpuhook.doctor.facts import driver_user_space, gpu_loss
from gpuhook.doctor.facts import spec_facts as specs
from gpuhook.node import node_tree
from gpuhook.vendors.nvidia.hot.host_fingerprint import TEGRA_RELEASE

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

    from gpuhook.doctor.check import ExaminedNode

BUS = "driver.bus"
_RELEASE = "/proc/sys/kernel/osrelease"
_SECURE_BOOT = "/sys/firmware/efi/efivars/SecureBoot-8be4df61-93ca-11d2-aa0d-00e098032b8c"
_MODULE_NAMES = ("/nvidia.ko", "/nvidia-current.ko")
_NO_NVML = (
    "nvidia-smi says \"NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA "
    'driver", and GPU containers do not start: "nvidia-container-cli: initialization error: nvml '
    'error: driver not loaded"'
)
_MISMATCH = (
    'nvidia-smi says "Failed to initialize NVML: Driver/library version mismatch", and GPU '
    'containers do not start, with "nvml error: driver/library version mismatch"'
)
_RELOAD = (
    "systemctl reboot  # or, with everything stopped that uses a GPU: "
    "rmmod nvidia_uvm nvidia_drm nvidia_modeset nvidia && modprobe nvidia"
)
# Where distributions have DKMS keep the key that it signs modules with.
_KEYS = ("/var/lib/shim-signed/mok/MOK.der", "/var/lib/dkms/mok.pub")


def _gpu(node: ExaminedNode) -> Iterable[Finding]:
    if facts.is_wsl(node):
        return [ok("/dev/dxg is there: the GPUs are those of Windows (WSL)", "/dev/dxg")]
    if facts.is_tegra(node):
        return [ok(f"{TEGRA_RELEASE} is there: the GPU is that of the chip", TEGRA_RELEASE)]
    found = facts.pci_gpus(node)
    if found:
        buses = ", ".join(one.bus_id for one in found)
        return [ok(f"NVIDIA GPUs on the PCI bus: {buses}", facts.PCI)]
    if gpu_loss.missing(node):
        return [_fallen(node)]
    return [_without_bus(node)]


def _without_bus(node: ExaminedNode) -> Finding:
    """Return what tells of GPUs on a machine whose PCI bus shows none."""
    if facts.gpus(node):
        return ok(f"the driver has {facts.counted(len(facts.gpus(node)))}", facts.GPUS)
    if facts.module_version(node):
        said = "the nvidia kernel module is loaded, and there is no NVIDIA GPU on the PCI bus"
        return absent(said, facts.PCI, facts.GPUS)
    return absent("this machine has no NVIDIA GPU", facts.PCI, facts.GPUS, "/dev/dxg")


def _bus(node: ExaminedNode) -> Iterable[Finding]:
    if gpu_loss.missing(node):
        return [_fallen(node)]
    if not gpu_loss.named(node):
        return [absent("no CDI spec and no container names a GPU")]
    return [ok("no CDI spec and no container names a GPU that is missing", facts.PCI)]


def _fallen(node: ExaminedNode) -> Finding:
    """Return which GPUs the PCI bus no longer has; each may have specs and containers."""
    gone, named = gpu_loss.missing(node), gpu_loss.named(node)
    paths = tuple(dict.fromkeys(path for gpu in gone for path in gpu.specs))
    files = [one for one in specs.valid(node) if one.path in paths]
    is_total = len(gone) == len(named) and not facts.pci_gpus(node)
    count = _all(len(gone)) if is_total else f"{len(gone)} of {len(named)} GPUs"
    are = "are" if len(gone) > 1 else "is"
    described = f"; described by {', '.join(paths)}" if paths else ""
    rewrite = [f"rm {one.path}" if is_total else specs.rewrite(node, one) for one in files]
    removed = f". If it was removed on purpose: {' && '.join(dict.fromkeys(rewrite))}"
    return Finding(
        FAILED,
        f"{count} {are} missing from the PCI bus: {', '.join(map(str, gone))}{described}",
        meaning="a GPU fell off the bus (Xid 79) or was removed: programs that use it fail, "
        "containers that request it do not start, and nvidia-smi prints "
        '"Unable to determine the device handle for GPU" or "No devices were found"',
        command="dmesg | grep -iE 'xid|nvrm|pcieport'; systemctl reboot  # if the GPU is still "
        "missing then, check the card, its power supply and its slot" + removed * bool(rewrite),
        looked_at=(facts.PCI, facts.GPUS, *paths),
    )


def _nouveau(node: ExaminedNode) -> Iterable[Finding]:
    if not facts.has_gpu(node):
        return [absent("this machine has no NVIDIA GPU", facts.PCI)]
    held = [one.bus_id for one in facts.pci_gpus(node) if one.driver == "nouveau"]
    is_loaded = node.tree.status("/sys/module/nouveau") is not None
    looked = ("/sys/module/nouveau", facts.PCI)
    if not held and (not is_loaded or facts.module_version(node)):
        return [ok("nouveau holds no GPU", *looked)]
    buses = ", ".join(held) or "the GPUs"
    is_beside = any(one.driver == "nvidia" for one in facts.pci_gpus(node))
    return [
        Finding(
            WARNING if is_beside else FAILED,
            f"the kernel's own driver nouveau is loaded and holds {buses}",
            meaning=f"NVIDIA's module cannot take a GPU that nouveau has. {_NO_NVML}",
            command="printf 'blacklist nouveau\\noptions nouveau modeset=0\\n' > "
            "/etc/modprobe.d/blacklist-nouveau.conf && (update-initramfs -u || dracut --force) && "
            "systemctl reboot",
            looked_at=looked,
        )
    ]


def _module(node: ExaminedNode) -> Iterable[Finding]:
    if facts.is_wsl(node):
        return [absent("WSL has no kernel module of NVIDIA's: Windows has the driver")]
    if facts.is_tegra(node):
        return [absent("a Tegra system has a driver of its own kind")]
    if {one.driver for one in facts.pci_gpus(node)} == {facts.FOR_GUESTS}:
        return [absent("all GPUs are kept for virtual machines (vfio-pci)", facts.PCI)]
    if not facts.has_gpu(node):
        return [absent("this machine has no NVIDIA GPU", facts.PCI)]
    version = facts.module_version(node)
    if version:
        kind = "open kernel module" if facts.is_open_module(node) else "kernel module"
        return [ok(f"the {kind} {version} is loaded", facts.VERSION, facts.PROC_VERSION)]
    return [_unloaded(node)]


def _unloaded(node: ExaminedNode) -> Finding:
    """Return why the module is not loaded, as far as files tell."""
    release = node_tree.line(node.tree, _RELEASE)
    listing = f"/lib/modules/{release}/modules.dep"
    looked = (facts.VERSION, facts.PROC_VERSION, listing, _SECURE_BOOT)
    known = node_tree.text(node.tree, listing) if release else None
    if known is not None and not any(name in known for name in _MODULE_NAMES):
        said = f"the nvidia kernel module is not loaded: there is none for the kernel {release}"
        headers = facts.install(node, "linux-headers-$(uname -r)", "kernel-devel-$(uname -r)")
        command = f"{headers} && dkms autoinstall && modprobe nvidia"
    elif _is_secure_boot(node):
        said = (
            "the nvidia kernel module is not loaded, and Secure Boot is on: the kernel refuses "
            "modules that are not signed with a key it trusts (modprobe says 'Key was rejected by "
            "service' or 'Required key not available')"
        )
        key = next((path for path in _KEYS if node.tree.status(path)), _KEYS[-1])
        command = (
            f"mokutil --import {key} && systemctl reboot  # then enroll the key in the blue screen"
        )
    else:
        said = "the nvidia kernel module is not loaded"
        command = "modprobe nvidia && nvidia-smi || dmesg | grep -i nvrm"
    return Finding(FAILED, said, meaning=_NO_NVML, command=command, looked_at=looked)


def _is_secure_boot(node: ExaminedNode) -> bool:
    """Return whether Secure Boot is on: four bytes of attributes, then one that is 1."""
    return (node.tree.read(_SECURE_BOOT, 16) or b"")[4:5] == b"\1"


def _version(node: ExaminedNode) -> Iterable[Finding]:
    module, space = facts.module_version(node), driver_user_space.driver_user_space(node)
    if not module:
        return [absent("no kernel module of NVIDIA's for PCI GPUs is loaded")]
    if not space.current:
        return [absent(f"there are no libraries of the driver below {space.root}")]
    looked = (facts.VERSION, *(p for known in space.versions.values() for p in known.values()))
    wrong = {stem: version for stem, version in space.current.items() if version != module}
    if not wrong:
        said = f"kernel module, libcuda and libnvidia-ml are of {module}"
        return [ok(said, *looked)]
    names = " and ".join(f"{stem}.1 is {version}" for stem, version in wrong.items())
    is_there = all(module in space.versions[stem] for stem in wrong)
    command = f"ldconfig  # the links are to lead to the files of {module}" if is_there else _RELOAD
    return [
        Finding(
            FAILED,
            f"the loaded kernel module is {module}, but {names}",
            meaning=_MISMATCH,
            command=command,
            looked_at=looked,
        )
    ]


def _all(count: int) -> str:
    return f"all {count} GPUs" if count > 1 else "the only GPU" if count else "no GPU"


def _bound(node: ExaminedNode) -> Iterable[Finding]:
    found = facts.pci_gpus(node)
    if not found:
        return [absent("no GPU shows on the PCI bus", facts.PCI)]
    others = [one for one in found if one.driver not in ("nvidia", "nouveau", facts.FOR_GUESTS)]
    guests = [one.bus_id for one in found if one.driver == facts.FOR_GUESTS]
    if not others:
        besides = f", but {', '.join(guests)}: kept for virtual machines" if guests else ""
        said = f"the nvidia driver has {_all(len(found) - len(guests))} of the PCI bus{besides}"
        return [ok(said, facts.PCI) if len(guests) < len(found) else absent(said, facts.PCI)]
    return [
        Finding(
            WARNING,
            f"the driver of {one.bus_id} is {one.driver or 'none'}, not nvidia",
            subject=one.bus_id,
            meaning="no container gets this GPU: neither nvidia-smi nor the node's resources "
            "count it",
            command=f"dmesg | grep -i {one.bus_id}  # this driver may not know such a GPU",
            looked_at=(f"{facts.PCI}/{one.bus_id}/driver",),
        )
        for one in others
    ]


CHECKS: tuple[Check, ...] = (
    Check("driver.gpu", DRIVER, "The machine has an NVIDIA GPU", _gpu),
    Check(
        BUS,
        DRIVER,
        "The PCI bus has every GPU that CDI specs and containers name",
        _bus,
        needs=("driver.gpu",),
    ),
    Check(
        "driver.nouveau",
        DRIVER,
        "nouveau does not hold the GPUs",
        _nouveau,
        needs=("driver.gpu",),
    ),
    Check(
        "driver.module",
        DRIVER,
        "NVIDIA's kernel module is loaded",
        _module,
        needs=("driver.nouveau",),
    ),
    Check(
        "driver.bound",
        DRIVER,
        "The kernel module has every GPU of the PCI bus",
        _bound,
        needs=("driver.module",),
    ),
    Check(
        "driver.version",
        DRIVER,
        "The driver's libraries are of the kernel module's version",
        _version,
        needs=("driver.module",),
    ),
)
