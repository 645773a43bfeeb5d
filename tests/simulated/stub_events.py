# SPDX-License-Identifier: Apache-2.0
"""What happens to a simulated node while processes have its NVML open (see nvml_stub_watch.c)."""

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
    """Let the GPU report `xid`, `count` times at once: a storm.

    `instance` is the GPU and the compute instance that it is of. Without a UUID, NVML cannot say
    which GPU it was.
    """
    which = "" if instance is None else f" {instance[0]} {instance[1]}"
    _append(node, f"xid {xid} {uuid or '-'}{which}\n" * count)


def inject_ecc(node: SimulatedNode, uuid: str, kind: str = "double") -> None:
    """Let the GPU report a "single" or a "double" bit error."""
    _append(node, f"ecc {kind} {uuid}\n")


def fail_wait(node: SimulatedNode, error: int, *, always: bool = False) -> None:
    """Let waiting fail with this nvmlReturn_t: once, or in all event sets until mend_wait."""
    _append(node, f"fail {error}{' always' if always else ''}\n")


def mend_wait(node: SimulatedNode) -> None:
    """End fail_wait(always=True)."""
    _append(node, "well\n")


def lose(node: SimulatedNode, uuid: str) -> None:
    """Let the GPU fall off the bus: whatever is asked of it fails, and waiting fails once."""
    say(node, uuid, "lost_after 0")
    fail_wait(node, GPU_IS_LOST)


def find(node: SimulatedNode, uuid: str) -> None:
    """Let a GPU that was lost answer again."""
    unsay(node, uuid, "lost_after")


def say(node: SimulatedNode, uuid: str, *lines: str) -> None:
    """Let the GPU or MIG instance answer so, in place of all lines with the same first words.

    Lines that let a question fail are identified by the question.
    """
    keys = {_key(line) for line in lines}
    _edit(node, uuid, lambda own: [line for line in own if _key(line) not in keys] + [*lines])


def unsay(node: SimulatedNode, uuid: str, *keys: str) -> None:
    """Take the lines of the GPU or MIG instance away that begin so: "used", "fail uuid"."""
    if any(_key(line) in keys for line in said(node, uuid)):
        _edit(node, uuid, lambda own: [line for line in own if _key(line) not in keys])


def said(node: SimulatedNode, uuid: str) -> list[str]:
    """Return the lines of the GPU or MIG instance in the profile."""
    return next((own for own in _sections(node) if f"uuid {uuid}" in own), [])


def take_away(node: SimulatedNode) -> None:
    """Unload the driver: NVML doesn't start any more, and a started one fails all questions."""
    Path(node.nvml_profile).rename(node.nvml_profile + ".away")


def bring_back(node: SimulatedNode) -> None:
    """Load the driver again."""
    Path(node.nvml_profile + ".away").rename(node.nvml_profile)


def rewrite(node: SimulatedNode, profile: str) -> None:
    """Give the stub another profile; a started stub never sees half of it."""
    new = Path(node.nvml_profile + ".new")
    new.write_text(profile, encoding="utf-8")
    new.rename(node.nvml_profile)


def _edit(node: SimulatedNode, uuid: str, change: Callable[[list[str]], list[str]]) -> None:
    changed = [change(own) if f"uuid {uuid}" in own else own for own in _sections(node)]
    rewrite(node, "".join(f"{line}\n" for own in changed for line in own))


def _sections(node: SimulatedNode) -> list[list[str]]:
    """Return the lines of the profile: of the whole node first, then of each GPU and instance."""
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
