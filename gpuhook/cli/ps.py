# SPDX-License-Identifier: Apache-2.0
"""`gpuhook ps`: which container holds which GPU or replica, and what is isolated."""

from __future__ import annotations

import json
import time
from typing import Any

import click

from gpuhook.cli import parameters
from gpuhook.cli.tables import shortened, table
from gpuhook.container import ledger
from gpuhook.diagnose import holdings, sharing, unseen
from gpuhook.errors import printable
from gpuhook.grant.amounts import amount
from gpuhook.kubernetes.health import evidence
from gpuhook.kubernetes.policies import before
from gpuhook.programs.memory import guarded
from gpuhook.vendors.nvidia import isolation as isolation_words
from gpuhook.vendors.nvidia import known_node

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from gpuhook.kubernetes.guard.state_file import Watched

HEADERS = ("CONTAINER", "POD", "NAMESPACE", "GPUS", "REPLICAS", "LIMIT", "ROUTE", "SINCE")
WIDE = ("REQUEST", "TIME-SLICE", "COMPUTE-MODE")
_MAX_LINE = 4096


@click.command()
@parameters.output(
    "table", "wide", "json", help="table shortens UUIDs and container ids, wide does not."
)
@click.option("--no-headers", is_flag=True, help="Leave out the header line of the table.")
@click.option(
    "--isolation",
    is_flag=True,
    help="Tell of each container and GPU how it is shared, and what that isolates: memory, "
    "compute, whether the share changes, and what a neighbour's crash does. JSON has it always.",
)
def ps(output: str, no_headers: bool, isolation: bool) -> None:
    """List the containers that hold GPUs: pod, GPUs, replicas, limit, route, since when.

    LIMIT is what a container may have of each GPU's memory and who bounds it: "3776Mi driver";
    "3776Mi guard" where the driver does not hold it (`gpuhook limits show` says why) and the device
    plugin's guard ends processes of who is above; else "3776Mi nobody", also under a guard that
    only reports. "(over: 5000Mi)" is what a container above its limit uses, as the guard saw last.

    Reads the ledger, which the runtime wrapper, the hooks, attach and detach write; entries of
    containers that are gone are removed while reading. Exit status 1 where nothing could be looked
    at.
    """
    missing, hidden = unseen.missing(), unseen.warnings()
    held = _held(is_judged=isolation or output == "json")
    if isolation and output != "json":
        _print_isolation(held, is_wide=output == "wide")
    else:
        _print(held, output, no_headers=no_headers)
    for warning in hidden:
        click.echo(f"warning: {warning}", err=True)
    if hidden and not held:
        raise click.exceptions.Exit(1)
    if not held and output != "json":
        yet = f": there is no {missing} yet" if missing else ""
        click.echo(f"no container holds a GPU that gpuhook gave{yet}", err=True)


def _held(*, is_judged: bool) -> list[dict[str, Any]]:
    """Return the containers that hold GPUs; with how these are shared, where that `is_judged`."""
    by_node, turns, watched = known_node.uuids(), _turns(), guarded.read()
    entries = [(entry, holdings.of(entry, by_node)) for entry in ledger.living()]
    kept = [(entry, one) for entry, one in entries if one["gpus"] or not one["withdrawn"]]
    holders = sharing.counted(one["gpus"] for _, one in kept)
    for entry, one in kept:
        one["turns"] = {gpu: turns[gpu] for gpu in one["gpus"] if turns.get(gpu)}
        one["memory"] = _with_guard(one["memory"], guarded.of(one["id"], watched))
        if is_judged:
            one["sharing"] = sharing.of(entry, one["gpus"], holders, one["memory"])
    return [one for _, one in kept]


def _with_guard(
    memory: list[dict[str, Any]], watched: Mapping[str, Watched]
) -> list[dict[str, Any]]:
    """Return the limits of the ledger, with what the guard does about them, and those it knows."""
    known = {told["gpu"] for told in memory}
    found = [{**told, "guard": guarded.document(watched.get(told["gpu"]))} for told in memory]
    found += [
        {
            "gpu": gpu,
            "limit": one.limit,
            "request": 0,
            "by": isolation_words.BY_NOBODY,
            "trouble": "",
            "guard": guarded.document(one),
        }
        for gpu, one in watched.items()
        if gpu not in known
    ]
    for told in found:
        if told["by"] == isolation_words.BY_NOBODY:
            told["by"] = guarded.by(watched.get(told["gpu"]))
    return found


def _turns() -> dict[str, dict[str, str]]:
    """Return time slice and compute mode of each GPU, by UUID, as far as they are known.

    They are what the device plugin has set of them; else what generate-cdi saw.
    """
    found = known_node.turns()
    for (gpu, kind), note in before.read(evidence.read().boot).items():
        found.setdefault(gpu, {})[kind.replace(" ", "_")] = note.ours
    return found


def _print(held: list[dict[str, Any]], output: str, *, no_headers: bool) -> None:
    if output == "json":
        click.echo(json.dumps({"schema": "gpuhook/ps/v1", "containers": held}, indent=2))
        return
    is_wide = output == "wide"
    headers = (*HEADERS, *WIDE) if is_wide else HEADERS
    rows = [_row(one, is_wide=is_wide) for one in held]
    click.echo(table(None if no_headers else headers, rows), nl=False)


def _row(one: dict[str, Any], *, is_wide: bool) -> tuple[str, ...]:
    def shown(names: list[str]) -> str:
        return ",".join(names if is_wide else [shortened(name) for name in names]) or "-"

    cells = (
        one["id"] if is_wide else one["id"][:12],
        one["pod"] or "-",
        one["namespace"] or "-",
        shown(one["gpus"]),
        shown(one["replicas"]),
        _each(_limit(limit) for limit in one["memory"]),
        one["route"],
        guarded.ago(time.time() - one["since"]),
    )
    if not is_wide:
        return cells
    requests = _each(amount(limit["request"]) for limit in one["memory"] if limit["request"])
    slices, modes = (
        _each(turns[key] for turns in one["turns"].values() if key in turns)
        for key in ("time_slice", "compute_mode")
    )
    return (*cells, requests, slices, modes)


def _limit(limit: dict[str, Any]) -> str:
    if limit["limit"] is None and not limit["request"]:
        return "none"
    over = guarded.over(limit["guard"])
    words = f"{amount(limit['limit']) if limit['limit'] else 'none'} {limit['by']}"
    return f"{words} ({over})" if over else words


def _each(words: Iterable[str]) -> str:
    """Return what is true of each GPU, once where it is the same of all."""
    return ",".join(dict.fromkeys(words)) or "-"


def _print_isolation(held: list[dict[str, Any]], *, is_wide: bool) -> None:
    """Print a paragraph for each container and GPU: how it is shared, and the four answers."""
    lines: list[str] = []
    for one in held:
        whose = "/".join(filter(None, (one["namespace"], one["pod"], one["container"])))
        name = one["id"] if is_wide else one["id"][:12]
        for told in one["sharing"]:
            gpu = told["gpu"] if is_wide else shortened(told["gpu"])
            lines.append(" ".join(filter(None, (name, whose, gpu))) + f": {_way(told)}")
            answers = [(f"  {key}:", text) for key, text in told["isolation"].items()]
            over = (
                guarded.sentence(limit["guard"])
                for limit in one["memory"]
                if limit["gpu"] == told["gpu"]
            )
            answers += [("  now:", text) for text in over if text]
            lines += table(None, answers).splitlines()
    for line in lines:
        click.echo(printable(line, _MAX_LINE))


def _way(told: dict[str, Any]) -> str:
    if told["sharing"] == isolation_words.EXCLUSIVE:
        return "for itself alone, as far as the ledger knows"
    return f"shared, {told['sharing']}"
