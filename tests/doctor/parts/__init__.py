# SPDX-License-Identifier: Apache-2.0
"""The parts of healthy nodes; importing this package registers all of them."""

from __future__ import annotations

import importlib
import pkgutil

for _found in sorted(pkgutil.iter_modules(__path__), key=lambda found: found.name):
    importlib.import_module(f"{__name__}.{_found.name}")
