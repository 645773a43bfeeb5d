# SPDX-License-Identifier: Apache-2.0
"""The driver's user space: its libraries, programs and firmware are all there, once."""

from __future__ import annotations

from gpuhook.doctor import package_commands
from gpuhook.doctor.check import DRIVER, FAILED, WARNING, Check, Finding, absent, ok
from gpuhook.doctor.facts import driver_facts as facts
from gpuhook.doctor.facts import driver_user_space
from gpuhook.node import node_tree
from gpuhook.vendors.nvidia.driver import driver_locations
from gpuhook.vendors.nvidia.hot.rootfs.driver_params import PATH as PARAMS

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

    from gpuhook.doctor.check import ExaminedNode

_WINDOWS = "/usr/lib/wsl/"
_WSL = _WINDOWS + "lib"
_WSL_LIBRARIES = ("libcuda.so.1", "libdxcore.so", "libnvidia-ml.so.1")
_PROGRAM_DIRECTORIES = ("/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/bin",
                        *driver_locations.NIXOS_PROGRAMS)  # fmt: skip
_FIRMWARE = ("/lib/firmware/updates", "/lib/firmware", "/usr/lib/firmware", "/firmware")
_FIRMWARE_PATH = "/sys/module/firmware_class/parameters/path"
# What CUDA opens of the driver beside libcuda, and what is missing without it.
_NEEDED = {
    "libnvidia-ptxjitcompiler.so": "kernels in PTX do not load: CUDA_ERROR_JIT_COMPILER_NOT_FOUND",
}


def _libraries(node: ExaminedNode) -> Iterable[Finding]:
    if facts.is_wsl(node) or facts.is_tegra(node):
        return [absent("the driver of this system is of another kind")]
    space = driver_user_space.driver_user_space(node)
    looked = tuple(space.directories)
    has_any = any(space.versions.values())
    if not has_any and not facts.has_gpu(node):
        return [absent("this machine has no NVIDIA GPU", *looked)]
    lacking = [
        stem for stem in (driver_user_space.CUDA, driver_user_space.ML) if stem not in space.current
    ]
    if not lacking:
        return [ok(f"libcuda and libnvidia-ml {space.version} are below {space.root}", *looked)]
    return [_without(node, space, lacking, looked)]


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
        said, command = f"no {names} leads to {files}", "ldconfig"
    elif any(space.versions.values()):
        said, command = (
            f"the driver below {space.root} lacks {names}",
            facts.reinstall(node, space.root),
        )
    else:
        roots = " or ".join(dict.fromkeys((space.root, *driver_locations.OTHER_ROOTS)))
        said = f"no libraries of a driver below {roots}"
        branch = facts.module_version(node).partition(".")[0]
        command = package_commands.driver(node.tree, branch)
        command += "  # or, where it is elsewhere: gpuhook doctor --driver-root DIR"
    return Finding(
        FAILED,
        said,
        meaning='GPU containers do not start, or lack the driver: "libnvidia-ml.so.1: cannot open '
        'shared object file: No such file or directory", or, in CUDA, "libcuda.so.1: cannot open '
        'shared object file"',
        command=command,
        looked_at=looked,
    )


def _files(node: ExaminedNode) -> Iterable[Finding]:
    space = driver_user_space.driver_user_space(node)
    if facts.is_wsl(node) or facts.is_tegra(node):
        return [absent("the driver of this system is of another kind")]
    if not space.version:
        return [absent("there are no libraries of the driver")]
    found = [*_missing(node, space), *_several(space), *_dangling(space)]
    if found:
        return found
    return [ok(f"the driver's files below {space.root} are complete", *space.directories)]


def _missing(node: ExaminedNode, space: driver_user_space.UserSpace) -> Iterable[Finding]:
    command = facts.reinstall(node, space.root)
    for stem, meaning in _NEEDED.items():
        names = [f"{directory}/{stem}.{space.version}" for directory in space.directories]
        if not any(node.tree.status(name) for name in names):
            said = f"{stem}.{space.version} is not below {space.root}"
            yield Finding(WARNING, said, stem, meaning, command, tuple(names))
    programs = [
        driver_user_space.at(space.root, f"{place}/nvidia-smi") for place in _PROGRAM_DIRECTORIES
    ]
    if not any(node.tree.status(program) for program in programs):
        said = f"there is no nvidia-smi below {space.root}"
        meaning = (
            'containers have no nvidia-smi: "exec: nvidia-smi: executable file not found in $PATH"'
        )
        yield Finding(WARNING, said, "nvidia-smi", meaning, command, tuple(programs))


def _several(space: driver_user_space.UserSpace) -> Iterable[Finding]:
    known = space.versions[driver_user_space.CUDA]
    if len(known) > 1:
        yield Finding(
            WARNING,
            f"there are several drivers below {space.root}: {', '.join(sorted(known))}",
            driver_user_space.CUDA,
            "which of them a container gets depends on a link, which the next ldconfig may turn; "
            "then it is Driver/library version mismatch",
            f"rm {' '.join(p for v, p in known.items() if v != space.version)} && ldconfig",
            tuple(known.values()),
        )


def _dangling(space: driver_user_space.UserSpace) -> Iterable[Finding]:
    for path in space.dangling:
        yield Finding(
            WARNING,
            f"{path} leads nowhere",
            path,
            "programs that look the library up by this name do not find it",
            "ldconfig",
            (path,),
        )


def _cache(node: ExaminedNode) -> Iterable[Finding]:
    space = driver_user_space.driver_user_space(node)
    place = driver_user_space.at(space.root, driver_user_space.CACHE)
    if space.root == driver_locations.GKE:
        return [absent(f"{space.root} has no loader of its own")]
    if node.tree.status(driver_locations.NIXOS_LIBRARIES) is not None:
        return [absent("the loader of NixOS has no cache", place)]
    if facts.is_wsl(node) or facts.is_tegra(node):
        return [absent("the driver of this system is of another kind")]
    if not space.version:
        return [absent("there are no libraries of the driver")]
    known = driver_user_space.in_cache(node, space.root)
    if known:
        return [ok(f"the loader's cache has {', '.join(known)}", place)]
    what = "cannot be read, or is not there" if known is None else "has no libcuda.so.1"
    there = ", ".join(space.versions[driver_user_space.CUDA].values())
    return [
        Finding(
            WARNING,
            f"{place} {what}, and the driver has {there}",
            subject=place,
            meaning="NVIDIA's legacy mode looks the driver's libraries up in this cache, and gives "
            'containers none that is not in it: "load library failed: libnvidia-ml.so.1: cannot '
            'open shared object file"; gpuhook and CDI do without',
            command="ldconfig" if space.root == "/" else f"chroot {space.root} ldconfig",
            looked_at=(place,),
        )
    ]


def _firmware(node: ExaminedNode) -> Iterable[Finding]:
    version = facts.module_version(node)
    if not version:
        return [absent("no kernel module is loaded")]
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
        return [ok(f"the GSP's firmware of {version} is {', '.join(files)}", *directories)]
    is_open = facts.is_open_module(node)
    if not is_open and facts.params(node).get("EnableGpuFirmware") == "0":
        return [absent("the driver is told to do without the GSP's firmware", PARAMS)]
    if not is_open and int(version.partition(".")[0] or 0) < 510:
        return [absent(f"the driver {version} does without the GSP's firmware")]
    return [
        Finding(
            FAILED if is_open else WARNING,
            f"there is no firmware of the GSP for {version} in {', '.join(directories)}",
            meaning="a GPU that needs it does not start when it is next initialised: nvidia-smi "
            'says "No devices were found", and dmesg "RmInitAdapter failed"',
            command=facts.reinstall(node, space.root),
            looked_at=tuple(directories),
        )
    ]


def _wsl(node: ExaminedNode) -> Iterable[Finding]:
    if not facts.is_wsl(node):
        return [absent("this is not WSL", "/dev/dxg")]
    paths = [f"{_WSL}/{name}" for name in _WSL_LIBRARIES]
    lacking = [path for path in paths if node.tree.status(path) is None]
    if lacking:
        return [
            Finding(
                FAILED,
                f"{', '.join(lacking)} of Windows' driver is missing",
                meaning='nvidia-smi says "Failed to initialize NVML: GPU access blocked by the '
                'operating system", or programs find no libcuda.so.1',
                command="wsl.exe --update && wsl.exe --shutdown  # first update Windows' driver",
                looked_at=tuple(paths),
            )
        ]
    known = driver_user_space.driver_user_space(node).versions[driver_user_space.CUDA].values()
    own = [path for path in known if not path.startswith(_WINDOWS)]
    if own:
        return [
            Finding(
                WARNING,
                f"a driver for Linux is installed beside Windows': {', '.join(own)}",
                meaning="programs and containers may take its libcuda, which finds no GPU here: "
                "CUDA_ERROR_NO_DEVICE",
                command="apt-get remove --purge 'libnvidia-compute-*' 'nvidia-driver-*' "
                "'cuda-drivers*' && ldconfig",
                looked_at=tuple(own),
            )
        ]
    return [ok(f"Windows' driver is in {_WSL}", *paths)]


CHECKS: tuple[Check, ...] = (
    Check(
        "driver.libraries",
        DRIVER,
        "The driver's libcuda and libnvidia-ml are installed",
        _libraries,
        needs=("driver.module",),
    ),
    Check(
        "driver.files",
        DRIVER,
        "The driver's user space is complete, and there is only one",
        _files,
        needs=("driver.libraries", "driver.version"),
    ),
    Check(
        "driver.cache",
        DRIVER,
        "The loader's cache has the driver's libraries",
        _cache,
        needs=("driver.libraries", "driver.version"),
    ),
    Check(
        "driver.firmware",
        DRIVER,
        "The firmware that the kernel module loads is there",
        _firmware,
        needs=("driver.module", "driver.version"),
    ),
    Check("driver.wsl", DRIVER, "On WSL, the driver is Windows' own", _wsl),
)
