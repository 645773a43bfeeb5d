# SPDX-License-Identifier: Apache-2.0
"""`gpuhook labels`: the feature labels of a node, printed, or kept in the file that NFD reads."""

from __future__ import annotations

import os
import signal
import time
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import click

from gpuhook.cli.options import parameters
from gpuhook.cli.options.node_options import load_node, node_options
from gpuhook.device_plugin.config import config_source
from gpuhook.device_plugin.config.configuration import LabelFlags
from gpuhook.device_plugin.config.grammar.value_kinds import Boolean
from gpuhook.device_plugin.config.launch_options import launch
from gpuhook.device_plugin.config.overrides import read_overrides
from gpuhook.device_plugin.config.plugin_options import LABEL_OPTIONS, OPTIONS
from gpuhook.device_plugin.labels import feature_file
from gpuhook.device_plugin.labels import node_labels as labels
from gpuhook.device_plugin.labels.node_labels import LabelFacts
from gpuhook.device_plugin.offer import resources
from gpuhook.errors import DriverError, FileError, GpuhookError
from gpuhook.host import console
from gpuhook.vendors.nvidia.inventory.inventory import Driver, Node

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import TypeVar

    from gpuhook.device_plugin.config.configuration import Configuration
    from gpuhook.device_plugin.config.findings import ConfigFinding

    F = TypeVar("F", bound="Callable[..., Any]")

SCHEMA = "gpuhook/labels/v1"
# Variables by which the reference's labels alone are set, and what they are to the plugin.
_OWN_VARIABLES = {
    "GFD_CONFIG_FILE": "CONFIG_FILE",
    "GFD_MIG_STRATEGY": "MIG_STRATEGY",
    "GFD_FAIL_ON_INIT_ERROR": "FAIL_ON_INIT_ERROR",
}
_OPTIONS = (
    "config-file", "config-dir", "config-name-file", "default-config", "mig-strategy",
    "fail-on-init-error", "exclude-devices", "accelerator-label", "remove-labels-on-exit",
    "machine-type-file", "no-timestamp", "output-file",
)  # fmt: skip
_INTERVAL, _ONESHOT, _FILE = (
    f"flags.gfd.{key}" for key in ("sleepInterval", "oneshot", "outputFile")
)
_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


def _plugin_options(command: F) -> F:
    """Add the options of the plugin that say something of labels, with their variables."""
    for option in reversed([one for one in OPTIONS if one.name in _OPTIONS]):
        alone: dict[str, Any] = {}
        if isinstance(option.kind, Boolean):
            alone = {"is_flag": False, "flag_value": "true"}
        variables = [of for of, name in _OWN_VARIABLES.items() if name in option.variables]
        shown = ", ".join((*variables, *option.variables))
        command = click.option(
            f"--{option.name}",
            multiple=True,
            metavar=option.kind.metavar,
            help=f"{option.help}  [env var: {shown}]",
            **alone,
        )(command)
    return command


@dataclass(frozen=True, slots=True)
class _Asked:
    """What one round needs: the configuration, where to, and how long until the next."""

    configuration: Configuration
    path: str
    goes_on: bool
    seconds: float | None  # None: until a signal comes


@click.command(name="labels")
@node_options
@_plugin_options
@click.option(
    "--interval",
    "--sleep-interval",
    "interval",
    metavar="DURATION",
    help="Go on, and look again after each DURATION (60s; infinite: at SIGHUP only); without "
    "--output-file in the file that NFD reads."
    "  [env var: GFD_SLEEP_INTERVAL]",
)
@click.option("--oneshot", is_flag=True, help="End after the first time.  [env var: GFD_ONESHOT]")
@parameters.output("text", "json", "yaml", help="name=value lines, or a document.")
def command(output: str, interval: str | None, oneshot: bool, **options: Any) -> None:
    """Print a node's feature labels, or keep them in NFD's file.

    Takes the configuration of the device plugin, as the labels tell of replicas. Prints to standard
    output unless --output-file, its variable or the configuration names a file; ends after the
    first time unless --interval or its variable is given. A file is written when something is new,
    and stays unless --remove-labels-on-exit is given.

    Without Node Feature Discovery: kubectl label --overwrite node NAME $(gpuhook labels).
    """
    said = {name: options.pop(name.replace("-", "_")) for name in _OPTIONS}
    said["interval"] = (interval,) if interval is not None else ()
    said["oneshot"] = ("true",) if oneshot else ()
    asked = _asked(said)
    show = _text if output == "text" else partial(_document, output=output)
    if not asked.goes_on:
        _write(asked, show, _labels(asked.configuration, int(time.time()), options))
        return
    signal.pthread_sigmask(signal.SIG_BLOCK, _SIGNALS)
    try:
        _go_on(said, asked, show, options)
    finally:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, _SIGNALS)


def _go_on(
    said: dict[str, tuple[str, ...]],
    asked: _Asked,
    show: Callable[[dict[str, str]], str],
    options: dict[str, Any],
) -> None:
    """Write the labels again and again; at the end remove the file. SIGHUP reads all anew."""
    begun = int(time.time())
    _write(asked, show, _labels(asked.configuration, begun, options))
    written = asked.path
    while True:
        caught = _waited(asked.seconds)
        if caught in (signal.SIGTERM, signal.SIGINT):
            break
        try:
            if caught == signal.SIGHUP:
                asked, begun = _asked(said), int(time.time())
            _write(asked, show, _labels(asked.configuration, begun, options))
            if written != asked.path:
                feature_file.remove(written)  # NFD would go on to read it
                written = asked.path
        except (GpuhookError, OSError) as error:
            click.echo(f"warning: the labels stay as they are: {error}", err=True)
    if asked.configuration.own.remove_labels_on_exit and asked.seconds is not None:
        feature_file.remove(asked.path)


def _waited(seconds: float | None) -> int | None:
    """Return the signal that came within `seconds`, None if none did."""
    if seconds is None:
        return signal.sigwait(_SIGNALS)
    caught = signal.sigtimedwait(_SIGNALS, seconds)
    return None if caught is None else caught.si_signo


def _asked(said: dict[str, tuple[str, ...]]) -> _Asked:
    """Return what the command line, the environment and the configuration file ask for."""
    environ = dict(os.environ)
    for variable, name in _OWN_VARIABLES.items():
        if environ.get(variable):
            environ[name] = environ[variable]
    told = read_overrides(said, environ, (*OPTIONS, *LABEL_OPTIONS))
    told.findings = [_of_the_command(finding) for finding in told.findings]
    chosen = launch(told)
    loaded = config_source.load(chosen.source, chosen.overrides, strict=chosen.strict)
    for finding in loaded.findings:
        click.echo(str(finding), err=True)
    flags = loaded.configuration.flags.gfd
    named = _FILE in chosen.overrides or flags.output_file != LabelFlags().output_file
    goes_on = not flags.oneshot and not {_INTERVAL, _ONESHOT}.isdisjoint(chosen.overrides)
    path = flags.output_file if named or goes_on else feature_file.STANDARD_OUTPUT[0]
    return _Asked(loaded.configuration, path, goes_on, flags.sleep_interval)


def _of_the_command(finding: ConfigFinding) -> ConfigFinding:
    """Return a finding that names the variable by the name that it has here."""
    for own, variable in _OWN_VARIABLES.items():
        if finding.source.endswith(f" {variable}") and os.environ.get(own):
            return replace(finding, source=finding.source.removesuffix(variable) + own)
    return finding


def _labels(configuration: Configuration, begun: int, node_of: dict[str, Any]) -> dict[str, str]:
    """Return the labels of the node that the options describe; warnings go to standard error."""
    flags = configuration.flags
    try:
        node = load_node(**node_of, require_nodes=False)
    except DriverError as error:
        if flags.fail_on_init_error:
            raise
        click.echo(f"warning: {error.message}", err=True)
        node = Node(Driver())
    try:
        offer = resources.offered(node, configuration)
        offered, warnings = offer.resources, offer.warnings
    except FileError as error:  # GPUs that the MIG strategy single cannot offer together
        offered, warnings = (), (error.message,)
    for warning in warnings:
        click.echo(f"warning: {warning}", err=True)
    timestamp = None if flags.gfd.no_timestamp else begun
    facts = _facts(node, node_of, flags.gfd.machine_type_file)
    return labels.labels(node, offered, configuration, facts, timestamp)


def _facts(node: Node, node_of: dict[str, Any], machine_file: str) -> LabelFacts:
    """Return what this machine says; nothing of it counts for a node from elsewhere."""
    if node_of["inventory"] is not None:
        return LabelFacts()
    from gpuhook.device_plugin.labels import label_facts

    return label_facts.facts(node, node_of["host_root"], machine_file)


def _write(asked: _Asked, show: Callable[[dict[str, str]], str], found: dict[str, str]) -> None:
    if asked.path in feature_file.STANDARD_OUTPUT:
        click.echo(show(found), nl=False)
    else:
        feature_file.write(asked.path, found)


def _text(found: dict[str, str]) -> str:
    return feature_file.text(found)


def _document(found: dict[str, str], output: str) -> str:
    return console.text({"schema": SCHEMA, "labels": found}, output)
