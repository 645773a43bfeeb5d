# SPDX-License-Identifier: Apache-2.0
"""`gpuhook labels`: prints the feature labels of a node, or writes them to NFD's file."""

from __future__ import annotations

import os
import signal
import time
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import click

from gpuhook.cli.options import command_sections, parameters
from gpuhook.cli.options.node_options import load_node, node_options
from gpuhook.device_plugin.config import config_source
from gpuhook.device_plugin.config.configuration import LabelFlags
from gpuhook.device_plugin.config.grammar.value_kinds import Boolean
from gpuhook.device_plugin.config.launch_options import launch
from gpuhook.device_plugin.config.overrides import read_overrides
from gpuhook.device_plugin.config.plugin_options import LABEL_OPTIONS, OPTIONS
from gpuhook.device_plugin.labels import feature_file
from gpuhook.device_plugin.labels.label_parts import label_parts, merged
from gpuhook.device_plugin.offer import resources
from gpuhook.errors import DriverError, FileError, GpuhookError
from gpuhook.host import console, system_mounts
from gpuhook.vendors.catalogue import vendors
from gpuhook.vendors.nvidia.hot import host_fingerprint
from gpuhook.vendors.nvidia.inventory.inventory import Driver, Node
from gpuhook.vendors.nvidia.plugin import nvidia_part
from gpuhook.vendors.plugin.plugin_place import PluginPlace
from gpuhook.vendors.vendor_worker import call_vendor

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from gpuhook.cli.options.parameters import F
    from gpuhook.device_plugin.config.configuration import Configuration
    from gpuhook.device_plugin.config.findings import ConfigFinding
    from gpuhook.device_plugin.config.grammar.grammar import Option
    from gpuhook.vendors.plugin.vendor_part import VendorPart

SCHEMA = "gpuhook/labels/v1"
# Variables of GPU Feature Discovery, and the plugin's variables for the same options.
_OWN_VARIABLES = {
    "GFD_CONFIG_FILE": "CONFIG_FILE",
    "GFD_MIG_STRATEGY": "MIG_STRATEGY",
    "GFD_FAIL_ON_INIT_ERROR": "FAIL_ON_INIT_ERROR",
}
_OPTIONS = (
    "config-file", "config-dir", "config-name-file", "default-config", "mig-strategy",
    "fail-on-init-error", "exclude-devices", "accelerator-label", "device-labels",
    "remove-labels-on-exit", "machine-type-file", "no-timestamp", "output-file",
)  # fmt: skip
_INTERVAL, _ONESHOT, _FILE = (
    f"flags.gfd.{key}" for key in ("sleepInterval", "oneshot", "outputFile")
)
_HELP = {
    "output-file": "The file to write the labels to; empty for standard output. "
    "Default: standard output, or with --interval the file that NFD reads.",
}
_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


def _decorator(option: Option) -> Callable[[F], F]:
    """Return the decorator for an option of the plugin, with the variables of both programs."""
    variables = [of for of, name in _OWN_VARIABLES.items() if name in option.variables]
    shown = ", ".join((*variables, *option.variables))
    return click.option(
        f"--{option.name}",
        multiple=True,
        metavar=option.kind.metavar,
        help=f"{_HELP.get(option.name, option.help)}  [env var: {shown}]",
        **(parameters.boolean_with_value if isinstance(option.kind, Boolean) else {}),
    )


def _plugin_options(command: F) -> F:
    return parameters.with_options(
        command, [_decorator(option) for option in OPTIONS if option.name in _OPTIONS]
    )


@dataclass(frozen=True, slots=True)
class _Update:
    """The configuration, the file to write, and the seconds until the next update."""

    configuration: Configuration
    path: str
    goes_on: bool
    seconds: float | None  # None: until a signal comes


@click.command(name="labels", cls=command_sections.SectionedCommand)
@node_options
@_plugin_options
@click.option(
    "--interval",
    "--sleep-interval",
    "interval",
    metavar="DURATION",
    help="Keep running, and update the labels every DURATION (60s; infinite: only on SIGHUP); "
    "without --output-file, update the file that NFD reads."
    "  [env var: GFD_SLEEP_INTERVAL]",
)
@click.option(
    "--oneshot", is_flag=True, help="Exit after the first update.  [env var: GFD_ONESHOT]"
)
@parameters.output(
    "text",
    "json",
    "yaml",
    help="The output format: name=value lines, or a document.",
)
def command(output: str, interval: str | None, oneshot: bool, **options: Any) -> None:
    """Print the feature labels of a node, or write them to the file that NFD reads.

    Some labels depend on the device plugin's configuration, which this command also reads. The
    labels go to standard output unless --output-file, its variable or the configuration names a
    file. Without --interval or its variable, the command exits after the first update. It writes
    the file when labels change, and removes it on exit only with --remove-labels-on-exit.

    If Node Feature Discovery is not installed: kubectl label --overwrite node NAME $(gpuhook
    labels).
    """
    given = {name: options.pop(name.replace("-", "_")) for name in _OPTIONS}
    given["interval"] = (interval,) if interval is not None else ()
    given["oneshot"] = ("true",) if oneshot else ()
    if options["inventory"] is None:
        system_mounts.require()
    update = _update(given)
    show = _text if output == "text" else partial(_document, output=output)
    if not update.goes_on:
        _write(update, show, _labels(update.configuration, int(time.time()), options))
        return
    signal.pthread_sigmask(signal.SIG_BLOCK, _SIGNALS)
    try:
        _run(given, update, show, options)
    finally:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, _SIGNALS)


def _run(
    given: dict[str, tuple[str, ...]],
    update: _Update,
    show: Callable[[dict[str, str]], str],
    options: dict[str, Any],
) -> None:
    """Update the labels until SIGTERM or SIGINT; SIGHUP reads the configuration again."""
    start = int(time.time())
    _write(update, show, _labels(update.configuration, start, options))
    written = update.path
    while True:
        caught = _next_signal(update.seconds)
        if caught in (signal.SIGTERM, signal.SIGINT):
            break
        try:
            if caught == signal.SIGHUP:
                update, start = _update(given), int(time.time())
            _write(update, show, _labels(update.configuration, start, options))
            if written != update.path:
                feature_file.remove(written)  # else NFD continues to read it
                written = update.path
        except (GpuhookError, OSError) as error:
            click.echo(f"warning: the labels are not updated: {error}", err=True)
    if update.configuration.own.remove_labels_on_exit and update.seconds is not None:
        feature_file.remove(update.path)


def _next_signal(seconds: float | None) -> int | None:
    """Return the signal that arrives within `seconds`, None for none."""
    if seconds is None:
        return signal.sigwait(_SIGNALS)
    caught = signal.sigtimedwait(_SIGNALS, seconds)
    return None if caught is None else caught.si_signo


def _update(given: dict[str, tuple[str, ...]]) -> _Update:
    """Return the update by the command line, the environment and the configuration file."""
    environ = dict(os.environ)
    for variable, name in _OWN_VARIABLES.items():
        if environ.get(variable):
            environ[name] = environ[variable]
    overrides = read_overrides(given, environ, (*OPTIONS, *LABEL_OPTIONS))
    overrides.findings = [_renamed(finding) for finding in overrides.findings]
    chosen = launch(overrides)
    loaded = config_source.load(chosen.source, chosen.overrides, strict=chosen.strict)
    for finding in loaded.findings:
        click.echo(str(finding), err=True)
    flags = loaded.configuration.flags.gfd
    named = _FILE in chosen.overrides or flags.output_file != LabelFlags().output_file
    goes_on = not flags.oneshot and not {_INTERVAL, _ONESHOT}.isdisjoint(chosen.overrides)
    path = flags.output_file if named or goes_on else feature_file.STANDARD_OUTPUT[0]
    return _Update(loaded.configuration, path, goes_on, flags.sleep_interval)


def _renamed(finding: ConfigFinding) -> ConfigFinding:
    """Return a finding that names the variable of this command."""
    for own, variable in _OWN_VARIABLES.items():
        if finding.source.endswith(f" {variable}") and os.environ.get(own):
            return replace(finding, source=finding.source.removesuffix(variable) + own)
    return finding


def _labels(configuration: Configuration, start: int, node_of: dict[str, Any]) -> dict[str, str]:
    """Return the labels of the node that the options describe; warnings go to standard error."""
    flags = configuration.flags
    others = _vendor_parts(node_of)
    try:
        node = load_node(**node_of, require_nodes=False)
    except DriverError as error:
        if flags.fail_on_init_error and not others:
            raise
        if not others or host_fingerprint.module_version(node_of["host_root"]):
            click.echo(f"warning: {error.message}", err=True)
        node = Node(Driver())
    try:
        offer = resources.offered(node, configuration, *(part.inventory for part in others))
        offered, warnings = offer.resources, offer.warnings
    except FileError as error:  # the MIG strategy single cannot offer these GPUs together
        offered, warnings = (), (error.message,)
    parts = label_parts(
        [nvidia_part.part(node), *others],
        offered,
        configuration,
        host_root=None if node_of["inventory"] is not None else node_of["host_root"],
        call=call_vendor,
        timestamp=None if flags.gfd.no_timestamp else start,
    )
    of_kernel = (one for part in others for one in part.warnings)
    of_labels = (one for part in parts.values() for one in part.warnings)
    for warning in (*warnings, *of_kernel, *of_labels):
        click.echo(f"warning: {warning}", err=True)
    for part in parts.values():
        if part.error is not None:
            raise part.error
    return merged(parts.values())


def _vendor_parts(node_of: dict[str, Any]) -> list[VendorPart]:
    """Return the parts of the vendors whose driver need not be called."""
    dump, host_root, dev_root = (node_of[key] for key in ("inventory", "host_root", "dev_root"))
    others = [vendor for vendor in vendors() if not vendor.traces.HAS_FILES]
    if dump is not None:
        dumped = (vendor.dumped_part(dump) for vendor in others)
        return [part for part in dumped if part is not None]
    found = []
    place = PluginPlace(host_root, dev_root)
    for vendor in others:
        try:
            part = call_vendor(vendor, partial(vendor.plugin_part, place))
        except Exception as error:  # a bug, too, must not affect another vendor
            click.echo(f"warning: {vendor.title}: {error}", err=True)
        else:
            found += [] if part is None else [part]
    return found


def _write(update: _Update, show: Callable[[dict[str, str]], str], found: dict[str, str]) -> None:
    if update.path in feature_file.STANDARD_OUTPUT:
        click.echo(show(found), nl=False)
    else:
        feature_file.write(update.path, found)


def _text(found: dict[str, str]) -> str:
    return feature_file.text(found)


def _document(found: dict[str, str], output: str) -> str:
    return console.text({"schema": SCHEMA, "labels": found}, output)
