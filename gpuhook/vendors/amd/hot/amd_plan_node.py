# SPDX-License-Identifier: Apache-2.0
"""A node with AMD GPUs: the answers to the core's questions (vendors/interface.py)."""

from __future__ import annotations

import os
import stat

from gpuhook.apply.spec import oci_spec
from gpuhook.errors import GpuhookError, fault
from gpuhook.host.hot import state
from gpuhook.vendors.amd.hot import amd_sysfs, amd_token, amd_words, device_ids, node_identity

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
    from typing import Any

    from gpuhook.cdi.hot.compiled_spec import Compiled
    from gpuhook.cdi.hot.container_edits import ContainerEdits, DeviceNode
    from gpuhook.cdi.hot.registry import Registry
    from gpuhook.host.hot.settings import Settings
    from gpuhook.request.extra_requests import Extra
    from gpuhook.request.parse import Source
    from gpuhook.vendors.interface import HookJobs, VendorNode

_WAY = "run `gpuhook refresh`, which describes the GPUs of this node"
_NO_DRIVER = (
    "the amdgpu driver is not loaded on this node",
    "load the driver (modprobe amdgpu), and see dmesg if that fails",
)
_NO_GPU = (
    "the amdgpu driver, which is loaded, serves no GPU of this node",
    "find the reason with `lspci -k -d 1002:` and `dmesg | grep amdgpu`",
)
_NOT_IN_KFD = (
    "KFD lists none of the GPUs that the amdgpu driver serves on this node",
    "find the reason with `dmesg | grep kfd`: ROCm does not support every GPU",
)
_NUMBERS = ("type", "major", "minor")


class AmdPlanNode:
    """This node by its CDI specs, which are read once."""

    vocabulary = amd_words.VOCABULARY
    kind = amd_words.KIND
    capability_words: tuple[str, ...] = ()
    apart: tuple[str, ...] = ()
    # Answers that do not depend on the node.
    serves = staticmethod(amd_words.is_own)
    serves_resource = staticmethod(amd_words.is_own_resource)
    is_node = staticmethod(amd_words.is_node)
    is_gpu_node = staticmethod(amd_words.is_gpu_node)
    control_nodes = (amd_words.KFD,)
    others: Sequence[VendorNode] = ()  # it serves its own names only

    def __init__(self, load: Callable[[str, str], Registry], *, is_here: bool = True) -> None:
        """Take the reader of the specs: `load(vendor, way)` returns their registry.

        A node that is not this machine has a driver, and its specs have the numbers of its nodes.
        """
        self.is_here = is_here
        self._load = load
        self._registry: Registry | None = None
        self._names: list[str] | None = None
        self._awaited: set[str] = set()
        self._driver: tuple[str, bool] | None = None

    def registry(self) -> Registry:
        """Return the registry of this node's CDI specs."""
        if self._registry is None:
            self._registry = self._load(amd_words.VENDOR, _WAY)
        return self._registry

    def registry_for(self, names: Sequence[str]) -> Registry:  # noqa: ARG002 # no other devices
        """Return the same registry: a spec has all devices of this vendor."""
        return self.registry()

    def forget(self) -> None:
        """Forget the specs and the token; the next call of registry() reads the specs again."""
        self._registry = self._names = self._driver = None

    def names(self) -> list[str]:
        """Return the names of the devices in this node's specs, [] without a spec."""
        if self._names is None:
            try:
                self._names = self.registry().names(self.kind)
            except GpuhookError:
                self._names = []
        return self._names

    def alias(self, name: str) -> str | None:
        """Return the name in this node's specs of the device with another spelling."""
        return next((one for one in device_ids.spellings(name) if one in self.names()), None)

    def full_names(self, name: str) -> list[str]:
        """Return the indices of a range, [] for another name."""
        return device_ids.expanded(name)

    def refusal(self, name: str, error: GpuhookError, source: Source | None) -> GpuhookError:
        """Return GH1101 and GH1102 with the source, the devices and the probable error.

        GH2511 on a node without the driver or a GPU of it; another fault is returned unchanged.
        Raises GH2561 if the driver does not answer.
        """
        if error.code not in ("GH1101", "GH1102", "GH1104"):
            return error
        where = source.where if source is not None and name in source.names else ""
        if not self.has_driver():
            reason, cure = self.missing_driver()
            where = where or "the command"
            return fault("GH2511", where=where, name=name, reason=reason, cure=cure)
        if error.code == "GH1104":
            return error
        from gpuhook.cdi.hot import unknown_device

        advice = device_ids.advice(name, self.names())
        return unknown_device.requested(error, name, where, self.names(), advice)

    def has_driver(self) -> bool:
        """Return whether the driver is loaded and serves a GPU that is in KFD.

        Kernels load it also for a processor's graphics, of which KFD has only some. Raises GH2561
        if the driver does not answer.
        """
        if not self.is_here:
            return True
        return bool(amd_sysfs.gpu_addresses(state.host_root())) and self._answer()[1]

    def missing_driver(self) -> tuple[str, str]:
        """Return the texts of a fault about a node without the driver or a GPU of it."""
        root = state.host_root()
        if not amd_sysfs.is_loaded(root):
            return _NO_DRIVER
        return _NOT_IN_KFD if amd_sysfs.gpu_addresses(root) else _NO_GPU

    def has_nodes(self, spec: dict[str, Any]) -> bool:
        """Return whether a config.json has device nodes of the driver."""
        return any(map(amd_words.is_node, oci_spec.device_paths(spec)))

    def own_nodes(self, paths: Collection[str]) -> frozenset[str]:
        """Return which of a container's device nodes are of the driver.

        Each container with AMD GPUs has /dev/kfd; its DRM nodes may be another driver's.
        """
        if amd_words.KFD not in paths:
            return frozenset()
        return frozenset(filter(amd_words.is_node, paths)).difference(_nodes_of_others())

    def identities(self, paths: Collection[str]) -> dict[str, str]:
        """Return the GPU or partition of each DRM node of this host among `paths`."""
        return node_identity.identities(paths, state.host_root()) if self.is_here else {}

    def nodes_by_device(self) -> dict[str, frozenset[str]]:
        """Return the own nodes of each device by qualified name, {} without a spec."""
        found = {}
        for name in self.names():
            qualified = f"{self.kind}={name}"
            edits = self.registry().device(qualified)[1]
            paths = [node["path"] for node in edits.get("deviceNodes") or ()]
            found[qualified] = frozenset(filter(amd_words.is_gpu_node, paths))
        return found

    def covered(self, nodes: Collection[str]) -> frozenset[str]:
        """Return the names of the devices that have nodes, and all of them among `nodes`."""
        return frozenset(
            qualified.partition("=")[2]
            for qualified, own in self.nodes_by_device().items()
            if own and own.issubset(nodes)
        )

    def noted_nodes(self) -> dict[str, str]:
        """Return nothing: sysfs has the devices."""
        return {}

    def driver_library(self) -> str:
        """Return "": sysfs and the kernel's cgroups have what others use a library for."""
        return ""

    def parse_capabilities(
        self,
        text: str | None,  # noqa: ARG002 # this vendor has none
        allowed: Sequence[str],  # noqa: ARG002
        default: Sequence[str],  # noqa: ARG002
        unknown: list[str] | None,  # noqa: ARG002
    ) -> frozenset[str]:
        """Return nothing: this vendor has no capabilities."""
        return frozenset()

    def filter_edits(
        self,
        compiled: Compiled,
        edits: ContainerEdits,
        capabilities: frozenset[str],  # noqa: ARG002 # this vendor has none
    ) -> ContainerEdits:
        """Return a spec's edits with this host's device numbers, and no right to make nodes.

        A spec of AMD's tool records the major of /dev/kfd, which changes from boot to boot.
        """
        is_own = compiled.kind.partition("/")[0] == amd_words.VENDOR
        if not self.is_here or not is_own or "deviceNodes" not in edits:
            return edits
        kept = edits.copy()
        kept["deviceNodes"] = [_numberless(node) for node in edits["deviceNodes"]]
        return kept

    def further_names(self, spec: dict[str, Any]) -> list[str]:  # noqa: ARG002 # it has none
        """Return nothing: no other variable requests devices."""
        return []

    def is_extra(self, name: str) -> bool:  # noqa: ARG002 # it has none
        """Return False: there are no other kinds of devices."""
        return False

    def extra_requests(
        self,
        spec: dict[str, Any],  # noqa: ARG002 # it has none
        settings: Settings,  # noqa: ARG002
    ) -> list[Extra]:
        """Return nothing: there are no other kinds of devices."""
        return []

    def take_jobs(
        self,
        edits: ContainerEdits,
        capabilities: frozenset[str],  # noqa: ARG002 # this vendor has none
    ) -> tuple[ContainerEdits, list[HookJobs]]:
        """Return the edits as they are: nothing is to be done in a root file system.

        Raises GH1302 for a host's node that is not the device of its name, GH2561 if the driver
        does not answer: what the ledger records of its devices is in its files.
        """
        if self.is_here and edits.get("deviceNodes"):
            self.token()
        for node in (edits.get("deviceNodes") or ()) if self.is_here else ():
            if "major" not in node and amd_words.is_node(node["path"]):
                _require_device(node.get("hostPath") or node["path"])
        return edits, []

    def require_fresh(self, job: HookJobs) -> None:
        """Do nothing: there are no jobs."""

    def changes(self, spec: Compiled) -> list[str]:
        """Return what changed on this host since gpuhook wrote a spec, [] for another program's."""
        recorded = spec.annotations.get(amd_words.TOKEN) if spec.kind == self.kind else None
        if not recorded:
            return []
        return amd_token.differences(recorded, self.token())

    def token(self) -> str:
        """Return the change token of this host; GH2561 if the driver does not answer.

        The first call finds out whether it does: what follows reads the same files without a limit.
        """
        return self._answer()[0]

    def _answer(self) -> tuple[str, bool]:
        if self._driver is None:
            self._driver = amd_token.timely(state.host_root())
        return self._driver

    def await_refresh(self, spec: Compiled) -> None:
        """Treat a spec as fresh: a create would write it again first."""
        self._awaited.add(spec.path)

    def require_current(self, spec: Compiled) -> None:
        """Raise GH1120 if a spec is gpuhook's and does not match the current state of this host."""
        changes = [] if spec.path in self._awaited else self.changes(spec)
        if changes:
            raise fault("GH1120", changes="; ".join(changes))

    def requires(self, environment: Mapping[str, str]) -> bool:  # noqa: ARG002 # none of them
        """Return False: no variable requires anything of the driver."""
        return False

    def judge_requirements(
        self,
        environment: Mapping[str, str],  # noqa: ARG002 # there are none
        jobs: Sequence[HookJobs],  # noqa: ARG002
        nodes: Iterable[str],  # noqa: ARG002
    ) -> list[GpuhookError]:
        """Return nothing: there are no requirements."""
        return []


def _nodes_of_others() -> list[str]:
    """Return the DRM nodes of other drivers on this host."""
    root = state.host_root()
    directory = root.rstrip("/") + amd_sysfs.DRM
    devices = {
        name: amd_sysfs.device_of(f"{directory}/{name}") for name in amd_sysfs.names(directory)
    }
    return [
        amd_words.DRM + name
        for name, device in devices.items()
        if device and not amd_sysfs.is_served(root, device)
    ]


def _require_device(path: str) -> None:
    """Raise GH1302 if a host's node has not the number of its name; a missing one passes.

    A node in a static /dev may be of an earlier boot, or a link to any device.
    """
    try:
        found = os.stat(path)
    except OSError:
        return  # oci_device() names it
    numbers = os.major(found.st_rdev), os.minor(found.st_rdev)
    expected = _numbers(path.rpartition("/")[2], numbers)
    if not stat.S_ISCHR(found.st_mode) or numbers != expected:
        reason = f"it is not the character device {expected[0]}:{expected[1]}"
        raise fault("GH1302", node=path, reason=reason)


def _numbers(name: str, actual: tuple[int, int]) -> tuple[int, int]:
    """Return the numbers of a node by its name, `actual` ones if they are not known."""
    if name == "kfd":
        major = amd_sysfs.kfd_major(state.host_root())
        return (actual[0] if major is None else major), 0
    minors = (amd_sysfs.minor(name, prefix) for prefix in ("renderD", "card"))
    minor = next((one for one in minors if one is not None), actual[1])
    return amd_sysfs.DRM_MAJOR, minor


def _numberless(node: DeviceNode) -> DeviceNode:
    if not amd_words.is_node(node["path"]):
        return node
    kept = {key: value for key, value in node.items() if key not in _NUMBERS}
    return {**kept, "permissions": "rw"}  # type: ignore[typeddict-item] # the keys are its own
