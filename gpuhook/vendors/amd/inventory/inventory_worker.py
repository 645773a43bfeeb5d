# SPDX-License-Identifier: Apache-2.0
"""The inventory of a node, read in a child process: a read of sysfs may never end."""

from __future__ import annotations

from functools import partial

from gpuhook.errors import fault
from gpuhook.host.worker import LATE, NoAnswerError, call_in_child
from gpuhook.vendors.amd.inventory import sysfs_inventory

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gpuhook.errors import GpuhookError
    from gpuhook.vendors.amd.inventory.amd_inventory import AmdNode

SECONDS = 10.0
_SOMEWHERE = "the files in /sys"


def read(host_root: str, dev_root: str) -> AmdNode:
    """Return the inventory as sysfs_inventory.read() does; GH2561 if amdgpu does not answer."""
    try:
        return call_in_child(partial(sysfs_inventory.read, host_root, dev_root), SECONDS)
    except NoAnswerError as error:
        raise unanswered(error, SECONDS) from error


def unanswered(error: NoAnswerError, seconds: float) -> GpuhookError:
    """Return the fault for a child process that did not answer within `seconds`."""
    if error.how == LATE:
        return fault("GH2561", seconds=f"{seconds:g}", path=error.path or _SOMEWHERE)
    return fault("GH2560", vendor="AMD", reason=error.reason)
