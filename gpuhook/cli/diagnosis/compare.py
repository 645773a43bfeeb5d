# SPDX-License-Identifier: Apache-2.0
"""`gpuhook compare`: the GPU parts of running containers, and what gpuhook would have added."""

from __future__ import annotations

import os
from functools import partial
from typing import Any

import click

from gpuhook.cli.options import command_sections, node_options, parameters
from gpuhook.cli.options import container_options as options
from gpuhook.compare import compare_text, comparison, node_comparison
from gpuhook.compare.items import compare_item
from gpuhook.containers import find
from gpuhook.errors import GpuhookError, fault
from gpuhook.host import console
from gpuhook.target import running_container
from gpuhook.usage import node_usage

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gpuhook.compare.node_comparison import NodeComparison

_NO_LIBRARY = "GH1200"
_MACHINE = (console.JSON, console.YAML)
_EXAMPLES = """\b
Examples:
  gpuhook compare --all
  gpuhook compare web/nginx -o wide
"""


@click.command(cls=command_sections.SectionedCommand, epilog=_EXAMPLES)
@options.container_or_none
@options.everything
@options.state_root
@parameters.output(
    "table",
    "wide",
    "json",
    "yaml",
    help="wide adds the known differences, UUIDs and full names; json has everything.",
)
@parameters.no_headers
@node_options.node_options
@click.pass_context
def compare(
    ctx: click.Context,
    /,
    *,
    container: str | None,
    everything: bool,
    state_roots: tuple[str, ...],
    output: str,
    no_headers: bool,
    **node: Any,
) -> None:
    """Compare the GPU parts of a running CONTAINER with what gpuhook would add.

    The vendor's stack or any other program may have added the GPUs. The comparison covers device
    nodes and access to them, driver files, the libraries that the loader finds, links, variables,
    groups and the effects of hooks. It changes nothing and does not run anything in a container.
    What gpuhook would add comes from the specs of `gpuhook generate-cdi`; on a node without such a
    spec, gpuhook asks the driver and writes nothing.

    Harmless differences of NVIDIA's modes are counted separately; -o wide lists them with the
    reason. The exit status is 1 if there is another difference, or a container could not be
    compared.
    """
    options.require_choice(container, everything=everything)
    # An unknown name is reported first, with or without a driver.
    named = find.find(container, state_roots) if container else None
    compared_node = node_comparison.node_comparison(
        options.context(), partial(_load, node), is_here=node["inventory"] is None
    )
    if named is not None:
        with console.progress(f"comparing {named.id}"):
            result = compared_node.container(named)
        results = [result] if result else []
        none = f"{named.id} has no GPU and does not request one"
    else:
        living, broken = find.everything(state_roots)
        chosen = [found for found in living if node_comparison.is_comparable(found)]
        with console.progress("comparing"):
            compared = compared_node.containers(chosen)
        results = [one for one in compared if one.get("code") not in running_container.GONE]
        results += [node_comparison.failure(os.path.basename(w), e) for w, e in broken.items()]
        none = "no running container has a GPU or requests one"
    if not results:
        console.say(none)
    ctx.exit(_print(compared_node, results, output, no_headers=no_headers))


def _load(options: dict[str, Any]) -> object:
    """Return the node of the options; GH1942 if it has no driver."""
    try:
        return node_options.load_node(**options, require_nodes=False, warn_of_losses=False)
    except GpuhookError as error:
        if error.code != _NO_LIBRARY:
            raise
        raise fault("GH1942", root=options["driver_root"]) from error


def _print(
    node: NodeComparison, results: list[dict[str, Any]], output: str, *, no_headers: bool
) -> int:
    """Print comparisons and failures, and return the exit status."""
    compared = [one for one in results if "code" not in one]
    failures = [one for one in results if "code" in one]
    for one in failures:
        console.warn(f"{one['container']}: {one['code']}: {one['message']}")
        console.say(f"hint: {one['hint']}")
    if output in _MACHINE:
        totals = [one["counts"] for one in compared]
        document = {
            "schema": comparison.SCHEMA,
            "node": node.document(),
            "containers": compared,
            "failures": [{k: v for k, v in one.items() if k != "hint"} for one in failures],
            "counts": {key: sum(one[key] for one in totals) for key in compare_item.counts([])},
        }
        console.document(document, output)
    else:
        requested = (name for one in compared for name in one["request"]["names"])
        gpus = node_usage.names_of(node.devices, requested)
        is_wide = output == console.WIDE
        for one in compared:
            compare_text.container(one, gpus, is_wide=is_wide, no_headers=no_headers)
        if compared:
            click.echo(compare_text.total(compared))
    return 1 if failures or any(one["counts"]["differences"] for one in compared) else 0
