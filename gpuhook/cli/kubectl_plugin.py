# SPDX-License-Identifier: Apache-2.0
"""`kubectl gpuhook`: the GPUs of all nodes of a cluster."""

from __future__ import annotations

from typing import Any

import click

from gpuhook import __version__
from gpuhook.cli import FaultGroup
from gpuhook.cli.options import command_sections, parameters
from gpuhook.cluster import cluster_usage, plugin_metrics
from gpuhook.host import console

_PASSED_ON = ("kubeconfig", "context")


class _Group(FaultGroup, command_sections.Sentences):
    """The commands, with their sentences in --help."""


@click.group(cls=_Group, context_settings={"auto_envvar_prefix": "GPUHOOK"})
@click.version_option(__version__, prog_name="kubectl-gpuhook")
def main() -> None:
    """Show the GPUs of a cluster. kubectl runs this program as `kubectl gpuhook`."""


@main.command(
    epilog="\b\nExamples:\n"
    "  kubectl gpuhook ps\n"
    "  kubectl gpuhook ps --namespace team-a -o wide\n"
    "  kubectl gpuhook ps --node gpu-1 -o json"
)
@click.option("-n", "--namespace", help="List only the containers of this namespace.")
@click.option("--node", help="List only the GPUs of this node.")
@click.option(
    "-l",
    "--selector",
    default=plugin_metrics.SELECTOR,
    show_default=True,
    callback=parameters.not_empty,
    help="The labels of the device plugin's pods.",
)
@click.option("--context", help="The context of the kubeconfig.")
@click.option(
    "--kubeconfig", type=click.Path(exists=True, dir_okay=False), help="The kubeconfig file."
)
@click.option(
    "--timeout",
    type=parameters.Seconds(),
    default=10.0,
    show_default=True,
    metavar="SECONDS",
    help="The time for each answer of the cluster.",
)
@parameters.output("table", "wide", "json", "yaml")
@parameters.no_headers
def ps(
    *,
    namespace: str | None,
    node: str | None,
    selector: str,
    timeout: float,
    output: str,
    no_headers: bool,
    **access: Any,
) -> None:
    """List the GPUs of all nodes, and the containers that use them.

    The data are the metrics of gpuhook's device plugins (metrics.enabled of the chart), which
    kubectl reads through the API server. A node that does not answer is reported, and the other
    nodes are listed. The exit status is 1 if no node has answered.
    """
    options = [f"--{name}={access[name]}" for name in _PASSED_ON if access[name]]
    with console.progress("asking the nodes"):
        nodes = plugin_metrics.read(["kubectl", *options], selector, node, timeout)
    found = cluster_usage.document(nodes, namespace)
    if output in (console.JSON, console.YAML):
        console.document(found, output)
    else:
        is_wide = output == console.WIDE
        headers = cluster_usage.WIDE_HEADERS if is_wide else cluster_usage.HEADERS
        lines = cluster_usage.rows(found, is_wide=is_wide)
        console.rows(headers, lines, no_headers=no_headers, is_wide=is_wide)
    for one in nodes:
        if one.trouble:
            console.warn(f"{one.node}: {one.trouble}")
    if all(one.trouble for one in nodes):
        click.get_current_context().exit(1)
