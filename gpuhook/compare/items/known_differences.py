# SPDX-License-Identifier: Apache-2.0
"""The reasons of harmless differences: those of any program, and those that a vendor knows."""

from __future__ import annotations

from gpuhook.vendors.catalogue import vendors
from gpuhook.vendors.known_difference import EXTRA, MISSING, Difference

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gpuhook.compare.expected_injection import ExpectedInjection


def reason(by: str, difference: Difference) -> str:
    """Return why a difference of a container with GPUs of `by` is harmless, "" if unknown."""
    found = (vendor.traces.known_difference(by, difference) for vendor in vendors())
    return next(filter(None, found), "")


def extra_part(
    path: str, by: str, expected: ExpectedInjection, *, is_whole: bool, is_privileged: bool
) -> str:
    """Return why the container has a node or file that gpuhook would not add.

    `is_whole`: gpuhook would add the same one for a request of all capabilities.
    """
    if is_privileged and path.startswith("/dev/"):
        return "the container is privileged: its engine adds all devices of the host"
    if path in expected.further_nodes:
        return ""  # of another vendor, whose devices are all in /dev/dri
    capabilities = expected.capabilities
    return reason(by, Difference(EXTRA, path, capabilities=capabilities, is_whole=is_whole))


def missing(path: str, by: str, expected: ExpectedInjection) -> str:
    """Return why the container lacks a file that gpuhook would add."""
    mounts = tuple(mount["containerPath"] for mount in expected.whole.get("mounts") or ())
    capabilities = expected.capabilities
    return reason(by, Difference(MISSING, path, capabilities=capabilities, mounts=mounts))
