# SPDX-License-Identifier: Apache-2.0
"""The plan of `gpuhook refresh`: the specs of this node, and which of them are stale.

This module writes nothing.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from functools import cache, partial

from gpuhook.cdi import spec_file
from gpuhook.cdi.hot import registry
from gpuhook.cli.generate import generate_call
from gpuhook.engines.configure.host_files import Host
from gpuhook.engines.configure.host_programs import HostPrograms
from gpuhook.engines.read import podman_config
from gpuhook.engines.read.engine_config import CDI_DIRS
from gpuhook.host.hot import state
from gpuhook.vendors.catalogue import vendors
from gpuhook.vendors.spec.spec_case import SpecLook

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    import click

    from gpuhook.host.hot.settings import Settings
    from gpuhook.vendors.interfaces.vendor_interface import Vendor
    from gpuhook.vendors.spec.spec_case import SpecCase


@dataclass(frozen=True, slots=True)
class VendorCase:
    """The case of a spec, and the vendor whose GPUs it describes."""

    vendor: Vendor
    case: SpecCase


def refresh_cases(settings: Settings, root: click.Context, *, is_forced: bool) -> list[VendorCase]:
    """Return the cases of each vendor's specs; with `is_forced`, fresh specs are stale too."""
    known = registry.load(settings.spec_dirs, spec_file.compile_specs)
    reader = cache(_older_reader)
    return [
        VendorCase(vendor, case)
        for vendor in vendors()
        for case in vendor.spec_cases(
            SpecLook(
                settings,
                known,
                read_dirs=(*CDI_DIRS, "/run/cdi"),
                remade=partial(_remade, vendor.name, root),
                older_reader=reader,
                is_forced=is_forced,
            )
        )
    ]


def _remade(vendor: str, root: click.Context, words: Sequence[str], path: str) -> bytes:
    fmt = os.path.splitext(path)[1][1:]
    return generate_call.text(words, vendor, fmt, root, is_again=True).encode()


def _older_reader() -> tuple[str, str]:
    """Return the newest version of CDI that podman reads, "" without a podman that has CDI."""
    version = HostPrograms(Host(state.host_root())).version("podman")
    if version is None or not podman_config.has_cdi(version):
        return "", ""
    read = podman_config.newest_cdi(version)
    return read, f"podman {'.'.join(map(str, version))} reads CDI {read} at most"
