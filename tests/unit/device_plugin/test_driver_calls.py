# SPDX-License-Identifier: Apache-2.0
"""Calls of a driver that may hang."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from threading import Event, Lock, active_count

import pytest

from gpuhook.device_plugin import driver_calls, driver_memory, node_snapshot
from gpuhook.device_plugin.config.configuration import Configuration
from gpuhook.device_plugin.config.launch_options import Launch
from gpuhook.errors import GpuhookError
from gpuhook.vendors.amd.amd_vendor import AmdVendor


def test_calls_at_once_are_no_hanging_driver() -> None:
    """A call waits for another one for the same purpose, within its deadline."""
    both, answer, lock = Event(), Event(), Lock()
    asked = 0

    def call() -> int:
        nonlocal asked
        with lock:
            asked += 1
        answer.wait()
        return 7

    def called() -> int:
        if asked:
            both.set()
        return driver_calls.call_driver(AmdVendor(), "test", call)

    with ThreadPoolExecutor(2) as pool:
        first = pool.submit(called)
        while not asked:
            pass
        second = pool.submit(called)
        assert both.wait(10)
        answer.set()
        assert (first.result(), second.result(), asked) == (7, 7, 2)


def test_free_memory_of_a_driver_that_hangs_is_unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each start of a container asks; there is one blocked reader."""
    taken = node_snapshot.take(Launch(inventory="mi300x8"), Configuration())
    here = node_snapshot.NodeSnapshot(parts=taken.parts)
    answer = Event()

    def blocked(*_: object) -> int:
        answer.wait()
        return 1 << 30

    monkeypatch.setattr(AmdVendor, "deadline", 0.01)
    monkeypatch.setattr(AmdVendor, "free_memory", blocked)
    before = active_count()
    try:
        for _ in range(5):
            assert driver_memory.free_memory(here, "0000:05:00.0", "/") is None
        assert active_count() <= before + 1
        with pytest.raises(GpuhookError, match="did not answer"):
            driver_calls.call_driver(AmdVendor(), "memory", lambda: None)
    finally:
        answer.set()
    driver_calls._callers["amd.com", "memory"][0].join()
    assert driver_memory.free_memory(here, "0000:05:00.0", "/") == 1 << 30
