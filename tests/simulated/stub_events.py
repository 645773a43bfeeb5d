# SPDX-License-Identifier: Apache-2.0
"""Events of a simulated node while processes use its NVML (see nvml_stub_watch.c)."""

from __future__ import annotations

import os
from pathlib import Path

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.simulated.node import SimulatedNode

GPU_IS_LOST = 15


def inject_xid(
    node: SimulatedNode,
    uuid: str | None,
    xid: int,
    instance: tuple[int, int] | None = None,
    *,
    count: int = 1,
) -> None:
    """Let the GPU report `xid`, `count` times at once.

    `instance` is the GPU and the compute instance that it is of. Without a UUID, NVML cannot say
    which GPU it was.
    """
    which = "" if instance is None else f" {instance[0]} {instance[1]}"
    _append(node, f"xid {xid} {uuid or '-'}{which}\n" * count)


def inject_ecc(node: SimulatedNode, uuid: str, kind: str = "double") -> None:
    """Let the GPU report a "single" or a "double" bit error."""
    _append(node, f"ecc {kind} {uuid}\n")


def fail_wait(node: SimulatedNode, error: int, *, always: bool = False) -> None:
    """Make waiting for events fail with this nvmlReturn_t: once, or until mend_wait()."""
    _append(node, f"fail {error}{' always' if always else ''}\n")


def mend_wait(node: SimulatedNode) -> None:
    """End fail_wait(always=True)."""
    _append(node, "well\n")


def lose(node: SimulatedNode, uuid: str) -> None:
    """Make the GPU fall off the bus: each question about it fails, and waiting fails once."""
    say(node, uuid, "lost_after 0")
    fail_wait(node, GPU_IS_LOST)


def find(node: SimulatedNode, uuid: str) -> None:
    """Make a lost GPU answer again."""
    unsay(node, uuid, "lost_after")


def say(node: SimulatedNode, uuid: str, *lines: str) -> None:
    """Set lines of the GPU or MIG instance, in place of the lines with the same first words.

    Lines that make a question fail are identified by the question.
    """
    keys = {_key(line) for line in lines}
    _edit(node, uuid, lambda own: [line for line in own if _key(line) not in keys] + [*lines])


def unsay(node: SimulatedNode, uuid: str, *keys: str) -> None:
    """Remove the lines of the GPU or MIG instance that begin so: "used", "fail uuid"."""
    if any(_key(line) in keys for line in lines_of(node, uuid)):
        _edit(node, uuid, lambda own: [line for line in own if _key(line) not in keys])


def lines_of(node: SimulatedNode, uuid: str) -> list[str]:
    """Return the lines of the GPU or MIG instance in the profile."""
    return next((own for own in _sections(node) if f"uuid {uuid}" in own), [])


def take_away(node: SimulatedNode) -> None:
    """Unload the driver: NVML does not start, and a started one fails all questions."""
    Path(node.nvml_profile).rename(node.nvml_profile + ".away")


def bring_back(node: SimulatedNode) -> None:
    """Load the driver again."""
    Path(node.nvml_profile + ".away").rename(node.nvml_profile)


def rewrite(node: SimulatedNode, profile: str) -> None:
    """Replace the stub's profile atomically."""
    new = Path(node.nvml_profile + ".new")
    new.write_text(profile, encoding="utf-8")
    new.rename(node.nvml_profile)


def _edit(node: SimulatedNode, uuid: str, change: Callable[[list[str]], list[str]]) -> None:
    changed = [change(own) if f"uuid {uuid}" in own else own for own in _sections(node)]
    rewrite(node, "".join(f"{line}\n" for own in changed for line in own))


def _sections(node: SimulatedNode) -> list[list[str]]:
    """Return the lines of the profile: those of the node, then those of each GPU and instance."""
    sections: list[list[str]] = [[]]
    for line in Path(node.nvml_profile).read_text("utf-8").splitlines():
        if line.split()[:1] in (["gpu"], ["instance"]):
            sections.append([])
        sections[-1].append(line)
    return sections


def _key(line: str) -> str:
    first, *rest = line.split()
    return f"{first} {rest[0]}" if first == "fail" else first


def _append(node: SimulatedNode, text: str) -> None:
    path = Path(node.nvml_profile).with_name("nvml-stub.events")
    file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        os.write(file, text.encode())
    finally:
        os.close(file)
