# SPDX-License-Identifier: Apache-2.0
"""The options of `gpuhook limits` and `gpuhook attach`: memory amounts and GPUs."""

from __future__ import annotations

import re
from typing import Any

import click

from gpuhook.device_plugin.config.grammar.memory_values import CONTEXT_MEMORY
from gpuhook.errors import printable
from gpuhook.host.quantity import MEMORY_HINT, likely_unit, memory_bytes
from gpuhook.memory_limits.limit_changes import Wish
from gpuhook.request.memory_request import MIB, amount

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from gpuhook.cli.options.parameters import F

_MOST_DIGITS = 19  # of an amount below 2**63
# What `docker run --memory` accepts and Kubernetes does not: 4g, 512mb, 4GB, 4GiB; powers of 1024.
_OF_DOCKER = re.compile(r"([0-9]{1,16}(?:\.[0-9]{1,9})?)(?:([mgt])|([kmgtKMGT])i?[bB])")


class Amount(click.ParamType):  # type: ignore[type-arg]  # generic in newer clicks only
    """An amount of memory with a unit, in bytes; rounded down to whole MiB, the driver's unit.

    The unit is that of a Kubernetes quantity (4Gi, 4G), or of Docker (4g, 4gb, 4GB).
    """

    name = "quantity"

    def __init__(self, least: int) -> None:
        self._least = least

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """Return the bytes; a usage error for a number without a unit or a malformed amount."""
        if isinstance(value, int):
            return value
        if str(value).isdecimal() and len(value) <= _MOST_DIGITS and int(value):
            self.fail(f"{value} has no unit: write {value}{likely_unit(int(value))}", param, ctx)
        of_docker = _OF_DOCKER.fullmatch(str(value))
        if of_docker:
            value = f"{of_docker[1]}{(of_docker[2] or of_docker[3]).capitalize()}i"
        number = memory_bytes(value)
        if number is None:
            found = f'the text "{printable(value, 80)}"'
            self.fail(f"must be an amount of memory, found {found}: {MEMORY_HINT}", param, ctx)
        if number < self._least:
            self.fail(f"{value} is less than 1Mi", param, ctx)
        return number // MIB * MIB


def _amount(option: str, text: str, least: int = MIB, **settings: Any) -> Callable[[F], F]:
    """Return the decorator for an option that is an amount of memory."""
    return click.option(
        option,
        option.rpartition("-")[2],
        metavar="QUANTITY",
        type=Amount(least),
        show_envvar=True,
        help=text,
        **settings,
    )


limit = _amount(
    "--limit",
    "The memory limit for each GPU: 4Gi, 4096Mi, 1.5G, or in the form of docker run --memory "
    "(4g, 512mb); rounded down to whole MiB (1.5G is 1430Mi). An allocation above it fails, but "
    "only in this container.",
    required=True,
)
request = _amount(
    "--request",
    "The guaranteed part of the limit; 0 for none. If the container uses more, an MPS server may "
    "terminate it in favor of others. On kernels with the dmem controller, the guarantee remains "
    "reserved after the container exits, unless it is cleared. Default: the current guarantee, "
    "or the limit if that is lower.",
    least=0,
)
new_limit = _amount(
    "--memory-limit",
    "The memory limit of the container for each of these GPUs: 4Gi, 4096Mi. Default: the "
    "limit that was granted when the container was created, if any.",
)
new_request = _amount(
    "--memory-request",
    "The guaranteed part of --memory-limit, as in `gpuhook limits set --request`.",
    least=0,
)
gpu = click.option(
    "--gpu",
    "gpus",
    metavar="NAME",
    multiple=True,
    show_envvar=True,
    help="A GPU of the container: index, UUID (or a prefix of it) or replica id; repeatable, "
    "or comma-separated. Default: all GPUs of the container.",
)


def names_of(gpus: Sequence[str]) -> list[str]:
    """Return the names of a repeatable --gpu; a usage error if it names no GPU."""
    names = [name.strip() for value in gpus for name in value.split(",") if name.strip()]
    if gpus and not names:
        raise click.BadParameter("it names no GPU", param_hint="--gpu")
    return list(dict.fromkeys(names))


def require_order(request: int | None, limit: int, prefix: str = "--") -> None:
    """Raise a usage error if the guarantee is above the limit."""
    if request is not None and request > limit:
        what = f"the guarantee cannot be above {prefix}limit"
        raise click.BadParameter(what, param_hint=f"{prefix}request")


def wish(limit: int | None, request: int | None) -> Wish | None:
    """Return the limit and the guarantee to set, None without --memory-limit."""
    if limit is None and request is not None:
        what = "it is part of --memory-limit: also pass that option"
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
    return [f"a CUDA context and its libraries need about {least}: no program can start with less"]
