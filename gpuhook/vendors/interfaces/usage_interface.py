# SPDX-License-Identifier: Apache-2.0
"""The users of GPUs: what a container has of them, and how much each process uses."""

from __future__ import annotations

from typing import Protocol

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from contextlib import AbstractContextManager

    from gpuhook.vendors.interfaces.memory_interface import FindLibrary
    from gpuhook.vendors.known_difference import Difference
    from gpuhook.vendors.usage.device_isolation import Isolation, SharedUse
    from gpuhook.vendors.usage.usage_device import UsageDevice, UsageLook


class ContainerTraces(Protocol):
    """The device nodes and variables of a vendor in a container, for inspection only.

    What a container gets comes from the node, never from a name.
    """

    @property
    def NODE_DIRECTORIES(self) -> tuple[str, ...]:  # noqa: N802 # of a module
        """The directories of the device nodes."""

    @property
    def VARIABLES(self) -> tuple[str, ...]:  # noqa: N802
        """How the variables start that the vendor's programs read."""

    @property
    def HAS_FILES(self) -> bool:  # noqa: N802
        """Whether containers get files of the driver."""

    @property
    def NODE_PREFIX(self) -> str:  # noqa: N802
        """How the paths of the vendor's own device nodes start, which no other driver has."""

    @property
    def TOOLKIT_HOOKS(self) -> Mapping[str, str]:  # noqa: N802
        """The programs of the hooks of the vendor's runtime, and its name in comparisons."""

    @property
    def SPEC_INJECTOR(self) -> str:  # noqa: N802
        """The name in comparisons of an engine with a CDI spec of the vendor's tool.

        It is "" if such a spec is recognised by its edits, and not by its device nodes.
        """

    @property
    def HOOK_INJECTOR(self) -> str:  # noqa: N802
        """The stack whose prestart hook mounts into containers, "" for a vendor without.

        The vocabulary has the programs of the hook.
        """

    @property
    def SPEC_HOOKS(self) -> Mapping[str, str]:  # noqa: N802
        """The programs of the hooks in the CDI specs of the vendor's tool, and their stack."""

    @property
    def CONTROL_NODE(self) -> str:  # noqa: N802
        """The device node that every container with devices of the vendor may open."""

    @property
    def SPEC_VARIABLES(self) -> tuple[str, ...]:  # noqa: N802
        """How the variables start that a CDI spec adds first, and nothing else sets."""

    @property
    def HOOKLESS_VARIABLE(self) -> str:  # noqa: N802
        """The variable in gpuhook's CDI specs without hooks, "" if there are none."""

    @property
    def HOOKLESS_DIRECTORY(self) -> str:  # noqa: N802
        """The directory of the driver's libraries in containers by such a spec."""

    def known_difference(self, by: str, difference: Difference) -> str:
        """Return why a difference of a container with GPUs of `by` is harmless, "" if unknown."""

    def is_node(self, path: str, number: tuple[int, int], host_root: str) -> bool:
        """Return whether the character device `path` with this (major, minor) is the driver's."""

    def is_name_of_node(self, path: str) -> bool:
        """Return whether a device node of the driver may have this path; others may share it."""

    def is_device_node(self, path: str, host_root: str) -> bool:
        """Return whether `path` is the node of one device, which only its holders have."""

    def has_own_number(self, path: str, number: tuple[int, int]) -> bool:
        """Return whether the number of a node is that of its name, as far as the name has one."""

    def stale(self, paths: Iterable[str], host_root: str) -> list[str]:
        """Return those of the nodes `paths` whose device no longer exists."""

    def changed(self, identities: Mapping[str, str], host_root: str) -> list[str]:
        """Return a phrase for each node that is not of the device of VendorNode.identities()."""

    def running_driver(self, host_root: str) -> str | None:
        """Return the version of the driver that the kernel has loaded, None for none."""

    def is_driver_mount(self, target: str) -> bool:
        """Return whether the mount at `target` is a file of the driver, not a node."""

    def driver_version(self, path: str) -> str | None:
        """Return the version in the path of a driver's file, None if it has none."""


class UsageVendor(Protocol):
    """A vendor's devices with their processes, and the isolation of these."""

    @property
    def traces(self) -> ContainerTraces:
        """The vendor's traces in a container."""

    def opened_usage(self, library: FindLibrary) -> AbstractContextManager[Callable[[], UsageLook]]:
        """Return a context that yields a function, which reads the devices and their usage now.

        `library` returns the path of the driver's library by the options of a command, or raises
        GpuhookError; a vendor without a library does not call it.
        """

    def file_devices(self, name: str) -> tuple[UsageDevice, ...]:
        """Return the vendor's devices in an inventory file or profile, without their usage.

        Raises what inventory_file.load() raises.
        """

    def is_device_id(self, name: str) -> bool:
        """Return whether a name has a form that only ids of the vendor's devices have."""

    def noted_turns(self) -> dict[str, dict[str, str]]:
        """Return the recorded `time_slice` and `compute_mode` of each device, as far as known."""

    def isolation(self, use: SharedUse) -> Isolation:
        """Return a sentence each on a device's memory, compute, stability and crashes."""
