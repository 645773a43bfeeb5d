# SPDX-License-Identifier: Apache-2.0
"""Differences between NVIDIA's ways of giving GPUs and gpuhook's that are known to do no harm.

Each function returns why two sides need not be alike, or "" where no reason is known. Sources:
the behaviour of NVIDIA Container Toolkit 1.20.0 (`cdi generate`, the jit-cdi mode) and of
libnvidia-container 1.20 (the legacy mode).
"""

from __future__ import annotations

from gpuhook.compare import injector
from gpuhook.vendors.nvidia.hot import vocabulary

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gpuhook.compare.expected_injection import ExpectedInjection

_GRAPHICS = frozenset(("graphics", "display"))
_DRI = "/dev/dri/"
_PROC = "/proc/driver/nvidia"
_COMPAT = "/compat/"

# Library names (without "lib" and what follows ".so") that libnvidia-container knows.
_LEGACY_LIBRARIES = frozenset((
    "nvidia-ml", "nvidia-cfg", "nvidia-nscq", "cuda", "cudadebugger", "nvidia-opencl",
    "nvidia-gpucomp", "nvidia-ptxjitcompiler", "nvidia-fatbinaryloader", "nvidia-allocator",
    "nvidia-compiler", "nvidia-pkcs11", "nvidia-pkcs11-openssl3", "nvidia-nvvm",
    "nvidia-tileiras", "vdpau_nvidia", "nvidia-encode", "nvidia-opticalflow", "nvcuvid",
    "nvidia-eglcore", "nvidia-glcore", "nvidia-tls", "nvidia-glsi", "nvidia-fbc", "nvidia-ifr",
    "nvidia-rtcore", "nvoptix", "GLX_nvidia", "EGL_nvidia", "GLESv2_nvidia", "GLESv1_CM_nvidia",
    "nvidia-glvkspirv", "nvidia-cbl", "nvidia-ngx",
))  # fmt: skip
_LEGACY_BINARIES = frozenset((
    "nvidia-smi", "nvidia-debugdump", "nvidia-persistenced", "nv-fabricmanager",
    "nvidia-cuda-mps-control", "nvidia-cuda-mps-server",
))  # fmt: skip
_LEGACY_LINKS = ("libcuda.so", "libGLX_indirect.so.0", "libnvidia-opticalflow.so")
_MOVED = (
    "the legacy mode mounts libraries where the image's distribution has its own, gpuhook where "
    "the host has them and the loader's cache says"
)

# https://github.com/NVIDIA/nvidia-container-toolkit/issues/1908
_BESIDE = (
    "NVIDIA's CDI modes give the libraries of libcuda's own directory alone, which Debian's "
    "packages have beside others (nvidia-container-toolkit issue 1908): gpuhook gives more"
)


def of_extra(
    path: str, by: str, expected: ExpectedInjection, *, is_whole: bool, is_privileged: bool
) -> str:
    """Return why a node or file that gpuhook would not give is there all the same.

    `is_whole` says that gpuhook would give this very one to whom asks for every capability.
    """
    if is_privileged and path.startswith("/dev/"):
        return "the container is privileged: its engine gives it every device of the host"
    if path.startswith(_DRI) and _GRAPHICS.isdisjoint(expected.capabilities):
        return "display nodes: the container did not ask for graphics or display"
    if by == injector.LEGACY:
        return _extra_of_legacy(path)
    if by == injector.CDI and is_whole:
        asked = ",".join(sorted(expected.capabilities))
        return f"NVIDIA's CDI modes give the parts of all capabilities; asked for: {asked}"
    return ""


def _extra_of_legacy(path: str) -> str:
    if path == _PROC or path.startswith(_PROC + "/"):
        return f"the legacy mode mounts a small copy of {_PROC}; gpuhook masks the parameters"
    if _COMPAT in path:
        return "CUDA's compatibility libraries of the image, mounted by the legacy mode"
    return ""


def missing(path: str, by: str, expected: ExpectedInjection) -> str:
    """Return why a file that gpuhook would give is not there.

    Where graphics is asked for, NVIDIA's runtime adds to the legacy mode what that lacks.
    """
    name = path.rpartition("/")[2]
    if by == injector.CDI:
        return _BESIDE if ".so." in name and _is_beside_libcuda(path, expected) else ""
    if by != injector.LEGACY or path.startswith("/dev/"):
        return ""
    return _missing_in_legacy(path, name, expected)


def _is_beside_libcuda(path: str, expected: ExpectedInjection) -> bool:
    """Return whether a library of libcuda's version lies in another directory than libcuda."""
    mounts = [mount["containerPath"] for mount in expected.whole.get("mounts") or ()]
    directory, _, name = path.rpartition("/")
    for place, _, libcuda in (mount.rpartition("/") for mount in mounts):
        if libcuda.startswith("libcuda.so."):
            is_of_it = name.endswith(libcuda.removeprefix("libcuda"))
            return is_of_it and directory not in (place, f"{place}/vdpau")
    return False


def _missing_in_legacy(path: str, name: str, expected: ExpectedInjection) -> str:
    if ".so" in name:
        return _missing_library(path, name)
    if name in _LEGACY_BINARIES or name == "socket" or name.startswith("gsp"):
        return ""
    if "/bin/" in path or "/sbin/" in path:
        return f"libnvidia-container knows no program {name}"
    if _GRAPHICS.isdisjoint(expected.capabilities):
        return "the legacy mode gives configuration files only with graphics or display"
    return ""


def _missing_library(path: str, name: str) -> str:
    if name.startswith("libvdpau_nvidia."):
        return "libnvidia-container takes what the host's loader knows, and plugins are not there"
    if "/xorg/" in path or name.startswith("libnvidia-egl-"):
        return ""
    is_listed = name[3:].partition(".so")[0] in _LEGACY_LIBRARIES
    return "" if is_listed else f"libnvidia-container knows no lib{_stem(name)}"


def name_on_musl(by: str) -> str:
    """Return why musl's loader does not find a library that is mounted by another name."""
    if by not in (injector.CDI, injector.LEGACY):
        return ""
    return "NVIDIA's hooks write names into glibc's cache, which musl does not read"


def moved(name: str, by: str) -> str:
    """Return why the same file is mounted elsewhere."""
    is_library = name.startswith("lib") and ".so" in name
    return _MOVED if by == injector.LEGACY and is_library else ""


def link(path: str, by: str, *, is_versioned: bool) -> str:
    """Return why a link of gpuhook's is not there; that of a SONAME `is_versioned`."""
    name = path.rpartition("/")[2]
    if by != injector.LEGACY or is_versioned or name in _LEGACY_LINKS:
        return ""
    return "the legacy mode makes links of names without a version for three libraries alone"


def plugin_link(path: str) -> str:
    """Return why a link to a plugin is below libcuda's directory, and at `path` under gpuhook."""
    return (
        "NVIDIA's CDI modes make this link below libcuda's directory, where programs do not search "
        f"for plugins on Debian; gpuhook makes {path}"
    )


def variable(name: str, there: list[str], by: str) -> str:
    """Return why a variable that gpuhook would set has other values."""
    if name == vocabulary.LIBCUDA_DIRECTORY_ENV and by == injector.LEGACY:
        return "the legacy mode sets no variable"
    if name != vocabulary.VOCABULARY.devices_env:
        return ""
    if by == injector.LEGACY:
        return "the legacy mode leaves the request as it is"
    if by == injector.CDI and there and there[-1] == "void":
        return "NVIDIA's CDI modes append their value and leave the request in front of it"
    return ""


def added_variable(name: str, by: str) -> str:
    """Return why a variable was added that gpuhook would not set."""
    if by == injector.CDI and name in (vocabulary.LIBCUDA_DIRECTORY_ENV, "NVCT_EMPTY_DEVICE"):
        return "NVIDIA's own hooks and tools read it"
    return ""


def profile(by: str, there: str) -> str:
    """Return why one side alone has the application profile for EGL."""
    if there:
        return "only EGL reads it, which gpuhook would not give the container"
    if by == injector.OURS:
        return ""
    return "older toolkits do not write it: EGL lists GPUs there that the container does not have"


def mask(by: str) -> str:
    """Return why the driver's parameters are masked although the host's say the same."""
    return "the legacy mode always masks them" if by == injector.LEGACY else ""


def _stem(name: str) -> str:
    return name[3:].partition(".so")[0]
