# SPDX-License-Identifier: Apache-2.0
"""A simulated node for doctor: its file tree and its readings.

`parts` put the files of a healthy node into the tree: engines, kubelet, gpuhook's own. A breakage
then changes files or readings, and doctor must report it.
"""

from __future__ import annotations

import copy
import errno
import os
import subprocess
import weakref
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

from gpuhook.doctor import reading_collectors as asking
from gpuhook.doctor.check_list import checks
from gpuhook.doctor.examination import Examination, examine
from gpuhook.node_facts.check import ExaminedNode
from gpuhook.node_facts.sources import node_readings
from gpuhook.node_facts.sources.node_readings import Readings
from gpuhook.node_facts.sources.node_tree import MAX_FILE, DirectoryTree, trouble
from gpuhook.vendors.vendor_inventory import NodePlace
from tests.simulated.node import SimulatedNode, make_node

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable


class _DenyingTree(DirectoryTree):
    """A tree in which some files cannot be read, even by root."""

    def __init__(self, root: str, denied: set[str]) -> None:
        super().__init__(root)
        self._denied = denied
        weakref.finalize(self, os.close, self._fd)

    def read(self, path: str, limit: int = MAX_FILE, *, owner: int | None = None) -> bytes | None:
        if path in self._denied:
            raise trouble(errno.EPERM, path)
        return super().read(path, limit, owner=owner)


@dataclass
class FaultCase:
    """The node: `root` is its tree; `readings` are documents by name, which a test may change.

    The tree's NVML (the stub) provides the inventory, unless `readings` has one.
    """

    root: Path
    node: SimulatedNode
    readings: dict[str, Any] = field(default_factory=dict)
    denied: set[str] = field(default_factory=set)  # files that the kernel refuses to read (EPERM)

    def path(self, path: str) -> Path:
        """Return the path on this machine; its directory is created."""
        place = self.root / path.lstrip("/")
        place.parent.mkdir(parents=True, exist_ok=True)
        return place

    def write(self, path: str, text: str, mode: int = 0o644) -> None:
        """Write a file of the node."""
        place = self.path(path)
        place.write_text(text, encoding="utf-8")
        place.chmod(mode)

    def remove(self, path: str) -> None:
        """Remove a file of the node."""
        self.path(path).unlink()

    def examine(self, chosen: list[str] | None = None) -> Examination:
        """Return the results of all checks, or of the chosen ones."""
        return examine(self.examined(), checks(), chosen)

    def examined(self) -> ExaminedNode:
        """Return the node in the form that checks read."""
        documents = copy.deepcopy(self.readings)
        for program in (documents.get(node_readings.PROGRAMS) or {}).values():
            program.setdefault("trouble", "")  # only if the case sets it
        collectors: dict[str, Callable[[], Any]] = {
            name: partial(documents.get, name) for name in documents
        }
        collectors.setdefault(node_readings.INVENTORY, self._inventory)
        return ExaminedNode(_DenyingTree(str(self.root), self.denied), Readings(collectors))

    def _inventory(self) -> Any:
        return asking.driver_dump(NodePlace(str(self.root), None, str(self.root)))


PARTS: list[Callable[[FaultCase], None]] = []
MAKERS: dict[str, Callable[[Path], FaultCase]] = {}  # of nodes that are not NVIDIA's profiles


def part(function: Callable[[FaultCase], None]) -> Callable[[FaultCase], None]:
    """Register `function(case)`, which adds a part to every healthy node."""
    PARTS.append(function)
    return function


def make(directory: Path, profile: str = "t4", *, without: str = "") -> FaultCase:
    """Make a healthy node of a profile, without the parts of the module `without`."""
    if profile in MAKERS:
        return MAKERS[profile](directory)
    case = FaultCase(directory, make_node(directory, profile))
    for add in PARTS:
        if add.__module__ != without:
            add(case)
    return case


def copied(case: FaultCase, directory: Path) -> FaultCase:
    """Return a copy of a case that a test may break."""
    subprocess.run(["cp", "-a", f"{case.root}/.", str(directory)], check=True)
    old, new = str(case.root), str(directory)
    moved = {
        name: getattr(case.node, name).replace(old, new)
        for name in ("driver_root", "dev_root", "host_root", "nvml_library", "nvml_profile")
    }
    facts = case.node.node
    nvml = (facts.driver.nvml or "").replace(old, new)
    facts = replace(facts, driver=replace(facts.driver, nvml=nvml))
    node = replace(case.node, **moved, node=facts)
    return FaultCase(directory, node, copy.deepcopy(case.readings))


@dataclass(frozen=True)
class Broken:
    """A broken node, and the check that must report it first.

    With `is_warning`, nothing fails, and the check warns.
    """

    name: str
    check: str
    do: Callable[[FaultCase], None]
    profile: str = "t4"
    is_warning: bool = False


def is_root() -> bool:
    """Return whether device nodes can be made here."""
    return os.geteuid() == 0
