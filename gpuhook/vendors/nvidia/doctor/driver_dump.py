# SPDX-License-Identifier: Apache-2.0
"""The dump of a node's driver and GPUs, wherever the driver is."""

from __future__ import annotations

import os
from dataclasses import replace
from typing import Any

from gpuhook.errors import GpuhookError
from gpuhook.vendors.nvidia import discover
from gpuhook.vendors.nvidia.driver import driver_locations
from gpuhook.vendors.nvidia.inventory import dump

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

    from gpuhook.vendors.vendor_inventory import NodePlace

_NO_LIBRARY = "GH1200"


def driver_dump(place: NodePlace) -> dict[str, Any]:
    """Return the answers of NVML as a document.

    If no option names a place and the node's root has no driver, the roots of driver containers and
    of distributions are searched. Raises GH1200 to GH1210.
    """
    try:
        return _dump(place)
    except GpuhookError as missing:
        if missing.code != _NO_LIBRARY:
            raise
        for one in _others(place):
            try:
                return _dump(one)
            except GpuhookError as error:
                if error.code != _NO_LIBRARY:
                    raise
        raise


def _others(place: NodePlace) -> Iterator[NodePlace]:
    host = os.path.normpath(place.host_root)
    named = place.library or place.library_search_paths
    if named or os.path.normpath(place.driver_root) != host:
        return
    for root in driver_locations.OTHER_ROOTS:
        below = f"{host.rstrip('/')}{root}"
        if os.path.isdir(below) and driver_locations.is_trusted(below):
            yield replace(place, driver_root=below)
    yield replace(place, library_search_paths=(driver_locations.NIXOS_LIBRARIES,))


def _dump(place: NodePlace) -> dict[str, Any]:
    node = discover.node(
        discover.roots(
            place.driver_root,
            place.dev_root,
            place.host_root,
            nvml_library=place.library,
            library_search_paths=place.library_search_paths,
        ),
        require_nodes=False,
        require_files=False,
    )
    return dump.as_dict(node)
