# SPDX-License-Identifier: Apache-2.0
"""The driver of Windows in WSL: the directory of the driver store that is in use.

/usr/lib/wsl/drivers has every driver package of Windows, including earlier drivers.
/usr/lib/wsl/lib has the installed files of the driver in use: its front libraries and nvidia-smi.
The package in use is the one of which these are copies. libdxcore could report it, but that runs
code of the host, which generate-cdi does for NVML only.
"""

from __future__ import annotations

import filecmp
import os
import posixpath
import stat
from dataclasses import dataclass
from fnmatch import fnmatchcase

from gpuhook.errors import fault
from gpuhook.vendors.nvidia.driver.driver_libraries import soname_of
from gpuhook.vendors.nvidia.inventory.inventory import DriverFile, Link

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gpuhook.vendors.nvidia.hot.extras.driver_root import DriverRoot

LIBRARIES = "/usr/lib/wsl/lib"
PACKAGES = "/usr/lib/wsl/drivers"
CUDA = "libcuda.so.1.1"  # only a package of NVIDIA's has it
# The toolkit's list; the rest of the package matches its patterns.
_EXPECTED = (
    CUDA, "libcuda_loader.so", "libdxcore.so", "libnvdxgdmal.so.1", "libnvidia-ml.so.1",
    "libnvidia-ml_loader.so", "libnvidia-ptxjitcompiler.so.1", "nvcubins.bin", "nvidia-smi",
)  # fmt: skip
_PATTERNS = ("*.so", "*.so.*", "*.bin", "*.dll", "nvidia-smi")
# Name in the package -> name in /usr/lib/wsl/lib.
_COPIES = (
    ("libcuda_loader.so", "libcuda.so.1"),
    ("libnvidia-ml_loader.so", "libnvidia-ml.so.1"),
    ("nvidia-smi", "nvidia-smi"),
)
_SMI_LINK = "/usr/bin/nvidia-smi"
_LOADER = "_loader.so"


@dataclass(frozen=True, slots=True)
class DriverStore:
    """The driver's files and links for containers, and the file that changes with the driver.

    Files keep their paths, as the front libraries open the others by them. Of those with one
    SONAME, one is a "library" for the loader: the front; the others are "plugin".
    """

    package: str  # inside the driver root
    files: tuple[DriverFile, ...]
    links: tuple[Link, ...]
    witness: str  # host path
    warnings: tuple[str, ...] = ()


def find(root: DriverRoot, search_paths: tuple[str, ...] = ()) -> DriverStore:
    """Return the driver store below `root`; GH1218 if there is none.

    A directory among `search_paths` that is a package of the driver takes precedence.
    """
    package, warnings = _package(root, search_paths)
    paths = {
        name: f"{package}/{name}"
        for name in root.names(package)
        if any(fnmatchcase(name, pattern) for pattern in _PATTERNS)
    }
    for name in _EXPECTED:
        paths.setdefault(name, f"{LIBRARIES}/{name}")
    real = {name: root.real(path) for name, path in sorted(paths.items())}
    files = _files(root, {paths[name]: at for name, at in real.items() if _is_file(root, at)})
    present = {posixpath.basename(file.container_path) for file in files}
    lacking = [name for name in _EXPECTED if name not in present]
    if lacking:
        warnings.append(f"Windows' driver in {package} lacks {', '.join(lacking)}")
    links = (Link(_SMI_LINK, paths["nvidia-smi"]),) if "nvidia-smi" in present else ()
    front = root.real(f"{LIBRARIES}/libcuda.so.1") or f"{package}/{CUDA}"
    return DriverStore(package, tuple(files), links, root.host(front), tuple(warnings))


def _package(root: DriverRoot, search_paths: tuple[str, ...]) -> tuple[str, list[str]]:
    """Return (the package in use, warnings if that is uncertain)."""
    for path in search_paths:
        if not path.startswith("/"):
            raise fault("GH1515", what="the search path", path=path)
        if root.real(f"{root.inside(path)}/{CUDA}"):
            return root.inside(path), []
    found = [
        f"{PACKAGES}/{name}"
        for name in root.names(PACKAGES)
        if root.real(f"{PACKAGES}/{name}/{CUDA}")
    ]
    if not found:
        raise fault("GH1218", packages=root.host(PACKAGES), library=CUDA)
    if len(found) == 1:
        return found[0], []
    ranked = sorted(found, key=lambda path: (_copies(root, path), _age(root, path)))
    best = ranked[-1]
    if _copies(root, best) > _copies(root, ranked[-2]):
        return best, []
    names = ", ".join(posixpath.basename(path) for path in ranked[::-1])
    doubt = f"several drivers are in {PACKAGES}: {names}; the newest is used"
    return best, [doubt + " (--library-search-path names another)"]


def _copies(root: DriverRoot, package: str) -> int:
    """Return how many of the files in /usr/lib/wsl/lib are copies from this package."""
    return sum(
        _is_same(root.real(f"{package}/{own}"), root.real(f"{LIBRARIES}/{name}"), root)
        for own, name in _COPIES
    )


def _is_same(first: str | None, second: str | None, root: DriverRoot) -> bool:
    if first is None or second is None:
        return False
    try:
        return filecmp.cmp(root.host(first), root.host(second), shallow=False)
    except OSError:
        return False


def _age(root: DriverRoot, package: str) -> int:
    try:
        return os.stat(root.host(root.real(f"{package}/{CUDA}") or package)).st_mtime_ns
    except OSError:
        return 0


def _is_file(root: DriverRoot, real: str | None) -> bool:
    try:
        return real is not None and stat.S_ISREG(os.stat(root.host(real)).st_mode)
    except OSError:
        return False


def _files(root: DriverRoot, paths: dict[str, str | None]) -> list[DriverFile]:
    sonames = {path: soname_of(root.host(real)) for path, real in paths.items() if real}
    fronts: dict[str, str] = {}
    for path, soname in sonames.items():
        if soname and _rank(path, soname) > _rank(fronts.get(soname, ""), soname):
            fronts[soname] = path
    found = []
    for path, soname in sonames.items():
        kind = "plugin" if soname else "binary" if path.endswith("/nvidia-smi") else "config"
        if soname and fronts[soname] == path:
            kind = "library"
        found.append(DriverFile(kind, root.host(paths[path] or path), path, soname))
    return found


def _rank(path: str, soname: str) -> int:
    """Return the rank of a library for its SONAME: of that name, the front of another, or any."""
    if path.endswith("/" + soname):
        return 3
    return 2 if path.endswith(_LOADER) else 1 if path else 0
