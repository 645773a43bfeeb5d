# SPDX-License-Identifier: Apache-2.0
"""The CDI specs of a node, of any vendor."""

from __future__ import annotations

import posixpath
from dataclasses import dataclass

from gpuhook.apply.rootfs import hook_args
from gpuhook.cdi import spec_file
from gpuhook.cdi.hot import spec_rules
from gpuhook.errors import GpuhookError
from gpuhook.node_facts.check import fact

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from typing import Any

    from gpuhook.apply.rootfs.hook_args import Jobs
    from gpuhook.node_facts.check import ExaminedNode
    from gpuhook.node_facts.sources.node_tree import Status

# Lowest priority first. /var/run is usually a link to /run; a tree may lack it.
DIRECTORIES = ("/etc/cdi", "/run/cdi", "/var/run/cdi")
EXTENSIONS = (".json", ".yaml")
OTHER = "another program"


@dataclass(frozen=True, slots=True)
class SpecFile:
    """A spec; if it is invalid, `document` is None and `error` has the fault."""

    path: str
    status: Status
    document: dict[str, Any] | None
    error: GpuhookError | None
    author: str

    @property
    def directory(self) -> str:
        """The directory that it is in."""
        return posixpath.dirname(self.path)

    @property
    def kind(self) -> str:
        """The kind of its devices, "" for an invalid spec."""
        return str(self.document["kind"]) if self.document else ""

    @property
    def device_names(self) -> list[str]:
        """The names of its devices without the kind."""
        return [str(one["name"]) for one in (self.document or {}).get("devices") or ()]

    def edits(self) -> Iterator[dict[str, Any]]:
        """Yield the edits of the spec, then those of each device."""
        for part in (self.document or {}, *((self.document or {}).get("devices") or ())):
            yield part.get("containerEdits") or {}

    def items(self, key: str) -> list[dict[str, Any]]:
        """Return the different mounts, hooks or deviceNodes of all its edits."""
        found: list[dict[str, Any]] = []
        for edits in self.edits():
            found += [item for item in edits.get(key) or () if item not in found]
        return found

    def nodes(self) -> dict[str, dict[str, Any]]:
        """Return host path -> device node."""
        return {one.get("hostPath") or one["path"]: one for one in self.items("deviceNodes")}

    def jobs(self) -> list[Jobs]:
        """Return the jobs of gpuhook's hooks in it, without invalid ones."""
        found = []
        for hook in self.items("hooks"):
            if hook_args.is_ours(hook):
                try:
                    found.append(hook_args.of_hook(hook))
                except GpuhookError:
                    continue  # the hook reports it when it runs
        return found


@fact
def directories(node: ExaminedNode) -> list[str]:
    """Return the existing CDI directories, lowest priority first, without links to another."""
    found: dict[str, str] = {}
    for directory in DIRECTORIES:
        real = node.tree.real(directory)
        if real is not None:
            found.pop(real, None)
            found[real] = directory  # the last name, /var/run/cdi, is the one that engines use
    return list(found.values())


def paths(node: ExaminedNode) -> list[str]:
    """Return the paths of all specs, also of other vendors, lowest priority first."""
    return [
        f"{directory}/{name}"
        for directory in directories(node)
        for name in node.tree.names(directory)
        if name.endswith(EXTENSIONS)
    ]


def read_spec(node: ExaminedNode, path: str) -> tuple[SpecFile, bytes] | None:
    """Return a spec of any vendor, without its author, and its text; None if it does not exist."""
    status, content = node.tree.status(path), node.tree.read(path)
    if status is None or content is None:
        return None
    try:
        document = spec_file.parser(path)(content, path)
        spec_rules.check(document, path)
    except GpuhookError as error:
        return SpecFile(path, status, None, error, OTHER), content
    return SpecFile(path, status, document, None, OTHER), content


def is_hidden_by(node: ExaminedNode, one: SpecFile, files: Iterable[SpecFile]) -> bool:
    """Return whether those of the `files` with a higher priority have all devices of a spec."""
    order = directories(node)
    later = [
        f"{other.kind}={name}"
        for other in files
        if order.index(other.directory) > order.index(one.directory)
        for name in other.device_names
    ]
    names = [f"{one.kind}={name}" for name in one.device_names]
    return bool(names) and set(names) <= set(later)


def conflicts(files: Iterable[SpecFile]) -> dict[tuple[str, ...], list[str]]:
    """Return the devices that several specs of a directory describe, by the paths of these."""
    owners: dict[tuple[str, str], list[str]] = {}
    for one in files:
        for name in one.device_names:
            owners.setdefault((one.directory, f"{one.kind}={name}"), []).append(one.path)
    found: dict[tuple[str, ...], list[str]] = {}
    for (_, name), paths in owners.items():
        if len(paths) > 1:
            found.setdefault(tuple(paths), []).append(name)
    return found


def wrong_numbers(node: ExaminedNode, one: SpecFile) -> list[str]:
    """Return a phrase for each device node whose numbers in a spec are not those of the node."""
    wrong = []
    for path, edit in one.nodes().items():
        status = node.tree.status(path)
        if "major" not in edit or status is None or not status.is_character_device:
            continue
        written = (edit["major"], edit.get("minor") or 0)
        if written != (status.major, status.minor):
            is_now = f"{status.major}:{status.minor}"
            wrong.append(f"{path} is {written[0]}:{written[1]} in the spec, but now {is_now}")
    return wrong
