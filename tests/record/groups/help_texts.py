# SPDX-License-Identifier: Apache-2.0
"""The help of every command and subcommand, and shell completion."""

from __future__ import annotations

from functools import partial

import click

from tests.record import surface
from tests.record.box import Box
from tests.record.case import Case

COMMANDS = (
    "attach", "cdi", "compare", "completion", "config", "configure", "detach", "device-plugin",
    "doctor", "explain", "generate-cdi", "health", "inspect", "install", "inventory", "labels",
    "limits", "map", "ps", "refresh", "repair", "setup", "support-bundle", "system", "uninstall",
)  # fmt: skip


def cases() -> list[Case]:
    """Return a case for each command, and those of the programs."""
    made = [Case("help", name, "empty", partial(_command, name)) for name in COMMANDS]
    made.append(Case("help", "gpuhook", "empty", partial(_calls, [[], ["--help"]])))
    made.append(Case("help", "version", "empty", partial(_calls, [["--version"]])))
    made.append(Case("help", "narrow", "empty", _narrow))
    made.append(Case("help", "hook", "empty", _hook))
    return made


def _command(name: str, box: Box) -> None:
    group = surface.command()
    command = group.get_command(click.Context(group), name)
    assert command is not None, name
    for words in _names([name], command):
        box.gpuhook(*words, "--help")


def _names(words: list[str], command: click.Command) -> list[list[str]]:
    """Return the words of a command and of all its subcommands that are not hidden."""
    found = [words]
    if isinstance(command, click.Group):
        context = click.Context(command)
        for name in command.list_commands(context):
            below = command.get_command(context, name)
            if below is not None:
                found += _names([*words, name], below)
    return found


def _calls(calls: list[list[str]], box: Box) -> None:
    for words in calls:
        box.gpuhook(*words)


def _narrow(box: Box) -> None:
    for words in ([], ["explain"], ["generate-cdi"]):
        box.gpuhook(*words, "--help", COLUMNS="60")


def _hook(box: Box) -> None:
    for words in ([], ["--help"], ["--version"], ["apply", "--help"], ["nothing"]):
        box.call("gpuhook-hook", *words)
