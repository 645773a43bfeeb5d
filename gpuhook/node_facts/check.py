# SPDX-License-Identifier: Apache-2.0
"""The types of doctor: a check, a finding, a fix, and the node that checks examine.

A check reads a node and changes nothing. A finding names what was examined, what is wrong, what
users see because of it, and the exact command that fixes it.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass, field
from typing import Any

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from typing import TypeAlias, TypeVar

    from gpuhook.node_facts.sources.node_readings import Readings
    from gpuhook.node_facts.sources.node_tree import Tree

    Item = TypeVar("Item")
    Findings: TypeAlias = "Finding | Iterable[Finding]"
    Look: TypeAlias = "Callable[[ExaminedNode], Findings]"  # what a check does

OK, WARNING, FAILED, NOT_APPLICABLE = "ok", "warning", "failed", "not-applicable"
_SHOWN = 3  # items of a list in a message
WORST_FIRST = (FAILED, WARNING, OK, NOT_APPLICABLE)

# The sections that are no vendor's, each with the subjects of its checks. A subject is the part of
# a check's id in front of the dot; a vendor's subject is its own section.
ENGINES = "engines"
_SUBJECTS = {
    "specs": ("specs",),
    "host": ("host",),
    ENGINES: ("nvidia-toolkit", "containerd", "docker", "crio", "podman", "oci-hooks"),
    "kubernetes": ("kubelet", "runtime-class", "nri", "plugin", "node"),
    "gpuhook": ("installation",),
    "containers": ("containers",),
}
_SECTION_OF = {subject: section for section in _SUBJECTS for subject in _SUBJECTS[section]}


@dataclass(frozen=True, slots=True)
class Fix:
    """A change that --fix makes: safe, idempotent, made by root on the node itself.

    `description` is printed before the change. `apply` makes it; it raises GpuhookError or OSError.
    """

    description: str
    apply: Callable[[], None]


@dataclass(frozen=True, slots=True)
class Finding:
    """The result of a check for one `subject`, such as a path or a container; "" for the node.

    `message` is one sentence. `meaning` is what users see because of the fault, `command` the exact
    command that fixes it (or what to do if no command can); both are "" if nothing is wrong.
    `looked_at` has the files, programs and interfaces that were examined.
    """

    status: str
    message: str
    subject: str = ""
    meaning: str = ""
    command: str = ""
    looked_at: tuple[str, ...] = ()
    fix: Fix | None = None


@dataclass(slots=True)
class ExaminedNode:
    """The node that is examined: its files, its readings, and facts that checks derive from them.

    `driver_root` and `dev_root` are the node's paths of the driver's user space and of its /dev.
    """

    tree: Tree
    readings: Readings
    driver_root: str = "/"
    dev_root: str = "/"
    facts: dict[Any, Any] = field(default_factory=dict)


def fact(derive: Callable[[ExaminedNode], Item]) -> Callable[[ExaminedNode], Item]:
    """Return `derive` as a function that derives a fact of a node once for all checks."""

    @functools.wraps(derive)
    def derived(node: ExaminedNode) -> Item:
        if derive not in node.facts:
            node.facts[derive] = derive(node)
        found: Item = node.facts[derive]
        return found

    return derived


@dataclass(frozen=True, slots=True)
class Check:
    """One check. It is skipped if a check in `needs` has failed: that fault explains its own."""

    id: str  # "driver.version": the subject, a dot, what is checked
    title: str  # the healthy state: "The driver's libraries match the kernel module"
    look: Look
    needs: tuple[str, ...] = ()

    @property
    def section(self) -> str:
        """The section of the check's subject."""
        subject = self.id.partition(".")[0]
        return _SECTION_OF.get(subject, subject)


def check(identity: str, title: str, *, needs: tuple[str, ...] = ()) -> Callable[[Look], Check]:
    """Return a decorator that turns a function into a Check."""
    return lambda look: Check(identity, title, look, needs)


def unless(excuse: Callable[[ExaminedNode], Finding | None]) -> Callable[[Look], Look]:
    """Return a decorator for a look that does not apply to a node with an `excuse`."""
    return lambda look: lambda node: excuse(node) or look(node)


def for_each(
    items: Callable[[ExaminedNode], Iterable[Item]], otherwise: Finding
) -> Callable[[Callable[[ExaminedNode, Item], Findings]], Look]:
    """Return a decorator that looks at each item of a node; `otherwise`: the finding for none."""

    def decorated(look: Callable[[ExaminedNode, Item], Findings]) -> Look:
        def look_at_all(node: ExaminedNode) -> Findings:
            found = [finding for item in items(node) for finding in as_findings(look(node, item))]
            return found or otherwise

        return look_at_all

    return decorated


def as_findings(findings: Findings) -> Iterable[Finding]:
    """Return one finding, or several, as an iterable."""
    return (findings,) if isinstance(findings, Finding) else findings


@dataclass(frozen=True, slots=True)
class Result:
    """A finding and the check that made it."""

    check: Check
    finding: Finding


def first_items(items: Sequence[str]) -> str:
    """Return the first items and the number of the others: "a, b, c and 2 more"."""
    rest = len(items) - _SHOWN
    return ", ".join(items[:_SHOWN]) + (f" and {rest} more" if rest > 0 else "")


def ok(message: str, *looked_at: str, subject: str = "") -> Finding:
    """Return the finding that nothing is wrong with a subject."""
    return Finding(OK, message, subject=subject, looked_at=looked_at)


def absent(message: str, *looked_at: str) -> Finding:
    """Return the finding that a check does not apply to the node, or cannot be answered."""
    return Finding(NOT_APPLICABLE, message, looked_at=looked_at)
