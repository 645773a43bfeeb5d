# SPDX-License-Identifier: Apache-2.0
"""What an XID says of a GPU: whether it can go on being given to containers.

The driver's word on what the GPU needs now counts more than any table. The table is for drivers
that do not say it.
"""

from __future__ import annotations

from dataclasses import dataclass

from gpuhook.vendors.nvidia.gpu.xids import NO_ACTION, REBOOT, REMEDIES, RESET, TABLE, remedy

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gpuhook.device_plugin.config.gpuhook_section import Health


@dataclass(frozen=True, slots=True)
class XidVerdict:
    """Whether an XID makes a device unhealthy, why (one sentence), and what would help.

    `is_contained`: only of the MIG instance that it is reported of, if it names one.
    `by_driver`: the driver's later word that no action is needed ends it. `is_doubtful`: the driver
    needs nothing although the table says a reset, so it is worth asking once more.
    """

    unhealthy: bool
    reason: str
    remedy: str = ""
    is_contained: bool = False
    by_driver: bool = True
    is_doubtful: bool = False


def judgement(xid: int, settings: Health, action: str | None) -> XidVerdict:
    """Return what `xid` means for a GPU whose recovery action is `action`, None if not known.

    The settings count first, then the driver, if it is to be asked, then the table.
    """
    if not settings.ask_driver:
        action = None
    known = TABLE.get(xid)
    words = f"XID {xid} ({known.meaning})" if known else f"XID {xid}"
    contained = known.is_contained if known else False
    rule = settings.rule(xid)
    if rule:
        reason = f"{words}, which the configuration calls critical"
        return XidVerdict(True, reason, remedy(known), contained, by_driver=False)
    if rule is False:
        return XidVerdict(False, f"{words}, which the configuration ignores")
    if action == NO_ACTION:
        doubt = known is not None and known.kind in (RESET, REBOOT)
        return XidVerdict(False, f"{words}; the driver needs no action", is_doubtful=doubt)
    if action is not None:
        asked = REMEDIES.get(action, action)
        return XidVerdict(True, f"{words}; the driver asks: {asked}", asked)
    if known is None:
        return XidVerdict(False, f"{words}, which is not in the table of XIDs")
    unhealthy = known.kind in (RESET, REBOOT)
    return XidVerdict(unhealthy, words, remedy(known), contained if unhealthy else False)
