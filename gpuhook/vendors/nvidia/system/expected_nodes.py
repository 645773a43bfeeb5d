# SPDX-License-Identifier: Apache-2.0
"""The device nodes that a driver has, by the kernel's facts: no GPU is accessed.

Numbers of control nodes: nvidia-modprobe-utils. Capabilities: MIG User Guide, "Device Nodes and
Capabilities".
"""

from __future__ import annotations

from dataclasses import dataclass
from glob import glob

from gpuhook.vendors.nvidia.devices import driver_nodes
from gpuhook.vendors.nvidia.hot import mig_capabilities, vocabulary

_PARAMS = "proc/driver/nvidia/params"
_MODE = 0o666
_WIDE = ("config", "monitor")  # for all GPUs, not for an instance
# Below the directory of capabilities.
_CAPABILITY_FILES = (
    *(f"mig/{name}" for name in _WIDE), "gpu*/mig/gi*/access", "gpu*/mig/gi*/ci*/access",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class ExpectedNode:
    """A device node of the driver; `major` None: /proc/devices has none of `names`."""

    path: str  # as containers see it
    names: tuple[str, ...]  # of its major in /proc/devices
    major: int | None
    minor: int
    mode: int = _MODE
    uid: int = 0
    gid: int = 0


class KernelFacts:
    """The kernel's facts about the driver below a host root, read once."""

    def __init__(self, host_root: str) -> None:
        """Take the directory that contains the node's /proc."""
        self._root = host_root
        self._majors = driver_nodes.majors(host_root)
        self._mode, self._uid, self._gid = _owner(
            mig_capabilities.proc_text(host_root, "/" + _PARAMS)
        )
        self._minors = mig_capabilities.minors(host_root)

    def control(self) -> list[ExpectedNode]:
        """Return the four nodes that containers with a GPU use."""
        return [self._node(path, *one) for path, one in driver_nodes.CONTROL_NODES.items()]

    def gpus(self) -> list[ExpectedNode]:
        """Return the nodes of the GPUs that the kernel module drives."""
        gpus = driver_nodes.proc_gpus(self._root)
        return [
            self._node(f"/dev/nvidia{minor}", driver_nodes.FRONTEND, minor)
            for minor in sorted({gpu.minor for gpu in gpus if gpu.minor is not None})
        ]

    def capabilities(self) -> list[ExpectedNode]:
        """Return the nodes of MIG's config and monitor, and of the existing instances."""
        top = self._root.rstrip("/") + mig_capabilities.CAPABILITIES
        paths = [path for pattern in _CAPABILITY_FILES for path in glob(pattern, root_dir=top)]
        found = [one for one in map(self._capability, paths) if one is not None]
        return sorted(found, key=lambda one: one.minor)

    def possible_capabilities(self) -> list[ExpectedNode]:
        """Return the nodes of all capabilities that the existing GPUs can have."""
        gpus = {f"gpu{node.minor}" for node in self.gpus()}
        minors = {
            minor
            for name, minor in self._minors.items()
            if name in _WIDE or name.partition("/")[0] in gpus
        }
        return [self._of_minor(minor, None) for minor in sorted(minors)]

    def _capability(self, path: str) -> ExpectedNode | None:
        """Return the node of a file below CAPABILITIES; the minor in mig-minors wins."""
        file = f"{mig_capabilities.CAPABILITIES}/{path}"
        described = mig_capabilities.capability(self._root, file, None)
        if described is None:
            return None
        name = path.removeprefix("mig/").replace("/mig/", "/")
        return self._of_minor(self._minors.get(name, described.minor), described.mode)

    def _of_minor(self, minor: int, mode: int | None) -> ExpectedNode:
        names = (mig_capabilities.MAJOR_NAME,)
        major = self._majors.get(mig_capabilities.MAJOR_NAME)
        mode = _MODE if mode is None else mode
        return ExpectedNode(vocabulary.capability_node(minor), names, major, minor, mode)

    def _node(self, path: str, names: tuple[str, ...], minor: int) -> ExpectedNode:
        major = next((self._majors[name] for name in names if name in self._majors), None)
        if names is driver_nodes.UVM:  # another module, which has no such parameters
            return ExpectedNode(path, names, major, minor)
        return ExpectedNode(path, names, major, minor, self._mode, self._uid, self._gid)


def _owner(params: str) -> tuple[int, int, int]:
    """Return mode, user and group of the driver's nodes, by the module's parameters."""
    pairs = (line.partition(":") for line in params.splitlines())
    facts = {name.strip(): value.strip() for name, _, value in pairs}

    def number(name: str, default: int, most: int) -> int:
        found = mig_capabilities.parse_number(facts.get(name, ""), most)
        return default if found is None else found

    most = (1 << 32) - 2
    return (
        number("DeviceFileMode", _MODE, 0o777),
        number("DeviceFileUID", 0, most),
        number("DeviceFileGID", 0, most),
    )
