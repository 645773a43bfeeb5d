# SPDX-License-Identifier: Apache-2.0
"""Calls of a vendor's code in a child process of a command, with the vendor's deadline."""

from __future__ import annotations

from gpuhook.host.worker import NoAnswerError, call_in_child

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import TypeVar

    from gpuhook.vendors.interfaces.vendor_interface import Vendor

    T = TypeVar("T")


def call_vendor(vendor: Vendor, call: Callable[[], T]) -> T:
    """Return what `call` returns; raises its faults, and vendor.no_answer() after the deadline.

    A vendor without a deadline limits the calls of its driver itself.
    """
    if vendor.deadline is None:
        return call()
    try:
        return call_in_child(call, vendor.deadline)
    except NoAnswerError as error:
        raise vendor.no_answer(error, vendor.deadline) from error
