# SPDX-License-Identifier: Apache-2.0
"""Options that several commands take, and their parsed values."""

from __future__ import annotations

import math
import os
from functools import partial
from typing import Any

import click
from click.core import ParameterSource

from gpuhook.host import suggestion
from gpuhook.host.hot import state

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import TypeVar

    F = TypeVar("F", bound="Callable[..., Any]")


class NearestChoice(click.Choice):  # type: ignore[type-arg]  # click 8.1: not generic
    """A choice whose usage error names the nearest value."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return the value."""
        try:
            return super().convert(value, param, ctx)
        except click.BadParameter as error:
            near = suggestion.nearest(str(value), self.choices)
            if near is None:
                raise
            message = f"{error.message} Did you mean {near!r}?"
            raise click.BadParameter(message, ctx, param) from error


def with_options(command: F, options: Sequence[Callable[[F], F]]) -> F:
    """Add options to a click command, in their order in --help."""
    for option in reversed(options):
        command = option(command)
    return command


def output(*kinds: str, help: str = "The output format.") -> Callable[[F], F]:  # noqa: A002 # click's word
    """Return the decorator for -o, the output format; the first of `kinds` is the default."""
    return click.option(
        "-o",
        "--output",
        type=click.Choice(kinds),
        default=kinds[0],
        show_default=True,
        show_envvar=True,
        help=help,
    )


def host_root(**settings: Any) -> Callable[[F], F]:
    """Return the decorator for --host-root; `settings` are those of click.option().

    While the command runs, GPUHOOK_HOST_ROOT has the value of the option: modules without access
    to the options read the variable.
    """
    return click.option(
        "--host-root",
        envvar=state.HOST_ROOT_ENV,
        show_envvar=True,
        is_eager=True,
        callback=export_host_root,
        **settings,
    )


def export_host_root(ctx: click.Context, param: click.Parameter, value: Any) -> Any:
    """Set GPUHOOK_HOST_ROOT until the end of the command, and return `value`.

    The last one of several values applies.
    """
    if value and ctx.get_parameter_source(param.name or "") is not ParameterSource.DEFAULT:
        before = os.environ.get(state.HOST_ROOT_ENV)
        os.environ[state.HOST_ROOT_ENV] = value if isinstance(value, str) else value[-1]
        # A usage error closes the root context only.
        for one in (ctx, ctx.find_root()):
            one.call_on_close(partial(_restore_host_root, before))
    return value


def _restore_host_root(before: str | None) -> None:
    if before is None:
        os.environ.pop(state.HOST_ROOT_ENV, None)
    else:
        os.environ[state.HOST_ROOT_ENV] = before


class Seconds(click.FloatRange):
    """A time in seconds, from a tenth of a second to a day; neither nan nor inf."""

    def __init__(self) -> None:
        super().__init__(min=0.1, max=86400)

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        """Return the seconds; a usage error outside the bounds."""
        seconds: float = super().convert(value, param, ctx)
        if math.isnan(seconds):  # it compares as neither below nor above a bound
            self.fail(f"{value!r} is not a time", param, ctx)
        return seconds


# Settings of click.option() for a boolean that may have a value, as the device plugin's have.
boolean_with_value: dict[str, Any] = {"is_flag": False, "flag_value": "true"}
dry_run = click.option(
    "--dry-run", "is_dry", is_flag=True, help="Print what would be done without changing anything."
)
class_files = click.option(
    "--class-file",
    "class_files",
    metavar="FILE",
    multiple=True,
    type=click.Path(exists=True, dir_okay=False),
    help="DeviceClasses of the cluster, as `kubectl get deviceclasses -o yaml` prints them; "
    "repeatable. Default: the classes of the manifest, and those of gpuhook's chart.",
)
no_headers = click.option("--no-headers", is_flag=True, help="Omit the header line of the table.")


def not_empty(ctx: click.Context, param: click.Parameter, value: Any) -> Any:
    """Return the text, the texts or None; a usage error for an empty text, unless by default."""
    is_default = ctx.get_parameter_source(param.name or "") is ParameterSource.DEFAULT
    if not is_default and (value == "" or (isinstance(value, tuple) and "" in value)):
        raise click.BadParameter("it is empty", ctx, param)
    return value


def capabilities(
    ctx: click.Context, param: click.Parameter, value: str | None
) -> frozenset[str] | None:
    """Return the capabilities of --driver-capabilities, None without it; else a usage error."""
    if capability_list(ctx, param, value) is None:
        return None
    from gpuhook.vendors.catalogue import vendors

    return frozenset().union(*(vendor.parse_capabilities(value) for vendor in vendors()))


def capability_list(ctx: click.Context, param: click.Parameter, value: str | None) -> str | None:
    """Return --driver-capabilities unchanged; a usage error for an unknown or no capability."""
    if value is None:
        return None
    from gpuhook.vendors.catalogue import vendors

    known = (*(word for vendor in vendors() for word in vendor.capability_words), "all")
    named = [word.strip() for word in value.split(",") if word.strip()]
    unknown = [word for word in named if word not in known]
    if unknown or not named:
        what = f"unknown driver capability {unknown[0]}" if unknown else "it is empty"
        raise click.BadParameter(f"{what}; known are {', '.join(known)}", ctx, param)
    return value


spec_dir = click.option(
    "--spec-dir",
    type=click.Path(file_okay=False),
    multiple=True,
    show_envvar=True,
    callback=not_empty,
    help="A directory of specs, lowest priority first; repeatable. "
    "Default: cdi.specDirs of the settings (/etc/cdi, /var/run/cdi).",
)


def spec_dirs(named: tuple[str, ...]) -> list[str]:
    """Return the spec directories, lowest priority first; GH1530 for broken settings."""
    from gpuhook.node import settings_file  # it loads YAML

    return list(named) or settings_file.of_node().spec_dirs
