# SPDX-License-Identifier: Apache-2.0
"""What an answer to Allocate depends on beside the request: made once per look at the node."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from gpuhook.device_plugin.allocate import driver_mounts
from gpuhook.device_plugin.allocate.container_allocation import Allocation, DeviceSpec
from gpuhook.device_plugin.config.configuration import LIST_STRATEGIES
from gpuhook.vendors.nvidia.devices.driver_nodes import CONTROL_NODES
from gpuhook.vendors.nvidia.hot.vocabulary import PLUGIN_VENDOR

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

    from gpuhook.device_plugin.allocate.auxiliary_devices import AuxiliaryDevice
    from gpuhook.device_plugin.config.configuration import Configuration
    from gpuhook.device_plugin.config.gpuhook_section import Interposer
    from gpuhook.vendors.nvidia.inventory.inventory import Node

CDI_STRATEGIES = ("cdi-annotations", "cdi-cri")


@dataclass(frozen=True, slots=True)
class Specs:
    """What the node's CDI specs describe: qualified names, and why there are none, or "".

    `written` are the files that were changed.
    """

    vendor: str = PLUGIN_VENDOR
    names: frozenset[str] = frozenset()
    trouble: str = ""
    written: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Context:
    """How this node hands devices to containers. All host paths are the host's own.

    `blocked` says why no device can be handed over at all, or is "". `unhealthy` has the reasons
    by unit id or by device UUID; `mps` what a container gets of each resource that MPS shares.
    """

    strategies: tuple[str, ...] = ("envvar",)  # those at work, in the order of LIST_STRATEGIES
    id_strategy: str = "uuid"
    annotation_prefix: str = "cdi.k8s.io/"
    vendor: str = PLUGIN_VENDOR  # of the CDI names
    cdi_names: frozenset[str] = frozenset()  # qualified names that our specs describe
    pass_device_specs: bool = False
    control_nodes: tuple[DeviceSpec, ...] = ()
    extras: tuple[AuxiliaryDevice, ...] = ()
    host_files: Allocation = field(default_factory=Allocation)  # that strategy, without devices
    mps: Mapping[str, Allocation] = field(default_factory=dict)  # by resource name
    interposers: tuple[Interposer, ...] = ()
    missing: Mapping[str, str] = field(default_factory=dict)  # interposers, by the path they lack
    unhealthy: Mapping[str, str] = field(default_factory=dict)
    blocked: str = ""
    warnings: tuple[str, ...] = ()

    @property
    def is_whole(self) -> bool:
        """Whether every strategy that is configured is at work."""
        return not (self.blocked or self.warnings)


def context(
    configuration: Configuration,
    node: Node,
    specs: Specs,
    extras: tuple[AuxiliaryDevice, ...] = (),
    mps: Mapping[str, Allocation] | None = None,
    *,
    missing: Mapping[str, str] | None = None,
) -> Context:
    """Return the context of a node as the host sees it (host_paths.at_host).

    A strategy for which the node lacks something is left out with a warning; where none is left,
    `blocked` says why. `missing` are interposers whose files the host has not got.
    """
    flags = configuration.flags.plugin
    files = driver_mounts.driver_mounts(node, configuration.own.host_files_path)
    troubles = dict.fromkeys(CDI_STRATEGIES, specs.trouble)
    troubles["host-files"] = "" if files.mounts else node.files_trouble or "the driver has no files"
    configured = [s for s in LIST_STRATEGIES if s in flags.device_list_strategy]
    strategies = tuple(s for s in configured if not troubles.get(s))
    lost = [f"{s}: {troubles[s]}" for s in configured if troubles.get(s)]
    warnings = [f"the strategy {line}" for line in lost] if strategies else []
    lacking = (missing or {}).items()
    warnings += [f"the interposer {name}: the host has no {path}" for name, path in lacking]
    return Context(
        strategies=strategies,
        id_strategy=flags.device_id_strategy,
        annotation_prefix=flags.cdi_annotation_prefix,
        vendor=specs.vendor,
        cdi_names=specs.names,
        pass_device_specs=flags.pass_device_specs,
        control_nodes=_control_nodes(node),
        extras=extras,
        host_files=files if "host-files" in strategies else Allocation(),
        mps=mps or {},
        interposers=configuration.own.interposers,
        missing=missing or {},
        blocked="" if strategies else "; ".join(lost),
        warnings=tuple(warnings),
    )


def with_health(before: Context, unhealthy: Mapping[str, str]) -> Context:
    """Return the context with these reasons, by unit id or device UUID, in place of its own."""
    return replace(before, unhealthy=unhealthy)


def _control_nodes(node: Node) -> tuple[DeviceSpec, ...]:
    held = {device.path: device.host_path for device in node.device_nodes}
    return tuple(DeviceSpec(path, held[path]) for path in CONTROL_NODES if path in held)
