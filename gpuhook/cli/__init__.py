# SPDX-License-Identifier: Apache-2.0
"""The command `gpuhook`: data on standard output, talk on standard error.

Exit status: 0 done, 1 failed, 2 wrong usage. A command's module is imported when it is called.
"""

from __future__ import annotations

import errno
import importlib
import sys
from typing import IO, Any

import click

from gpuhook import __version__
from gpuhook.errors import GpuhookError
from gpuhook.host import console
from gpuhook.host.error_text import unforeseen, worded

TYPE_CHECKING = False
if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

_EVERYWHERE = ("-q", "--quiet", "--debug")  # before a command and behind it
_COMPLETED = 45  # characters of help that shells show: click's own default
COMMANDS = {
    "attach": "gpuhook.cli.attach:attach",
    "cdi": "gpuhook.cli.cdi:cdi",
    "compare": "gpuhook.cli.compare:compare",
    "completion": "gpuhook.cli.completion:completion",
    "config": "gpuhook.cli.config:config",
    "configure": "gpuhook.cli.configure:configure",
    "detach": "gpuhook.cli.detach:detach",
    "device-plugin": "gpuhook.cli.device_plugin:device_plugin",
    "doctor": "gpuhook.cli.doctor:doctor",
    "explain": "gpuhook.cli.explain:explain",
    "generate-cdi": "gpuhook.cli.generate_cdi:generate_cdi",
    "health": "gpuhook.cli.health:health",
    "inspect": "gpuhook.cli.inspect:inspect",
    "install": "gpuhook.cli.install:install",
    "inventory": "gpuhook.cli.inventory:inventory",
    "labels": "gpuhook.cli.labels:command",
    "limits": "gpuhook.cli.limits:limits",
    "map": "gpuhook.cli.map:map_",
    "ps": "gpuhook.cli.ps:ps",
    "refresh": "gpuhook.cli.refresh:refresh",
    "repair": "gpuhook.cli.repair:repair",
    "support-bundle": "gpuhook.cli.support_bundle:support_bundle",
    "system": "gpuhook.cli.system:system",
    "uninstall": "gpuhook.cli.uninstall:uninstall",
}


class Failure(click.ClickException):
    """A fault as a person sees it: `Error GH1234: what`, then `hint: the way out`."""

    exit_code = 1

    def __init__(self, error: GpuhookError) -> None:
        super().__init__(error.message)
        self.label = f"Error {error.code}"
        self.hint = error.hint

    def show(self, file: IO[Any] | None = None) -> None:
        """Print the fault on standard error."""
        click.echo(f"{self.label}: {self.message}", file=file, err=file is None)
        click.echo(f"hint: {self.hint}", file=file, err=file is None)


class LazyGroup(click.Group):
    """A group whose commands are imported by name, and which words the faults of all of them."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse the words of the command line; what holds for all commands may stand anywhere."""
        end = args.index("--") if "--" in args else len(args)
        everywhere = [word for word in args[:end] if word in _EVERYWHERE]
        rest = [word for word in args[:end] if word not in _EVERYWHERE]
        return super().parse_args(ctx, [*everywhere, *rest, *args[end:]])

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 # click's signature
        """Return the names of the commands, sorted."""
        return sorted(COMMANDS)

    def get_command(
        self,
        ctx: click.Context,  # noqa: ARG002 # click's signature
        cmd_name: str,
    ) -> click.Command | None:
        """Return the command, None for a name that there is none of."""
        module, _, attribute = COMMANDS.get(cmd_name, "").partition(":")
        if not module:
            return None
        command: click.Command = getattr(importlib.import_module(module), attribute)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Return the command and its arguments; a usage error with the nearest name for none."""
        if args[0] not in COMMANDS and not ctx.resilient_parsing:
            import difflib

            near = difflib.get_close_matches(args[0], COMMANDS, 1)
            if near:
                ctx.fail(f"No such command {args[0]!r}. Did you mean {near[0]!r}?")
        return super().resolve_command(ctx, args)

    def format_commands(
        self,
        ctx: click.Context,  # noqa: ARG002 # click's signature
        formatter: click.HelpFormatter,
    ) -> None:
        """Write what each command does, in sections."""
        from gpuhook.cli.options import command_sections

        for title, names in command_sections.SECTIONS.items():
            rows = [(name, _short_help(name, command_sections.LONGEST)) for name in names]
            command_sections.write(formatter, title, rows)

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Return the commands and options that begin so, for a shell."""
        from click.shell_completion import CompletionItem

        names = [name for name in self.list_commands(ctx) if name.startswith(incomplete)]
        found = [CompletionItem(name, help=_short_help(name, _COMPLETED)) for name in names]
        return [*found, *click.Command.shell_complete(self, ctx, incomplete)]

    def main(self, *args: Any, **kwargs: Any) -> Any:
        """Run the command line, and end with its status."""
        console.name_standard_output()
        try:
            return super().main(*args, **kwargs)
        except OSError as error:  # of what click prints by itself: --help, --version
            failure = Failure(console.standard_output_fault(error) or worded(error))
            failure.show()
            sys.exit(failure.exit_code)

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command; a GpuhookError or OSError becomes a Failure."""
        try:
            return super().invoke(ctx)
        except OSError as error:
            if error.errno == errno.EPIPE:  # `gpuhook inventory | head`: click ends it quietly
                raise
            raise _failure(ctx, console.standard_output_fault(error) or error) from error
        except GpuhookError as error:
            raise _failure(ctx, error) from error
        except (click.exceptions.Exit, click.Abort, click.ClickException):
            raise
        except Exception as error:  # no traceback for those who did not ask for one
            raise _failure(ctx, error) from error


def _short_help(name: str, limit: int) -> str:
    from gpuhook.cli.options.help_lines import LINES

    return click.Command(name, help=LINES[name]).get_short_help_str(limit)


def _failure(ctx: click.Context, error: Exception) -> Failure:
    if ctx.params.get("debug"):
        import traceback

        traceback.print_exception(error, file=sys.stderr)
    if isinstance(error, (GpuhookError, OSError)):
        return Failure(worded(error))
    return Failure(unforeseen(error))


@click.group(cls=LazyGroup, context_settings={"auto_envvar_prefix": "GPUHOOK"})
@click.version_option(__version__, prog_name="gpuhook")
@click.option(
    "-q", "--quiet", is_flag=True, help="Tell only what is wrong, beside what was asked for."
)
@click.option("--debug", is_flag=True, help="Log what is done, and where a fault comes from.")
@click.option(
    "--log-format",
    type=click.Choice(["text", "json"]),
    default="text",
    show_default=True,
    help="The format of the log on standard error.",
)
def main(quiet: bool, debug: bool, log_format: str) -> None:  # noqa: ARG001 # printing.py asks
    """Gives containers their NVIDIA GPUs, and tells who has them."""
    if debug:
        from gpuhook.host import logs

        logs.configure(log_format, debug=True)
