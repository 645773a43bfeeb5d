# SPDX-License-Identifier: Apache-2.0
"""Calls of a vendor's code in a child process of a command, with the vendor's deadline."""

from __future__ import annotations

from gpuhook.host.worker import NoAnswerError, call_in_child
from gpuhook.vendors.driver_worker import call_driver

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import TypeVar

    from gpuhook.vendors.interfaces.vendor_interface import Vendor

    T = TypeVar("T")


def call_vendor(vendor: Vendor, call: Callable[[], T]) -> T:
    """Return what `call` returns; raises its faults, and vendor.no_answer() after the deadline.

    The driver of a vendor without one has the time of call_driver(), whose faults are raised.
    """
    if vendor.deadline is None:
        return call_driver(call)
    try:
        return call_in_child(call, vendor.deadline)
    except NoAnswerError as error:
        raise vendor.no_answer(error, vendor.deadline) from error
