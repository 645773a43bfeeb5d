# SPDX-License-Identifier: Apache-2.0
"""The options and the start of the programs that the kubelet calls."""

from __future__ import annotations

import gc
import importlib
import os
import sys
from contextlib import contextmanager
from typing import Any

import click

from gpuhook.cli.options import parameters
from gpuhook.device_plugin.config.grammar.value_kinds import Boolean
from gpuhook.errors import fault

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from gpuhook.device_plugin.config.findings import ConfigFinding
    from gpuhook.device_plugin.config.grammar.grammar import Option

_PACKAGES = {"grpc": "grpcio", "google": "protobuf"}


class _PluginOption(click.Option):
    """An option whose variables the table of options reads, not click.

    An error can then name the variable that has the wrong value.
    """

    def resolve_envvar_value(self, ctx: click.Context) -> str | None:  # noqa: ARG002 # click's
        """Return nothing."""
        return None


def decorator(option: Option) -> Callable[[Any], Any]:
    """Return the decorator for one option of a table; a boolean needs no value."""
    names = [f"--{name}" for name in (option.name, *option.aliases)]
    names += [name[1:] for name in names] if option.has_one_dash else []
    alone = parameters.boolean_with_value if isinstance(option.kind, Boolean) else {}
    if option.field == "host_root":
        alone = {"callback": parameters.export_host_root}
    return click.option(
        *names,
        option.field,
        cls=_PluginOption,
        multiple=True,
        metavar=option.kind.metavar,
        **alone,
        envvar=list(option.variables),
        show_envvar=True,
        help=option.help,
    )


def warn(found: Iterable[ConfigFinding]) -> None:
    """Print findings on standard error."""
    for finding in found:
        click.echo(str(finding), err=True)
        if finding.hint:
            click.echo(f"  hint: {finding.hint}", err=True)


def run(ctx: click.Context, process: str, chosen: object, name: str, *left_out: str) -> None:
    """Run the module `process` with these options until it ends, and exit with its status.

    `name` is the name of the process in ps, "" for an unchanged one. The modules `left_out` are not
    imported with it: asyncio and structlog import some that are installed and take memory.
    """
    from gpuhook.kernel import process as kernel_process

    kernel_process.limit_arenas()
    module = imported(process, *left_out)
    if name:
        kernel_process.rename(name)
    from gpuhook.host import logs

    main = ctx.find_root().params
    logs.configure(main.get("log_format", "text"), debug=bool(main.get("debug")))
    ctx.exit(module.run(chosen))


def imported(process: str, *left_out: str) -> Any:
    """Return a module that needs gRPC; GH1805 if its packages are not installed."""
    # Else gRPC's core writes its own log lines when a kubelet ends during a call.
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")
    gc.disable()  # a collection during imports takes a tenth of the time to the first registration
    try:
        with _left_out(*left_out):
            return importlib.import_module(process)
    except ModuleNotFoundError as error:
        missing = error.name or ""
        package = _PACKAGES.get(missing.partition(".")[0])
        if missing == process:
            package = "gpuhook-device-plugin"  # a separate package in distributions
        if package is None:
            raise
        raise fault("GH1805", package=package) from error
    finally:
        gc.enable()


@contextmanager
def _left_out(*names: str) -> Iterator[None]:
    """Hide modules that are not imported yet, as if they were not installed."""
    hidden = [name for name in names if name not in sys.modules]
    for name in hidden:
        sys.modules[name] = None  # type: ignore[assignment] # import then fails
    try:
        yield
    finally:
        for name in hidden:
            del sys.modules[name]
