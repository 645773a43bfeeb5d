# SPDX-License-Identifier: Apache-2.0
"""The sections of --help: commands with their first sentences, and options.

`gpuhook --help` and shell completion read the sentences from here, and import no command.
"""

from __future__ import annotations

import re

import click

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator
    from typing import ClassVar

SECTIONS = {
    "Diagnosis": ("explain", "doctor", "compare", "ps", "map", "inspect", "support-bundle"),
    "Running containers": ("attach", "detach", "repair", "limits"),
    "GPUs and CDI specs": ("inventory", "generate-cdi", "refresh", "cdi", "labels"),
    "Nodes": (
        "setup",
        "configure",
        "node",
        "device-plugin",
        "dra",
        "nri",
        "health",
        "config",
        "system",
    ),
    "Other commands": ("completion", "help", "version"),
}
OUTPUT_OPTIONS = (
    "output", "output-file", "format", "file", "no-headers", "svg", "html", "ascii", "width",
    "watch", "interval",
)  # fmt: skip
NODE_OPTIONS = (
    "state-root", "kubelet-root", "inventory", "driver-root", "dev-root", "host-root",
    "nvml-library", "library-search-path",
)  # fmt: skip
OPTIONS, OUTPUT, NODE = "Options", "Output options", "Node options"
_HELP = ("help", "help-all")
_SHOWS_VARIABLES = "gpuhook.shows_variables"
_VARIABLE = re.compile(r"  \[env var: [^;\]]*\]|(?<=\[)env var: [^;\]]*; ")
_WIDTH = max(len(name) for names in SECTIONS.values() for name in names)
# Names that users of kubectl, docker and git try, and the commands that a group has instead.
_HABITS = {"list": ("show",), "ls": ("list", "show"), "get": ("show", "list")}
LONGEST = 200  # characters: no sentence is longer


def listed_commands(
    command: click.Command, ctx: click.Context
) -> Iterator[tuple[str, click.Command]]:
    """Yield the commands of a group that its --help lists, none of a command."""
    if isinstance(command, click.Group):
        for name in command.list_commands(ctx):
            one = command.get_command(ctx, name)
            if one is not None and not one.hidden:
                yield name, one


class ShortHelp(click.Command):
    """A command with -h, in a context of any origin."""

    def get_help_option_names(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 # click's
        """Return the names of the help option."""
        return ["-h", "--help"]


class SectionedCommand(ShortHelp):
    """A command whose --help lists its options in sections, those of the node last.

    Options without a section come first, as "Options". The environment variables of the options
    are in the output of --help-all only.
    """

    sections: ClassVar[dict[str, tuple[str, ...]]] = {OUTPUT: OUTPUT_OPTIONS, NODE: NODE_OPTIONS}

    def get_params(self, ctx: click.Context) -> list[click.Parameter]:
        """Return the parameters; --help-all is one if an option has a variable."""
        found = super().get_params(ctx)
        has_variables = any(isinstance(one, click.Option) and one.show_envvar for one in found)
        return [*found, _HELP_ALL] if has_variables else found

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the options."""
        records = {}
        for param in self.get_params(ctx):
            record = param.get_help_record(ctx) if isinstance(param, click.Option) else None
            if record is not None:
                name = next(one for one in param.opts if one.startswith("--"))
                records[name[2:]] = record
        if not ctx.meta.get(_SHOWS_VARIABLES):
            records = {
                name: (term, _VARIABLE.sub("", text)) for name, (term, text) in records.items()
            }
        in_sections = {name for names in self.sections.values() for name in (*names, *_HELP)}
        others = tuple(name for name in records if name not in in_sections)
        listed = {OPTIONS: (*others, *_HELP), **self.sections}
        if not others:  # --help is no headline
            listed = {**self.sections, "Other options": _HELP}
        for title, names in listed.items():
            rows = [records[name] for name in names if name in records]
            if rows:
                with formatter.section(title):
                    formatter.write_dl(rows)


def _show_help(ctx: click.Context, param: click.Parameter, value: bool) -> None:  # noqa: ARG001
    if value and not ctx.resilient_parsing:
        ctx.meta[_SHOWS_VARIABLES] = True
        click.echo(ctx.get_help(), color=ctx.color)
        ctx.exit()


_HELP_ALL = click.Option(
    ["--help-all"],
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=_show_help,
    help="Show this message with the environment variable of each option, and exit.",
)


class Sentences(ShortHelp, click.Group):
    """A group whose --help has the whole first sentence of each command."""

    command_class: type[click.Command] | None = SectionedCommand

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Return the command; `list`, `ls` and `get` also name the one that lists."""
        names = (cmd_name, *_HABITS.get(cmd_name, ()))
        known = (super(Sentences, self).get_command(ctx, name) for name in names)
        return next((found for found in known if found is not None), None)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Return the command and its arguments; a usage error names the nearest command."""
        if self.get_command(ctx, args[0]) is None:
            require_known(ctx, args[0], self.commands)
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the commands, wrapped."""
        found = listed_commands(self, ctx)
        rows = [(name, command.get_short_help_str(LONGEST)) for name, command in found]
        write(formatter, "Commands", rows)


def require_known(ctx: click.Context, name: str, known: Collection[str]) -> None:
    """Raise a usage error that names the nearest command, if there is one, for an unknown name."""
    if name in known or ctx.resilient_parsing:
        return
    import difflib

    near = difflib.get_close_matches(name, known, 1)
    if near:
        ctx.fail(f"No such command {name!r}. Did you mean {near[0]!r}?")


def write(formatter: click.HelpFormatter, title: str, rows: Iterable[tuple[str, str]]) -> None:
    """Write a section: each command with its first sentence."""
    with formatter.section(title):
        formatter.write_dl([(name.ljust(_WIDTH), sentence) for name, sentence in rows])


LINES = {
    "attach": "Add a GPU to a running CONTAINER: nodes, device rules, driver files, loader cache.",
    "cdi": "List, show, check and transform the CDI specs of all vendors.",
    "compare": ("Compare the GPU parts of a running CONTAINER with what gpuhook would add."),
    "completion": "Print the completion script for SHELL.",
    "config": "Show, check and import the settings of this node.",
    "configure": "Register gpuhook with a container engine, and show or undo the registration.",
    "detach": "Remove a GPU from a running CONTAINER.",
    "device-plugin": "Run the Kubernetes device plugin of this node.",
    "doctor": ("Find out why containers get no GPUs: each fault, what it means and how to fix it."),
    "dra": "Run, show and drain the DRA drivers of this node, and check claims.",
    "explain": "Explain which GPUs a container requests and gets, and why, step by step.",
    "generate-cdi": "Write a CDI spec for the GPUs and the driver of a node.",
    "health": "List the GPUs that are marked unhealthy, and clear the marks.",
    "help": "Show the help of a command.",
    "inspect": (
        "Show the GPU parts of a running CONTAINER: nodes, mounts, libraries, limits, variables."
    ),
    "inventory": "Show the drivers and the GPUs of a node with their parts, or dump all facts.",
    "labels": "Print the feature labels of a node, or write them to the file that NFD reads.",
    "limits": "Limit the GPU memory of running containers, and show the limits.",
    "map": "Draw the GPUs of this node, their memory, and the containers that use them.",
    "nri": "Give containers their GPUs by NRI, without configuring a runtime.",
    "node": "Install gpuhook on a host from a container, and remove it.",
    "ps": "List the containers that use GPUs, their GPU memory, and how busy they are.",
    "refresh": "Regenerate the stale CDI specs of this node.",
    "repair": ("Restore the granted GPUs that a running CONTAINER has lost."),
    "setup": (
        "Set up this node step by step: show the plan, carry it out, prove it with a container."
    ),
    "support-bundle": ("Collect everything needed to diagnose this node in one file."),
    "system": ("Prepare this node for GPUs: kernel modules, device nodes, links in /dev/char."),
    "version": "Print the versions of gpuhook and of its Python.",
}
