# SPDX-License-Identifier: Apache-2.0
"""Why a device is unhealthy, in any vendor's terms."""

from __future__ import annotations

from dataclasses import dataclass

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

# An XID; a GPU that is lost, or that the driver no longer lists; an action that the driver
# requires; a driver that does not answer; a fault that a check found.
XID, LOST, ABSENT, ACTION, SILENT, FAULT = "xid", "lost", "absent", "action", "silent", "fault"


@dataclass(frozen=True, slots=True)
class DeviceTrouble:
    """One reason, as a sentence without a full stop, and the remedy if one is known.

    `value` is the number of an XID. `since` is in seconds since 1970, 0 if it is unknown.
    """

    kind: str
    reason: str
    remedy: str = ""
    value: str = ""
    since: float = 0.0


def reasons(troubles: Mapping[str, Iterable[DeviceTrouble]]) -> dict[str, str]:
    """Return the reasons of each device as one text."""
    return {
        uuid: "; ".join(dict.fromkeys(one.reason for one in found))
        for uuid, found in troubles.items()
    }
