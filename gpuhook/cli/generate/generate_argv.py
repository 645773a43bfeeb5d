# SPDX-License-Identifier: Apache-2.0
"""The options of generate-cdi that a spec records, so that `gpuhook refresh` repeats the call."""

from __future__ import annotations

import os

import click
from click.core import ParameterSource

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

ADOPTED = "gpuhook.adopted_words"  # options with values of the toolkit's variables
_EXPLICIT = (ParameterSource.COMMANDLINE, ParameterSource.ENVIRONMENT)


def recorded_argv(ctx: click.Context, *leaving_out: str) -> list[str]:
    """Return the options of the command of `ctx`, without `leaving_out`; paths are absolute.

    Options with default values are skipped, so that the defaults of the next call apply. Values
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
