# SPDX-License-Identifier: Apache-2.0
"""What a vendor reports about memory limits: its devices, and whether the node enforces limits."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class LimitDevice:
    """A device of the node whose memory may be limited, and its device node.

    `names` are its other names, `parts` those of its instances or partitions, which cannot be
    limited. A device that `is_divided` cannot be limited either.
    """

    id: str
    index: int
    path: str
    memory_bytes: int | None = None
    names: tuple[str, ...] = ()
    parts: tuple[str, ...] = ()
    is_divided: bool = False


class LimitSupport:
    """Whether limits are enforced, by which backend ("" for none), and the reason if not ("").

    `remedy` is what to do about it. `is_present` is false for a vendor whose driver is not on the
    node.
    """

    __slots__ = ("backend", "holds", "is_present", "reason", "remedy")

    def __init__(
        self, backend: str = "", reason: str = "", remedy: str = "", *, is_present: bool = True
    ) -> None:
        self.backend = backend
        self.holds = not reason
        self.reason = reason
        self.remedy = remedy
        self.is_present = is_present
