# SPDX-License-Identifier: Apache-2.0
"""`gpuhook device-plugin`: runs the device plugin, or checks a configuration."""

from __future__ import annotations

import os
from typing import Any

import click
import yaml

from gpuhook.cli.options import command_sections, parameters, plugin_command
from gpuhook.device_plugin.config import config_reader, config_source, configuration, findings
from gpuhook.device_plugin.config.launch_options import launch
from gpuhook.device_plugin.config.overrides import OptionValues, read_overrides
from gpuhook.device_plugin.config.plugin_options import OPTIONS
from gpuhook.host import console, documents

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gpuhook.device_plugin.config.config_reader import ConfigReading
    from gpuhook.device_plugin.config.configuration import Configuration
    from gpuhook.device_plugin.config.findings import ConfigFinding

SCHEMA = "gpuhook/device-plugin-findings/v1"
_PROCESS = "gpuhook.device_plugin.plugin_process"
# OpenSSL takes 5 MB of memory, rich 5 MB more. The client of the API server imports ssl later.
_LEFT_OUT = ("ssl", "rich")


_SECTIONS = {
    "Devices": (
        "mig-strategy", "exclude-devices", "device-discovery-strategy", "nvidia-driver-root",
        "nvidia-dev-root", "fail-on-init-error", "gdrcopy-enabled", "gds-enabled",
        "mofed-enabled", "imex-channel-ids", "imex-required", "resource-naming-strategy",
    ),
    "Allocation": (
        "device-list-strategy", "device-id-strategy", "pass-device-specs",
        "shared-devices-allocation-policy", "pre-start-check", "min-free-memory",
        "cdi-annotation-prefix", "nvidia-cdi-hook-path", "container-driver-root",
        "host-files-path", "cdi-directory", "amd-device-list-strategy",
    ),
    "Memory limits and MPS": (
        "memory-reserve", "mps-root", "guard-action", "guard-grace", "guard-kill-after",
        "guard-tolerance", "guard-shortest-interval", "guard-longest-interval",
    ),
    "Health and metrics": (
        "health-critical-xids", "health-ignored-xids", "health-enabled-xids",
        "health-ask-driver", "health-poll-interval", "health-taint-effect", "pulse",
        "metrics-address",
    ),
    "Labels": (
        "labels", "label-node", "remove-labels-on-exit", "accelerator-label", "device-labels",
        "no-timestamp", "output-file", "machine-type-file",
    ),
    "Configuration": (
        "config-file", "config-dir", "config-name-file", "default-config",
        "fallback-strategies", "node-name", "node-label", "strict-config", "validate",
        "print-config", "print-schema", "output",
    ),
    "Process": ("kubelet-socket", "plugin-directory", "pod-resources-socket", "process-name"),
    "Without effect": ("cdi-feature-flags", "cdi-disable-hooks", "use-node-feature-api"),
    command_sections.NODE: (
        "inventory", "node-driver-root", "node-dev-root", "host-root", "nvml-library",
        "library-search-path",
    ),
}  # fmt: skip


class _PluginCommand(command_sections.SectionedCommand):
    """device-plugin, whose --help lists the options in sections."""

    sections = _SECTIONS


def _plugin_options(command: Any) -> Any:
    return parameters.with_options(
        command, [plugin_command.decorator(option) for option in OPTIONS]
    )


@click.command(name="device-plugin", cls=_PluginCommand)
@_plugin_options
@click.option(
    "--validate",
    type=click.Path(exists=True, dir_okay=False),
    metavar="FILE",
    help="Check a configuration file (with --inventory, also against that node) and exit; the "
    "status is 1 if there are errors.",
)
@click.option(
    "--print-config", is_flag=True, help="Print the effective configuration as YAML, and exit."
)
@click.option(
    "--print-schema",
    is_flag=True,
    help="Print the JSON schema of the configuration file, and exit.",
)
@parameters.output("text", "json", "yaml", help="The output format of --validate.")
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
    """Run the Kubernetes device plugin of this node.

    The plugin registers the GPUs with the kubelet and runs until SIGTERM or SIGINT; SIGHUP makes it
    reload the configuration and rescan the node. Options take precedence over variables,
    variables over the configuration file, and the file over the defaults; --print-config shows the
    effective values. Lists are comma-separated.
    """
    printed = {
        "--validate": validate is not None,
        "--print-config": print_config,
        "--print-schema": print_schema,
    }
    named = [option for option, is_given in printed.items() if is_given]
    if print_schema and len(named) > 1:
        raise click.UsageError(f"{' and '.join(named)} cannot be used together")
    if print_schema:
        click.echo(configuration.schema_text(), nl=False)
        return
    given = read_overrides({o.name: command_line[o.field] for o in OPTIONS}, os.environ)
    if validate is not None:
        ctx.exit(_validate(validate, given, output, print_config=print_config))
    chosen = launch(given)
    if print_config:
        found = config_source.load(chosen.source, chosen.overrides, strict=chosen.strict)
        plugin_command.warn((*given.findings, *found.findings))
        click.echo(_text(found.configuration), nl=False)
        return
    plugin_command.warn(tuple(given.findings))
    plugin_command.run(ctx, _PROCESS, chosen, chosen.process_name, *_LEFT_OUT)


def _validate(path: str, given: OptionValues, output: str, *, print_config: bool) -> int:
    """Print the findings in a file, and return the exit status."""
    strict = given.launch.get("strict") is True
    content = documents.read_head(path, config_source.LARGEST_READ)
    reading = config_reader.read(content, path, given.overrides, strict=strict)
    found = (*given.findings, *reading.findings)
    node = given.launch.get("inventory")
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
    """Return the findings for the node of an inventory; raises what dumped_part() does."""
    from gpuhook.device_plugin import node_config_check
    from gpuhook.vendors.catalogue import vendors

    parts = (vendor.dumped_part(name) for vendor in vendors())
    first, *others = [part.inventory for part in parts if part is not None]
    return node_config_check.findings(first, configuration, reading, path, *others)


def _unchecked(path: str, configuration: Configuration, *, err: bool) -> None:
    """Print that limits and units were not checked, if the configuration has them."""
    from gpuhook.device_plugin import node_config_check

    if node_config_check.is_for_a_node(configuration.sharing):
        text = "limits and units were not checked: pass --inventory, such as t4"
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
