# SPDX-License-Identifier: Apache-2.0
"""Fixtures of the contract tests, for tests with a fault at each system call."""

from __future__ import annotations

from tests.contract.conftest import apart, as_root, bindir, machine, node8

__all__ = ["apart", "as_root", "bindir", "machine", "node8"]
