# SPDX-License-Identifier: Apache-2.0
"""What the requests of containers mean to a vendor, for commands that explain them."""

from __future__ import annotations

from typing import Protocol

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Collection, Mapping
    from typing import Any

    from gpuhook.vendors.container_requests import JudgedRequirements, RequestingImages
    from gpuhook.vendors.interface import VendorNode


class ContainerRequests(Protocol):
    """The meaning of a vendor's requests; its parameter `inventory` is the vendor's own model."""

    @property
    def RUNTIME_CLASSES(self) -> tuple[str, ...]:  # noqa: N802 # of a module
        """The usual names of the RuntimeClasses of the vendor's runtimes."""

    @property
    def REQUESTING_IMAGES(self) -> RequestingImages | None:  # noqa: N802
        """The images that set the devices' variable to all, None if there are none."""

    @property
    def PROCESS_LIST(self) -> str:  # noqa: N802
        """The vendor's program that lists the processes of a device."""

    def lacking_capabilities(self, path: str, capabilities: frozenset[str]) -> frozenset[str]:
        """Return the capabilities one of which a container needs for a file of the driver.

        A container with `capabilities` does not get the file at `path`.
        """

    def notes(
        self,
        spec: dict[str, Any],
        node: VendorNode,
        inventory: Any,
        refused: Collection[str],
        *,
        has_devices: bool,
    ) -> list[str]:
        """Return sentences about the request of a container, a config.json.

        `inventory` has the facts of the node, None if they are unknown. `refused` are the requested
        names of no device. `has_devices`: a request for devices applies.
        """

    def judged_requirements(
        self, environment: Mapping[str, str], inventory: Any, nodes: Collection[str]
    ) -> JudgedRequirements:
        """Return the requirements in the variables of a container with these device nodes.

        They are judged by the facts of `inventory`, None if those are unknown.
        """


class RequestVendor(Protocol):
    """A vendor whose devices containers request."""

    @property
    def requests(self) -> ContainerRequests:
        """The meaning of the vendor's requests."""
