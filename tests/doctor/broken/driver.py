# SPDX-License-Identifier: Apache-2.0
"""Broken drivers, device nodes and GPUs."""

from __future__ import annotations

import dataclasses
import json
import os
import shutil
import stat
from functools import partial
from pathlib import Path

from gpuhook.node_facts.sources import node_readings
from tests.doctor.case import Broken, FaultCase
from tests.doctor.parts import driver, kubernetes
from tests.simulated import nvml_profile
from tests.simulated.profiles import LIBRARY_DIR

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gpuhook.vendors.nvidia.inventory.inventory import Gpu

_VERSIONS = ("/sys/module/nvidia/version", "/proc/driver/nvidia/version")
_SECURE_BOOT = "/sys/firmware/efi/efivars/SecureBoot-8be4df61-93ca-11d2-aa0d-00e098032b8c"
_OTHER = "575.57.08"


def _unload(case: FaultCase) -> None:
    for path in _VERSIONS:
        case.remove(path)


def _no_module_for_kernel(case: FaultCase) -> None:
    _unload(case)
    case.write(f"/lib/modules/{driver.RELEASE}/modules.dep", "kernel/drivers/net/tun.ko.zst:\n")


def _secure_boot(case: FaultCase) -> None:
    _unload(case)
    case.path(_SECURE_BOOT).write_bytes(b"\6\0\0\0\1")


def _nouveau(case: FaultCase) -> None:
    _unload(case)
    case.write("/sys/module/nouveau/refcnt", "1\n")
    driver.bind(case, "0000:00:1e.0", "nouveau")


def _unbound(case: FaultCase) -> None:
    driver.add_pci_device(case, "0000:00:1f.0", "0x030200", "nvidiafb")


def _no_link(case: FaultCase) -> None:
    case.remove("/dev/char/195:0")
    case.readings[node_readings.PROGRAMS]["runc"] = {"path": "/usr/bin/runc", "version": "1.1.5"}


def no_program_holds_gpus(case: FaultCase) -> None:
    """Stop nvidia-persistenced, and leave no program that keeps a GPU initialised."""
    _stop(case, name="nvidia-persistenced.service")
    listed = case.readings.get(node_readings.PROCESSES) or []
    listed[:] = [one for one in listed if "device-plugin" not in one["argv"][0]]


def _upgraded(case: FaultCase) -> None:
    replace(case, _VERSIONS[0], "580.95.05", _OTHER)
    replace(case, _VERSIONS[1], "580.95.05", _OTHER)


def replace(case: FaultCase, path: str, old: str, new: str) -> None:
    """Replace a text in a file of the node."""
    place = case.path(path)
    text = place.read_text(encoding="utf-8")
    assert old in text
    place.write_text(text.replace(old, new), encoding="utf-8")


def _libraries(case: FaultCase, *stems: str) -> list[Path]:
    directory = case.root / LIBRARY_DIR.lstrip("/")
    return [path for stem in stems for path in directory.glob(f"{stem}.so*")]


def _no_libraries(case: FaultCase) -> None:
    for path in _libraries(case, "libcuda", "libnvidia-ml"):
        path.unlink()


def _no_nvml(case: FaultCase) -> None:
    for path in _libraries(case, "libnvidia-ml"):
        path.unlink()


def _unlinked(case: FaultCase) -> None:
    case.remove(f"{LIBRARY_DIR}/libcuda.so.1")


def _two_drivers(case: FaultCase) -> None:
    case.write(f"{LIBRARY_DIR}/libcuda.so.{_OTHER}", "")


def _no_firmware(case: FaultCase) -> None:
    for path in (case.root / "lib/firmware/nvidia").glob("*/gsp*"):
        path.unlink()
    version = "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.95.05  Release Build\n"
    case.write("/proc/driver/nvidia/version", version)


def _nvml_fails(case: FaultCase) -> None:
    with Path(case.node.nvml_profile).open("a", encoding="utf-8") as profile:
        profile.write("init 999\n")


def _renumber(case: FaultCase, path: str, major: int, minor: int) -> None:
    place = case.path(path)
    place.unlink(missing_ok=True)
    os.mknod(place, stat.S_IFCHR | 0o666, os.makedev(major, minor))
    place.chmod(0o666)


def _uvm_unloaded(case: FaultCase) -> None:
    replace(case, "/proc/devices", "242 nvidia-uvm\n", "")


def _uvm_renumbered(case: FaultCase) -> None:
    _renumber(case, "/dev/nvidia-uvm", 235, 0)


def _directory(case: FaultCase) -> None:
    case.remove("/dev/nvidia0")
    case.path("/dev/nvidia0").mkdir()


def _closed(case: FaultCase) -> None:
    case.path("/dev/nvidia0").chmod(0o600)


def _no_capability(case: FaultCase) -> None:
    nodes = sorted((case.root / "dev/nvidia-caps").iterdir())
    nodes[0].unlink()


def _imex(case: FaultCase) -> None:
    replace(case, "/proc/devices", "\nBlock", "234 nvidia-caps-imex-channels\n\nBlock")
    case.write("/etc/nvidia-imex/nodes_config.cfg", "10.0.0.1\n10.0.0.2\n")
    case.path("/dev/nvidia-caps-imex-channels").mkdir()
    _renumber(case, "/dev/nvidia-caps-imex-channels/channel0", 234, 0)


def _stop(case: FaultCase, name: str) -> None:
    case.readings[node_readings.UNITS][name] = driver.unit("inactive")


def _old_fabric_manager(case: FaultCase) -> None:
    """Install the package of another driver version: its daemon stops at once."""
    case.write(
        "/var/lib/dpkg/status",
        "Package: nvidia-driver-580\nStatus: install ok installed\nVersion: 580.95.05-1\n\n"
        "Package: nvidia-fabricmanager-575\nStatus: install ok installed\n"
        "Version: 575.57.08-1\n",
    )
    _stop(case, "nvidia-fabricmanager.service")


def _incomplete_windows_driver(case: FaultCase) -> None:
    """Make the node a WSL system without one of the libraries of Windows' driver."""
    case.write("/dev/dxg", "")
    for name in ("libcuda.so.1", "libdxcore.so"):
        case.write(f"/usr/lib/wsl/lib/{name}", "")


def answer(case: FaultCase, gpus: tuple[Gpu, ...]) -> None:
    """Have the driver answer for these GPUs only."""
    answers = nvml_profile.text(dataclasses.replace(case.node.node, gpus=gpus))
    Path(case.node.nvml_profile).write_text(answers, encoding="utf-8")


def _unlisted(case: FaultCase) -> None:
    answer(case, case.node.node.gpus[:-1])


def _undivided(case: FaultCase) -> None:
    """Remove the MIG devices of a GPU that is still in MIG mode, and describe the rest."""
    gpus = case.node.node.gpus
    empty = next(gpu for gpu in reversed(gpus) if gpu.instances)
    shutil.rmtree(case.path(f"/proc/driver/nvidia/capabilities/gpu{empty.minor}/mig"))
    rest = tuple(dataclasses.replace(gpu, instances=()) if gpu is empty else gpu for gpu in gpus)
    answer(case, rest)
    facts = dataclasses.replace(case.node.node, gpus=rest)
    case.node = dataclasses.replace(case.node, node=facts)
    case.write(driver.SPEC, json.dumps(driver.toolkit_spec(case)))
    kubernetes.write_checkpoint(case, kubernetes.offered(case))


def _mode(case: FaultCase, number: int) -> None:
    """Have the driver answer with another compute mode."""
    with Path(case.node.nvml_profile).open("a", encoding="utf-8") as profile:
        profile.write(f"compute_mode {number}\n")


BROKEN = [
    Broken("module-not-loaded", "driver.module", _unload),
    Broken("no-module-for-this-kernel", "driver.module", _no_module_for_kernel),
    Broken("secure-boot-refuses-the-module", "driver.module", _secure_boot),
    Broken("nouveau-holds-the-gpu", "driver.nouveau", _nouveau),
    Broken("gpu-has-another-driver", "driver.bound", _unbound, is_warning=True),
    Broken("driver-upgraded-and-not-rebooted", "driver.version", _upgraded),
    Broken("no-libraries-of-the-driver", "driver.libraries", _no_libraries),
    Broken("no-libnvidia-ml", "driver.libraries", _no_nvml),
    Broken("libcuda-without-its-link", "driver.libraries", _unlinked),
    Broken(
        "no-cache-of-the-loader",
        "driver.cache",
        lambda s: s.remove("/etc/ld.so.cache"),
        is_warning=True,
    ),
    Broken("two-drivers-installed", "driver.files", _two_drivers, is_warning=True),
    Broken("no-gsp-firmware-for-the-open-module", "driver.firmware", _no_firmware),
    Broken("windows-driver-incomplete", "driver.wsl", _incomplete_windows_driver),
    Broken("nvml-fails", "gpus.nvml", _nvml_fails),
    Broken("gpu-that-nvml-does-not-list", "gpus.seen", _unlisted, "h100x8"),
    Broken("mig-mode-without-mig-devices", "gpus.mig", _undivided, "a100-mig", is_warning=True),
    Broken("gpu-lost", "gpus.lost", lambda _: None, profile="lost-gpu"),
    Broken("no-nvidiactl", "devices.control", lambda s: s.remove("/dev/nvidiactl")),
    Broken("no-node-of-a-gpu", "devices.gpus", lambda s: s.remove("/dev/nvidia3"), "h100x8"),
    Broken("no-uvm", "devices.uvm", lambda s: s.remove("/dev/nvidia-uvm")),
    Broken("uvm-module-not-loaded", "devices.uvm", _uvm_unloaded),
    Broken("no-uvm-tools", "devices.uvm-tools", lambda s: s.remove("/dev/nvidia-uvm-tools")),
    Broken("no-modeset", "devices.modeset", lambda s: s.remove("/dev/nvidia-modeset")),
    Broken("uvm-of-another-major", "devices.numbers", _uvm_renumbered),
    Broken("directory-in-place-of-a-gpu", "devices.numbers", _directory),
    Broken("no-node-of-a-mig-device", "devices.capabilities", _no_capability, "a100-mig"),
    Broken("gpu-only-for-root", "devices.permissions", _closed, is_warning=True),
    Broken(
        "no-link-for-systemd",
        "devices.links",
        _no_link,
        is_warning=True,
    ),
    Broken("imex-daemon-stopped", "devices.imex", _imex),
    Broken(
        "fabric-manager-stopped",
        "gpus.fabric",
        partial(_stop, name="nvidia-fabricmanager.service"),
        "h100x8",
    ),
    Broken(
        "fabric-manager-of-another-driver", "gpus.fabric-version", _old_fabric_manager, "h100x8"
    ),
    Broken(
        "persistence-daemon-stopped",
        "gpus.persistence",
        no_program_holds_gpus,
        "h100x8",
        is_warning=True,
    ),
    Broken("compute-prohibited", "gpus.compute-mode", partial(_mode, number=2)),
    Broken(
        # The healthy node shares its GPU: in this mode the second process fails.
        "compute-mode-exclusive",
        "plugin.compute-mode",
        partial(_mode, number=3),
    ),
]
