# SPDX-License-Identifier: Apache-2.0
"""XIDs that make a device unhealthy."""

from __future__ import annotations

import pytest

from gpuhook.device_plugin.config.gpuhook_section import Health
from gpuhook.device_plugin.health.xid_verdict import xid_verdict
from gpuhook.vendors.nvidia.gpu import xids

DEFAULT = Health()


@pytest.mark.parametrize("xid", [48, 62, 64, 74, 79, 95, 109, 119, 120, 140])
def test_xid_that_needs_a_reset_is_unhealthy(xid: int) -> None:
    """Without the driver's recommendation the table applies, and the reason has the number."""
    verdict = xid_verdict(xid, DEFAULT, None)
    assert verdict.unhealthy
    assert verdict.reason == f"XID {xid} ({xids.TABLE[xid].meaning})"
    assert verdict.remedy == ("reboot the node" if xid == 79 else "reset the GPU")


@pytest.mark.parametrize("xid", [13, 31, 43, 45, 68, 94, 63, 92, 154, 9999])
def test_errors_of_programs_and_reports_are_healthy(xid: int) -> None:
    """Unknown numbers, too."""
    assert not xid_verdict(xid, DEFAULT, None).unhealthy


def test_drivers_action_takes_precedence_over_the_table() -> None:
    """For known and unknown XIDs."""
    assert not xid_verdict(95, DEFAULT, "none").unhealthy
    assert xid_verdict(95, DEFAULT, "none").is_doubtful
    assert not xid_verdict(13, DEFAULT, "none").is_doubtful
    for xid in (13, 154, 9999):
        verdict = xid_verdict(xid, DEFAULT, "drain-and-reset")
        assert verdict.unhealthy
        assert verdict.remedy == xids.REMEDIES["drain-and-reset"]
        assert not verdict.is_contained
    assert xid_verdict(13, DEFAULT, "an action of tomorrow").unhealthy


def test_settings_take_precedence_over_the_driver() -> None:
    """An enabled XID is critical, an ignored one is ignored, whatever the driver recommends."""
    chosen = Health(enabled_xids=frozenset({31}), ignored_xids=frozenset({79}))
    critical = xid_verdict(31, chosen, "none")
    assert (critical.unhealthy, critical.by_driver) == (True, False)
    assert not xid_verdict(79, chosen, "reset").unhealthy
    assert xid_verdict(95, chosen, None).unhealthy


def test_disabled_driver_action_is_ignored() -> None:
    """Then only the table applies."""
    alone = Health(ask_driver=False)
    assert xid_verdict(79, alone, "none").unhealthy
    assert not xid_verdict(13, alone, "reset").unhealthy


def test_a5_enabling_one_wins_over_disabling_all() -> None:
    """DP_DISABLE_HEALTHCHECKS=all with DP_ENABLE_HEALTHCHECKS=79 leaves XID 79 watched."""
    chosen = Health(enabled_xids=frozenset({79}), ignored_xids="all")
    assert xid_verdict(79, chosen, None).unhealthy
    assert not xid_verdict(95, chosen, None).unhealthy
    assert not xid_verdict(13, chosen, "reset").unhealthy


def test_enabling_all_includes_errors_of_programs() -> None:
    """DP_ENABLE_HEALTHCHECKS=all also enables XIDs that are ignored by default."""
    chosen = Health(ignored_xids=frozenset({31}), enabled_xids="all")
    assert all(xid_verdict(xid, chosen, "none").unhealthy for xid in (13, 31, 79, 9999))


def test_own_list_replaces_the_table() -> None:
    """Neither the table nor the driver adds an XID to it."""
    chosen = Health(critical_xids=frozenset({13}))
    assert xid_verdict(13, chosen, "none").unhealthy
    assert not xid_verdict(79, chosen, "reset").unhealthy


def test_table_is_consistent() -> None:
    """Each number is in one row, and each class is a known one."""
    listed = [number for numbers, *_ in xids._ROWS for number in xids._numbers(numbers)]
    assert len(listed) == len(set(listed)) == len(xids.TABLE)
    kinds = {xids.APPLICATION, xids.RESET, xids.REBOOT, xids.REPORT}
    assert {row.kind for row in xids.TABLE.values()} == kinds
    assert not any(xids.TABLE[xid].is_contained for xid in (74, 79, 119))
