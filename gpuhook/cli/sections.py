# SPDX-License-Identifier: Apache-2.0
"""The commands of a group as its --help lists them: in sections, none of their sentences cut."""

from __future__ import annotations

import click

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

SECTIONS = {
    "Find out": ("explain", "doctor", "compare", "ps", "map", "inspect", "support-bundle"),
    "Running containers": ("attach", "detach", "repair", "limits"),
    "Describe GPUs": ("inventory", "generate-cdi", "cdi", "labels"),
    "On nodes": ("device-plugin", "health", "config", "completion"),
}
_WIDTH = max(len(name) for names in SECTIONS.values() for name in names)
_LONGEST = 200  # letters of a sentence: all of it


class Sentences(click.Group):
    """A group whose --help has its commands' first sentences as they are."""

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the commands, wrapped."""
        write(self, ctx, formatter, "Commands", self.list_commands(ctx))


def write(
    group: click.Group,
    ctx: click.Context,
    formatter: click.HelpFormatter,
    title: str,
    names: Iterable[str],
) -> None:
    """Write a section with these commands of a group, each with its first sentence."""
    found = [(name, group.get_command(ctx, name)) for name in names]
    rows = [
        (name.ljust(_WIDTH), command.get_short_help_str(_LONGEST))
        for name, command in found
        if command is not None and not command.hidden
    ]
    if rows:
        with formatter.section(title):
            formatter.write_dl(rows)
