# SPDX-License-Identifier: Apache-2.0
"""The CDI specs of a node: their author, and the driver that they are made for."""

from __future__ import annotations

import posixpath
from dataclasses import dataclass, replace

from gpuhook.apply.rootfs import hook_args
from gpuhook.cdi import spec_file
from gpuhook.cdi.hot import spec_rules
from gpuhook.doctor.check import fact
from gpuhook.engines.read import engine_config
from gpuhook.errors import GpuhookError
from gpuhook.vendors.nvidia.hot import vocabulary
from gpuhook.vendors.nvidia.spec import injection_traces

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from typing import Any

    from gpuhook.apply.rootfs.hook_args import Jobs
    from gpuhook.doctor.check import ExaminedNode
    from gpuhook.node.node_tree import Status

# Lowest priority first. /var/run is usually a link to /run; a tree may lack it.
DIRECTORIES = ("/etc/cdi", "/run/cdi", "/var/run/cdi")
EXTENSIONS = (".json", ".yaml")
GPUHOOK, TOOLKIT, PLUGIN, OTHER = "gpuhook", "nvidia-ctk", "device plugin", "another program"
_TOOLKIT = ("/usr/bin/nvidia-ctk", "/usr/local/nvidia/toolkit/nvidia-ctk")
TOOLKIT_HOOKS = ("nvidia-cdi-hook", "nvidia-ctk")
REFRESH_UNIT = "nvidia-cdi-refresh.service"
_UNIT_DIRECTORIES = ("/etc/systemd/system", "/usr/lib/systemd/system", "/lib/systemd/system")
# The pods of the GPU operator write their files again when they start.
OPERATORS_TOOLKIT = (
    "kubectl -n gpu-operator rollout restart daemonset/nvidia-container-toolkit-daemonset"
)
_HOST_VERSION = "--host-driver-version="


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

    def driver_version(self) -> str:
        """Return the version of the driver that it was made for, "" if unknown."""
        for job in self.jobs():
            if job.driver_version:
                return job.driver_version
        for hook in self.items("hooks"):
            for argument in hook.get("args") or ():
                if argument.startswith(_HOST_VERSION):
                    return str(argument[len(_HOST_VERSION) :])
        for mount in self.items("mounts"):
            name = posixpath.basename(mount["hostPath"])
            version = injection_traces.driver_version(mount["hostPath"])
            if version and name.startswith(("libcuda.so.", "libnvidia-ml.so.")):
                return version
        return ""


def valid_specs(node: ExaminedNode) -> list[SpecFile]:
    """Return the valid specs of NVIDIA GPUs, lowest priority first."""
    return [one for one in spec_files(node) if one.document is not None]


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


@fact
def spec_files(node: ExaminedNode) -> tuple[SpecFile, ...]:
    """Return the specs of NVIDIA GPUs, lowest priority first."""
    return tuple(spec for path in paths(node) for spec in _spec(node, path))


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


def _spec(node: ExaminedNode, path: str) -> Iterator[SpecFile]:
    found = read_spec(node, path)
    if found is None:
        return
    one, content = found
    vendor = one.kind.partition("/")[0]
    if one.document is None:
        if b"nvidia" in content.lower() or "nvidia" in path:
            yield replace(one, author=_author_of_text(content))
    elif vendor == vocabulary.VENDOR or vendor.endswith("." + vocabulary.VENDOR):
        yield replace(one, author=_author(vendor, content))


def _author(vendor: str, content: bytes) -> str:
    if vendor == vocabulary.PLUGIN_VENDOR:
        return PLUGIN
    return _author_of_text(content) if vendor == vocabulary.VENDOR else OTHER


def _author_of_text(content: bytes) -> str:
    if hook_args.HOOK_NAME.encode() in content:
        return GPUHOOK
    return TOOLKIT if any(name.encode() in content for name in TOOLKIT_HOOKS) else OTHER


def is_hidden(node: ExaminedNode, one: SpecFile) -> bool:
    """Return whether a spec of higher priority has all devices of this one."""
    return is_hidden_by(node, one, valid_specs(node))


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


def specs_with_node(node: ExaminedNode, path: str) -> list[str]:
    """Return the paths of the specs that have the device node `path`."""
    return [
        one.path for one in valid_specs(node) if path in one.nodes() and not is_hidden(node, one)
    ]


def has_unit(node: ExaminedNode, name: str) -> bool:
    """Return whether the node has a systemd unit, such as the one that updates NVIDIA's spec."""
    paths = (f"{directory}/{name}" for directory in _UNIT_DIRECTORIES)
    return any(node.tree.status(path) is not None for path in paths)


def has_toolkit(node: ExaminedNode) -> bool:
    """Return whether the node has NVIDIA's nvidia-ctk, not gpuhook's command of that name."""
    here = [path for path in _TOOLKIT if node.tree.status(path) is not None]
    return any(
        not engine_config.is_gpuhook_script(node.tree.read(path, 4096) or b"") for path in here
    )


def rewrite_command(node: ExaminedNode, one: SpecFile) -> str:
    """Return the command that writes a spec again with the program that wrote it."""
    if one.author == PLUGIN:
        return "kubectl delete pod -A -l 'app.kubernetes.io/name=nvidia-device-plugin'"
    if one.kind.startswith("management."):
        return OPERATORS_TOOLKIT
    if one.kind and one.author == OTHER and one.kind.partition("/")[0] != vocabulary.VENDOR:
        return (
            f"kubectl get pods -A -o wide | grep -i nvidia # delete the pod that wrote {one.path}"
        )
    if one.author == GPUHOOK or (one.author == OTHER and not has_toolkit(node)):
        made = f"gpuhook generate-cdi --output-file {one.path}"
        return "gpuhook refresh --force" if one.author == GPUHOOK else made
    if one.path.endswith("run/cdi/nvidia.yaml") and has_unit(node, REFRESH_UNIT):
        return f"systemctl restart {REFRESH_UNIT}"
    return f"nvidia-ctk cdi generate --output={one.path}"
