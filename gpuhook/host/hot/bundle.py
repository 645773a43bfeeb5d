# SPDX-License-Identifier: Apache-2.0
"""Modules that are loaded only when they are needed, from the launcher's bundle of byte code."""

from __future__ import annotations

import sys


def load(module: str) -> None:
    """Load a module from the launcher's bundle if there is one, which is faster than an import."""
    bundle = sys.modules.get("gpuhook_bundle")
    if bundle is not None:
        bundle.load(module)
