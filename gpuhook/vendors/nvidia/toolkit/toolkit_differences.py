# SPDX-License-Identifier: Apache-2.0
"""The harmless differences between the modes of NVIDIA's runtime, or an engine, and gpuhook.

Each function returns the reason of a difference, or "" without a known one. Sources: the behaviour
of NVIDIA Container Toolkit 1.20.0 (`cdi generate`, the jit-cdi mode) and of libnvidia-container
1.20 (the legacy mode).
"""

from __future__ import annotations

from gpuhook.vendors.known_difference import (
    ADDED_VARIABLE,
    ENGINE,
    EXTRA,
    LINK,
    LINK_ELSEWHERE,
    MASK,
    MISSING,
    MOVED,
    MOVED_LINK,
    MUSL_NAME,
    OURS,
    PROFILE,
    VARIABLE,
)
from gpuhook.vendors.nvidia.hot import vocabulary

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gpuhook.vendors.known_difference import Difference

# The modes: the legacy one by a prestart hook, and those by CDI.
LEGACY, CDI = "nvidia-legacy", "nvidia-cdi"
# The programs that cannot leave out parts, as the start of a sentence.
_WHOLE = {
    CDI: "NVIDIA's CDI modes add",
    ENGINE: "an engine that applies a CDI spec adds",
}
_DEBIAN = "/nvidia/current"  # libcuda's directory in Debian's packages
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


def _extra(by: str, one: Difference) -> str:
    if one.name.startswith(_DRI) and _GRAPHICS.isdisjoint(one.capabilities):
        return "display nodes: the container did not request graphics or display"
    if by == LEGACY:
        return _extra_of_legacy(one.name)
    if by in _WHOLE and one.is_whole:
        requested = ",".join(sorted(one.capabilities))
        return f"{_WHOLE[by]} the parts of all capabilities; requested: {requested}"
    return ""


def _extra_of_legacy(path: str) -> str:
    if path == _PROC or path.startswith(_PROC + "/"):
        return f"the legacy mode mounts a small copy of {_PROC}; gpuhook masks the parameters"
    if _COMPAT in path:
        return "the image's CUDA compatibility libraries, mounted by the legacy mode"
    return ""


def _missing(by: str, one: Difference) -> str:
    """Return why the container lacks a file.

    For graphics, NVIDIA's runtime adds the files that the legacy mode lacks.
    """
    name = one.name.rpartition("/")[2]
    if by == CDI:
        is_outside = ".so." in name and _is_outside_libcudas_directory(one.name, one.mounts)
        return _OTHER_DIRECTORY if is_outside else ""
    if by != LEGACY or one.name.startswith("/dev/"):
        return ""
    return _missing_in_legacy(one.name, name, one.capabilities)


def _is_outside_libcudas_directory(path: str, mounts: tuple[str, ...]) -> bool:
    """Return whether a library of libcuda's version is in a directory other than libcuda."""
    directory, _, name = path.rpartition("/")
    for place, _, libcuda in (mount.rpartition("/") for mount in mounts):
        if libcuda.startswith("libcuda.so."):
            is_of_it = name.endswith(libcuda.removeprefix("libcuda"))
            return is_of_it and directory not in (place, f"{place}/vdpau")
    return False


def _missing_in_legacy(path: str, name: str, capabilities: frozenset[str]) -> str:
    if ".so" in name:
        return _missing_library(path, name)
    if name in _LEGACY_BINARIES or name == "socket" or name.startswith("gsp"):
        return ""
    if "/bin/" in path or "/sbin/" in path:
        return f"libnvidia-container does not know the program {name}"
    if _GRAPHICS.isdisjoint(capabilities):
        return "the legacy mode adds configuration files only with graphics or display"
    return ""


def _missing_library(path: str, name: str) -> str:
    if name.startswith("libvdpau_nvidia."):
        return "libnvidia-container adds libraries of the host's loader cache, which has no plugins"
    if "/xorg/" in path or name.startswith("libnvidia-egl-"):
        return ""
    stem = name[3:].partition(".so")[0]
    return "" if stem in _LEGACY_LIBRARIES else f"libnvidia-container does not know lib{stem}"


def _name_on_musl(by: str, one: Difference) -> str:  # noqa: ARG001 # any name
    """Return why musl's loader does not find a library that is mounted with another name."""
    if by not in (CDI, LEGACY):
        return ""
    return "NVIDIA's hooks write names into glibc's cache, which musl does not read"


def _moved(by: str, one: Difference) -> str:
    """Return why the same file is mounted at another path."""
    name = one.name.rpartition("/")[2]
    is_library = name.startswith("lib") and ".so" in name
    return _MOVED if by == LEGACY and is_library else ""


def _link(by: str, one: Difference) -> str:
    """Return why a link of gpuhook is missing."""
    directory, _, name = one.name.rpartition("/")
    if by == CDI and one.is_mounted:
        libcuda = next((path for path in one.mounts if "/libcuda.so." in path), "")
        place = libcuda.rpartition("/")[0]
        is_apart = directory != place and not directory.startswith(place + "/")
        return _plugin_link(one.name) if place.endswith(_DEBIAN) and is_apart else ""
    if by != LEGACY or one.is_versioned or name in _LEGACY_LINKS:
        return ""
    return "the legacy mode creates unversioned links for three libraries only"


def _moved_link(by: str, one: Difference) -> str:  # noqa: ARG001 # any link
    return _MOVED if by == LEGACY else ""


def _link_elsewhere(by: str, one: Difference) -> str:
    """Return why the container has a link that gpuhook makes at other paths."""
    plain = one.name.replace(_DEBIAN + "/", "/")
    return _plugin_link(plain) if by == CDI and plain in one.there else ""


def _plugin_link(path: str) -> str:
    """Return why a link to a plugin is below libcuda's directory, and gpuhook's at `path`."""
    return (
        "NVIDIA's CDI modes create this link below libcuda's directory, where programs do not "
        f"search for plugins on Debian; gpuhook creates {path}"
    )


def _variable(by: str, one: Difference) -> str:
    """Return why a variable that gpuhook would set has other values."""
    if one.name == vocabulary.LIBCUDA_DIRECTORY_ENV and by == LEGACY:
        return "the legacy mode sets no variable"
    if one.name != vocabulary.VOCABULARY.devices_env:
        return ""
    if by == LEGACY:
        return "the legacy mode does not change the request"
    if by in _WHOLE and one.there[-1:] == ("void",):
        return "a CDI spec's value is appended after the request"
    return ""


def _added_variable(by: str, one: Difference) -> str:
    """Return why the container has an added variable that gpuhook would not set."""
    if by == CDI and one.name in (vocabulary.LIBCUDA_DIRECTORY_ENV, "NVCT_EMPTY_DEVICE"):
        return "NVIDIA's hooks and tools read it"
    return ""


def _profile(by: str, one: Difference) -> str:
    """Return why only one side has the application profile for EGL."""
    if one.there:
        return "only EGL reads it, and gpuhook would not add EGL"
    if by in (OURS, ENGINE):
        return ""
    return "older toolkits do not write it: EGL then lists GPUs that the container does not have"


def _mask(by: str, one: Difference) -> str:  # noqa: ARG001 # the kind is enough
    """Return why the driver's parameters are masked although the host has the same values."""
    return "the legacy mode always masks them" if by == LEGACY else ""


_REASONS = {
    EXTRA: _extra,
    MISSING: _missing,
    MUSL_NAME: _name_on_musl,
    MOVED: _moved,
    LINK: _link,
    MOVED_LINK: _moved_link,
    LINK_ELSEWHERE: _link_elsewhere,
    VARIABLE: _variable,
    ADDED_VARIABLE: _added_variable,
    PROFILE: _profile,
    MASK: _mask,
}


def known_difference(by: str, difference: Difference) -> str:
    """Return why a difference is harmless, "" if that is unknown."""
    reason = _REASONS.get(difference.what)
    return reason(by, difference) if reason else ""
