# SPDX-License-Identifier: Apache-2.0
"""The memory limits of a simulated node's driver, and how its functions for them fail.

The functions are in nvml_stub_memory.c.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from tests.simulated import cgroups, stub_events

TYPE_CHECKING = False
if TYPE_CHECKING:
    from tests.simulated.node import SimulatedNode

NO_LIMIT = (1 << 64) - 1
NOT_SUPPORTED, NO_PERMISSION, FUNCTION_NOT_FOUND, UNKNOWN = 3, 4, 13, 999


@dataclass(frozen=True, slots=True)
class Kept:
    """A limit in the driver, in bytes. `path` is its cgroup's path as it was set."""

    uuid: str
    path: str
    inode: int  # the inode of the cgroup's directory
    hard: int
    soft: int


def recorded(node: SimulatedNode) -> list[Kept]:
    """Return all limits that were set and not cleared, by path and UUID.

    Limits of removed cgroups are skipped. What is reserved above a cgroup is a limit there, too.
    """
    return [limit for limit in known(node) if (limit.hard, limit.soft) != (NO_LIMIT, 0)]


def known(node: SimulatedNode) -> list[Kept]:
    """Return recorded(), and the values of cgroups that no longer have a limit."""
    limits = [_read(path) for path in _directory(node).glob("*") if path.suffix != ".new"]
    living = [limit for limit in limits if limit is not None and _is_there(limit)]
    return sorted(living, key=lambda limit: (limit.path, limit.uuid))


def use_dmem(node: SimulatedNode, uuid: str, *, everywhere: bool = False) -> None:
    """Use the kernel's limits for the GPU, in cgroups that have a file dmem.max.

    `everywhere`: the driver treats each cgroup as having it, even if the kernel does not.
    """
    stub_events.say(node, uuid, "backend dmem everywhere" if everywhere else "backend dmem")


def is_dmem(node: SimulatedNode, uuid: str) -> bool:
    """Return whether use_dmem() applies."""
    return any(line.startswith("backend dmem") for line in stub_events.lines_of(node, uuid))


def fail_setting(node: SimulatedNode, uuid: str, error: int) -> None:
    """Make the setting of limits of the GPU fail with this nvmlReturn_t; reading works."""
    stub_events.say(node, uuid, f"fail set_limits {error}")


def fail_reading(node: SimulatedNode, uuid: str, error: int) -> None:
    """Make the reading of limits of the GPU fail with this nvmlReturn_t; setting works."""
    stub_events.say(node, uuid, f"fail get_limits {error}")


def read_back(node: SimulatedNode, uuid: str, hard: int, soft: int) -> None:
    """Make the GPU report these limits in bytes, whatever was set."""
    stub_events.say(node, uuid, f"limits_reading {hard} {soft}")


def take_long(node: SimulatedNode, uuid: str, milliseconds: int) -> None:
    """Make each setting and each reading take this time."""
    stub_events.say(node, uuid, f"limits_wait {milliseconds}")


def repair(node: SimulatedNode, uuid: str) -> None:
    """Undo the effects of the functions above."""
    keys = ("limits_reading", "limits_wait", "fail set_limits", "fail get_limits", "backend")
    stub_events.unsay(node, uuid, *keys)


def take_for_cgroups(node: SimulatedNode, uuid: str, directory: str | Path) -> None:
    """Treat plain directories below `directory` as cgroups for the limits of the GPU."""
    stub_events.say(node, uuid, f"cgroups {directory}")


def _directory(node: SimulatedNode) -> Path:
    return Path(node.nvml_profile).with_name("nvml-stub.limits")


def _read(path: Path) -> Kept | None:
    uuid, _device, inode = path.name.rsplit(".", 2)
    try:
        text = path.read_text("utf-8")
    except FileNotFoundError:  # it was cleared meanwhile
        return None
    hard, soft, _born, cgroup = text.rstrip("\n").split(" ", 3)
    return Kept(uuid, cgroup, int(inode), int(hard), int(soft))


def _is_there(limit: Kept) -> bool:
    """Return whether the limit's cgroup still exists, whatever its mount point."""
    parts = Path(limit.path).parts[1:]
    at = [cgroups.mounted().joinpath(*parts[number:]) for number in range(len(parts) + 1)]
    return any(cgroups.inode(path) == limit.inode for path in (Path(limit.path), *at))
