# SPDX-License-Identifier: Apache-2.0
"""The options of `gpuhook limits`: amounts of memory, and the GPUs that are meant."""

from __future__ import annotations

from typing import Any

import click

from gpuhook.device_plugin.config.grammar.memory_values import CONTEXT_MEMORY
from gpuhook.errors import printable
from gpuhook.host.quantity import MEMORY_HINT, likely_unit, memory_bytes
from gpuhook.memory_limits.limit_changes import Wish
from gpuhook.request.memory_request import MIB, amount

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence


class Amount(click.ParamType):  # type: ignore[type-arg]  # generic in newer clicks only
    """An amount of memory with its unit, in bytes; whole MiB, as drivers count."""

    name = "quantity"

    def __init__(self, least: int = MIB) -> None:
        self._least = least

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """Return the bytes; a usage error for a number without a unit, and for what is none."""
        if isinstance(value, int):
            return value
        if str(value).isdecimal() and int(value):
            self.fail(f"{value} has no unit: write {value}{likely_unit(int(value))}", param, ctx)
        number = memory_bytes(value)
        if number is None:
            found = f'the text "{printable(value, 80)}"'
            self.fail(f"must be an amount of memory, found {found}: {MEMORY_HINT}", param, ctx)
        if number < self._least:
            self.fail(f"{value} is less than 1Mi", param, ctx)
        return number // MIB * MIB


limit = click.option(
    "--limit",
    required=True,
    metavar="QUANTITY",
    type=Amount(),
    show_envvar=True,
    help="What it may have at most of each of the GPUs: 4Gi, 4096Mi, 1.5G; rounded down to whole "
    "MiB (1.5G is 1430Mi). An allocation beyond it fails, in this container alone.",
)
request = click.option(
    "--request",
    metavar="QUANTITY",
    type=Amount(least=0),
    show_envvar=True,
    help="Its guarantee of that: beyond it an MPS server may end it for others; 0 for none. On "
    "kernels with the controller dmem it stays reserved after the container's end, unless it is "
    "cleared. Default: what it has of that now, as far as the limit goes.",
)
new_limit = click.option(
    "--memory-limit",
    "limit",
    metavar="QUANTITY",
    type=Amount(),
    show_envvar=True,
    help="What the container may have at most of the memory of each of these GPUs: 4Gi, 4096Mi. "
    "Default: what it was granted when it was made, if that is limited.",
)
new_request = click.option(
    "--memory-request",
    "request",
    metavar="QUANTITY",
    type=Amount(least=0),
    show_envvar=True,
    help="Its guarantee of that --memory-limit, as of `gpuhook limits set --request`.",
)
gpu = click.option(
    "--gpu",
    "gpus",
    metavar="NAME",
    multiple=True,
    show_envvar=True,
    help="One of the container's GPUs, by its index, UUID (or its beginning, as `gpuhook ps` shows "
    "it) or a replica id; repeatable, and comma lists are taken. Default: all of them.",
)


def names_of(gpus: Sequence[str]) -> list[str]:
    """Return the names of a repeatable --gpu; a usage error if it is there and names nothing."""
    names = [name.strip() for value in gpus for name in value.split(",") if name.strip()]
    if gpus and not names:
        raise click.BadParameter("it names no GPU", param_hint="--gpu")
    return list(dict.fromkeys(names))


def require_order(request: int | None, limit: int, prefix: str = "--") -> None:
    """Raise a usage error where more is kept for a container than it may have."""
    if request is not None and request > limit:
        what = f"what is kept for the container cannot be more than its {prefix}limit"
        raise click.BadParameter(what, param_hint=f"{prefix}request")


def wish(limit: int | None, request: int | None) -> Wish | None:
    """Return what --memory-limit and --memory-request ask for, None for nothing."""
    if limit is None and request is not None:
        what = "it is a part of a --memory-limit: give that, too"
        raise click.BadParameter(what, param_hint="--memory-request")
    if limit is None:
        return None
    require_order(request, limit, "--memory-")
    return Wish(limit, request)


def warnings(limit: int) -> list[str]:
    """Return a warning for a limit with which no program can use the GPU."""
    if limit >= CONTEXT_MEMORY:
        return []
    least = amount(CONTEXT_MEMORY)
    return [f"a CUDA context and its libraries take about {least}: with less no program starts"]
