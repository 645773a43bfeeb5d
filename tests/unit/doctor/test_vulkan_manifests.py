# SPDX-License-Identifier: Apache-2.0
"""The libraries that a Vulkan or EGL manifest names."""

from __future__ import annotations

from typing import Any

from gpuhook.doctor.checks.cdi import graphics


def test_libraries_at_any_depth_are_found() -> None:
    """Python's parser may read values that are nested more deeply than Python calls functions."""
    value: Any = {"library_path": "libdeep.so.1"}
    for level in range(50_000):
        value = [value] if level % 2 else {"layer": value}
    document = {"ICD": {"library_path": "libGLX.so.0"}, "x": value, "library_path": 5}
    assert sorted(graphics._libraries(document)) == ["libGLX.so.0", "libdeep.so.1"]
