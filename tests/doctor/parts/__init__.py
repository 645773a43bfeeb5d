# SPDX-License-Identifier: Apache-2.0
"""What healthy nodes have besides driver and GPUs: importing this package registers all parts."""

from __future__ import annotations

import importlib
import pkgutil

for _found in sorted(pkgutil.iter_modules(__path__), key=lambda found: found.name):
    importlib.import_module(f"{__name__}.{_found.name}")
