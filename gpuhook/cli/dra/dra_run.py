# SPDX-License-Identifier: Apache-2.0
"""`gpuhook dra run`: runs the DRA drivers of this node."""

from __future__ import annotations

import os
from typing import Any

import click

from gpuhook.cli.options import command_sections, parameters, plugin_command
from gpuhook.device_plugin.config.overrides import read_overrides
from gpuhook.dra import dra_options

_PROCESS = "gpuhook.dra.driver_process"
_SECTIONS = {
    "Kubernetes": (
        "node-name", "kubelet-root", "pod-uid", "service-account", "cdi-directory",
        "pod-resources-socket", "metrics-address", "process-name",
    ),
    "Devices": (
        "mig-strategy", "exclude-devices", "device-discovery-strategy", "nvidia-driver-root",
        "nvidia-dev-root", "container-driver-root", "nvidia-cdi-hook-path", "memory-reserve",
        "mps-root",
    ),
    "Health": (
        "health-critical-xids", "health-ignored-xids", "health-enabled-xids", "health-ask-driver",
        "health-poll-interval", "health-taint-effect",
    ),
    "Configuration": (
        "config-file", "config-dir", "config-name-file", "default-config",
        "fallback-strategies", "node-label", "strict-config",
    ),
    command_sections.NODE: (
        "inventory", "node-driver-root", "node-dev-root", "host-root", "nvml-library",
        "library-search-path",
    ),
}  # fmt: skip
OPTIONS = dra_options.options({name for names in _SECTIONS.values() for name in names})


class _RunCommand(command_sections.SectionedCommand):
    """dra run, whose --help lists the options in sections."""

    sections = _SECTIONS


def _options(command: Any) -> Any:
    return parameters.with_options(command, [plugin_command.decorator(one) for one in OPTIONS])


@click.command(cls=_RunCommand)
@_options
@click.pass_context
def run(ctx: click.Context, /, **command_line: tuple[str, ...]) -> None:
    """Run the DRA drivers of this node, one for each vendor of its GPUs.

    A driver publishes the GPUs as ResourceSlices, and prepares the ResourceClaims of pods for the
    kubelet. It runs until SIGTERM or SIGINT; SIGHUP makes it reload the configuration and rescan
    the node. The configuration file is that of gpuhook device-plugin. Options take precedence over
    variables, variables over the configuration file, and the file over the defaults.
    """
    given = read_overrides(
        {one.name: command_line[one.field] for one in OPTIONS}, os.environ, OPTIONS
    )
    chosen = dra_options.dra_launch(given, os.environ)
    plugin_command.warn(given.findings)
    plugin_command.run(ctx, _PROCESS, chosen, chosen.plugin.process_name, "rich")
