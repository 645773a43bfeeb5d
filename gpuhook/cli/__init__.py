# SPDX-License-Identifier: Apache-2.0
"""The command `gpuhook`: data on standard output, messages on standard error.

Exit status: 0 done, 1 failed, 2 wrong usage. Calling a command imports its module.
"""

from __future__ import annotations

import errno
import importlib
import sys
from typing import IO, Any

import click

from gpuhook import __version__
from gpuhook.cli.options import command_sections
from gpuhook.errors import GpuhookError, UsageError, fault
from gpuhook.host import console
from gpuhook.host.error_text import worded
from gpuhook.host.hot.engine_log import unforeseen
from gpuhook.host.terminal import terminal_features

TYPE_CHECKING = False
if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

_EVERYWHERE = ("-q", "--quiet", "--debug", "--verbose")  # before or after the command
_COMPLETED = 45  # characters of help that shells show: click's own default
COMMANDS = {
    "attach": "gpuhook.cli.containers.attach:attach",
    "cdi": "gpuhook.cli.cdi.cdi_list:cdi",
    "compare": "gpuhook.cli.diagnosis.compare:compare",
    "completion": "gpuhook.cli.completion:completion",
    "config": "gpuhook.cli.node.config:config",
    "configure": "gpuhook.cli.engines.configure:configure",
    "detach": "gpuhook.cli.containers.detach:detach",
    "device-plugin": "gpuhook.cli.node.device_plugin:device_plugin",
    "doctor": "gpuhook.cli.diagnosis.doctor:doctor",
    "dra": "gpuhook.cli.dra.dra_group:dra",
    "explain": "gpuhook.cli.diagnosis.explain:explain",
    "generate-cdi": "gpuhook.cli.generate.generate_cdi:generate_cdi",
    "health": "gpuhook.cli.node.health:health",
    "help": "gpuhook.cli.about:help_",
    "inspect": "gpuhook.cli.containers.inspect:inspect",
    "install": "gpuhook.cli.engines.install:install",
    "inventory": "gpuhook.cli.node.inventory:inventory",
    "labels": "gpuhook.cli.node.labels:command",
    "limits": "gpuhook.cli.containers.limits:limits",
    "map": "gpuhook.cli.diagnosis.map:map_",
    "node": "gpuhook.cli.engines.install:node",
    "nri": "gpuhook.cli.node.nri:nri",
    "ps": "gpuhook.cli.diagnosis.ps:ps",
    "refresh": "gpuhook.cli.generate.refresh:refresh",
    "repair": "gpuhook.cli.containers.repair:repair",
    "setup": "gpuhook.cli.engines.setup:setup",
    "support-bundle": "gpuhook.cli.diagnosis.support_bundle:support_bundle",
    "system": "gpuhook.cli.node.system:system",
    "uninstall": "gpuhook.cli.engines.install:uninstall",
    "version": "gpuhook.cli.about:version",
}
_HIDDEN = ("install", "uninstall")  # they are commands of `gpuhook node`


class Failure(click.ClickException):
    """A fault as text: `Error GH1234: message`, then `hint: what to do`."""

    exit_code = 1

    def __init__(self, error: GpuhookError) -> None:
        super().__init__(error.message)
        self.label = f"Error {error.code}"
        self.hint = error.hint

    def show(self, file: IO[Any] | None = None) -> None:
        """Print the fault on standard error."""
        click.echo(f"{self.label}: {self.message}", file=file, err=file is None)
        click.echo(f"hint: {self.hint}", file=file, err=file is None)


class UsageFailure(Failure):
    """A fault of the command line."""

    exit_code = 2


class FaultGroup(command_sections.ShortHelp, click.Group):
    """A group that prints the faults of all its commands."""

    def main(self, *args: Any, **kwargs: Any) -> Any:
        """Run the command line, and end with its status."""
        console.prepare_standard_streams()
        try:
            return super().main(*args, **kwargs)
        except OSError as error:  # click printed --help or --version
            failure = Failure(console.standard_output_fault(error) or worded(error))
            failure.show()
            sys.exit(failure.exit_code)
        except MemoryError:
            pass
        # Outside of the handler, the memory of the frames that failed is free.
        Failure(fault("GH1492")).show()
        sys.exit(Failure.exit_code)

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command; any exception becomes a Failure."""
        try:
            return super().invoke(ctx)
        except OSError as error:
            if error.errno == errno.EPIPE:  # `gpuhook inventory | head`: click ends it quietly
                raise
            raise _failure(ctx, console.standard_output_fault(error) or error) from error
        except GpuhookError as error:
            raise _failure(ctx, error) from error
        except (click.exceptions.Exit, click.Abort, click.ClickException, MemoryError):
            raise
        except Exception as error:  # a traceback only with --debug
            raise _failure(ctx, error) from error


class LazyGroup(FaultGroup):
    """A group that imports its commands by name."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse the command line; options of all commands may be anywhere in it."""
        end = args.index("--") if "--" in args else len(args)
        everywhere = [word for word in args[:end] if word in _EVERYWHERE]
        rest = [word for word in args[:end] if word not in _EVERYWHERE]
        return super().parse_args(ctx, [*everywhere, *rest, *args[end:]])

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 # click's signature
        """Return the names of the commands that --help lists, sorted."""
        return sorted(COMMANDS.keys() - _HIDDEN)

    def get_command(
        self,
        ctx: click.Context,  # noqa: ARG002 # click's signature
        cmd_name: str,
    ) -> click.Command | None:
        """Return the command, None for an unknown name."""
        module, _, attribute = COMMANDS.get(cmd_name, "").partition(":")
        if not module:
            return None
        command: click.Command = getattr(importlib.import_module(module), attribute)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Return the command and its arguments; a usage error names the nearest command."""
        command_sections.require_known(ctx, args[0], COMMANDS)
        return super().resolve_command(ctx, args)

    def format_commands(
        self,
        ctx: click.Context,  # noqa: ARG002 # click's signature
        formatter: click.HelpFormatter,
    ) -> None:
        """Write the commands, in sections."""
        for title, names in command_sections.SECTIONS.items():
            rows = [(name, _short_help(name, command_sections.LONGEST)) for name in names]
            command_sections.write(formatter, title, rows)

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Return the commands and options with this prefix, for shell completion."""
        from click.shell_completion import CompletionItem

        names = [name for name in self.list_commands(ctx) if name.startswith(incomplete)]
        found = [CompletionItem(name, help=_short_help(name, _COMPLETED)) for name in names]
        return [*found, *click.Command.shell_complete(self, ctx, incomplete)]


def _short_help(name: str, limit: int) -> str:
    return click.Command(name, help=command_sections.LINES[name]).get_short_help_str(limit)


def _failure(ctx: click.Context, error: Exception) -> Failure:
    if ctx.params.get("debug"):
        import traceback

        traceback.print_exception(error, file=sys.stderr)
    if isinstance(error, (GpuhookError, OSError)):
        found = worded(error)
        return UsageFailure(found) if isinstance(found, UsageError) else Failure(found)
    return Failure(unforeseen(error))


@click.group(cls=LazyGroup, context_settings={"auto_envvar_prefix": "GPUHOOK"})
@click.version_option(__version__, prog_name="gpuhook")
@click.option(
    "-q", "--quiet", is_flag=True, help="Print only errors, warnings and the requested output."
)
@click.option(
    "--debug", "--verbose", is_flag=True, help="Log each step, and print the traceback of an error."
)
@click.option(
    "--log-format",
    type=click.Choice(["text", "json"]),
    default="text",
    show_default=True,
    help="The format of the log on standard error.",
)
def main(quiet: bool, debug: bool, log_format: str) -> None:  # noqa: ARG001 # console.py reads it
    """Give containers NVIDIA and AMD GPUs, and show which container uses which GPU."""
    if terminal_features.has_colour():
        click.get_current_context().color = True  # also if a variable forces it in a pipe
    if debug:
        from gpuhook.host import logs

        logs.configure(log_format, debug=True)
