# SPDX-License-Identifier: Apache-2.0
"""Names of the architecture of a GPU.

Sources: amdgpu_discovery.c gives the family of each version of the graphics block, kfd_device.c the
gfx version; family names are those of AMD's node labeller.
"""

from __future__ import annotations

_FAMILIES = {
    "AI": "gfx900 gfx904 gfx906 gfx908 gfx90a gfx940 gfx941 gfx942 gfx950",
    "RV": "gfx902 gfx909 gfx90c",
    "NV": "gfx1010 gfx1011 gfx1012 gfx1013 gfx1030 gfx1031 gfx1032 gfx1034",
    "VGH": "gfx1033",
    "YC": "gfx1035",
    "GC_11_0_0": "gfx1100 gfx1101 gfx1102",
    "GC_11_0_1": "gfx1103",
    "GC_11_5_0": "gfx1150 gfx1151 gfx1152 gfx1153",
    "GC_12_0_0": "gfx1200 gfx1201",
    "KV": "gfx700",
    "CI": "gfx701 gfx704",
    "VI": "gfx802 gfx803",
    "CZ": "gfx801 gfx810",
}
_BY_GFX = {gfx: family for family, words in _FAMILIES.items() for gfx in words.split()}


def name(target_version: int | None) -> str | None:
    """Return "gfx90a" for KFD's gfx_target_version 90010."""
    if not target_version:
        return None
    return f"gfx{target_version // 10000}{target_version // 100 % 100}{target_version % 100:x}"


def family(gfx: str | None) -> str | None:
    """Return the family; None if it is unknown, or not certain as for gfx1036."""
    return _BY_GFX.get(gfx or "")
