# SPDX-License-Identifier: Apache-2.0
"""Options that several commands take, and their values, parsed."""

from __future__ import annotations

import click

from gpuhook.errors import GpuhookError
from gpuhook.vendors.nvidia import words

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any, TypeVar

    F = TypeVar("F", bound="Callable[..., Any]")


def output(*kinds: str, help: str | None = None) -> Callable[[F], F]:  # noqa: A002 # click's word
    """Return the decorator for -o, what is printed; the first of `kinds` is the default."""
    return click.option(
        "-o",
        "--output",
        type=click.Choice(kinds),
        default=kinds[0],
        show_default=True,
        show_envvar=True,
        help=help,
    )


def capabilities(
    ctx: click.Context, param: click.Parameter, value: str | None
) -> frozenset[str] | None:
    """Return what --driver-capabilities names, None without it."""
    try:
        return words.parse_capabilities(value) if value is not None else None
    except GpuhookError as error:
        raise click.BadParameter(f"{error.message}; {error.hint}", ctx, param) from error
