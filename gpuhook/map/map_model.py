# SPDX-License-Identifier: Apache-2.0
"""The picture of a node, for each output: terminal, SVG, page.

Sizes are bytes, None if unknown. Texts come from pods and files unchanged: each output escapes
them.
"""

from __future__ import annotations

from dataclasses import dataclass

FREE, HELD, OVER, UNCUT, LOST = "free", "held", "over", "uncut", "lost"
WORDS = {
    FREE: "free",
    HELD: "held",
    OVER: "held, above its share",
    UNCUT: "in no instance",
    LOST: "cannot be used",
}
_GIB = 1 << 30
_MIB = 1 << 20


@dataclass(frozen=True, slots=True)
class Cell:
    """A part of a GPU: one or more replicas, a MIG instance or partition, or the whole GPU.

    `part` is its share of the GPU's width, up to 1. `label` is its name ("1g.5gb ::0"), `holder`
    the name of its container and `image` that of its image, "" for none. `size` is its share of the
    memory, `used` the memory in use, `percent` the utilization of the GPU.
    """

    part: float
    state: str
    label: str = ""
    holder: str = ""
    container: str = ""
    route: str = ""
    size: int | None = None
    used: int | None = None
    percent: int | None = None
    image: str = ""

    @property
    def names(self) -> tuple[str, ...]:
        """The possible names, the longest first: of the holder, else of the state."""
        if not self.holder:
            return (self.label if self.state == UNCUT else WORDS[self.state],)
        words = self.holder.split("/")
        shorter = "/".join(words[:2]), "/".join(words[1:2] or words)
        return tuple(dict.fromkeys((self.holder, *shorter)))

    @property
    def level(self) -> float:
        """The used part of its size, 0 to 1."""
        if not self.size or self.used is None:
            return 0.0
        return min(1.0, self.used / self.size)

    @property
    def memory(self) -> str:
        """The used memory and the size, in words; "" for a free cell of unknown size."""
        if not self.holder:
            return size(self.size)
        return amount_of(self.used, self.size) or "memory unknown"

    @property
    def busy(self) -> str:
        """The utilization in words, "" if unknown."""
        return f"busy {self.percent}%" if self.percent is not None and self.holder else ""

    @property
    def mark(self) -> str:
        """A mark before the name of a holder above its share, else ""."""
        return "! " if self.state == OVER else ""

    @property
    def sentence(self) -> str:
        """The whole cell in words."""
        facts = [self.label, self.holder or WORDS[self.state]]
        if self.container and self.container != self.holder:
            facts.append(f"container {self.container}")
        if self.image:
            facts.append(f"image {self.image}")
        if self.state == OVER:
            facts.append("above its share")
        facts.append(self.memory)
        facts.append(self.busy)
        if self.route:
            facts.append(f"given by {self.route}")
        return ", ".join(fact for fact in facts if fact)


@dataclass(frozen=True, slots=True)
class Bar:
    """A GPU, and its cells from left to right. `notes` are sentences on memory without a cell.

    `index` is a name of the GPU if its index is unknown.
    """

    index: str
    name: str
    uuid: str
    cells: tuple[Cell, ...]
    total: int | None = None
    used: int | None = None
    percent: int | None = None
    notes: tuple[str, ...] = ()

    @property
    def title(self) -> str:
        """Its index, in words, or its name; "GPU amd 0" on a node with GPUs of several vendors."""
        number = self.index.rpartition(" ")[2]
        return f"GPU {self.index}" if number.isdecimal() else self.index

    @property
    def usage(self) -> str:
        """Memory and utilization in words."""
        busy = f"busy {self.percent}%" if self.percent is not None else ""
        used = (
            f"{amount_of(self.used, self.total)} in use"
            if self.used is not None
            else size(self.total)
        )
        return " · ".join(word for word in (used, busy) if word)

    @property
    def sentence(self) -> str:
        """The GPU in words, without its cells."""
        return ", ".join(word for word in (self.heading, self.usage) if word)

    @property
    def heading(self) -> str:
        """The GPU as tables name it."""
        return f"{self.title} ({self.name})" if self.name else self.title


@dataclass(frozen=True, slots=True)
class Picture:
    """A node: its name, its GPUs, a summary, and warnings on missing data."""

    node: str
    bars: tuple[Bar, ...]
    summary: str = ""
    when: str = ""
    warnings: tuple[str, ...] = ()


def size(number: int | None) -> str:
    """Return bytes in GiB or MiB; "" for None.

    >>> size(3 << 30), size(3776 << 20), size(10 << 20)
    ('3 GiB', '3.7 GiB', '10 MiB')
    """
    if number is None:
        return ""
    if number < _GIB:
        return f"{round(number / _MIB)} MiB"
    return f"{_short(number)} GiB"


def amount_of(used: int | None, total: int | None) -> str:
    """Return "2.9 of 3.7 GiB", as far as the amounts are known.

    >>> amount_of(3000 << 20, 3776 << 20), amount_of(10 << 20, 15 << 30)
    ('2.9 of 3.7 GiB', '10 MiB of 15 GiB')
    >>> amount_of(None, 3 << 30), amount_of(5 << 20, None)
    ('? of 3 GiB', '5 MiB')
    """
    if total is None:
        return size(used)
    if used is None:
        return f"? of {size(total)}"
    if used >= _GIB and total >= _GIB:
        return f"{_short(used)} of {size(total)}"
    return f"{size(used)} of {size(total)}"


def _short(number: int) -> str:
    return f"{number / _GIB:.1f}".removesuffix(".0")
