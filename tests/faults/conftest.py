# SPDX-License-Identifier: Apache-2.0
"""Fixtures of the fault tests."""

from __future__ import annotations

from tests.kubelet.running import real_kubelet, run

__all__ = ["real_kubelet", "run"]
