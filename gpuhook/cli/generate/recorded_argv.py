# SPDX-License-Identifier: Apache-2.0
"""The words of a command line by which a command was called, for calling it so again.

What was left to a default is left out, so that it counts as it is then. A value of the environment
is a word like any other.
"""

from __future__ import annotations

import os

import click
from click.core import ParameterSource

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

ADOPTED = "gpuhook.adopted_words"  # options whose values are of another program's variables
_SAID = (ParameterSource.COMMANDLINE, ParameterSource.ENVIRONMENT)


def recorded_argv(ctx: click.Context, *leaving_out: str) -> list[str]:
    """Return the options that the command of `ctx` was given, but those named; paths absolute."""
    words = []
    for option in ctx.command.params:
        name = option.name or ""
        if not isinstance(option, click.Option) or name in leaving_out:
            continue
        if ctx.get_parameter_source(name) in _SAID or name in ctx.meta.get(ADOPTED, ()):
            words += _words(option, ctx.params.get(name))
    return words


def _words(option: click.Option, value: Any) -> list[str]:
    long = max(option.opts, key=len)
    if option.is_flag and isinstance(value, bool):
        if value:
            return [long]
        return [max(option.secondary_opts, key=len)] if option.secondary_opts else []
    if isinstance(value, frozenset):
        # A list that a callback has taken apart.
        return [long, ",".join(sorted(value))]
    values = value if isinstance(value, tuple) else (value,)
    return [word for one in values for word in (long, _text(option, one))]


def _text(option: click.Option, value: Any) -> str:
    is_place = isinstance(option.type, click.Path)
    return os.path.abspath(value) if is_place else str(value)
