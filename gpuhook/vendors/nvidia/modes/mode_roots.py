# SPDX-License-Identifier: Apache-2.0
"""Where a mode looks for what it describes."""

from __future__ import annotations

from dataclasses import dataclass

from gpuhook.vendors.nvidia.driver import site_rules

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gpuhook.vendors.nvidia.inventory.discover import Roots


@dataclass(frozen=True, slots=True)
class ModeRoots:
    """A node: its roots, where to look first below the driver's, and what may be made there.

    Search paths are directories inside the driver root.
    """

    roots: Roots
    nvml_library: str | None = None
    library_search_paths: tuple[str, ...] = ()
    config_search_paths: tuple[str, ...] = ()
    files_dir: str = site_rules.DIRECTORY  # what this site adds to the driver's files, and drops
    create_nodes: bool = False  # those below /dev/nvidia-caps that MIG instances lack
    # Of mode csv: host paths of its files, patterns of links, and a directory in containers.
    csv_files: tuple[str, ...] = ()
    csv_ignore_patterns: tuple[str, ...] = ()
    csv_compat_root: str = ""
