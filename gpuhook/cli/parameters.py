# SPDX-License-Identifier: Apache-2.0
"""Options that several commands take, and their values, parsed."""

from __future__ import annotations

import click

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


no_headers = click.option(
    "--no-headers", is_flag=True, help="Leave out the header line of the table."
)


def capabilities(
    ctx: click.Context, param: click.Parameter, value: str | None
) -> frozenset[str] | None:
    """Return what --driver-capabilities names, None without it; a usage error for no capability."""
    if value is None:
        return None
    known = (*words.CAPABILITIES, "all")
    named = [word.strip() for word in value.split(",") if word.strip()]
    unknown = [word for word in named if word not in known]
    if unknown or not named:
        what = f"unknown driver capability {unknown[0]}" if unknown else "it is empty"
        raise click.BadParameter(f"{what}; known are {', '.join(known)}", ctx, param)
    return words.parse_capabilities(value)
