# SPDX-License-Identifier: Apache-2.0
"""What a check is, and what it finds.

A check looks at a node and changes nothing. It says what it looked at, what it found, what that
means for who wants a GPU in a container, and the exact command that mends it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from gpuhook.node.node_readings import Readings
    from gpuhook.node.node_tree import Tree

OK, WARNING, FAILED, NOT_APPLICABLE = "ok", "warning", "failed", "not-applicable"

# The sections, in the order in which people read them: a fault further up explains those below.
DRIVER, DEVICES, GPUS, SPECS, HOST, ENGINES, KUBERNETES, GPUHOOK, CONTAINERS = (
    "driver",
    "devices",
    "gpus",
    "specs",
    "host",
    "engines",
    "kubernetes",
    "gpuhook",
    "containers",
)
SECTIONS = (DRIVER, DEVICES, GPUS, SPECS, HOST, ENGINES, KUBERNETES, GPUHOOK, CONTAINERS)


@dataclass(frozen=True, slots=True)
class Mend:
    """What --fix may do by itself: safe, done by root on the node, and done twice equals once.

    `says` is the sentence that is shown before; `apply` does it and raises GpuhookError or
    OSError where it cannot.
    """

    says: str
    apply: Callable[[], None]


@dataclass(frozen=True, slots=True)
class Finding:
    """What a check found of one thing: `subject`, such as a path or a container, "" of the node.

    `said` is one sentence about what was found; `meaning` what a user meets because of it, and
    `command` the exact command that mends it (or what to do where no command can): both "" where
    all is well. `looked_at` are the files, programs and interfaces that were asked.
    """

    status: str
    said: str
    subject: str = ""
    meaning: str = ""
    command: str = ""
    looked_at: tuple[str, ...] = ()
    mend: Mend | None = None


@dataclass(slots=True)
class ExaminedNode:
    """The node that is examined: its files, its readings, and what checks have worked out of them.

    `driver_root` and `dev_root` are the node's paths of the driver's user space and of its /dev.
    """

    tree: Tree
    readings: Readings
    driver_root: str = "/"
    dev_root: str = "/"
    _known: dict[Any, Any] = field(default_factory=dict)

    def once(self, work_out: Callable[[ExaminedNode], Any]) -> Any:
        """Return what `work_out(node)` returns; it is called once for all checks that ask."""
        if work_out not in self._known:
            self._known[work_out] = work_out(self)
        return self._known[work_out]


@dataclass(frozen=True, slots=True)
class Check:
    """One check. `needs` are ids of checks without which it says nothing of its own.

    If one of those has failed, its fault explains what this check would find, so that it is not
    asked.
    """

    id: str  # "driver.version": its section's subject, a dot, what is checked
    section: str
    title: str  # what it makes sure of: "The driver's libraries are of the kernel module's version"
    look: Callable[[ExaminedNode], Iterable[Finding]]
    needs: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Result:
    """What a check found of one thing, with the check."""

    check: Check
    finding: Finding


def ok(said: str, *looked_at: str, subject: str = "") -> Finding:
    """Return that all is well with a thing."""
    return Finding(OK, said, subject=subject, looked_at=looked_at)


def absent(said: str, *looked_at: str) -> Finding:
    """Return that a node has nothing of what a check is about, or does not tell."""
    return Finding(NOT_APPLICABLE, said, looked_at=looked_at)
