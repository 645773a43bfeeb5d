# SPDX-License-Identifier: Apache-2.0
"""The present usage of AMD's GPUs, read in a child process: a read of sysfs may never end."""

from __future__ import annotations

from contextlib import contextmanager
from functools import partial

from gpuhook.host.hot import state
from gpuhook.vendors.amd.hot import amd_sysfs
from gpuhook.vendors.amd.inventory import amd_dump, inventory_worker, sysfs_inventory
from gpuhook.vendors.amd.usage import amd_usage
from gpuhook.vendors.usage import usage_worker
from gpuhook.vendors.usage.usage_device import UsageLook
from gpuhook.vendors.usage.usage_worker import UsageWorker

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from gpuhook.errors import GpuhookError
    from gpuhook.host.worker import NoAnswerError
    from gpuhook.vendors.usage.usage_device import UsageDevice

_UNREAD = (
    "the open files of some processes could not be read: their use of AMD GPUs is unknown, unless"
    " they compute; run as root on the host to see all"
)


@contextmanager
def opened() -> Iterator[Callable[[], UsageLook]]:
    """Yield a function that reads the usage now; it is empty on a node without the driver."""
    host_root = state.host_root()
    if not amd_sysfs.is_ready(host_root):
        yield lambda: UsageLook(has_driver=False)
        return
    with UsageWorker(partial(AmdReader, host_root), _fault) as worker:
        yield worker.look


def file_devices(name: str) -> tuple[UsageDevice, ...]:
    """Return the devices in the inventory file or the profile `name`."""
    return amd_usage.devices(amd_dump.load(name))


class AmdReader:
    """Reads the devices of a node and their usage, in the child process."""

    def __init__(self, host_root: str) -> None:
        self._root = host_root

    def look(self) -> UsageLook:
        """Return the present usage; partitions may have changed since the last call."""
        node = sysfs_inventory.read(self._root, self._root)
        devices = amd_usage.usage(self._root, node)
        unread = () if all(one.is_complete for one in devices) else (_UNREAD,)
        return UsageLook(devices, warnings=(*node.warnings, *unread))

    def close(self) -> None:
        """Do nothing: no file remains open."""


def _fault(error: NoAnswerError) -> GpuhookError:
    return inventory_worker.unanswered(error, usage_worker.SECONDS)
