# SPDX-License-Identifier: Apache-2.0
"""Decides whether an XID makes a GPU unhealthy.

The driver's recovery action has priority over the table of XIDs, which is for drivers that do not
report one.
"""

from __future__ import annotations

from dataclasses import dataclass

from gpuhook.vendors.nvidia.gpu.xids import NO_ACTION, REBOOT, REMEDIES, RESET, TABLE, remedy

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gpuhook.device_plugin.config.gpuhook_section import Health


@dataclass(frozen=True, slots=True)
class XidVerdict:
    """Whether an XID makes a device unhealthy, the reason in one sentence, and the remedy.

    `is_contained`: only the MIG instance that the XID names is affected. `by_driver`: the mark ends
    when the driver requires no action. `is_doubtful`: the driver requires no action although the
    table says a reset, so the action is queried again.
    """

    unhealthy: bool
    reason: str
    remedy: str = ""
    is_contained: bool = False
    by_driver: bool = True
    is_doubtful: bool = False


def xid_verdict(xid: int, settings: Health, action: str | None) -> XidVerdict:
    """Return the verdict on `xid`; `action` is the GPU's recovery action, None if unknown.

    The settings have priority, then the driver unless the settings exclude it, then the table.
    """
    if not settings.ask_driver:
        action = None
    known = TABLE.get(xid)
    words = f"XID {xid} ({known.meaning})" if known else f"XID {xid}"
    contained = known.is_contained if known else False
    rule = settings.rule(xid)
    if rule:
        reason = f"{words}, which the configuration lists as critical"
        return XidVerdict(True, reason, remedy(known), contained, by_driver=False)
    if rule is False:
        return XidVerdict(False, f"{words}, which the configuration ignores")
    if action == NO_ACTION:
        doubt = known is not None and known.kind in (RESET, REBOOT)
        return XidVerdict(False, f"{words}; the driver requires no action", is_doubtful=doubt)
    if action is not None:
        required = REMEDIES.get(action, action)
        return XidVerdict(True, f"{words}; the driver requires: {required}", required)
    if known is None:
        return XidVerdict(False, f"{words}, which is not in the table of XIDs")
    unhealthy = known.kind in (RESET, REBOOT)
    return XidVerdict(unhealthy, words, remedy(known), contained if unhealthy else False)
