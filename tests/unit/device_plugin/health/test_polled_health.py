# SPDX-License-Identifier: Apache-2.0
"""The health of devices that are checked at intervals: faults, counters, recovery."""

from __future__ import annotations

from gpuhook.device_plugin.health.polled_health import PolledHealth
from gpuhook.vendors.plugin.vendor_part import DeviceCheck

WORD = "uncorrectable errors"
FINE, BUSY = DeviceCheck(), DeviceCheck(is_busy=True)


def counted(number: int) -> DeviceCheck:
    return DeviceCheck(errors={WORD: number})


def test_fault_lasts_as_long_as_it_is_found() -> None:
    health = PolledHealth()
    assert health.update({"a": DeviceCheck("it is gone"), "b": FINE}, {}) == {}
    assert health.unhealthy == {"a": "it is gone"}
    assert health.update({"a": FINE, "b": FINE}, {}) == {"a": "it is gone"}
    assert health.unhealthy == {}


def test_busy_device_keeps_its_last_state() -> None:
    health = PolledHealth()
    health.update({"a": DeviceCheck("it is gone"), "b": FINE}, {})
    assert health.update({"a": BUSY, "b": BUSY}, {}) == {}
    assert health.unhealthy == {"a": "it is gone"}


def test_errors_from_before_are_no_fault() -> None:
    health = PolledHealth()
    health.update({"a": counted(5)}, {})
    assert health.unhealthy == {}
    health.update({"a": counted(7)}, {})
    assert health.unhealthy == {"a": f"{WORD} have risen from 5 to 7"}


def test_risen_counter_is_a_fault_until_a_reset_clears_it() -> None:
    health = PolledHealth()
    health.update({"a": counted(0)}, {})
    health.update({"a": counted(2)}, {})
    for check in (counted(2), FINE, BUSY):  # also while it cannot be read
        health.update({"a": check}, {})
        assert "from 0 to 2" in health.unhealthy["a"]
    assert "from 0 to 2" in health.update({"a": counted(0)}, {})["a"]
    health.update({"a": counted(1)}, {})
    assert "from 0 to 1" in health.unhealthy["a"]


def test_lower_counter_is_the_new_first_value() -> None:
    health = PolledHealth()
    for number in (5, 0, 3):
        health.update({"a": counted(number)}, {})
    assert health.unhealthy == {"a": f"{WORD} have risen from 0 to 3"}


def test_forgotten_counters_start_again() -> None:
    health = PolledHealth()
    for number in (0, 2):
        health.update({"a": counted(number), "b": counted(number)}, {})
    health.forget({"a"})
    assert list(health.update({"a": counted(2), "b": counted(2)}, {})) == ["a"]
    assert list(health.unhealthy) == ["b"]


def test_exporter_adds_its_verdict() -> None:
    health = PolledHealth()
    health.update({"a": DeviceCheck("it is gone"), "b": FINE}, {"a": "ecc", "b": "ecc", "x": "ecc"})
    assert health.unhealthy == {"a": "it is gone; ecc", "b": "ecc"}
    assert health.update({"a": FINE, "b": FINE}, {}) == {"a": "it is gone; ecc", "b": "ecc"}


def test_exporter_that_does_not_answer_keeps_its_verdict() -> None:
    """It restarts or hangs; without its socket there is no exporter any more."""
    health = PolledHealth()
    health.update({"a": FINE, "b": FINE}, {"a": "ecc"})
    for _ in range(2):
        assert health.update({"a": FINE, "b": FINE}, None) == {}
        assert health.unhealthy == {"a": "ecc"}
    assert health.update({"a": FINE, "b": FINE}, {}) == {"a": "ecc"}


def test_device_that_is_no_longer_checked_did_not_recover() -> None:
    health = PolledHealth()
    health.update({"a": DeviceCheck("it is gone")}, {})
    assert health.update({"b": FINE}, {}) == {}
    assert health.unhealthy == {}
