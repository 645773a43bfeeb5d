# SPDX-License-Identifier: Apache-2.0
"""The requirements of an image on a vendor's driver and GPUs, with their verdicts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

MET = "met"


@dataclass(frozen=True, slots=True)
class JudgedRequirements:
    """The requirements as the document gpuhook/explain/v1 has them, and their common `verdict`.

    `effect` is the sentence that follows from it, `waiver` why the image waives its requirements,
    "" if it does not.
    """

    items: tuple[dict[str, Any], ...] = ()
    verdict: str = MET
    effect: str = ""
    waiver: str = ""
