# SPDX-License-Identifier: Apache-2.0
"""Broken nodes with AMD GPUs."""

from __future__ import annotations

import json
import os
import shutil
from functools import partial

from gpuhook.node_facts.sources import node_readings
from tests.doctor.broken.driver import replace
from tests.doctor.case import Broken, FaultCase
from tests.doctor.parts import amd, driver, kubernetes
from tests.doctor.parts.gpuhook import container
from tests.simulated.amd_kfd_tree import node_directory
from tests.simulated.sysfs_files import write

TYPE_CHECKING = False
if TYPE_CHECKING:
    from pathlib import Path

FIRST, SECOND = "0000:05:00.0", "0000:27:00.0"
_PCI = "/sys/bus/pci/devices"
_RELEASE = "6.8.0-79-generic"
_MODULES = f"/lib/modules/{_RELEASE}/modules.dep"
_IN_TREE = "kernel/drivers/gpu/drm/amd/amdgpu/amdgpu.ko.zst:\n"


def gpu(case: FaultCase, name: str = FIRST) -> Path:
    """Return the directory of a GPU in the simulated node."""
    return case.path(f"{amd.BOUND}/{name}").resolve()


def topology(case: FaultCase) -> Path:
    """Return the directory of KFD's topology."""
    return case.path("/sys/class/kfd/kfd/topology").resolve()


def unload(case: FaultCase) -> None:
    """Unload amdgpu: its files, KFD, DRM and the device nodes disappear."""
    shutil.rmtree(case.path("/sys/module/amdgpu"))
    for name in ("sys/devices/virtual/kfd", "sys/class/drm", "dev/dri"):
        shutil.rmtree(case.root / name)
    case.remove("/dev/kfd")


def _blacklisted(case: FaultCase) -> None:
    unload(case)
    case.write("/etc/modprobe.d/gpu.conf", "# no graphics\nblacklist amdgpu\n")


def _blacklisted_by_argument(case: FaultCase) -> None:
    unload(case)
    case.write("/proc/cmdline", "ro quiet modprobe.blacklist=nouveau,amdgpu\n")


def _no_module(case: FaultCase) -> None:
    unload(case)
    case.write(_MODULES, "kernel/drivers/net/tun.ko.zst:\n")


def for_guests(case: FaultCase) -> None:
    """Give all GPUs to vfio-pci."""
    unload(case)
    for name in os.listdir(case.path(f"{_PCI}/x").parent):
        driver.bind(case, name, "vfio-pci")


def _unbound(case: FaultCase) -> None:
    driver.add_pci_device(case, "0000:f1:00.0", "0x120000", "")
    case.write(f"{_PCI}/0000:f1:00.0/vendor", "0x1002\n")
    case.remove(f"{_PCI}/0000:f1:00.0/driver")


def _drives_none(case: FaultCase) -> None:
    bound = case.path(f"{amd.BOUND}/x").parent
    for link in bound.iterdir():
        link.unlink()
    for name in ("sys/devices/virtual/kfd", "sys/class/drm", "dev/dri"):
        shutil.rmtree(case.root / name)
    case.remove("/dev/kfd")


def _other_driver_installed(case: FaultCase) -> None:
    case.path("/usr/src/amdgpu-6.18.4-2301290.24.04/x").touch()


def _kernels_own_driver(case: FaultCase) -> None:
    case.remove("/sys/module/amdgpu/version")
    case.write(_MODULES, "updates/dkms/amdgpu.ko.zst:\n" + _IN_TREE)


def _old_kernel(case: FaultCase) -> None:
    case.remove("/sys/module/amdgpu/version")
    case.write("/proc/sys/kernel/osrelease", "6.1.0-28-amd64\n")


def _no_drm(case: FaultCase) -> None:
    shutil.rmtree(gpu(case, SECOND) / "drm")
    shutil.rmtree(node_directory(topology(case), 136))
    case.remove("/dev/dri/renderD136")
    describe_rest(case)


def describe_rest(case: FaultCase) -> None:
    """Remove the second GPU from the spec, and from the kubelet's record."""
    describe(case, {136})
    place = case.path(f"{amd.BOUND}/x").parent
    names = [one for one in sorted(os.listdir(place)) if one != SECOND]
    kubernetes.write_checkpoint(case, {"amd.com/gpu": names})


def _wrong_major(case: FaultCase) -> None:
    replace(case, "/proc/devices", "238 kfd", "241 kfd")


def _denied(case: FaultCase) -> None:
    """Have KFD refuse its files of one GPU, as to a process without its render node."""
    number = node_directory(topology(case), 136).name
    case.denied.add(f"/sys/class/kfd/kfd/topology/nodes/{number}/properties")


def _no_drm_twin(case: FaultCase) -> None:
    place = node_directory(topology(case), 136) / "properties"
    text = place.read_text("ascii")
    place.write_text(text.replace("drm_render_minor 136", "drm_render_minor 250"), "ascii")
    describe(case, {136})
    kubernetes.write_checkpoint(case, {"amd.com/gpu": []})


def describe(case: FaultCase, without: set[int]) -> None:
    """Remove the render nodes with these minors from the spec, and devices that have no other."""
    document = json.loads(case.path(amd.SPEC).read_text("utf-8"))
    gone = {f"/dev/dri/renderD{minor}" for minor in without}
    kept = []
    for one in document["devices"]:
        edits = one["containerEdits"]
        edits["deviceNodes"] = [node for node in edits["deviceNodes"] if node["path"] not in gone]
        if any("renderD" in node["path"] for node in edits["deviceNodes"]):
            kept.append(one)
    document["devices"] = kept
    case.write(amd.SPEC, json.dumps(document))


def _no_kfd_twin(case: FaultCase) -> None:
    shutil.rmtree(node_directory(topology(case), 136))
    describe(case, {136})
    kubernetes.write_checkpoint(case, {"amd.com/gpu": []})


def _errors(case: FaultCase) -> None:
    write(gpu(case) / "ras/umc_err_count", "ue: 2\nce: 31")


def _bad_pages(case: FaultCase) -> None:
    pages = "0x00000001 : 0x00001000 : R\n0x00000002 : 0x00001000 : P\n"
    (gpu(case) / "ras/gpu_vram_bad_pages").write_text(pages, "ascii")


def _residue(case: FaultCase) -> None:
    gpu_id = (node_directory(topology(case), 128) / "gpu_id").read_text("ascii").strip()
    write(topology(case).parent / f"proc/4711/vram_{gpu_id}", 3 << 30)


def _skipped_partition(case: FaultCase) -> None:
    """Take the last partition, as a kernel without a free DRM minor does."""
    shutil.rmtree(node_directory(topology(case), 191))
    describe(case, {191})
    record(case, lambda one: one != "amdgpu_xcp_55")


def record(case: FaultCase, is_kept: object) -> None:
    """Have the kubelet register the devices that a function accepts."""
    assert callable(is_kept)
    text = case.path(kubernetes.CHECKPOINT).read_text("utf-8")
    ids = json.loads(text)["Data"]["RegisteredDevices"]["amd.com/gpu"]
    kubernetes.write_checkpoint(case, {"amd.com/gpu": [one for one in ids if is_kept(one)]})


def _mixed_hive(case: FaultCase) -> None:
    write(gpu(case, SECOND) / "current_memory_partition", "NPS4")


def _repartitioned(case: FaultCase) -> None:
    """Switch the first GPU to SPX: its other partitions are no longer in KFD's topology."""
    write(gpu(case) / "current_compute_partition", "SPX")
    for minor in range(129, 136):
        shutil.rmtree(node_directory(topology(case), minor))


def _stale_spec(case: FaultCase) -> None:
    _repartitioned(case)
    record(case, lambda one: not one.startswith("amdgpu_xcp_") or int(one[11:]) > 6)


def _stale_container(case: FaultCase) -> None:
    _stale_spec(case)
    describe(case, set(range(129, 136)))
    entry = case.path(amd.ENTRY)
    entry.write_text(entry.read_text("utf-8").replace("renderD128", "renderD131"), "utf-8")


def _stale_container_of_an_engine(case: FaultCase) -> None:
    """An engine has applied a spec: config.json does not show who wrote it."""
    _stale_container(case)
    case.remove(amd.ENTRY)
    nodes = ["/dev/kfd", "/dev/dri/renderD131"]
    held = container("engines", engine="podman", nodes=nodes, injected_by=[])
    case.readings[node_readings.CONTAINERS]["containers"].append(held)


def _stale_plugin(case: FaultCase) -> None:
    _repartitioned(case)
    describe(case, set(range(129, 136)))


def _another_generation(case: FaultCase) -> None:
    write(topology(case) / "generation_id", 99)


def _without_first_device(case: FaultCase) -> None:
    describe(case, {128})


def _no_kfd_in_kernel(case: FaultCase) -> None:
    shutil.rmtree(case.root / "sys/devices/virtual/kfd")
    case.remove("/dev/kfd")
    replace(case, "/proc/devices", "238 kfd\n", "")
    case.remove(amd.SPEC)
    case.remove(amd.ENTRY)
    kubernetes.write_checkpoint(case, {"amd.com/gpu": []})
    case.readings[node_readings.CONTAINERS]["containers"].clear()


CPX = "mi300x-cpx"
NODE_BROKEN = partial(Broken, profile="mi300x8")
NODE_WARNED = partial(Broken, profile="mi300x8", is_warning=True)

BROKEN = [
    NODE_BROKEN("amdgpu-not-loaded", "amd.module", unload),
    NODE_BROKEN("amdgpu-blacklisted", "amd.module", _blacklisted),
    NODE_BROKEN("amdgpu-blacklisted-by-the-command-line", "amd.module", _blacklisted_by_argument),
    NODE_BROKEN("no-amdgpu-for-this-kernel", "amd.module", _no_module),
    NODE_WARNED("amd-gpus-for-guests", "amd.module", for_guests),
    NODE_WARNED("amd-gpu-without-driver", "amd.bound", _unbound),
    NODE_BROKEN("amdgpu-drives-no-gpu", "amd.bound", _drives_none),
    NODE_WARNED("amdgpu-upgraded-and-not-rebooted", "amd.version", _other_driver_installed),
    NODE_WARNED("kernels-own-amdgpu-loaded", "amd.version", _kernels_own_driver),
    NODE_WARNED("kernel-that-mixes-partitions", "amd.isolation", _old_kernel, profile=CPX),
    NODE_BROKEN("amd-gpu-without-drm", "amd.drm", _no_drm),
    NODE_BROKEN("no-kfd-node", "amd.kfd", lambda s: s.remove("/dev/kfd")),
    NODE_BROKEN("kfd-node-of-another-major", "amd.kfd", _wrong_major),
    NODE_WARNED("kernel-without-kfd", "amd.kfd", _no_kfd_in_kernel),
    NODE_WARNED("kfd-refuses-the-topology", "amd.topology", _denied),
    NODE_BROKEN("no-render-node", "amd.nodes", lambda s: s.remove("/dev/dri/renderD136")),
    NODE_BROKEN("kfd-node-without-drm", "amd.twins", _no_drm_twin),
    NODE_WARNED("drm-without-kfd-node", "amd.twins", _no_kfd_twin),
    NODE_WARNED("amd-uncorrectable-errors", "amd.errors", _errors),
    NODE_WARNED("amd-bad-pages", "amd.pages", _bad_pages),
    NODE_WARNED("memory-of-a-dead-process", "amd.residue", _residue),
    NODE_WARNED("partition-without-drm-minor", "amd.partitions", _skipped_partition, profile=CPX),
    NODE_WARNED("hive-of-two-memory-modes", "amd.hive", _mixed_hive),
    NODE_BROKEN("amd-spec-of-another-mode", "amd.spec-devices", _stale_spec, profile=CPX),
    NODE_BROKEN("amd-spec-of-another-generation", "amd.spec-devices", _another_generation),
    NODE_BROKEN("amd-spec-without-a-gpu", "amd.spec-devices", _without_first_device),
    NODE_WARNED("kubelet-has-old-partitions", "amd.registered", _stale_plugin, profile=CPX),
    NODE_BROKEN("container-with-a-lost-partition", "amd.containers", _stale_container, profile=CPX),
    NODE_BROKEN(
        "container-of-an-engine-with-a-lost-partition",
        "amd.containers",
        _stale_container_of_an_engine,
        profile=CPX,
    ),
]
