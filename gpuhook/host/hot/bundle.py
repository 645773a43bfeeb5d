# SPDX-License-Identifier: Apache-2.0
"""Parts of a program that are loaded once it is known that they are needed."""

from __future__ import annotations

import sys


def load(module: str) -> None:
    """Load a module out of the launcher's bundle, where there is one: it is much the faster way."""
    bundle = sys.modules.get("gpuhook_bundle")
    if bundle is not None:
        bundle.load(module)
