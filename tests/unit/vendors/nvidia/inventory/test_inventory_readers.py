# SPDX-License-Identifier: Apache-2.0
"""Each fact of the inventory is used by some code, or is for readers of dumps."""

from __future__ import annotations

import ast
from dataclasses import fields
from pathlib import Path

import gpuhook
from gpuhook.vendors.nvidia.inventory.inventory import (
    DeviceNode,
    Driver,
    DriverFile,
    Gpu,
    Link,
    MigInstance,
    Node,
)

PACKAGE = Path(gpuhook.__file__).parent
NVIDIA = PACKAGE / "vendors/nvidia"
# Code that collects the facts or dumps them.
WRITERS = [
    *(NVIDIA / "inventory").glob("*.py"),
    NVIDIA / "devices/mig_nodes.py",
    NVIDIA / "devices/proc_gpus.py",
    NVIDIA / "nvml/nvml_inventory.py",
    NVIDIA / "nvml/nvml_mig.py",
]
# Code that reads facts by names in strings.
BY_TEXT = (NVIDIA / "hot/node_json.py", NVIDIA / "labels/gpu_groups.py")
# Facts for readers of `gpuhook inventory -o json`, with the reason.
FOR_DUMPS: dict[str, str] = {}


def read_names(names: set[str]) -> set[str]:
    """Return the attributes that code other than the writers reads, and the names in BY_TEXT."""
    found: set[str] = set()
    for path in sorted(set(PACKAGE.rglob("*.py")) - set(WRITERS)):
        code = path.read_text(encoding="utf-8")
        if not any(name in code for name in names - found):
            continue
        for node in ast.walk(ast.parse(code)):
            if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Load):
                found.add(node.attr)
            elif path in BY_TEXT and isinstance(node, ast.Constant):
                found.add(str(node.value))
    return found


def test_every_fact_is_read() -> None:
    """A fact that no code reads has its reason above, and no other fact has one."""
    kinds = (Driver, MigInstance, Gpu, DeviceNode, DriverFile, Link, Node)
    names = {one.name for kind in kinds for one in fields(kind)}
    assert names - read_names(names) == set(FOR_DUMPS)
