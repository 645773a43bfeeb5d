# SPDX-License-Identifier: Apache-2.0
"""`gpuhook completion`: the script by which a shell completes gpuhook's command line."""

from __future__ import annotations

import click
from click.shell_completion import BashComplete, FishComplete, ZshComplete

from gpuhook.cli.options import command_sections

PROGRAM, VARIABLE = "gpuhook", "_GPUHOOK_COMPLETE"
_SHELLS = {"bash": BashComplete, "fish": FishComplete, "zsh": ZshComplete}


@click.command(
    cls=command_sections.SectionedCommand,
    epilog="\b\nExamples:\n"
    "  gpuhook completion bash > /usr/share/bash-completion/completions/gpuhook\n"
    "  gpuhook completion zsh > /usr/share/zsh/vendor-completions/_gpuhook\n"
    "  gpuhook completion fish > /usr/share/fish/vendor_completions.d/gpuhook.fish",
)
@click.argument("shell", type=click.Choice(sorted(_SHELLS)))
@click.pass_context
def completion(ctx: click.Context, shell: str) -> None:
    """Print the completion script for SHELL.

    The script completes commands, options and their values, and the names and ids
    of running containers.
    """
    click.echo(script(shell, ctx.find_root().command), nl=False)


def script(shell: str, command: click.Command) -> str:
    """Return the script of a shell."""
    # Click's script, without its check of the bash version: 4.4 is of 2016.
    found = _SHELLS[shell](command, {}, PROGRAM, VARIABLE)
    text: str = found.source_template % found.source_vars()
    return text.lstrip("\n").rstrip() + "\n"
