# SPDX-License-Identifier: Apache-2.0
"""`gpuhook compare`: what containers have of their GPUs, beside what gpuhook would have given."""

from __future__ import annotations

import os
from typing import Any

import click

from gpuhook.cli import compare_watch
from gpuhook.cli.compare_node import Comparing
from gpuhook.cli.options import container_options as options
from gpuhook.cli.options import node_options, parameters
from gpuhook.compare import compare_item, compare_text, comparison, records, summary
from gpuhook.containers.warm import find
from gpuhook.host import printing, progress
from gpuhook.target import running_container

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gpuhook.containers.warm.runtime_state import Found

_MACHINE = (printing.JSON, printing.YAML)
_EXAMPLES = """\b
Examples:
  gpuhook compare --all
  gpuhook compare web/nginx -o wide
  gpuhook compare --watch --record /var/lib/gpuhook-compare.jsonl
  gpuhook compare --summary /var/lib/gpuhook-compare.jsonl
"""


@click.command(epilog=_EXAMPLES)
@options.container_or_none
@click.option("--all", "everything", is_flag=True, help="Every running container of this node.")
@click.option(
    "--watch",
    is_flag=True,
    help="Go on, and compare each container that is started, until interrupted. One that lives "
    "shorter than the interval may not be seen.",
)
@click.option(
    "--interval",
    type=parameters.Seconds(),
    default=5.0,
    show_default=True,
    metavar="SECONDS",
    help="How often --watch looks for new containers.",
)
@click.option(
    "--record",
    "record_file",
    type=click.Path(dir_okay=False),
    metavar="FILE",
    help="Append a line of JSON for each container to FILE, once for each time that it was "
    "started; what is in FILE already is not compared again with --all and --watch.",
)
@click.option(
    "--summary",
    "summary_file",
    type=click.Path(exists=True, dir_okay=False),
    metavar="FILE",
    help="Tell what a FILE of --record comes to, and compare nothing.",
)
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
    watch: bool,
    interval: float,
    record_file: str | None,
    summary_file: str | None,
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
    with the reason). Exit status 1 if there is any other, in --summary too, or a container
    could not be compared.

    CONTAINER is named as in `gpuhook attach --help`.
    """
    _require_sense(
        container,
        summary_file,
        output,
        everything=everything,
        watch=watch,
        is_recorded=record_file is not None,
    )
    if summary_file is not None:
        ctx.exit(_summarise(summary_file, output, no_headers=no_headers))
    # A name of nobody is told as that, whether there is a driver or not.
    named = find.find(container, state_roots) if container else None
    comparing = Comparing(node)
    record = records.Record(record_file) if record_file is not None else None
    if watch:
        ctx.exit(compare_watch.run(comparing, state_roots, record, interval))
    if named is not None:
        chosen = [named]
        with progress.telling(f"comparing {chosen[0].id}"):
            result = comparing.named(chosen[0])
        results = [result] if result else []
        none = f"{chosen[0].id} has no GPU and asks for none"
    else:
        living, broken = find.everything(state_roots)
        ready = [found for found in living if comparing.is_ready(found)]
        noted = record.lives if record is not None else set()
        chosen = [f for f in ready if records.life_of(f.id, f.started) not in noted]
        with progress.telling(f"comparing {len(chosen)} containers"):
            found = comparing.all_of(chosen)
        results = [one for one in found if one.get("code") not in running_container.GONE]
        results += [comparing.failure(os.path.basename(w), e) for w, e in broken.items()]
        others = len(ready) - len(chosen)
        none = "no running container has a GPU or asks for one"
        none += f", but for those that {record_file} has already" if others else ""
    _keep(record, chosen, results)
    compared = [one for one in results if "code" not in one]
    failures = [one for one in results if "code" in one]
    if not results:
        printing.say(none)
    _print(comparing, compared, failures, output, no_headers=no_headers)
    is_wrong = failures or any(one["counts"]["differences"] for one in compared)
    ctx.exit(1 if is_wrong else 0)


def _require_sense(
    container: str | None,
    summary_file: str | None,
    output: str,
    *,
    everything: bool,
    watch: bool,
    is_recorded: bool,
) -> None:
    """Raise a usage error for options that contradict each other."""
    if summary_file is not None:
        if container or everything or watch:
            raise click.UsageError("--summary reads a file: name no container with it")
        if is_recorded:
            raise click.UsageError("--summary reads what --record has written: name one of them")
        return
    if container and (everything or watch):
        raise click.UsageError("name a CONTAINER, or --all (which --watch means), not both")
    if not (container or everything or watch):
        raise click.UsageError("name a CONTAINER, or --all")
    if watch and output in _MACHINE:
        raise click.UsageError(f"--watch prints no {output}: --record FILE keeps JSON lines")


def _keep(
    record: records.Record | None, chosen: list[Found], results: list[dict[str, Any]]
) -> None:
    started = {found.id: found.started for found in chosen}
    for one in results if record is not None else ():
        identity = one["container"]
        is_new = record is not None and records.life_of(identity, started.get(identity))
        if record is not None and "code" not in one and is_new not in record.lives:
            record.add(records.line(one, started[identity]))


def _print(
    comparing: Comparing,
    compared: list[dict[str, Any]],
    failures: list[dict[str, Any]],
    output: str,
    *,
    no_headers: bool,
) -> None:
    for one in failures:
        printing.warn(f"{one['container']}: {one['code']}: {one['message']}")
        printing.say(f"hint: {one['hint']}")
    if output in _MACHINE:
        totals = [one["counts"] for one in compared]
        document = {
            "schema": comparison.SCHEMA,
            "node": comparing.document(),
            "containers": compared,
            "failures": [{k: v for k, v in one.items() if k != "hint"} for one in failures],
            "counts": {key: sum(one[key] for one in totals) for key in compare_item.counts([])},
        }
        printing.document(document, output)
        return
    for one in compared:
        compare_text.container(one, is_wide=output == printing.WIDE, no_headers=no_headers)
    if compared:
        click.echo(compare_text.total(compared))


def _summarise(path: str, output: str, *, no_headers: bool) -> int:
    """Print what a file of records comes to; returns 1 if there is a difference in it, else 0."""
    found, unreadable = records.read(path)
    told = summary.of(found, unreadable)
    if output in _MACHINE:
        printing.document(told, output)
    else:
        compare_text.summary(told, no_headers=no_headers)
    return 1 if told["differences"] else 0
