# SPDX-License-Identifier: Apache-2.0
"""What `gpuhook inventory` shows of one vendor's devices."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gpuhook.vendors.interface import VendorNode


@dataclass(frozen=True, slots=True)
class NodePlace:
    """Where a node's files are. A vendor without its own user space needs no driver root."""

    driver_root: str = "/"
    dev_root: str | None = None  # None: found by the vendor
    host_root: str = "/"
    library: str | None = None  # the driver's library that reports the devices
    library_search_paths: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class DriverVersion:
    """The version of a driver, and the highest version of the vendor's API that it supports.

    `api` is None if it is unknown, or if the driver does not limit it.
    """

    version: str | None = None
    api: str | None = None


@dataclass(frozen=True, slots=True)
class NodeDescription:
    """A node by an inventory, and warnings about what its CDI spec leaves out."""

    node: VendorNode
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class InventoryTable:
    """A table for people."""

    headers: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


@dataclass(frozen=True, slots=True)
class VendorInventory:
    """One vendor's part of a node."""

    part: dict[str, Any]  # the keys of the document
    summary: str  # the driver, in one line
    tables: tuple[InventoryTable, ...]  # that of the GPUs first
    most_important: tuple[str, ...]  # columns, in this order
    ids: tuple[str, ...]  # by which containers can request the devices
    warnings: tuple[str, ...]
    facts: dict[str, Any]  # for the log


def cell(fact: object) -> str:
    """Return a fact for a table."""
    return "unknown" if fact is None else str(fact)


def mebibytes(number: int | None) -> str | None:
    """Return an amount of memory for a table."""
    return None if number is None else f"{number // 1024**2} MiB"
