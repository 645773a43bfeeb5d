# SPDX-License-Identifier: Apache-2.0
"""The driver's user space: libraries, programs and firmware are complete, and of one version."""

from __future__ import annotations

from gpuhook.node_facts import program_facts
from gpuhook.node_facts.check import FAILED, WARNING, Finding, absent, check, ok, unless
from gpuhook.node_facts.sources import node_tree
from gpuhook.vendors.nvidia.doctor.facts import driver_facts as facts
from gpuhook.vendors.nvidia.doctor.facts import driver_packages, driver_user_space
from gpuhook.vendors.nvidia.driver import driver_locations
from gpuhook.vendors.nvidia.hot.rootfs.driver_params import PATH as PARAMS

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

    from gpuhook.node_facts.check import ExaminedNode, Findings

_WINDOWS = "/usr/lib/wsl/"
_WSL = _WINDOWS + "lib"
_WSL_LIBRARIES = ("libcuda.so.1", "libdxcore.so", "libnvidia-ml.so.1")
_PROGRAM_DIRECTORIES = ("/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/bin",
                        *program_facts.NIXOS_PROGRAMS)  # fmt: skip
_FIRMWARE = ("/lib/firmware/updates", "/lib/firmware", "/usr/lib/firmware", "/firmware")
_FIRMWARE_PATH = "/sys/module/firmware_class/parameters/path"
# Libraries that CUDA opens in addition to libcuda, and what fails without them.
_NEEDED = {
    "libnvidia-ptxjitcompiler.so": "kernels in PTX do not load: CUDA_ERROR_JIT_COMPILER_NOT_FOUND",
}


@check(
    "driver.libraries",
    "The driver's libcuda and libnvidia-ml are installed",
    needs=("driver.module",),
)
@unless(facts.other_driver)
def _libraries(node: ExaminedNode) -> Findings:
    space = driver_user_space.driver_user_space(node)
    looked = tuple(space.directories)
    has_any = any(space.versions.values())
    if not has_any and not facts.has_gpu(node):
        return absent("this machine has no NVIDIA GPU", *looked)
    lacking = [
        stem for stem in (driver_user_space.CUDA, driver_user_space.ML) if stem not in space.current
    ]
    if not lacking:
        return ok(f"libcuda and libnvidia-ml {space.version} are below {space.root}", *looked)
    return _without(node, space, lacking, looked)


def _without(
    node: ExaminedNode,
    space: driver_user_space.UserSpace,
    lacking: list[str],
    looked: tuple[str, ...],
) -> Finding:
    names = " and ".join(f"{stem}.1" for stem in lacking)
    unlinked = [stem for stem in lacking if space.versions[stem]]
    if unlinked == lacking:
        files = ", ".join(path for stem in lacking for path in space.versions[stem].values())
        message, command = f"no {names} leads to {files}", "ldconfig"
    elif any(space.versions.values()):
        message, command = (
            f"the driver below {space.root} lacks {names}",
            driver_packages.driver_again(node.tree, space.root),
        )
    else:
        roots = " or ".join(dict.fromkeys((space.root, *driver_locations.OTHER_ROOTS)))
        message = f"no libraries of a driver are below {roots}"
        branch = facts.module_version(node).partition(".")[0]
        command = driver_packages.driver(node.tree, branch)
        command += "  # or, if it is elsewhere: gpuhook doctor --driver-root DIR"
    return Finding(
        FAILED,
        message,
        meaning='GPU containers do not start, or lack the driver: "libnvidia-ml.so.1: cannot open '
        'shared object file: No such file or directory", or, in CUDA, "libcuda.so.1: cannot open '
        'shared object file"',
        command=command,
        looked_at=looked,
    )


def _no_libraries(node: ExaminedNode) -> Finding | None:
    is_here = driver_user_space.driver_user_space(node).version
    return None if is_here else absent("the node has no libraries of the driver")


@check(
    "driver.files",
    "The driver's user space is complete, and installed only once",
    needs=("driver.libraries", "driver.version"),
)
@unless(facts.other_driver)
@unless(_no_libraries)
def _files(node: ExaminedNode) -> Findings:
    space = driver_user_space.driver_user_space(node)
    found = [*_missing(node, space), *_several(space), *_dangling(space)]
    if found:
        return found
    return ok(f"the driver's files below {space.root} are complete", *space.directories)


def _missing(node: ExaminedNode, space: driver_user_space.UserSpace) -> Iterable[Finding]:
    command = driver_packages.driver_again(node.tree, space.root)
    for stem, meaning in _NEEDED.items():
        names = [f"{directory}/{stem}.{space.version}" for directory in space.directories]
        if not any(node.tree.status(name) for name in names):
            message = f"{stem}.{space.version} is not below {space.root}"
            yield Finding(WARNING, message, stem, meaning, command, tuple(names))
    programs = [
        driver_user_space.at(space.root, f"{place}/nvidia-smi") for place in _PROGRAM_DIRECTORIES
    ]
    if not any(node.tree.status(program) for program in programs):
        message = f"no nvidia-smi is below {space.root}"
        meaning = (
            'containers have no nvidia-smi: "exec: nvidia-smi: executable file not found in $PATH"'
        )
        yield Finding(WARNING, message, "nvidia-smi", meaning, command, tuple(programs))


def _several(space: driver_user_space.UserSpace) -> Iterable[Finding]:
    known = space.versions[driver_user_space.CUDA]
    if len(known) > 1:
        yield Finding(
            WARNING,
            f"several drivers are below {space.root}: {', '.join(sorted(known))}",
            driver_user_space.CUDA,
            "a link selects the one that containers get, but the next ldconfig may "
            "change it, and programs then fail with Driver/library version mismatch",
            f"rm {' '.join(p for v, p in known.items() if v != space.version)} && ldconfig",
            tuple(known.values()),
        )


def _dangling(space: driver_user_space.UserSpace) -> Iterable[Finding]:
    for path in space.dangling:
        yield Finding(
            WARNING,
            f"{path} is a dangling link",
            path,
            "programs that open the library by this name do not find it",
            "ldconfig",
            (path,),
        )


@check(
    "driver.cache",
    "The loader cache contains the driver's libraries",
    needs=("driver.libraries", "driver.version"),
)
def _cache(node: ExaminedNode) -> Finding:
    space = driver_user_space.driver_user_space(node)
    place = driver_user_space.at(space.root, driver_user_space.CACHE)
    if space.root == driver_locations.GKE:
        return absent(f"{space.root} has no loader")
    if node.tree.status(driver_locations.NIXOS_LIBRARIES) is not None:
        return absent("the NixOS loader has no cache", place)
    if reason := facts.other_driver(node) or _no_libraries(node):
        return reason
    known = driver_user_space.in_cache(node, space.root)
    if known:
        return ok(f"the loader's cache has {', '.join(known)}", place)
    what = "does not exist or cannot be read" if known is None else "has no libcuda.so.1"
    there = ", ".join(space.versions[driver_user_space.CUDA].values())
    return Finding(
        WARNING,
        f"{place} {what}, and the driver has {there}",
        subject=place,
        meaning="NVIDIA's legacy mode looks up libraries in this cache; containers do not get "
        'any other: "load library failed: libnvidia-ml.so.1: cannot '
        'open shared object file"; gpuhook and CDI do not use it',
        command="ldconfig" if space.root == "/" else f"chroot {space.root} ldconfig",
        looked_at=(place,),
    )


@check(
    "driver.firmware",
    "The firmware that the kernel module loads is installed",
    needs=("driver.module", "driver.version"),
)
@unless(facts.no_module)
def _firmware(node: ExaminedNode) -> Findings:
    version = facts.module_version(node)
    space = driver_user_space.driver_user_space(node)
    extra = node_tree.line(node.tree, _FIRMWARE_PATH)
    places = [extra] if extra else []
    places += [
        at
        for place in _FIRMWARE
        for at in dict.fromkeys((place, driver_user_space.at(space.root, place)))
    ]
    directories = [f"{place.rstrip('/')}/nvidia/{version}" for place in places]
    files = [
        f"{directory}/{name}"
        for directory in directories
        for name in node.tree.names(directory)
        if name.startswith("gsp")
    ]
    if files:
        return ok(f"the GSP's firmware of {version} is {', '.join(files)}", *directories)
    is_open = facts.is_open_module(node)
    if not is_open and facts.params(node).get("EnableGpuFirmware") == "0":
        return absent("the driver is configured not to use GSP firmware", PARAMS)
    if not is_open and int(version.partition(".")[0] or 0) < 510:
        return absent(f"the driver {version} does not use GSP firmware")
    return Finding(
        FAILED if is_open else WARNING,
        f"no GSP firmware for {version} is in {', '.join(directories)}",
        meaning="a GPU that needs it fails to start at its next initialization: nvidia-smi "
        'prints "No devices were found", and dmesg "RmInitAdapter failed"',
        command=driver_packages.driver_again(node.tree, space.root),
        looked_at=tuple(directories),
    )


@check("driver.wsl", "On WSL, Windows' driver is used")
def _wsl(node: ExaminedNode) -> Findings:
    if not facts.is_wsl(node):
        return absent("this is not WSL", "/dev/dxg")
    paths = [f"{_WSL}/{name}" for name in _WSL_LIBRARIES]
    lacking = [path for path in paths if node.tree.status(path) is None]
    if lacking:
        return Finding(
            FAILED,
            f"{', '.join(lacking)} of Windows' driver is missing",
            meaning='nvidia-smi prints "Failed to initialize NVML: GPU access blocked by the '
            'operating system", or programs find no libcuda.so.1',
            command="wsl.exe --update && wsl.exe --shutdown  # first update Windows' driver",
            looked_at=tuple(paths),
        )
    known = driver_user_space.driver_user_space(node).versions[driver_user_space.CUDA].values()
    own = [path for path in known if not path.startswith(_WINDOWS)]
    if own:
        return Finding(
            WARNING,
            f"a driver for Linux is installed in addition to Windows': {', '.join(own)}",
            meaning="programs and containers may load its libcuda, which finds no GPU here: "
            "CUDA_ERROR_NO_DEVICE",
            command="apt-get remove --purge 'libnvidia-compute-*' 'nvidia-driver-*' "
            "'cuda-drivers*' && ldconfig",
            looked_at=tuple(own),
        )
    return ok(f"Windows' driver is in {_WSL}", *paths)


CHECKS = (_libraries, _files, _cache, _firmware, _wsl)
