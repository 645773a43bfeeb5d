# SPDX-License-Identifier: Apache-2.0
"""The node to check: this machine, or the tree of files that --root names."""

from __future__ import annotations

import os
from dataclasses import dataclass, replace

import click

from gpuhook.doctor import reading_collectors
from gpuhook.errors import fault
from gpuhook.host import system_mounts
from gpuhook.node.tree_worker import PatientTree
from gpuhook.node_facts.check import ExaminedNode
from gpuhook.node_facts.sources.node_readings import Readings
from gpuhook.vendors.nvidia import discover
from gpuhook.vendors.vendor_inventory import NodePlace

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence


_OF_A_NODE = ("etc", "proc", "dev", "sys", "usr", "run", "var", "lib", "home")
_NO_NODE = "it has no etc, no proc, no dev and no usr"


@dataclass(frozen=True, slots=True)
class DoctorTarget:
    """A node to check. Each call of `look()` reads it again.

    `is_live` says whether more than the node's files can be read.
    """

    look: Callable[[], ExaminedNode]
    is_live: bool


def node_place(
    host_root: str,
    *,
    driver_root: str,
    dev_root: str | None,
    nvml_library: str | None,
    library_search_path: tuple[str, ...],
) -> NodePlace:
    """Return the place that node_options.place_options() describe."""
    return NodePlace(driver_root, dev_root, host_root, nvml_library, library_search_path)


def target_of_options(
    root: str | None, place: NodePlace, state_roots: Sequence[str]
) -> DoctorTarget:
    """Return the node that the options describe.

    With `root`, the paths of `place` are paths inside it. Only the files of such a tree are read,
    unless it is the root of this machine as seen from a container. Raises GH1594, GH1900.
    """
    system_mounts.require()
    if root is None:
        if os.path.abspath(place.driver_root) == "/":  # the default: the root of the node
            place = replace(place, driver_root=place.host_root)
        roots = discover.roots(place.driver_root, place.dev_root, place.host_root)
        tree = PatientTree(roots.host)
        driver, dev = _inside(roots.host, roots.driver), _inside(roots.host, roots.dev)
        is_live = True
    else:
        tree = PatientTree(root)
        if not any(tree.status("/" + name) for name in _OF_A_NODE):
            raise fault("GH1900", path=root or repr(root), reason=_NO_NODE)
        driver = place.driver_root
        place = _below(tree.root, place)
        roots = discover.roots(place.driver_root, place.dev_root, place.host_root)
        dev = _inside(tree.root, roots.dev)
        is_live = reading_collectors.is_this_machine(tree)

    def look() -> ExaminedNode:
        taken = (
            reading_collectors.live_readings(tree, place, state_roots) if is_live else Readings({})
        )
        return ExaminedNode(tree, taken, driver_root=driver, dev_root=dev)

    return DoctorTarget(look, is_live)


def target_of_bundle(path: str) -> DoctorTarget:
    """Return the node of a support bundle. Raises GH1906, GH1907 and OSError."""
    from gpuhook import support_bundle

    node = support_bundle.bundle_node(path)

    def look() -> ExaminedNode:
        return ExaminedNode(node.tree, node.readings, node.driver_root, node.dev_root)

    return DoctorTarget(look, is_live=False)


def _below(root: str, place: NodePlace) -> NodePlace:
    def placed(path: str) -> str:
        return os.path.normpath(root + "/" + path)

    return NodePlace(
        driver_root=placed(place.driver_root),
        dev_root=None if place.dev_root is None else placed(place.dev_root),
        host_root=root,
        library=place.library and placed(place.library),
        library_search_paths=place.library_search_paths,
    )


def _inside(root: str, path: str) -> str:
    """Return a path of this machine as a path of the node; a usage error if not below `root`."""
    real = os.path.realpath(path)
    if root == "/":
        return real
    inside = os.path.relpath(real, os.path.realpath(root))
    if inside.startswith(".."):
        raise click.UsageError(
            f"{path} is not below {root}: pass the node's tree as --root, and the other paths as"
            " paths inside it"
        )
    return "/" if inside == "." else "/" + inside
