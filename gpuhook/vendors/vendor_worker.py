# SPDX-License-Identifier: Apache-2.0
"""Calls of a vendor's code, which reads the files of a driver, in a child process of a command."""

from __future__ import annotations

from gpuhook.host.worker import NoAnswerError, call_in_child

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import TypeVar

    from gpuhook.vendors.interfaces.vendor_interface import Vendor

    T = TypeVar("T")

SECONDS = 10.0


def call_vendor(vendor: Vendor, call: Callable[[], T]) -> T:
    """Return what `call` returns; raises its faults, and vendor.no_answer() after SECONDS."""
    try:
        return call_in_child(call, SECONDS)
    except NoAnswerError as error:
        raise vendor.no_answer(error, SECONDS) from error
