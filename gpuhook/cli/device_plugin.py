# SPDX-License-Identifier: Apache-2.0
"""`gpuhook device-plugin`: serves the kubelet, or says what is wrong with a configuration."""

from __future__ import annotations

import gc
import importlib
import os
import sys
from contextlib import contextmanager
from typing import Any

import click
import yaml

from gpuhook.cli.options import parameters
from gpuhook.device_plugin.config import config_reader, config_source, configuration, findings
from gpuhook.device_plugin.config.grammar.value_kinds import Boolean
from gpuhook.device_plugin.config.launch_options import Launch, launch
from gpuhook.device_plugin.config.overrides import Given, read_overrides
from gpuhook.device_plugin.config.plugin_options import OPTIONS
from gpuhook.errors import fault
from gpuhook.host import console

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from gpuhook.device_plugin.config.config_reader import ConfigReading
    from gpuhook.device_plugin.config.configuration import Configuration
    from gpuhook.device_plugin.config.findings import ConfigFinding
    from gpuhook.device_plugin.config.grammar.grammar import Option

SCHEMA = "gpuhook/device-plugin-findings/v1"
_PROCESS = "gpuhook.device_plugin.plugin_process"
_PACKAGES = {"grpc": "grpcio", "google": "protobuf", "prometheus_client": "prometheus-client"}
# What asyncio and structlog take along where they find it, and what the plugin has no use for: with
# OpenSSL 5 MB, with rich's tracebacks 5 MB more. The API server's client imports ssl by itself.
_LEFT_OUT = ("ssl", "rich")


class _PluginOption(click.Option):
    """An option whose variables are read with the table of options, not by click.

    A fault can then name the one variable of several that has it.
    """

    def resolve_envvar_value(self, ctx: click.Context) -> str | None:  # noqa: ARG002 # click's
        """Return nothing."""
        return None


def _decorator(option: Option) -> Callable[[Any], Any]:
    """Return the decorator for one option of the table; a boolean may stand without a value."""
    names = [f"--{name}" for name in (option.name, *option.aliases)]
    alone: dict[str, Any] = {}
    if isinstance(option.kind, Boolean):
        alone = {"is_flag": False, "flag_value": "true"}
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


def _plugin_options(command: Any) -> Any:
    for option in reversed(OPTIONS):
        command = _decorator(option)(command)
    return command


@click.command(name="device-plugin")
@_plugin_options
@click.option(
    "--validate",
    type=click.Path(exists=True, dir_okay=False),
    metavar="FILE",
    help="Say all that is wrong with a configuration file, on the node of --inventory if one is "
    "given, and end: 1 if there are errors.",
)
@click.option(
    "--print-config", is_flag=True, help="Print the configuration that counts, as YAML, and end."
)
@click.option("--print-schema", is_flag=True, help="Print the JSON schema of the file, and end.")
@parameters.output("text", "json", "yaml", help="What --validate prints.")
@click.pass_context
def device_plugin(
    ctx: click.Context,
    /,
    validate: str | None,
    print_config: bool,
    print_schema: bool,
    output: str,
    **command_line: tuple[str, ...],
) -> None:
    """Offer the GPUs of this node to its kubelet.

    Serves until SIGTERM or SIGINT; SIGHUP has the configuration and the node read anew. Each option
    counts more than its variable, that more than the configuration file, and that more than the
    default; --print-config shows what counts. Lists have commas between their words.
    """
    if print_schema:
        click.echo(configuration.schema_text(), nl=False)
        return
    said = read_overrides({o.name: command_line[o.field] for o in OPTIONS}, os.environ)
    if validate is not None:
        ctx.exit(_validate(validate, said, output, print_config=print_config))
    chosen = launch(said)
    if print_config:
        found = config_source.load(chosen.source, chosen.overrides, strict=chosen.strict)
        _warn((*said.findings, *found.findings))
        click.echo(_text(found.configuration), nl=False)
        return
    _warn(tuple(said.findings))
    _run(ctx, chosen)


def _validate(path: str, said: Given, output: str, *, print_config: bool) -> int:
    """Print what is found in a file, and return the exit status."""
    strict = said.launch.get("strict") is True
    with open(path, "rb") as stream:
        content = stream.read(config_source.LARGEST_READ)
    reading = config_reader.read(content, path, said.overrides, strict=strict)
    found = (*said.findings, *reading.findings)
    node = said.launch.get("inventory")
    if isinstance(node, str) and reading.configuration is not None:
        found += _on_node(node, reading.configuration, reading, path)
    failed = bool(findings.errors(found))
    if output != "text":
        document = _document(path, found, valid=not failed) | {"node": node}
        console.document(document, output)
    else:
        for finding in found:
            click.echo(str(finding), err=print_config)
            if finding.hint:
                click.echo(f"  hint: {finding.hint}", err=print_config)
        if print_config and reading.configuration is not None:
            click.echo(_text(reading.configuration), nl=False)
        elif not failed:
            click.echo(f"{path}: valid" + (f" on {node}" if node else ""), err=print_config)
        if node is None and reading.configuration is not None:
            _unchecked(path, reading.configuration, err=print_config)
    return 1 if failed else 0


def _on_node(
    name: str, configuration: Configuration, reading: ConfigReading, path: str
) -> tuple[ConfigFinding, ...]:
    """Return what is found on the node of an inventory; raises what dump_file.load() does."""
    from gpuhook.device_plugin import node_config_check
    from gpuhook.vendors.nvidia.inventory import dump_file

    return node_config_check.findings(dump_file.load(name), configuration, reading, path)


def _unchecked(path: str, configuration: Configuration, *, err: bool) -> None:
    """Say what no file shows, where it matters."""
    from gpuhook.device_plugin import node_config_check

    if node_config_check.is_for_a_node(configuration.sharing):
        text = "whether limits and units fit was not checked: name a node by --inventory, as t4"
        click.echo(f"{path}: {text}", err=err)


def _document(path: str, found: tuple[ConfigFinding, ...], *, valid: bool) -> dict[str, object]:
    return {
        "schema": SCHEMA,
        "file": path,
        "valid": valid,
        "findings": [
            {
                "severity": finding.severity,
                "path": finding.path,
                "source": finding.source,
                "line": finding.line or None,
                "column": finding.column or None,
                "message": finding.message,
                "hint": finding.hint or None,
            }
            for finding in found
        ],
    }


def _text(made: Configuration) -> str:
    """Return a configuration as the YAML of a file that says all of it."""
    text: str = yaml.safe_dump(configuration.document(made), sort_keys=False)
    return text


def _warn(found: tuple[ConfigFinding, ...]) -> None:
    for finding in found:
        click.echo(str(finding), err=True)
        if finding.hint:
            click.echo(f"  hint: {finding.hint}", err=True)


def _run(ctx: click.Context, chosen: Launch) -> None:
    """Serve until the plugin is told to end, and exit with its status."""
    plugin = _plugin()
    if chosen.process_name:
        from gpuhook.kernel import process

        process.rename(chosen.process_name)
    from gpuhook.host import logs

    main = ctx.find_root().params
    logs.configure(main.get("log_format", "text"), debug=bool(main.get("debug")))
    ctx.exit(plugin.run(chosen))


def _plugin() -> Any:
    """Return the module of the plugin's process; GH1805 where its packages are not installed."""
    # Else gRPC's core writes lines of its own whenever a kubelet ends in the middle of a call.
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")
    gc.disable()  # importing makes no garbage worth a tenth of the time to the first registration
    try:
        with _left_out(*_LEFT_OUT):
            return importlib.import_module(_PROCESS)
    except ModuleNotFoundError as error:
        missing = error.name or ""
        package = _PACKAGES.get(missing.partition(".")[0])
        if missing == _PROCESS:
            package = "gpuhook-device-plugin"  # distributions' packages have it apart
        if package is None:
            raise
        raise fault("GH1805", package=package) from error
    finally:
        gc.enable()


@contextmanager
def _left_out(*names: str) -> Iterator[None]:
    """Let modules that were not imported yet look like ones that are not installed."""
    hidden = [name for name in names if name not in sys.modules]
    for name in hidden:
        sys.modules[name] = None  # type: ignore[assignment] # the import system's word for it
    try:
        yield
    finally:
        for name in hidden:
            del sys.modules[name]
