# SPDX-License-Identifier: Apache-2.0
"""The option --output-file of commands that write a file, whose former name is --output."""

from __future__ import annotations

from typing import Any

import click

from gpuhook.cli.options import command_sections, parameters
from gpuhook.host import console

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from gpuhook.cli.options.parameters import F

_FILE, _FORMER = "--output-file", "--output"


def output_file(*name: str, **settings: Any) -> Callable[[F], F]:
    """Return the decorator for --output-file; `settings` are those of click.option()."""
    return click.option(_FILE, *name, metavar="FILE", callback=parameters.not_empty, **settings)


def output_format(formats: Sequence[str], **settings: Any) -> Callable[[F], F]:
    """Return the decorator for -o, the format of the file: the parameter `fmt`."""
    return click.option(
        "-o",
        _FORMER,
        "--format",
        "fmt",
        type=click.Choice(formats),
        help="Default: the format of the --output-file extension, else yaml.",
        **settings,
    )


class OutputFileCommand(command_sections.SectionedCommand):
    """A command with --output-file, which also accepts a file as the value of --output."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse `args`, with --output FILE replaced by --output-file FILE."""
        return super().parse_args(ctx, self._renamed_file(ctx, args))

    def _renamed_file(self, ctx: click.Context, args: list[str]) -> list[str]:
        options = {
            name: one for one in self.params if isinstance(one, click.Option) for name in one.opts
        }
        kind = options[_FORMER].type if _FORMER in options else None
        formats = tuple(kind.choices) if isinstance(kind, click.Choice) else ()
        renamed: list[str] = []
        words = iter(args)
        for word in words:
            if word == "--":
                return [*renamed, word, *words]
            name, equals, value = word.partition("=")
            takes_value = name == _FORMER or (name in options and not options[name].is_flag)
            pair = [name, value] if equals else [name]
            if takes_value and not equals:
                pair += [one for one in (next(words, None),) if one is not None]
            if name == _FORMER and len(pair) == 2 and pair[1] not in formats:
                if not ctx.resilient_parsing:
                    console.say(f"note: {_FORMER} is now the output format: use {_FILE} {pair[1]}")
                renamed += [_FILE, pair[1]]
            else:
                renamed += [word, *pair[1:]] if not equals else [word]
        return renamed
