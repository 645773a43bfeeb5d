# SPDX-License-Identifier: Apache-2.0
"""The harmless differences between the modes of NVIDIA's runtime, or an engine, and gpuhook.

Each function returns the reason of a difference, or "" without a known one. Sources: the behaviour
of NVIDIA Container Toolkit 1.20.0 (`cdi generate`, the jit-cdi mode) and of libnvidia-container
1.20 (the legacy mode).
"""

from __future__ import annotations

from gpuhook.compare.items import injector
from gpuhook.vendors.catalogue import vendors
from gpuhook.vendors.nvidia.hot import vocabulary

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gpuhook.compare.expected_injection import ExpectedInjection

# The programs that cannot leave out parts, as the start of a sentence.
_WHOLE = {
    injector.CDI: "NVIDIA's CDI modes add",
    injector.ENGINE: "an engine that applies a CDI spec adds",
}
_GRAPHICS = frozenset(("graphics", "display"))
_DRI = "/dev/dri/"
_PROC = "/proc/driver/nvidia"
_COMPAT = "/compat/"

# The libraries that libnvidia-container knows, without "lib" and ".so".
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
    "the legacy mode mounts libraries in the directory of the image's distribution, gpuhook in the "
    "host's, and adds them to the loader's cache"
)

# https://github.com/NVIDIA/nvidia-container-toolkit/issues/1908
_OTHER_DIRECTORY = (
    "NVIDIA's CDI modes add only the libraries in libcuda's directory, but Debian's packages "
    "use several directories (nvidia-container-toolkit issue 1908): gpuhook adds all"
)


def of_toolkit(by: str, what: str) -> str:
    """Return why a difference of device nodes is normal for `by`, another toolkit of a vendor.

    `what` is as in ContainerTraces.known_difference().
    """
    found = (vendor.traces.known_difference(by, what) for vendor in vendors())
    return next(filter(None, found), "")


def extra_part(
    path: str, by: str, expected: ExpectedInjection, *, is_whole: bool, is_privileged: bool
) -> str:
    """Return why the container has a node or file that gpuhook would not add.

    `is_whole`: gpuhook would add the same one for a request of all capabilities.
    """
    if is_privileged and path.startswith("/dev/"):
        return "the container is privileged: its engine adds all devices of the host"
    if path in expected.further_nodes:
        return ""  # of another vendor, whose devices are all in /dev/dri
    if path.startswith(_DRI) and _GRAPHICS.isdisjoint(expected.capabilities):
        return "display nodes: the container did not request graphics or display"
    if by == injector.LEGACY:
        return _extra_of_legacy(path)
    if by in _WHOLE and is_whole:
        requested = ",".join(sorted(expected.capabilities))
        return f"{_WHOLE[by]} the parts of all capabilities; requested: {requested}"
    return ""


def _extra_of_legacy(path: str) -> str:
    if path == _PROC or path.startswith(_PROC + "/"):
        return f"the legacy mode mounts a small copy of {_PROC}; gpuhook masks the parameters"
    if _COMPAT in path:
        return "the image's CUDA compatibility libraries, mounted by the legacy mode"
    return ""


def missing(path: str, by: str, expected: ExpectedInjection) -> str:
    """Return why the container lacks a file that gpuhook would add.

    For graphics, NVIDIA's runtime adds the files that the legacy mode lacks.
    """
    name = path.rpartition("/")[2]
    if by == injector.CDI:
        return (
            _OTHER_DIRECTORY
            if ".so." in name and _is_outside_libcudas_directory(path, expected)
            else ""
        )
    if by != injector.LEGACY or path.startswith("/dev/"):
        return ""
    return _missing_in_legacy(path, name, expected)


def _is_outside_libcudas_directory(path: str, expected: ExpectedInjection) -> bool:
    """Return whether a library of libcuda's version is in a directory other than libcuda."""
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
        return f"libnvidia-container does not know the program {name}"
    if _GRAPHICS.isdisjoint(expected.capabilities):
        return "the legacy mode adds configuration files only with graphics or display"
    return ""


def _missing_library(path: str, name: str) -> str:
    if name.startswith("libvdpau_nvidia."):
        return "libnvidia-container adds libraries of the host's loader cache, which has no plugins"
    if "/xorg/" in path or name.startswith("libnvidia-egl-"):
        return ""
    stem = name[3:].partition(".so")[0]
    return "" if stem in _LEGACY_LIBRARIES else f"libnvidia-container does not know lib{stem}"


def name_on_musl(by: str) -> str:
    """Return why musl's loader does not find a library that is mounted with another name."""
    if by not in (injector.CDI, injector.LEGACY):
        return ""
    return "NVIDIA's hooks write names into glibc's cache, which musl does not read"


def moved(name: str, by: str) -> str:
    """Return why the same file is mounted at another path."""
    is_library = name.startswith("lib") and ".so" in name
    return _MOVED if by == injector.LEGACY and is_library else ""


def link(path: str, by: str, *, is_versioned: bool) -> str:
    """Return why a link of gpuhook is missing; `is_versioned` is for the link of a SONAME."""
    name = path.rpartition("/")[2]
    if by != injector.LEGACY or is_versioned or name in _LEGACY_LINKS:
        return ""
    return "the legacy mode creates unversioned links for three libraries only"


def plugin_link(path: str) -> str:
    """Return why a link to a plugin is below libcuda's directory, and gpuhook's at `path`."""
    return (
        "NVIDIA's CDI modes create this link below libcuda's directory, where programs do not "
        f"search for plugins on Debian; gpuhook creates {path}"
    )


def variable(name: str, there: list[str], by: str) -> str:
    """Return why a variable that gpuhook would set has other values."""
    if name == vocabulary.LIBCUDA_DIRECTORY_ENV and by == injector.LEGACY:
        return "the legacy mode sets no variable"
    if any(name == vendor.vocabulary.devices_env for vendor in vendors()[1:]):
        return of_toolkit(by, "variable")
    if name != vocabulary.VOCABULARY.devices_env:
        return ""
    if by == injector.LEGACY:
        return "the legacy mode does not change the request"
    if by in _WHOLE and there and there[-1] == "void":
        return "a CDI spec's value is appended after the request"
    return ""


def added_variable(name: str, by: str) -> str:
    """Return why the container has an added variable that gpuhook would not set."""
    if by == injector.CDI and name in (vocabulary.LIBCUDA_DIRECTORY_ENV, "NVCT_EMPTY_DEVICE"):
        return "NVIDIA's hooks and tools read it"
    return ""


def profile(by: str, there: str) -> str:
    """Return why only one side has the application profile for EGL."""
    if there:
        return "only EGL reads it, and gpuhook would not add EGL"
    if by in (injector.OURS, injector.ENGINE):
        return ""
    return "older toolkits do not write it: EGL then lists GPUs that the container does not have"


def mask(by: str) -> str:
    """Return why the driver's parameters are masked although the host has the same values."""
    return "the legacy mode always masks them" if by == injector.LEGACY else ""
