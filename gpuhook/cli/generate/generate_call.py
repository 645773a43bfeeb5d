# SPDX-License-Identifier: Apache-2.0
"""generate-cdi: its recorded command line, and calls of it in the same process."""

from __future__ import annotations

import io
import os
from contextlib import redirect_stderr, redirect_stdout

import click
from click.core import ParameterSource

from gpuhook.errors import fault

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any


def run(words: Sequence[str], root: click.Context) -> None:
    """Call generate-cdi with the arguments `words`; raises its faults, GH1528 for wrong usage.

    `root` is the context of the command `gpuhook`.
    """
    from gpuhook.cli.generate.generate_cdi import generate_cdi  # not needed if all specs are fresh

    try:
        with generate_cdi.make_context("generate-cdi", list(words), parent=root) as ctx:
            generate_cdi.invoke(ctx)
    except click.ClickException as error:
        raise fault("GH1528", words=" ".join(words), reason=error.format_message()) from error


def text(words: Sequence[str], fmt: str, root: click.Context) -> str:
    """Return the spec of the arguments `words`, in the format `fmt`; prints and writes nothing.

    Raises as run() does.
    """
    kept = list(words)
    while "--output" in kept:
        place = kept.index("--output")
        del kept[place : place + 2]
    printed = io.StringIO()
    with redirect_stdout(printed), redirect_stderr(io.StringIO()):
        run([*kept, "--output", "-", "--format", fmt], root)
    return printed.getvalue()


def compile_spec(path: str) -> None:
    """Compile a spec of the node for the wrapper, and for this command."""
    from gpuhook.cdi import spec_file
    from gpuhook.cdi.hot import compile as compiler

    compiler.compile_with(spec_file.parser(path), path, os.stat(path))


ADOPTED = "gpuhook.adopted_words"  # options with values of the toolkit's variables
_EXPLICIT = (ParameterSource.COMMANDLINE, ParameterSource.ENVIRONMENT)


def recorded_argv(ctx: click.Context, *leaving_out: str) -> list[str]:
    """Return the options of the command of `ctx`, without `leaving_out`; paths are absolute.

    Options with default values are left out, so that the defaults of the next call apply. Values
    of variables are included.
    """
    words = []
    for option in ctx.command.params:
        name = option.name or ""
        if not isinstance(option, click.Option) or name in leaving_out:
            continue
        if ctx.get_parameter_source(name) in _EXPLICIT or name in ctx.meta.get(ADOPTED, ()):
            words += _words(option, ctx.params.get(name))
    return words


def _words(option: click.Option, value: Any) -> list[str]:
    long = max(option.opts, key=len)
    if option.is_flag and isinstance(value, bool):
        if value:
            return [long]
        return [max(option.secondary_opts, key=len)] if option.secondary_opts else []
    if isinstance(value, frozenset):
        # A callback has split the list.
        return [long, ",".join(sorted(value))]
    values = value if isinstance(value, tuple) else (value,)
    return [word for one in values for word in (long, _text(option, one))]


def _text(option: click.Option, value: Any) -> str:
    is_place = isinstance(option.type, click.Path)
    return os.path.abspath(value) if is_place else str(value)
