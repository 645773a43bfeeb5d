# SPDX-License-Identifier: Apache-2.0
"""Fixtures of the fault tests."""

from __future__ import annotations

from tests.kubelet.running import kubelet, run

__all__ = ["kubelet", "run"]
