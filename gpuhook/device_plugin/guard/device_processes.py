# SPDX-License-Identifier: Apache-2.0
"""The processes on the devices of all vendors.

A vendor that fails, or does not answer in time, has no processes, and does not affect another.
"""

from __future__ import annotations

from contextlib import ExitStack, contextmanager, suppress
from functools import partial

from gpuhook.device_plugin import driver_calls
from gpuhook.errors import GpuhookError
from gpuhook.vendors.catalogue import vendor_of_resource
from gpuhook.vendors.usage.usage_device import SampleTarget

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from gpuhook.device_plugin.node_snapshot import NodeSnapshot
    from gpuhook.device_plugin.offer.offered_devices import Resource
    from gpuhook.vendors.interfaces.memory_interface import ProcessReader
    from gpuhook.vendors.interfaces.vendor_interface import Vendor


class DeviceProcesses:
    """Queries by the id of a device; `targets` are the known devices."""

    def __init__(
        self,
        readers: Sequence[ProcessReader],
        targets: Mapping[str, SampleTarget] | None = None,
    ) -> None:
        self._readers = readers
        self._targets = targets or {}

    @contextmanager
    def opened(self) -> Iterator[None]:
        """Keep the drivers open for several calls, which describe one moment if they can."""
        with ExitStack() as stack:
            for reader in self._readers:
                with suppress(GpuhookError):  # then each query has no answer
                    stack.enter_context(reader.opened())
            yield

    def memory(self, device: str) -> Mapping[int, int | None] | None:
        """Return the bytes of each process on a device, None if they are not reported."""
        target = self._targets.get(device, SampleTarget(device, device))
        for reader in self._readers:
            with suppress(GpuhookError):
                found = reader.memory(target)
                if found is not None:
                    return found
        return None


def readers(snapshot: NodeSnapshot, host_root: str) -> tuple[ProcessReader, ...]:
    """Return what reads the processes on the devices of a node, () if none can be known."""
    parts = () if snapshot.is_dump else snapshot.parts
    vendors = ((vendor_of_resource(one.domain), one) for one in parts)
    found = ((vendor, vendor.process_reader(one, host_root)) for vendor, one in vendors)
    return tuple(_TimedReader(vendor, one) for vendor, one in found if one is not None)


class _TimedReader:
    """A reader with the deadline of its vendor; raises vendor.no_answer() after it."""

    def __init__(self, vendor: Vendor, reader: ProcessReader) -> None:
        self._vendor = vendor
        self._reader = reader

    @contextmanager
    def opened(self) -> Iterator[None]:
        with ExitStack() as stack:
            enter = partial(stack.enter_context, self._reader.opened())
            driver_calls.call_driver(self._vendor, "processes", enter)
            yield

    def memory(self, target: SampleTarget) -> Mapping[int, int | None] | None:
        read = partial(self._reader.memory, target)
        return driver_calls.call_driver(self._vendor, "processes", read)


def targets(resources: Iterable[Resource]) -> dict[str, SampleTarget]:
    """Return the devices of resources, by UUID."""
    devices = (device for resource in resources for device in resource.devices)
    return {one.uuid: SampleTarget(one.uuid, one.gpu, one.instance) for one in devices}
