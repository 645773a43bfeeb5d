# SPDX-License-Identifier: Apache-2.0
"""What a support bundle has of a vendor's GPUs, in addition to what doctor reads."""

from __future__ import annotations

from dataclasses import dataclass

TYPE_CHECKING = False
if TYPE_CHECKING:
    import re
    from collections.abc import Callable


@dataclass(frozen=True, slots=True)
class SupportFacts:
    """The sources of a vendor.

    `files` are patterns of paths of a node. `message` matches a message of the vendor's driver in
    the kernel's log, and `redacted` returns it without what does not belong into a bundle; None: no
    message is kept.
    """

    files: tuple[str, ...] = ()
    message: re.Pattern[str] | None = None
    redacted: Callable[[str], str] = str
