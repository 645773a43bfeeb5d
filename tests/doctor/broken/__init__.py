# SPDX-License-Identifier: Apache-2.0
"""Broken nodes: one module per subject, each with a list BROKEN.

The modules of `tests.doctor.parts` make the healthy nodes.
"""

from __future__ import annotations

import importlib
import pkgutil

from tests.doctor import broken
from tests.doctor.case import Broken


def all_of_them() -> list[Broken]:
    """Return all broken nodes."""
    return [
        one
        for found in sorted(pkgutil.iter_modules(broken.__path__), key=lambda found: found.name)
        for one in importlib.import_module(f"tests.doctor.broken.{found.name}").BROKEN
    ]
