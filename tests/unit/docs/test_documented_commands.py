# SPDX-License-Identifier: Apache-2.0
"""Every `gpuhook ...` in README and docs is accepted by the command line, in each language.

Click parses each one, so that an unknown command, option or value is detected, also in the text of
a page. Nothing is run here (tests/documented does), and files that a command would read need not
exist.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator

import click
import pytest

from gpuhook.cli import main
from tests.documented.command_lines import FENCE, PAGES, lines_of, text_of

SPAN = re.compile(r"`(gpuhook [^`]*)`")
WORD = re.compile(r"[a-z][a-z-]*")
ENDS = {"|", "||", "&", "&&", ";", "(", ")"}
# Common options: `gpuhook --quiet doctor` and `gpuhook doctor --quiet` are the same.
EVERYWHERE = ("-q", "--quiet", "--debug", "--verbose")
# Placeholders for values.
STANDS_FOR_OTHERS = re.compile(r"\b(ENGINE|PATH|NAME|N|DIR|FILE|ID)\b|'\.\.\.'")
REDIRECTIONS = {">", ">>", "<", ">&", "<<"}


def words(line: str) -> list[str]:
    """Return the words of a line of shell without its comment; [] if it is not shell."""
    lexer = shlex.shlex(line, posix=True, punctuation_chars=True)
    lexer.whitespace_split = True
    try:
        return list(lexer)
    except ValueError:
        return []


def calls(line: str) -> Iterator[list[str]]:
    """Yield the arguments of each call of gpuhook in a line of shell."""
    found: list[str] | None = None
    is_path = False
    for word in words(line):
        if word in ENDS or word in REDIRECTIONS:
            is_path = word in REDIRECTIONS
            if not is_path and found is not None:
                yield found
                found = None
        elif is_path:
            is_path = False
        elif found is not None:
            found.append(word)
        elif word == "gpuhook":
            found = []
    if found is not None:
        yield found


def lines(page: str) -> Iterator[tuple[str, bool]]:
    """Yield the calls of gpuhook on a page, and whether each is a complete example."""
    for line in lines_of(page):
        bare = line.words
        if re.match(r"(sudo )?([A-Z_]+=\S+ )*gpuhook ", bare) or re.search(r"[|&] *gpuhook ", bare):
            yield bare, True
        elif " -- gpuhook " in bare:
            yield bare.partition(" -- ")[2], True
    for span in SPAN.findall(FENCE.sub("", text_of(page).replace("\\|", "|"))):
        yield " ".join(re.sub(r"[][]", "", span).split()), False


def cases() -> Iterator[tuple[str, str, bool]]:
    """Yield page, line, and whether it is a complete example, each line once."""
    seen = set()
    for page in PAGES:
        for line, is_example in lines(page):
            if (line, is_example) not in seen:
                seen.add((line, is_example))
                yield page, line, is_example


def trouble(arguments: list[str], *, is_example: bool) -> str:
    """Return the error of the command line for `arguments`, "" for none."""
    arguments = [word for word in arguments if word not in EVERYWHERE]
    context = click.Context(main, info_name="gpuhook")
    command: click.Command = main
    while isinstance(command, click.Group):
        while arguments and arguments[0].startswith("-"):
            arguments = arguments[1:]
        if not arguments:
            return ""
        name, *arguments = arguments
        if not WORD.fullmatch(name):
            return ""  # a placeholder for a command: COMMAND, ...
        below = command.get_command(context, name)
        if below is None:
            return f"there is no command {name}"
        command = below
        context = click.Context(below, info_name=name, parent=context)
    if not arguments and not is_example:
        return ""
    return objection(command, context, arguments, is_example=is_example)


def objection(
    command: click.Command, parent: click.Context, arguments: list[str], *, is_example: bool
) -> str:
    """Return the error of a command; missing files and placeholders (FILE) are no errors."""
    assert parent.parent is not None
    try:
        command.make_context(str(parent.info_name), list(arguments), parent=parent.parent)
    except click.exceptions.Exit:
        return ""
    except (click.MissingParameter, click.BadOptionUsage) as error:
        return error.format_message() if is_example else ""
    except click.BadParameter as error:
        stands_for_others = STANDS_FOR_OTHERS.search(error.format_message())
        is_of_a_file = isinstance(error.param and error.param.type, click.Path | click.File)
        return "" if stands_for_others or is_of_a_file else error.format_message()
    except click.UsageError as error:
        return error.format_message()
    return ""


CASES = list(cases())


@pytest.mark.parametrize(("page", "line", "is_example"), CASES)
def test_documented_commands_are_accepted(page: str, line: str, is_example: bool) -> None:
    for arguments in calls(line):
        assert trouble(arguments, is_example=is_example) == "", (page, line)


def test_both_languages_have_commands() -> None:
    pages = {page for page, _, _ in CASES}
    assert {"README.ko.md", "docs/how-to/troubleshooting.md", "docs/ko/kubernetes.md"} <= pages
    assert len(CASES) > 150


@pytest.mark.parametrize(
    "line",
    [
        "gpuhook doctor --chekcs driver",
        "gpuhook ps -o yml",
        "gpuhook cdi valdate",
        "cat x | gpuhook limits set trainer --limit",
        "gpuhook inspect one two three",
    ],
)
def test_invalid_command_is_detected(line: str) -> None:
    assert any(trouble(arguments, is_example=True) for arguments in calls(line))


def test_lines_are_cut_at_pipes_and_redirections() -> None:
    assert list(calls("gpuhook config default > /etc/x.yaml  # every key")) == [
        ["config", "default"]
    ]
    assert list(calls("a | gpuhook explain - && gpuhook ps -o json | jq .")) == [
        ["explain", "-"],
        ["ps", "-o", "json"],
    ]
