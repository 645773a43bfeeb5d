# SPDX-License-Identifier: Apache-2.0
"""`gpuhook compare`: what containers have of their GPUs, beside what gpuhook would have given."""

from __future__ import annotations

import os
from typing import Any

import click

from gpuhook.cli.compare_node import Comparing
from gpuhook.cli.options import container_options as options
from gpuhook.cli.options import node_options, parameters
from gpuhook.compare import compare_item, compare_text, comparison
from gpuhook.containers.warm import find
from gpuhook.host import console
from gpuhook.target import running_container

_MACHINE = (console.JSON, console.YAML)
_EXAMPLES = """\b
Examples:
  gpuhook compare --all
  gpuhook compare web/nginx -o wide
"""


@click.command(epilog=_EXAMPLES)
@options.container_or_none
@click.option("--all", "everything", is_flag=True, help="Every running container of this node.")
@options.state_root
@parameters.output(
    "table", "wide", "json", "yaml", help="wide has the known differences too, json everything."
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
    """Compare what a running CONTAINER got from NVIDIA's stack, or anyone, with gpuhook's way.

    Device nodes and the access to them, the driver's files, what the loader finds, links,
    variables, groups and what hooks do: item by item. Nothing is changed, and nothing is run in a
    container. What gpuhook would give comes from the specs of `gpuhook generate-cdi`; on a node
    that has none the driver is asked, and nothing is written.

    Differences of NVIDIA's modes that are known to do no harm are counted apart (-o wide has them,
    with the reason). Exit status 1 if there is any other, or a container could not be compared.

    CONTAINER is named as in `gpuhook attach --help`.
    """
    _require_choice(container, everything=everything)
    # A name of nobody is told as that, whether there is a driver or not.
    named = find.find(container, state_roots) if container else None
    comparing = Comparing(node)
    if named is not None:
        with console.progress(f"comparing {named.id}"):
            result = comparing.named(named)
        results = [result] if result else []
        none = f"{named.id} has no GPU and asks for none"
    else:
        living, broken = find.everything(state_roots)
        chosen = [found for found in living if comparing.is_ready(found)]
        with console.progress(f"comparing {len(chosen)} containers"):
            compared = comparing.all_of(chosen)
        results = [one for one in compared if one.get("code") not in running_container.GONE]
        results += [comparing.failure(os.path.basename(w), e) for w, e in broken.items()]
        none = "no running container has a GPU or asks for one"
    compared = [one for one in results if "code" not in one]
    failures = [one for one in results if "code" in one]
    if not results:
        console.say(none)
    _print(comparing, compared, failures, output, no_headers=no_headers)
    is_wrong = failures or any(one["counts"]["differences"] for one in compared)
    ctx.exit(1 if is_wrong else 0)


def _require_choice(container: str | None, *, everything: bool) -> None:
    """Raise a usage error unless a container or all of them are named."""
    if container and everything:
        raise click.UsageError("name a CONTAINER, or --all, not both")
    if not (container or everything):
        raise click.UsageError("name a CONTAINER, or --all")


def _print(
    comparing: Comparing,
    compared: list[dict[str, Any]],
    failures: list[dict[str, Any]],
    output: str,
    *,
    no_headers: bool,
) -> None:
    for one in failures:
        console.warn(f"{one['container']}: {one['code']}: {one['message']}")
        console.say(f"hint: {one['hint']}")
    if output in _MACHINE:
        totals = [one["counts"] for one in compared]
        document = {
            "schema": comparison.SCHEMA,
            "node": comparing.document(),
            "containers": compared,
            "failures": [{k: v for k, v in one.items() if k != "hint"} for one in failures],
            "counts": {key: sum(one[key] for one in totals) for key in compare_item.counts([])},
        }
        console.document(document, output)
        return
    for one in compared:
        compare_text.container(one, is_wide=output == console.WIDE, no_headers=no_headers)
    if compared:
        click.echo(compare_text.total(compared))
