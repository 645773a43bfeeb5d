# SPDX-License-Identifier: Apache-2.0
"""A vendor's checks for `gpuhook doctor`."""

from __future__ import annotations

from dataclasses import dataclass

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

    from gpuhook.node_facts.check import Check


@dataclass(frozen=True, slots=True)
class VendorChecks:
    """The checks of a vendor's driver, device nodes and GPUs.

    `sections` has the title of each section that only this vendor has, in reading order: the
    subjects of the checks. `presence` is the id of the check whether the machine has a GPU.
    """

    checks: tuple[Check, ...]
    sections: Mapping[str, str]
    presence: str
