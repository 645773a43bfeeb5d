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
    "Describe GPUs": ("inventory", "generate-cdi", "refresh", "cdi", "labels"),
    "On nodes": (
        "configure",
        "install",
        "uninstall",
        "device-plugin",
        "health",
        "config",
        "system",
        "completion",
    ),
}
_WIDTH = max(len(name) for names in SECTIONS.values() for name in names)
LONGEST = 200  # letters of a sentence: all of it


class Sentences(click.Group):
    """A group whose --help has its commands' first sentences as they are."""

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the commands, wrapped."""
        found = [(name, self.get_command(ctx, name)) for name in self.list_commands(ctx)]
        rows = [
            (name, command.get_short_help_str(LONGEST))
            for name, command in found
            if command is not None and not command.hidden
        ]
        write(formatter, "Commands", rows)


def write(formatter: click.HelpFormatter, title: str, rows: Iterable[tuple[str, str]]) -> None:
    """Write a section with commands, each with its first sentence."""
    with formatter.section(title):
        formatter.write_dl([(name.ljust(_WIDTH), sentence) for name, sentence in rows])
