# SPDX-License-Identifier: Apache-2.0
"""NVIDIA's words: names of variables and hooks, capabilities, and what each capability needs.

HOT. A container names capabilities in NVIDIA_DRIVER_CAPABILITIES; each file and node of the driver
belongs to some of them. What no table knows belongs to all, so that a library of a newer driver
is given rather than missed. Source: libnvidia-container src/nvc_info.c, and the CUDA images.
"""

from __future__ import annotations

from gpuhook.errors import fault

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

ENV_CAPABILITIES = "NVIDIA_DRIVER_CAPABILITIES"
ENV_DEVICES = "NVIDIA_VISIBLE_DEVICES"
KIND = "nvidia.com/gpu"
MOUNT_PREFIX = "/var/run/nvidia-container-devices"  # /dev/null mounted below it names a device
# NVIDIA's own prestart hooks, by basename.
NVIDIA_HOOKS = ("nvidia-container-runtime-hook", "nvidia-container-toolkit")

CAPABILITIES = ("compat32", "compute", "display", "graphics", "ngx", "utility", "video")
DEFAULT_CAPABILITIES = "utility,compute"
_IMPLIED = {"display": "graphics", "video": "compute"}

_COMPUTE, _DISPLAY, _GRAPHICS = ("compute",), ("display", "graphics"), ("graphics",)
_NGX, _UTILITY, _VIDEO = ("ngx",), ("utility",), ("video",)
_SHADERS = ("compute", "graphics")  # the compiler that both use, and the buffers behind gbm

# Basename up to ".so" -> capabilities.
_LIBRARIES = {
    "libGLESv1_CM_nvidia": _GRAPHICS,
    "libGLESv2_nvidia": _GRAPHICS,
    "libEGL_nvidia": _GRAPHICS,
    "libGLX_indirect": _GRAPHICS,
    "libGLX_nvidia": _GRAPHICS,
    "libcuda": _COMPUTE,
    "libcudadebugger": _COMPUTE,
    "libglxserver_nvidia": _DISPLAY,
    "libnvcuvid": _VIDEO,
    "libnvidia-allocator": _SHADERS,
    "libnvidia-api": _GRAPHICS,
    "libnvidia-cbl": _GRAPHICS,
    "libnvidia-cfg": _UTILITY,
    "libnvidia-compiler": _COMPUTE,
    "libnvidia-eglcore": _GRAPHICS,
    "libnvidia-encode": _VIDEO,
    "libnvidia-fatbinaryloader": _COMPUTE,
    "libnvidia-fbc": _GRAPHICS,
    "libnvidia-glcore": _GRAPHICS,
    "libnvidia-glsi": _GRAPHICS,
    "libnvidia-glvkspirv": _GRAPHICS,
    "libnvidia-gpucomp": _SHADERS,
    "libnvidia-gtk2": _DISPLAY,
    "libnvidia-gtk3": _DISPLAY,
    "libnvidia-ifr": _GRAPHICS,
    "libnvidia-ml": _UTILITY,
    "libnvidia-ngx": _NGX,
    "libnvidia-nscq": _UTILITY,
    "libnvidia-nvvm": _COMPUTE,
    "libnvidia-nvvm70": _COMPUTE,
    "libnvidia-opencl": _COMPUTE,
    "libnvidia-opticalflow": _VIDEO,
    "libnvidia-pkcs11": _COMPUTE,
    "libnvidia-pkcs11-openssl3": _COMPUTE,
    "libnvidia-present": _GRAPHICS,
    "libnvidia-ptxjitcompiler": _COMPUTE,
    "libnvidia-rtcore": _GRAPHICS,
    "libnvidia-sandboxutils": _UTILITY,
    "libnvidia-tileiras": _COMPUTE,
    "libnvidia-tls": _GRAPHICS,
    "libnvidia-vksc-core": _GRAPHICS,
    "libnvidia-vulkan-producer": _GRAPHICS,
    "libnvidia-wayland-client": _DISPLAY,
    "libnvoptix": _GRAPHICS,
    "libvdpau_nvidia": _VIDEO,
    "nvidia-drm_gbm": _GRAPHICS,
    "nvidia_drv": _DISPLAY,
}
_LIBRARY_PREFIXES = {"libnvidia-egl-": _GRAPHICS}

_BINARIES = {
    "nv-fabricmanager": _UTILITY,
    "nvidia-cuda-mps-control": _COMPUTE,
    "nvidia-cuda-mps-server": _COMPUTE,
    "nvidia-debugdump": _UTILITY,
    "nvidia-imex": _COMPUTE,
    "nvidia-imex-ctl": _COMPUTE,
    "nvidia-persistenced": _UTILITY,
    "nvidia-smi": _UTILITY,
    "nvidia-xconfig": _DISPLAY,
}

# nvidiactl, nvidia<minor> and the MIG nodes are in no table: every capability needs them.
_NODES = {
    "/dev/nvidia-modeset": _DISPLAY,
    "/dev/nvidia-uvm": _COMPUTE,
    "/dev/nvidia-uvm-tools": _COMPUTE,
}
_NODE_PREFIXES = {"/dev/dri/": _DISPLAY, "/dev/nvidia-caps-imex-channels/": _COMPUTE}

# A part of the path of a configuration file or a socket -> capabilities.
_PLACES = {
    "/OpenCL/vendors/": _COMPUTE,
    "/X11/xorg.conf.d/": _DISPLAY,
    "/egl/egl_external_platform.d/": _GRAPHICS,
    "/glvnd/egl_vendor.d/": _GRAPHICS,
    "/nvidia-fabricmanager/": _UTILITY,
    "/nvidia-persistenced/": _UTILITY,
    "/nvidia/nvoptix.bin": _GRAPHICS,
    "/vulkan/": _GRAPHICS,
}


def parse_capabilities(value: str | None) -> frozenset[str]:
    """Return the capabilities that `value` of NVIDIA_DRIVER_CAPABILITIES asks for.

    Unset or empty means utility and compute, "all" every one; video brings compute with it and
    display graphics, whose libraries they use. An unknown word is fault GH1020.
    """
    words = {word.strip() for word in (value or "").split(",")} - {""}
    if not words:
        words = set(DEFAULT_CAPABILITIES.split(","))
    if "all" in words:
        words = words - {"all"} | set(CAPABILITIES)
    unknown = words.difference(CAPABILITIES)
    if unknown:
        raise fault("GH1020", word=min(unknown), known=", ".join((*CAPABILITIES, "all")))
    return frozenset(words.union(_IMPLIED[word] for word in words if word in _IMPLIED))


def capabilities_of(path: str) -> tuple[str, ...]:
    """Return the capabilities that need `path`, a file, socket or node as a container sees it.

    What is not known, and what each of them needs (control nodes, firmware), is all of them.
    """
    if path.startswith("/dev/"):
        return _NODES.get(path) or _prefixed(path, _NODE_PREFIXES) or CAPABILITIES
    name = path[path.rfind("/") + 1 :]
    stem, so, _ = name.partition(".so")
    if so:
        return _LIBRARIES.get(stem) or _prefixed(stem, _LIBRARY_PREFIXES) or CAPABILITIES
    if name in _BINARIES:
        return _BINARIES[name]
    for place, capabilities in _PLACES.items():
        if place in path:
            return capabilities
    return CAPABILITIES


def wanted(path: str, capabilities: frozenset[str]) -> bool:
    """Tell whether a container with `capabilities` (of parse_capabilities) is given `path`."""
    return not capabilities.isdisjoint(capabilities_of(path))


def _prefixed(name: str, prefixes: Mapping[str, tuple[str, ...]]) -> tuple[str, ...]:
    for prefix, capabilities in prefixes.items():
        if name.startswith(prefix):
            return capabilities
    return ()
