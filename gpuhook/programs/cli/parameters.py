# SPDX-License-Identifier: Apache-2.0
"""Values of options that several commands take, parsed."""

from __future__ import annotations

import click

from gpuhook.errors import GpuhookError
from gpuhook.vendors.nvidia import words


def capabilities(
    ctx: click.Context, param: click.Parameter, value: str | None
) -> frozenset[str] | None:
    """Return what --driver-capabilities names, None without it."""
    try:
        return words.parse_capabilities(value) if value is not None else None
    except GpuhookError as error:
        raise click.BadParameter(f"{error.message}; {error.hint}", ctx, param) from error
