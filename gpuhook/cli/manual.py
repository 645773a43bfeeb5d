# SPDX-License-Identifier: Apache-2.0
"""The manual pages of `gpuhook` and `kubectl-gpuhook`, made from --help: one for each command.

Source of the format: man(7). `python -m gpuhook.cli.manual DIRECTORY` writes them.
"""

from __future__ import annotations

import os
import sys

import click

from gpuhook.cli import kubectl_plugin, main
from gpuhook.cli.options.command_sections import listed_commands

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

SECTION = "1"
ROOTS = {"gpuhook": main, "kubectl-gpuhook": kubectl_plugin.main}
_STATUS = (
    ("0", "Success."),
    ("1", "Failure, or a fault was found. Standard error has the code, the message and a hint."),
    ("2", "Wrong usage."),
)
_FILES = (
    ("/etc/gpuhook/config.yaml", "The settings of this node."),
    ("/etc/cdi, /var/run/cdi", "CDI specs of gpuhook and of other programs."),
    ("/run/gpuhook", "The state of gpuhook: the ledger of containers and the compiled specs."),
)


def pages() -> dict[str, str]:
    """Return the text of each page by its file name, such as gpuhook-doctor.1."""
    return {
        f"{'-'.join(names)}.{SECTION}": _page(names, ctx)
        for program, command in ROOTS.items()
        for names, ctx in _commands(root(program, command))
    }


def root(program: str, command: click.Command) -> click.Context:
    """Return the context in which a program runs its command."""
    return click.Context(command, info_name=program, auto_envvar_prefix="GPUHOOK")


def _commands(ctx: click.Context) -> Iterator[tuple[list[str], click.Context]]:
    """Yield the path of each command that --help lists, as words, and its context."""
    yield ctx.command_path.split(), ctx
    for name, command in listed_commands(ctx.command, ctx):
        yield from _commands(click.Context(command, info_name=name, parent=ctx))


def _page(names: list[str], ctx: click.Context) -> str:
    command, title = ctx.command, "-".join(names)
    lines = [
        f'.TH "{title.upper()}" "{SECTION}" "" "gpuhook" "User Commands"',
        ".SH NAME",
        f"{_escaped(title)} \\- {_escaped(command.get_short_help_str(200).rstrip('.'))}",
        ".SH SYNOPSIS",
        f".B {_escaped(' '.join(names))}",
        _escaped(" ".join(command.collect_usage_pieces(ctx))),
        ".SH DESCRIPTION",
        *_paragraphs(command.help or ""),
        *_options(ctx),
        *_subcommands(ctx),
        *_example(command.epilog or ""),
        ".SH EXIT STATUS",
        *_terms(_STATUS),
        ".SH FILES",
        *_terms(_FILES),
        ".SH SEE ALSO",
        _see_also(names, ctx),
    ]
    return "\n".join(lines) + "\n"


def _paragraphs(text: str) -> Iterator[str]:
    """Yield a help text; paragraphs that click does not wrap keep their lines."""
    for number, paragraph in enumerate(text.replace("\f", "").strip().split("\n\n")):
        lines = [line.strip() for line in paragraph.splitlines()]
        if number:
            yield ".PP"
        if lines and lines[0] == "\b":
            yield from (".nf", *map(_escaped, lines[1:]), ".fi")
        else:
            yield from map(_escaped, lines)


def _options(ctx: click.Context) -> Iterator[str]:
    options = (one for one in ctx.command.get_params(ctx) if isinstance(one, click.Option))
    records = [option.get_help_record(ctx) for option in options]
    found = [record for record in records if record is not None]
    if found:
        yield ".SH OPTIONS"
        yield from _terms(found)


def _subcommands(ctx: click.Context) -> Iterator[str]:
    found = listed_commands(ctx.command, ctx)
    rows = [(name, command.get_short_help_str(200)) for name, command in found]
    if rows:
        yield ".SH COMMANDS"
        yield from _terms(rows)


def _example(epilog: str) -> Iterator[str]:
    lines = [line for line in epilog.replace("\b", "").splitlines() if line.strip()]
    if lines:
        yield ".SH EXAMPLES"
        shown = [line for line in lines if line.strip() != "Examples:"]
        yield from (".nf", *(_escaped(line.strip()) for line in shown), ".fi")


def _terms(pairs: Iterable[tuple[str, str]]) -> Iterator[str]:
    for term, text in pairs:
        yield ".TP"
        yield f".B {_escaped(term)}"
        yield _escaped(" ".join(text.split()))


def _see_also(names: list[str], ctx: click.Context) -> str:
    others = ["gpuhook"] if len(names) > 1 else []
    others += [f"{'-'.join(names)}-{name}" for name, _ in listed_commands(ctx.command, ctx)]
    return ", ".join(f"{_escaped(name)}({SECTION})" for name in others) or "runc(8)"


def _escaped(text: str) -> str:
    """Return text with its roff characters escaped: backslash, dash, a dot that begins a line."""
    shown = text.replace("\\", "\\e").replace("-", "\\-")
    return "\\&" + shown if shown.startswith((".", "'")) else shown


if __name__ == "__main__":
    for _name, _text in pages().items():
        with open(os.path.join(sys.argv[1], _name), "w", encoding="utf-8") as _file:
            _file.write(_text)
