# SPDX-License-Identifier: Apache-2.0
"""The memory limits of a container: its grant, for the GPUs that it has, of all vendors.

Imported only for a container with a limit.
"""

from __future__ import annotations

from gpuhook.errors import GpuhookError, fault
from gpuhook.host.hot import settings
from gpuhook.request import memory_request
from gpuhook.request.memory_request import amount
from gpuhook.vendors.hot.memory_vendors import memory_vendors, vendor_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Sequence
    from typing import Any

    from gpuhook.request.memory_request import MemoryLimit
    from gpuhook.vendors.interfaces.memory_interface import MemoryVendor


class DeviceRequest:
    """The devices of a container: its config.json, device nodes and requested names.

    `covered` returns the names of the devices whose nodes are among `nodes`.
    """

    __slots__ = ("covered", "names", "nodes", "spec")

    def __init__(
        self,
        spec: dict[str, Any],
        nodes: Collection[str],
        names: Iterable[str],
        covered: Callable[[], Collection[str]],
    ) -> None:
        self.spec = spec
        self.nodes = nodes
        self.names = list(names)
        self.covered = covered

    def devices(self, vendor: MemoryVendor) -> list[str]:
        """Return the ids of a vendor's devices. Raises GH1024 if one cannot be identified."""
        others = tuple(
            [one.domain + "/" for one in memory_vendors() if one.domain != vendor.domain]
        )
        names = [name for name in self.names if not name.startswith(others)]
        return vendor.devices(self.spec, self.nodes, names, self.covered)


def devices(request: DeviceRequest) -> list[str]:
    """Return the ids of the devices of a container. Raises GH1024."""
    return [device for vendor in memory_vendors() for device in request.devices(vendor)]


def known_limits(
    request: DeviceRequest, policy: str, on_doubt: Callable[[GpuhookError], None]
) -> tuple[list[str], list[MemoryLimit]]:
    """Return the devices of a container and their limits.

    `on_doubt` gets a warning for each limit that is too small, and why the devices of a vendor are
    unknown: raised instead if limits.onFailure, `policy`, requires the limits. Also raises GH1022
    and GH1023.
    """
    found: list[str] = []
    for vendor in memory_vendors():
        try:
            found += request.devices(vendor)
        except GpuhookError as error:
            if is_required(policy, is_asked=is_asked(request.spec)):
                raise
            on_doubt(error)
    limits = container_limits(request.spec, found)
    for doubt in doubts(limits):
        on_doubt(doubt)
    return found, limits


def container_limits(spec: dict[str, Any], devices: Sequence[str]) -> list[MemoryLimit]:
    """Return the limits of a container that has `devices`; [] without any. Raises GH1022, 1023.

    A vendor's variables apply to its own devices. A container without a GPU has no limits, whatever
    its variables say.
    """
    found: list[MemoryLimit] = []
    for vendor in memory_vendors():
        own = [device for device in devices if vendor.has_device(device)]
        found += memory_request.limits(spec, own, vendor.vocabulary) if own else []
    return found


def wider(spec: dict[str, Any], limits: Iterable[MemoryLimit]) -> list[MemoryLimit]:
    """Return the grants that the container itself has narrowed to `limits`."""
    grants = _grants(spec)
    pairs = ((grants.get(limit.device), limit) for limit in limits)
    return [
        grant
        for grant, limit in pairs
        if grant is not None and (grant.hard, grant.soft) != (limit.hard, limit.soft)
    ]


def doubts(limits: Iterable[MemoryLimit]) -> list[GpuhookError]:
    """Return a warning for each limit that is too small for any program."""
    pairs = ((limit, vendor_of(limit.device).context) for limit in limits)
    return [
        fault("GH1025", limit=amount(limit.hard), device=limit.device, least=amount(least))
        for limit, least in pairs
        if limit.hard < least
    ]


def is_asked(spec: dict[str, Any]) -> bool:
    """Return whether the pod itself requests a limit, as far as that is known without its GPUs."""
    grants = _grants(spec)
    return not grants or any(limit.is_asked for limit in grants.values())


def is_required(policy: str, *, is_asked: bool) -> bool:
    """Return whether a container may not start without its limits: limits.onFailure `policy`."""
    return is_asked if policy == settings.AUTO else policy == settings.REFUSE


def _grants(spec: dict[str, Any]) -> dict[str, MemoryLimit]:
    found: dict[str, MemoryLimit] = {}
    for prefix in {vendor.vocabulary.memory_prefix for vendor in memory_vendors()}:
        found.update(memory_request.granted(spec, prefix))
    return found
