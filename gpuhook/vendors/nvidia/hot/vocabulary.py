# SPDX-License-Identifier: Apache-2.0
"""The variables and kinds with which containers request NVIDIA GPUs, and driver capabilities.

NVIDIA_VISIBLE_DEVICES, NVIDIA_GDS and the like are parsed in request/parse.py, which has no
vendor's word: VOCABULARY passes their names. NVIDIA_DRIVER_CAPABILITIES is parsed here,
NVIDIA_REQUIRE_CUDA in requirements.py.
"""

from __future__ import annotations

from gpuhook.errors import fault
from gpuhook.loader.library_directory import is_narrow
from gpuhook.request.parse import Vocabulary

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

VENDOR = "nvidia.com"
PLUGIN_VENDOR = "k8s.device-plugin.nvidia.com"  # of the CDI specs that a device plugin writes
PLUGIN_KIND = PLUGIN_VENDOR + "/gpu"
# Kinds of other devices: if no spec describes them, they are looked up on the node itself.
GDS_KIND = VENDOR + "/gds"
MOFED_KIND = VENDOR + "/mofed"
GDRCOPY_KIND = VENDOR + "/gdrcopy"
NVSWITCH_KIND = VENDOR + "/nvswitch"
IMEX_KIND = VENDOR + "/imex-channel"
MIG_KIND = VENDOR + "/mig"  # MIG management; instances are of the GPUs' kind
# These kinds and the modes of generate-cdi that describe them.
EXTRA_KINDS = {
    GDS_KIND: "gds",
    MOFED_KIND: "mofed",
    GDRCOPY_KIND: "gdrcopy",
    NVSWITCH_KIND: "nvswitch",
    IMEX_KIND: "imex",
    MIG_KIND: "mig",
}
VOCABULARY = Vocabulary(
    devices_env="NVIDIA_VISIBLE_DEVICES",
    capabilities_env="NVIDIA_DRIVER_CAPABILITIES",
    mount_prefix="/var/run/nvidia-container-devices",
    image_version_env="CUDA_VERSION",
    image_requirement_env="NVIDIA_REQUIRE_CUDA",
    default_kind=VENDOR + "/gpu",
    example_node="/dev/nvidia0",
    memory_request_env="NVIDIA_GPU_MEMORY_REQUEST",  # MiB, as in NVIDIA's container toolkit
    memory_limit_env="NVIDIA_GPU_MEMORY_LIMIT",
    extras={
        "NVIDIA_GDS": ("switch", GDS_KIND, "all"),
        "NVIDIA_MOFED": ("switch", MOFED_KIND, "all"),
        "NVIDIA_GDRCOPY": ("switch", GDRCOPY_KIND, "all"),
        "NVIDIA_NVSWITCH": ("switch", NVSWITCH_KIND, "all"),
        "NVIDIA_IMEX_CHANNELS": ("ids", IMEX_KIND, ""),
        "NVIDIA_MIG_CONFIG_DEVICES": ("whole", MIG_KIND, "config"),
        "NVIDIA_MIG_MONITOR_DEVICES": ("whole", MIG_KIND, "monitor"),
    },
    extra_mounts={"imex": IMEX_KIND},
    privileged_kinds=(MIG_KIND,),
    foreign_hooks=("nvidia-container-runtime-hook", "nvidia-container-toolkit"),
)
# Images search this directory before the directory of libcuda; in NVIDIA's specs since 1.17.6.
LIBCUDA_DIRECTORY_ENV = "NVIDIA_CTK_LIBCUDA_DIR"
# On a Tegra, this variable with this value requests the files that all CSV files name; a spec has
# the additional ones in a separate device.
CSV_MOUNTS = ("NVIDIA_REQUIRE_JETPACK", "csv-mounts=all")
CSV_DEVICE = "csv-mounts-all"

CAPABILITIES = ("compute", "compat32", "graphics", "utility", "video", "display", "ngx")
DEFAULT_CAPABILITIES = ("utility", "compute")
_IMPLIED = {"video": ("compute",), "display": ("graphics",)}

EVERY = frozenset(CAPABILITIES)  # a container with all of these gets every file
_COMPUTE = frozenset(("compute",))
_GRAPHICS = frozenset(("graphics", "display"))
_UTILITY = frozenset(("utility",))
_VIDEO = frozenset(("video",))
_NGX = frozenset(("ngx",))

# Library names without "lib" and everything from ".so" on. Every container gets a library that is
# not listed: new drivers have new ones, and one too many is better than one missing.
_LIBRARIES = {
    **dict.fromkeys((
        "cuda", "cuda_loader", "cudadebugger", "nvidia-compiler", "nvidia-compiler-next",
        "nvidia-fatbinaryloader", "nvidia-nvvm", "nvidia-nvvm70", "nvidia-opencl",
        "nvidia-pkcs11", "nvidia-pkcs11-openssl3", "nvidia-ptxjitcompiler", "nvidia-tileiras",
        "OpenCL",
    ), _COMPUTE),
    **dict.fromkeys(("nvidia-allocator", "nvidia-gpucomp"), _COMPUTE | _GRAPHICS),
    **dict.fromkeys((
        "nvidia-sandboxutils", "nvidia-cfg", "nvidia-ml", "nvidia-ml_loader", "nvidia-nscq",
    ), _UTILITY),
    **dict.fromkeys(("nvcuvid", "nvidia-encode", "nvidia-opticalflow", "vdpau_nvidia"), _VIDEO),
    **dict.fromkeys((
        "EGL", "GL", "GLESv1_CM", "GLESv2", "GLX", "GLdispatch", "OpenGL", "nvidia-api",
        "EGL_nvidia", "GLESv1_CM_nvidia", "GLESv2_nvidia", "GLX_indirect", "GLX_nvidia",
        "glxserver_nvidia", "nvidia-eglcore", "nvidia-cbl", "nvidia-egl-gbm",
        "nvidia-egl-wayland", "nvidia-egl-wayland2", "nvidia-egl-xcb", "nvidia-egl-xlib",
        "nvidia-fbc", "nvidia-glcore", "nvidia-glsi", "nvidia-glvkspirv", "nvidia-gtk2",
        "nvidia-gtk3", "nvidia-ifr", "nvidia-present", "nvidia-rtcore", "nvidia-tls",
        "nvidia-vksc-core", "nvidia-vulkan-producer", "nvidia-wayland-client", "nvoptix",
    ), _GRAPHICS),
    "nvidia-ngx": _NGX,
}  # fmt: skip
# Binaries, sockets' directories, configuration files and device nodes, by their last component.
_FILES = {
    **dict.fromkeys((
        "nvidia-smi", "nvidia-debugdump", "nvidia-persistenced", "nv-fabricmanager",
        "nvidia-fabricmanager", "nvidia-imex", "nvidia-imex-ctl",
    ), _UTILITY),
    **dict.fromkeys((
        "nvidia-cuda-mps-control", "nvidia-cuda-mps-server", "nvidia-mps", "nvidia.icd",
        "nvidia-uvm", "nvidia-uvm-tools",
    ), _COMPUTE),
    "nvidia-ngx-updater": _NGX,
    **dict.fromkeys((
        "nvidia-xconfig", "nvoptix.bin", "nvidia_drv.so", "nvidia-drm_gbm.so",
        "nvidia-drm-outputclass.conf", "10-nvidia.conf", "nvidia-modeset",
    ), _GRAPHICS),
}  # fmt: skip
# The nodes of MIG's configuration and monitoring; they have these minors with every driver.
_MANAGEMENT_NODES = ("/dev/nvidia-caps/nvidia-cap1", "/dev/nvidia-caps/nvidia-cap2")
# Where 32-bit libraries are bound without a hook, and the Vulkan ICD that names them.
_NARROW_HOOKLESS = "/usr/local/nvidia/lib/"
_NARROW_ICD = "/nvidia_icd.i686.json"
_NODES = ("/dev/nvidia", "/dev/nvhost-", "/dev/nvgpu/")
_OTHER_NODES = ("/dev/dxg", "/dev/nvmap")
_GRAPHICS_DIRECTORIES = ("/dev/dri/", "/egl/", "/glvnd/", "/vulkan/", "/X11/", "/xorg/")


def parse_capabilities(
    value: str | None,
    allowed: Sequence[str] = (),
    default: Sequence[str] = DEFAULT_CAPABILITIES,
    unknown: list[str] | None = None,
) -> frozenset[str]:
    """Return the capabilities that NVIDIA_DRIVER_CAPABILITIES names, with those they imply.

    None or "" means `default`, and so does a value of unknown words only. The result is limited to
    `allowed`; [] allows all. Unknown words are added to `unknown`; without that list they raise
    GH1020. Raises GH1027 for a capability that is named and not allowed.
    """
    may = frozenset(allowed) or EVERY
    words = [word.strip() for word in (value or "").split(",")]
    words = [word for word in words if word]
    if unknown is not None and "all" not in words:
        unknown += [word for word in words if word not in EVERY]
        words = [word for word in words if word in EVERY]
    named = words or default
    if "all" in named:
        return may
    found = set()
    for word in named:
        if word not in EVERY:
            raise fault("GH1020", word=word, known=", ".join((*CAPABILITIES, "all")))
        if words and word not in may:
            from gpuhook.request import policy  # hooks do not need it

            raise policy.refused_capability(word, allowed)
        found.add(word)
        found.update(_IMPLIED.get(word, ()))
    return may.intersection(found)


def capabilities_of(path: str) -> frozenset[str]:
    """Return the capabilities any one of which needs the driver's file or node at `path`."""
    name = path.rpartition("/")[2]
    if name in _FILES:
        return _FILES[name]
    if name == "socket":
        return capabilities_of(path.rpartition("/")[0])
    if name.startswith("lib") and ".so" in name:
        return _LIBRARIES.get(name[3:].partition(".so")[0], EVERY)
    for directory in _GRAPHICS_DIRECTORIES:
        if directory in path:
            return _GRAPHICS
    return EVERY


def is_wanted(path: str, capabilities: frozenset[str]) -> bool:
    """Return whether a container with `capabilities` gets the file or node at `path`.

    /dev/nvidiactl, the GPUs' own nodes and the firmware belong to every capability; a container
    gets them even if it may have none of the capabilities that it requests. A file for 32-bit
    programs needs compat32 in addition to its own capability.
    """
    needed = capabilities_of(path)
    if needed is not EVERY and capabilities.isdisjoint(needed):
        return False
    return "compat32" in capabilities or not is_32_bit(path)


def requires(environment: Mapping[str, str]) -> bool:
    """Return whether variables may require something of the driver: requirements.py parses them."""
    return "CUDA_VERSION" in environment or any(
        name.startswith("NVIDIA_REQUIRE_") for name in environment
    )


def is_32_bit(path: str) -> bool:
    """Return whether `path` is that of a library, or an ICD, for 32-bit programs."""
    return is_narrow(path) or path.startswith(_NARROW_HOOKLESS) or path.endswith(_NARROW_ICD)


def is_node(path: str) -> bool:
    """Return whether `path` is that of a device node of this vendor's driver."""
    return (path.startswith(_NODES) and "/.." not in path) or path in _OTHER_NODES


def is_graphics_node(path: str) -> bool:
    """Return whether `path` is that of a graphics node of any vendor's driver."""
    return path.startswith("/dev/dri/")


OLD_MIG = "MIG-GPU-"  # MIG-GPU-<uuid>/<gi>/<ci>, the UUID of an instance before driver 470


def is_uuid(name: str) -> bool:
    """Return whether `name` is the UUID of a GPU or of a MIG instance."""
    return name.startswith(("GPU-", "MIG-"))


def is_nvml(path: str) -> bool:
    """Return whether `path` is that of the driver's 64-bit NVML library."""
    name = path.rpartition("/")[2]
    return name.startswith("libnvidia-ml.so") and not is_32_bit(path)


def is_gpu_node(path: str) -> bool:
    """Return whether `path` is the node of one GPU or instance, not a control node."""
    name = path[len("/dev/nvidia") :] if path.startswith("/dev/nvidia") else ""
    return name.isdigit() or (name.startswith("-caps/") and path not in _MANAGEMENT_NODES)


def is_extra(name: str) -> bool:
    """Return whether a device's name is qualified, and of a kind other than the GPUs'."""
    return name.partition("=")[0] in EXTRA_KINDS


def is_whole_gpu(path: str) -> bool:
    """Return whether `path` is the node of one GPU, not of an instance."""
    return path.startswith("/dev/nvidia") and path[len("/dev/nvidia") :].isdigit()


def capability_node(minor: int) -> str:
    """Return the path of the node that opens a MIG instance's capability."""
    return f"/dev/nvidia-caps/nvidia-cap{minor}"


def is_driver_file(path: str) -> bool:
    """Return whether `path` has the name of a file of this vendor's driver."""
    name = path.rpartition("/")[2]
    return "nvidia" in name or capabilities_of(path) is not EVERY
