# SPDX-License-Identifier: Apache-2.0
"""Writes the inventories that ship in gpuhook/vendors/profiles.

`python -m tests.simulated.profiles` after a change here; a test keeps the files equal to this.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any
from uuid import NAMESPACE_OID, uuid5

from gpuhook.vendors.amd.inventory import amd_dump
from gpuhook.vendors.inventory import inventory_file
from gpuhook.vendors.inventory.inventory_document import SCHEMA
from gpuhook.vendors.nvidia.inventory import dump, dump_file
from gpuhook.vendors.nvidia.inventory.inventory import (
    DeviceNode,
    Driver,
    DriverFile,
    Gpu,
    Link,
    Node,
)
from tests.simulated import amd_profiles, mig_node

LIBRARY_DIR = "/usr/lib/x86_64-linux-gnu"

# Name and SONAME version of what NVIDIA's installer puts beside libcuda; "V" is the driver's
# version, in the SONAME too. Each file is lib<name>.so.<V>.
_LIBRARIES = {
    "EGL_nvidia": "0",
    "GLESv1_CM_nvidia": "1",
    "GLESv2_nvidia": "2",
    "GLX_nvidia": "0",
    "cuda": "1",
    "cudadebugger": "1",
    "nvcuvid": "1",
    "nvidia-allocator": "1",
    "nvidia-cfg": "1",
    "nvidia-eglcore": "V",
    "nvidia-encode": "1",
    "nvidia-fbc": "1",
    "nvidia-glcore": "V",
    "nvidia-glsi": "V",
    "nvidia-glvkspirv": "V",
    "nvidia-gpucomp": "V",
    "nvidia-gtk3": "V",
    "nvidia-ml": "1",
    "nvidia-ngx": "1",
    "nvidia-nvvm": "4",
    "nvidia-opencl": "1",
    "nvidia-opticalflow": "1",
    "nvidia-pkcs11": "V",
    "nvidia-pkcs11-openssl3": "V",
    "nvidia-ptxjitcompiler": "1",
    "nvidia-rtcore": "V",
    "nvidia-sandboxutils": "1",
    "nvidia-tls": "V",
    "nvidia-vksc-core": "1",
    "nvidia-wayland-client": "V",
    "nvoptix": "1",
}
# The EGL platform libraries have their own versions: file name version by driver branch.
_EGL_PLATFORMS = {
    "550": {"gbm": "1.1.1", "wayland": "1.1.13"},
    "580": {"gbm": "1.1.2", "wayland": "1.1.20", "xcb": "1.0.3", "xlib": "1.0.3"},
}
_EGL_CONFIGS = {
    "gbm": "15_nvidia_gbm.json",
    "wayland": "10_nvidia_wayland.json",
    "xcb": "20_nvidia_xcb.json",
    "xlib": "20_nvidia_xlib.json",
}
_DEVELOPMENT_LINKS = (
    "cuda",
    "nvcuvid",
    "nvidia-allocator",
    "nvidia-cfg",
    "nvidia-encode",
    "nvidia-fbc",
    "nvidia-ml",
    "nvidia-nvvm",
    "nvidia-opticalflow",
    "nvidia-ptxjitcompiler",
)
_BINARIES = (
    "nvidia-cuda-mps-control",
    "nvidia-cuda-mps-server",
    "nvidia-debugdump",
    "nvidia-persistenced",
    "nvidia-smi",
)
_CONFIGS = (
    "/etc/OpenCL/vendors/nvidia.icd",
    "/etc/vulkan/icd.d/nvidia_icd.json",
    "/etc/vulkan/implicit_layer.d/nvidia_layers.json",
    "/usr/share/glvnd/egl_vendor.d/10_nvidia.json",
    "/usr/share/nvidia/nvoptix.bin",
)
_XORG_CONFIG = "/usr/share/X11/xorg.conf.d/nvidia-drm-outputclass.conf"


def t4() -> Node:
    """Return a g4dn.xlarge of AWS: one Tesla T4, with the graphics part of the driver."""
    gpu = Gpu(
        index=0,
        uuid="GPU-3d2b7a51-9c0e-4f6d-8b17-52e0c4a6f913",
        minor=0,
        pci_bus_id="00000000:00:1E.0",
        name="Tesla T4",
        brand="nvidia",
        architecture="turing",
        compute_capability="7.5",
        memory_bytes=15360 * 1024**2,
        mig_mode="unsupported",
    )
    return _node(
        "580.95.05",
        "13.0",
        (gpu,),
        uvm_major=242,
        boot_id="0f1f6a0e-5f5e-4c62-9f5d-6e1a1f3d8a27",
        tree="8813264-96390392-1758622276000000000",
        has_xorg=True,
    )


def h100x8() -> Node:
    """Return an eight-way H100 machine: two NUMA nodes, minors in an order other than NVML's."""
    rows = (
        ("1B", 0, "5c9a1f7e-2f0b-4d35-a1c8-0b6d9e4f7a21"),
        ("43", 1, "e81b64d2-7a39-4c0f-9d52-f3a7c1086b4e"),
        ("52", 3, "17f0d8b6-c4e2-4a9b-8f63-2d5e90a1c7f8"),
        ("61", 2, "a4630c9d-18f5-4e7a-b2d0-6c8f1e3b5907"),
        ("9D", 4, "f2d7e593-60ab-4817-935c-d1b04a6e8c2f"),
        ("C3", 5, "0b8e4c16-d97f-4263-ae08-795f2c3d1b6a"),
        ("D1", 7, "c6572ae8-3b1d-4f90-87e4-1a9d5f60b3c2"),
        ("DF", 6, "93fd10b7-e52c-4ba6-9c1f-8e07d4a2f65b"),
    )
    gpus = _gpus("NVIDIA H100 80GB HBM3", "hopper", "9.0", 81559, rows)
    return _node(
        "580.95.05",
        "13.0",
        gpus,
        uvm_major=509,
        boot_id="b7e4c1d2-93a6-4f08-8a5e-2c7d0f9b6e14",
        tree="2621911-96390392-1758622276000000000",
        sockets=("/run/nvidia-fabricmanager/socket",),
    )


def lost_gpu() -> Node:
    """Return a four-way A100 machine whose third GPU has fallen off the bus.

    Its facts come from /proc/driver/nvidia, since NVML has no handle for it.
    """
    rows = (
        ("07", 0, "6e2d9f40-8b3c-4a71-b5e6-f09c1d7a2e83"),
        ("47", 1, "d05b81c7-4f6e-4392-a8d1-37e9b2c6f450"),
        ("87", 2, "2a97e3f1-c05d-4b68-9e7a-84d1f6305bc9"),
        ("C7", 3, "b81f46a5-0e72-4dc9-83f5-9a6c7e2d104b"),
    )
    gpus = list(_gpus("NVIDIA A100-SXM4-80GB", "ampere", "8.0", 81920, rows))
    missing = gpus[2]
    gpus[2] = Gpu(
        index=2,
        uuid=missing.uuid,
        minor=missing.minor,
        pci_bus_id=missing.pci_bus_id,
        name=missing.name,
        numa_node=missing.numa_node,
        lost="fallen off the bus or otherwise inaccessible",
    )
    return _node(
        "550.163.01",
        "12.4",
        tuple(gpus),
        uvm_major=236,
        boot_id="48c0a9f3-1d7b-4e52-b6f8-05e3d9c27a61",
        tree="393347-28712096-1744127410000000000",
    )


def a100_mig() -> Node:
    """Return an A100 machine with MIG: seven alike, four of several sizes, and one GPU without.

    The second GPU has no MIG device of index 3, and two in one GPU instance.
    """
    made = {
        0: [(index, "1g.5gb", 7 + index, 0) for index in range(7)],
        1: [
            (0, "3g.20gb", 2, 0),
            (1, "1c.2g.10gb", 3, 0),
            (2, "1c.2g.10gb", 3, 1),
            (4, "1g.5gb+me", 9, 0),
        ],
        2: [],
    }
    rows = (
        ("07", 0, "8f5c2d19-4b7e-4a03-9d61-c2e80f7b35a4"),
        ("0F", 2, "d94e07b3-61fa-4c28-8e5d-7a13b0c96f82"),
        ("47", 1, "2b60f8ea-95d3-47c1-a7b4-0e5f9d1c8367"),
    )
    gpus = tuple(
        replace(
            gpu,
            mig_mode="enabled" if made[gpu.index] else "disabled",
            instances=tuple(
                mig_node.instance(
                    gpu.minor or 0, number, _mig_uuid(gpu.index, number), profile, *ids
                )
                for number, profile, *ids in made[gpu.index]
            ),
        )
        for gpu in _gpus("NVIDIA A100-SXM4-40GB", "ampere", "8.0", 40960, rows)
    )
    return _node(
        "580.95.05",
        "13.0",
        gpus,
        uvm_major=507,
        boot_id="6a3d7c90-e15b-4f82-b9c4-58d1f20e7a36",
        tree="1572993-96390392-1758622276000000000",
        mig="5d2c9e41",
    )


def _gpus(
    name: str,
    architecture: str,
    compute_capability: str,
    mebibytes: int,
    rows: Sequence[tuple[str, int, str]],
) -> tuple[Gpu, ...]:
    """Return GPUs with these PCI buses, minors and UUIDs; the first half is on NUMA node 0."""
    half = (len(rows) + 1) // 2
    return tuple(
        Gpu(
            index=index,
            uuid=f"GPU-{uuid}",
            minor=minor,
            pci_bus_id=f"00000000:{bus}:00.0",
            name=name,
            brand="nvidia",
            architecture=architecture,
            compute_capability=compute_capability,
            memory_bytes=mebibytes * 1024**2,
            numa_node=index // half,
            mig_mode="disabled",
        )
        for index, (bus, minor, uuid) in enumerate(rows)
    )


def _mig_uuid(gpu: int, index: int) -> str:
    """Return a UUID as the driver makes it for a MIG device: version 5, from a name."""
    return f"MIG-{uuid5(NAMESPACE_OID, f'gpuhook {gpu}:{index}')}"


PROFILES = {"t4": t4, "h100x8": h100x8, "lost-gpu": lost_gpu, "a100-mig": a100_mig}
PROFILES["mixed"] = t4  # with GPUs of another vendor


def _node(
    version: str,
    cuda: str,
    gpus: tuple[Gpu, ...],
    *,
    uvm_major: int,
    boot_id: str,
    tree: str,
    sockets: tuple[str, ...] = (),
    has_xorg: bool = False,
    mig: str = "",
) -> Node:
    majors = {"nvidia": 195, "nvidia-modeset": 195, "nvidiactl": 195}
    majors |= {"nvidia-caps": uvm_major - 1, "nvidia-uvm": uvm_major}
    listed = ("nvidia", "nvidia-caps", "nvidia-modeset", "nvidia-uvm")
    in_fingerprint = "+".join(f"{name}:{majors[name]}" for name in listed)
    return Node(
        driver=Driver(version, version, cuda, f"{LIBRARY_DIR}/libnvidia-ml.so.{version}"),
        gpus=gpus,
        device_nodes=_device_nodes(gpus, uvm_major),
        files=_files(version, sockets=sockets, has_xorg=has_xorg),
        links=_links(version, has_xorg=has_xorg),
        library_dirs=(LIBRARY_DIR,),
        majors=majors,
        masks_params=True,
        fingerprint=f"boot={boot_id},driver={version},majors={in_fingerprint},mig={mig},tree={tree}",
        warnings=tuple(gpu.loss for gpu in gpus if gpu.loss),
    )


def _device_nodes(gpus: tuple[Gpu, ...], uvm_major: int) -> tuple[DeviceNode, ...]:
    numbers = [
        ("/dev/nvidiactl", 195, 255),
        ("/dev/nvidia-uvm", uvm_major, 0),
        ("/dev/nvidia-uvm-tools", uvm_major, 1),
        ("/dev/nvidia-modeset", 195, 254),
    ]
    minors = [gpu.minor for gpu in gpus if gpu.lost is None and gpu.minor is not None]
    numbers += [(f"/dev/nvidia{minor}", 195, minor) for minor in minors]
    nodes = tuple(DeviceNode(path, path, major, minor) for path, major, minor in numbers)
    return nodes + mig_node.device_nodes(gpus, uvm_major - 1)


def _files(version: str, *, sockets: tuple[str, ...], has_xorg: bool) -> tuple[DriverFile, ...]:
    platforms = _EGL_PLATFORMS[version[:3]]
    files = [
        ("library", f"{LIBRARY_DIR}/{name}", soname)
        for name, soname in _libraries(version, platforms)
    ]
    vdpau = f"{LIBRARY_DIR}/vdpau/libvdpau_nvidia.so.{version}"
    files.append(("plugin", vdpau, "libvdpau_nvidia.so.1"))
    if has_xorg:
        modules = "/usr/lib/xorg/modules"
        server = f"{modules}/extensions/libglxserver_nvidia.so.{version}"
        files.append(("plugin", f"{modules}/drivers/nvidia_drv.so", "nvidia_drv.so"))
        files.append(("plugin", server, "libglxserver_nvidia.so"))
    result = [DriverFile(kind, path, path, soname) for kind, path, soname in files]
    binaries = sorted((*_BINARIES, *(("nvidia-xconfig",) if has_xorg else ())))
    egl = "/usr/share/egl/egl_external_platform.d"
    configs = [*_CONFIGS, *(f"{egl}/{_EGL_CONFIGS[name]}" for name in platforms)]
    configs += [_XORG_CONFIG] if has_xorg else []
    firmware = f"/lib/firmware/nvidia/{version}"
    for kind, paths in (
        ("binary", [f"/usr/bin/{name}" for name in binaries]),
        ("firmware", [f"{firmware}/gsp_ga10x.bin", f"{firmware}/gsp_tu10x.bin"]),
        ("socket", sorted((*sockets, "/run/nvidia-persistenced/socket"))),
        ("config", sorted(configs)),
    ):
        result += [DriverFile(kind, path, path) for path in paths]
    return tuple(result)


def _libraries(version: str, platforms: dict[str, str]) -> list[tuple[str, str]]:
    """Return file name and SONAME of each library, sorted by file name."""
    pairs = [
        (f"lib{name}.so.{version}", f"lib{name}.so.{version if major == 'V' else major}")
        for name, major in _LIBRARIES.items()
    ]
    pairs.append(("libnvidia-nvvm70.so.4", "libnvidia-nvvm70.so.4"))
    pairs += [
        (f"libnvidia-egl-{name}.so.{own}", f"libnvidia-egl-{name}.so.1")
        for name, own in platforms.items()
    ]
    if version.startswith("580"):
        pairs.append((f"libnvidia-present.so.{version}", f"libnvidia-present.so.{version}"))
    return sorted(pairs)


def _links(version: str, *, has_xorg: bool) -> tuple[Link, ...]:
    links = {
        f"{LIBRARY_DIR}/lib{name}.so": f"lib{name}.so.{_LIBRARIES[name]}"
        for name in _DEVELOPMENT_LINKS
    }
    links[f"{LIBRARY_DIR}/libGLX_indirect.so.0"] = f"libGLX_nvidia.so.{version}"
    links[f"{LIBRARY_DIR}/gbm/nvidia-drm_gbm.so"] = "../libnvidia-allocator.so.1"
    links[f"{LIBRARY_DIR}/vdpau/libvdpau_nvidia.so.1"] = f"libvdpau_nvidia.so.{version}"
    if has_xorg:
        server = "/usr/lib/xorg/modules/extensions/libglxserver_nvidia.so"
        links[server] = f"libglxserver_nvidia.so.{version}"
    return tuple(Link(path, target) for path, target in sorted(links.items()))


def names() -> list[str]:
    """Return the names of the profiles of all vendors."""
    return sorted({*PROFILES, *amd_profiles.PROFILES})


def document(name: str) -> str:
    """Return the text of the profile file `name`."""
    makers = [found for found in (PROFILES.get(name), amd_profiles.PROFILES.get(name)) if found]
    purpose = (makers[-1].__doc__ or "").split("\n", maxsplit=1)[0].removeprefix("Return ")
    head = f"# SPDX-License-Identifier: Apache-2.0\n# {purpose[0].upper()}{purpose[1:]}\n"
    whole: dict[str, Any] = {"schema": SCHEMA}
    if name in PROFILES:
        whole |= dump_file.lines(dump.as_dict(PROFILES[name]()))
    if name in amd_profiles.PROFILES:
        whole[amd_dump.KEY] = amd_dump.section(amd_profiles.PROFILES[name]())
    return head + inventory_file.text(whole, "yaml")


def main() -> None:
    """Write all profiles."""
    for name in names():
        Path(inventory_file.PROFILES, name + ".yaml").write_text(document(name), encoding="utf-8")


if __name__ == "__main__":
    main()
