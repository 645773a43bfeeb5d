# SPDX-License-Identifier: Apache-2.0
"""What requests of containers mean to a vendor: the answers of request_interface.py."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class RequestingImages:
    """Images that request all devices: their `name`, "CUDA", and the `pattern` of probable ones.

    The pattern is searched in the reference of an image, in upper and lower case.
    """

    name: str
    pattern: str


@dataclass(frozen=True, slots=True)
class JudgedRequirements:
    """The requirements of an image on the driver and the GPUs, with their common `verdict`.

    `items` are as the document gpuhook/explain/v1 has them. `effect` is the sentence that follows
    from the verdict, `waiver` why the image waives its requirements, "" if it does not.
    """

    items: tuple[dict[str, Any], ...] = ()
    verdict: str = "met"
    effect: str = ""
    waiver: str = ""
