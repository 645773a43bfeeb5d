# SPDX-License-Identifier: Apache-2.0
"""All files of the driver below a root, as facts for the CDI spec."""

from __future__ import annotations

import os
import posixpath
from dataclasses import dataclass

from gpuhook.errors import fault
from gpuhook.vendors.nvidia.driver import (
    companion_files,
    driver_libraries,
    libcuda,
    site_files,
    site_rules,
)
from gpuhook.vendors.nvidia.hot.extras.driver_root import DriverRoot

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gpuhook.vendors.nvidia.discover import Roots
    from gpuhook.vendors.nvidia.inventory.inventory import DriverFile, Link


@dataclass(frozen=True)
class DriverFileFacts:
    """The files of one driver. Links leave out the SONAME links, which follow from the files."""

    files: tuple[DriverFile, ...]
    links: tuple[Link, ...]
    library_dirs: tuple[str, ...]  # container directories for the loader, libcuda's first
    libcuda: str  # host path of libcuda.so.<version>
    version: str  # "580.95.05"
    warnings: tuple[str, ...] = ()


def find(
    where: Roots, version: str | None = None, *, explicit_libraries: bool = False
) -> DriverFileFacts:
    """Return the files of the driver below its root, links followed inside that root.

    Without `version` it is the only driver there, or the one that libcuda.so.1 points to.
    The site's rules add and drop files. A single broken file is a warning; faults are GH1230 to
    GH1235 (no driver, two versions, another version, broken libcuda), GH1515 (a relative path), and
    GH1243 to GH1245 (broken rules).
    """
    if not os.path.isdir(where.driver):
        raise fault("GH1235", root=where.driver)
    root = DriverRoot(os.path.abspath(where.driver))
    rules = site_rules.read(where.files_dir)
    located = libcuda.locate(root, version, where.library_search_paths)
    found = _libraries(root, located)
    if explicit_libraries:
        driver_libraries.add_explicit(found, root, located)
    for path in where.config_search_paths:
        if not path.startswith("/"):
            raise fault("GH1515", what="the search path", path=path)
    others = companion_files.companions(
        root,
        located,
        config_search_paths=where.config_search_paths,
        host_root=where.host,
    )
    files, links, warnings = site_files.changed(rules, root, [*found.files, *others], found.links)
    libraries_of = [file for file in files if file.kind == "library"]
    used = [posixpath.dirname(file.container_path) for file in libraries_of]
    directories = [directory for directory in found.directories if directory in used] + used
    return DriverFileFacts(
        files=tuple(files),
        links=tuple(links),
        library_dirs=tuple(dict.fromkeys(directories)),
        libcuda=root.host(located.path),
        version=located.version,
        warnings=(*found.warnings, *warnings, *_missing_ml(found, located)),
    )


def _libraries(root: DriverRoot, located: libcuda.Libcuda) -> driver_libraries.Libraries:
    found = driver_libraries.libraries(root, located)
    narrow = libcuda.narrow(root, located)
    if narrow is not None:
        more = driver_libraries.libraries(root, narrow)
        found.files += more.files
        found.links += more.links
        found.directories += more.directories
        # /usr/lib may have both.
        found.warnings += [warning for warning in more.warnings if warning not in found.warnings]
    return found


def _missing_ml(found: driver_libraries.Libraries, located: libcuda.Libcuda) -> list[str]:
    name = "libnvidia-ml.so." + located.version
    if any(file.container_path.endswith("/" + name) for file in found.files):
        return []
    return [f"{name} is missing next to libcuda: nvidia-smi and NVML will not work in containers"]
