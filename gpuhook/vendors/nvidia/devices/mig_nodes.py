# SPDX-License-Identifier: Apache-2.0
"""The device nodes that open MIG instances, found below the dev root, or made there.

The driver makes none of them itself; nvidia-modprobe does, on request. A missing node is a trouble
of its instance only.
"""

from __future__ import annotations

import os
import stat
from dataclasses import dataclass, replace

from gpuhook.errors import fault
from gpuhook.host.hot import files
from gpuhook.kernel.mknod import mknod
from gpuhook.vendors.nvidia.hot import mig_capabilities, vocabulary
from gpuhook.vendors.nvidia.inventory.inventory import DeviceNode

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gpuhook.vendors.nvidia.hot.mig_capabilities import Capability
    from gpuhook.vendors.nvidia.inventory.inventory import Gpu, MigInstance

_MODE = 0o666  # of a node whose mode the driver does not set
_UNKNOWN = "{name} is neither in {minors} nor in {file}: the MIG device no longer exists"
_SHARED = "{name} has the minor {minor} in {minors}, but so does {other}: one of them is wrong"
_CONTRADICTED = (
    "{name} has the minor {minor} in {minors}, but {own} in {file}: one of them is wrong"
)
_NO_MAJOR = "{path} cannot be checked: /proc/devices has no nvidia-caps; load the kernel module"
_MISSING = (
    "{path} is missing: run nvidia-modprobe -f {file}, or gpuhook generate-cdi with "
    "--create-device-nodes"
)
_WRONG = "{path} is not the character device {major}:{minor}: remove it, then recreate it"


@dataclass(frozen=True, slots=True)
class InstancesFound:
    """GPUs whose instances have the minors of their nodes, or a trouble; and those nodes."""

    gpus: tuple[Gpu, ...]
    nodes: tuple[DeviceNode, ...]


def find(
    host_root: str,
    dev_root: str,
    majors: dict[str, int],
    gpus: tuple[Gpu, ...],
    *,
    create: bool = False,
) -> InstancesFound:
    """Return the GPUs with the kernel's facts about their instances, and the nodes of these.

    `majors` are those of /proc/devices. With `create`, a missing node is made below `dev_root`.
    """
    if not any(gpu.instances for gpu in gpus):
        return InstancesFound(gpus, ())
    search = _Search(host_root, dev_root, majors.get(mig_capabilities.MAJOR_NAME), create=create)
    found = []
    for gpu in gpus:
        instances = tuple(search.completed(gpu, instance) for instance in gpu.instances)
        found.append(replace(gpu, instances=instances))
    nodes = sorted(search.nodes.values(), key=lambda node: node.minor)
    return InstancesFound(tuple(found), tuple(nodes))


class _TroubleError(Exception):
    """A node is not available; the text is the reason."""


class _Search:
    """The nodes found so far; instances of one GPU instance share its node."""

    def __init__(self, host_root: str, dev_root: str, major: int | None, *, create: bool) -> None:
        self._host_root = host_root
        self._dev_root = dev_root
        self._major = major
        self._create = create
        self._minors = mig_capabilities.minors(host_root)
        self._names: dict[int, list[str]] = {}
        for name, minor in self._minors.items():
            self._names.setdefault(minor, []).append(name)
        self.nodes: dict[int, DeviceNode] = {}

    def completed(self, gpu: Gpu, instance: MigInstance) -> MigInstance:
        """Return the instance with the minors of its nodes, or with its trouble."""
        if gpu.minor is None:
            return instance  # its GPU has no device node
        first = mig_capabilities.name(gpu.minor, instance.gpu_instance)
        second = mig_capabilities.name(gpu.minor, instance.gpu_instance, instance.compute_instance)
        known = [
            mig_capabilities.capability(
                self._host_root, mig_capabilities.file(name), self._minors.get(name)
            )
            for name in (first, second)
        ]
        instance = replace(
            instance,
            gpu_instance_minor=None if known[0] is None else known[0].minor,
            compute_instance_minor=None if known[1] is None else known[1].minor,
        )
        troubles = []
        for name, capability in zip((first, second), known, strict=True):
            try:
                self._require_own(name)
                self._have(name, capability)
            except _TroubleError as trouble:
                troubles.append(str(trouble))
        return replace(instance, trouble="; ".join(troubles)) if troubles else instance

    def _require_own(self, name: str) -> None:
        """Raise _TroubleError if the minor of a capability may open another one."""
        minor = self._minors.get(name)
        if minor is None:
            return
        facts = {"name": name, "minor": minor, "minors": mig_capabilities.MINORS}
        other = next((one for one in self._names[minor] if one != name), "")
        if other:
            raise _TroubleError(_SHARED.format(other=other, **facts))
        file = mig_capabilities.file(name)
        own = mig_capabilities.capability(self._host_root, file, None)
        if own is not None and own.minor != minor:
            raise _TroubleError(_CONTRADICTED.format(own=own.minor, file=file, **facts))

    def _have(self, name: str, capability: Capability | None) -> None:
        """Find the node, or make it; raises _TroubleError."""
        if capability is None:
            raise _TroubleError(
                _UNKNOWN.format(
                    name=name, minors=mig_capabilities.MINORS, file=mig_capabilities.file(name)
                )
            )
        path = vocabulary.capability_node(capability.minor)
        host_path = os.path.join(self._dev_root, path.lstrip("/"))
        if self._major is None:
            raise _TroubleError(_NO_MAJOR.format(path=host_path))
        try:
            status = os.stat(host_path)
        except OSError as error:
            if not isinstance(error, FileNotFoundError):
                raise _TroubleError(f"{host_path}: {error.strerror}") from error
            status = self._made(host_path, name, self._major, capability)
        number = os.makedev(self._major, capability.minor)
        if not stat.S_ISCHR(status.st_mode) or status.st_rdev != number:
            wrong = _WRONG.format(path=host_path, major=self._major, minor=capability.minor)
            raise _TroubleError(wrong)
        self.nodes[capability.minor] = DeviceNode.of_status(path, host_path, status)

    def _made(
        self, host_path: str, name: str, major: int, capability: Capability
    ) -> os.stat_result:
        """Make the node if that is allowed; raises _TroubleError."""
        if not self._create:
            raise _TroubleError(_MISSING.format(path=host_path, file=mig_capabilities.file(name)))
        mode = _MODE if capability.mode is None else capability.mode
        try:
            make(host_path, major, capability.minor, mode)
            return os.stat(host_path)
        except OSError as error:
            facts = {
                "path": host_path,
                "file": mig_capabilities.file(name),
                "reason": error.strerror or error,
            }
            wrong = fault("GH1246", **facts)
            raise _TroubleError(f"{wrong.code}: {wrong.message}; {wrong.hint}") from error


def make(path: str, major: int, minor: int, mode: int) -> None:
    """Make a character device of root's at `path`, and its directory; raises OSError.

    It has its mode and owner before it has its name. If another process was faster, its node
    remains.
    """
    directory, name = os.path.split(path)
    if not os.path.isdir(directory):
        os.makedirs(directory, 0o755, exist_ok=True)
    fd = os.open(directory, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    temporary = files.temporary_name(name)
    try:
        files.remove_stale(directory)
        mknod(fd, temporary, "c", major, minor, mode, 0, 0)
        try:
            os.link(temporary, name, src_dir_fd=fd, dst_dir_fd=fd)
        except FileExistsError:
            return
        finally:
            os.unlink(temporary, dir_fd=fd)
    finally:
        os.close(fd)
