# SPDX-License-Identifier: Apache-2.0
"""Delays between retries."""

from __future__ import annotations

from gpuhook.device_plugin.kubelet.backoff import Backoff


def test_delays_double_up_to_the_cap_and_vary() -> None:
    """Each delay is between half of its step and the step; reset starts with the first step."""
    backoff = Backoff(1.0, 8.0)
    for _ in range(2):
        delays = [backoff.next() for _ in range(6)]
        for delay, step in zip(delays, (1, 2, 4, 8, 8, 8), strict=True):
            assert step / 2 <= delay <= step
        backoff.reset()
    assert len({backoff.next() for _ in range(20)}) > 10
