# SPDX-License-Identifier: Apache-2.0
"""`gpuhook inspect`: what a running container has of its GPUs, and what is wrong with it."""

from __future__ import annotations

from functools import partial
from typing import Any

import click

from gpuhook.cli import limit_tables
from gpuhook.cli.options import container_options as options
from gpuhook.cli.options import node_options, parameters
from gpuhook.errors import GpuhookError, printable
from gpuhook.host import console
from gpuhook.host.text_table import table
from gpuhook.inspect import device_differences, inspection
from gpuhook.live import container_worker, repair
from gpuhook.memory_limits import limit_report
from gpuhook.memory_limits.warm import limit_records
from gpuhook.request import parse
from gpuhook.request.memory_request import amount
from gpuhook.vendors.nvidia.hot import vocabulary

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gpuhook.target.running_container import Target

_MAX_LINE = 4096


@click.command()
@options.container
@options.state_root
@parameters.output("table", "json", "yaml")
@click.option("--exit-code", is_flag=True, help="Exit with status 1 if something is wrong.")
@node_options.library_options
@click.pass_context
def inspect(
    ctx: click.Context,
    /,
    *,
    container: str,
    state_roots: tuple[str, ...],
    output: str,
    exit_code: bool,
    **nvml: Any,
) -> None:
    """Show what a running CONTAINER has: nodes, mounts, libraries, memory limits, variables.

    Of each library of the driver: whether the container's loader finds it. Of each node: whether
    the container's device cgroup lets it be opened. Of the mounted driver: its version, and the
    node's own. Of each memory limit: what the ledger has, what the driver holds, what is used.
    And what it lacks of what it was granted, with the command that fixes it. Nothing is changed,
    and nothing is run in the container.

    CONTAINER is named as in `gpuhook attach --help`.
    """
    library = partial(node_options.library, **nvml)

    def look(found: Target) -> tuple[dict[str, Any], list[GpuhookError]]:
        with limit_report.asking(library) as asked:
            memory = _memory(found, asked)
        limits = memory.document()["gpus"] if memory else []
        facts = inspection.inspect_container(
            found.held, found.found, found.spec, found.entry, limits
        )
        wrong = [*_missing(found), *inspection.findings(facts, found.spec)]
        return facts, wrong + (memory.findings() if memory else [])

    with console.progress("looking at the container"):
        facts, wrong = container_worker.work_on(container, state_roots, look)
    if output != "table":
        console.document(inspection.with_findings(facts, wrong), output)
    else:
        _print(facts, wrong)
    ctx.exit(1 if exit_code and wrong else 0)


def _print(facts: dict[str, Any], wrong: list[GpuhookError]) -> None:
    for line in _lines(facts):
        click.echo(line)
    for code, hint in dict.fromkeys((one.code, one.hint) for one in wrong):
        click.echo()
        for one in wrong:
            if (one.code, one.hint) == (code, hint):
                click.echo(f"{code}: {printable(one.message, _MAX_LINE)}")
        click.echo(f"hint: {hint}")


def _memory(found: Target, asked: limit_report.LimitQuestion) -> limit_report.View | None:
    """Return the memory limits of a container that may have some; the driver is asked for those."""
    is_limited = parse.limits_memory(found.spec, vocabulary.VOCABULARY)
    if not (is_limited or limit_records.records_of(found.entry)):
        return None
    return limit_report.of_target(found, asked)


def _missing(found: Target) -> list[GpuhookError]:
    """Return what the container lacks, or why that cannot be told."""
    try:
        plan = repair.missing(found, options.context())
    except GpuhookError as error:
        return [error]
    return device_differences.findings(found.found.id, plan)


def _lines(facts: dict[str, Any]) -> list[str]:
    """Return the facts as text, a paragraph for each kind."""
    container, driver, cgroup = facts["container"], facts["driver"], facts["cgroup"]
    head = [
        ("Container", f"{container['id']}, {container['status']}, pid {container['pid']}"),
        ("Made by", _joined(", ", container["engine"], container["runtime"])),
        ("Pod", _joined("/", container["namespace"], container["pod"], container["container"])),
        ("Bundle", container["bundle"] or "-"),
        ("Driver", _driver(driver)),
        ("Device cgroup", _joined(" ", cgroup["version"], cgroup["path"])),
        *(("", _program(program)) for program in cgroup["programs"]),
        ("Ledger", _ledger(facts["ledger"])),
    ]
    lines = table(None, [(f"{name}:" if name else "", text) for name, text in head]).splitlines()
    lines += _section(("NODE", "DEVICE", "MODE", "OWNER", "KIND", "CGROUP"), _nodes(facts))
    lines += _section(("MOUNT", "DRIVER", "OPTIONS", "SOURCE"), _mounts(facts))
    lines += _section(("LIBRARY", "PATH", "LOADER FINDS IT"), _libraries(facts))
    if facts["memory"]:
        lines += _section(("MEMORY OF", "LIMIT", "DRIVER", "USED", "BY"), _limits(facts))
    return lines + _section(("VARIABLE", "OF"), _variables(facts))


def _section(headers: tuple[str, ...], rows: list[tuple[str, ...]]) -> list[str]:
    return ["", *table(headers, rows or [("-",) * len(headers)]).splitlines()]


def _joined(separator: str, *words: str | None) -> str:
    return separator.join(word for word in words if word) or "-"


def _driver(driver: dict[str, Any]) -> str:
    running = driver["running"] or "no driver"
    mounted = " and ".join(driver["mounted"]) or "none"
    return f"{running} on this node, {mounted} in the container"


def _program(program: dict[str, Any]) -> str:
    name = f"program {program['id']} {program['name']}".rstrip()
    whose = "" if program["own"] else f", from above ({program['cgroup']})"
    added = f", with {len(program['added'])} rules of gpuhook's" if program["added"] else ""
    hidden = "" if program["rules"] is not None else ", cannot be read as rules"
    return f"{name}, attached: {program['attached']}{whose}{added}{hidden}"


def _ledger(entry: dict[str, Any] | None) -> str:
    if entry is None:
        return "no entry"
    devices = ", ".join(entry.get("devices") or ()) or "no device"
    live = entry.get("live")
    told = f"{entry.get('route') or 'unknown route'}: {devices}"
    given = [str(node.get("path")) for node in _given(live)]
    told += f"; given later: {', '.join(given)}" if given else ""
    taken = ", ".join(entry.get("withdrawn") or ())
    return told + (f"; taken away: {taken}" if taken else "")


def _given(live: object) -> list[dict[str, Any]]:
    edits = live.get("edits") if isinstance(live, dict) else None
    return edits.get("deviceNodes") or [] if isinstance(edits, dict) else []


def _nodes(facts: dict[str, Any]) -> list[tuple[str, ...]]:
    return [
        (
            node["path"],
            f"{node['major']}:{node['minor']}",
            node["mode"],
            f"{node['uid']}:{node['gid']}",
            "bound" if node["bound"] else "made",
            _verdict(node),
        )
        for node in facts["nodes"]
    ]


def _verdict(node: dict[str, Any]) -> str:
    if not node["allowed"]:
        return f"DENIED: {node['reason']}"
    # A v1 cgroup that allows everything does not tell what it denies.
    return "allowed, as far as is shown" if "shows no denials" in node["reason"] else "allowed"


def _mounts(facts: dict[str, Any]) -> list[tuple[str, ...]]:
    return [
        (
            mount["path"],
            mount["version"] or "-",
            mount["options"],
            mount["source"] + (" (removed)" if mount["removed"] else ""),
        )
        for mount in facts["mounts"]
    ]


def _libraries(facts: dict[str, Any]) -> list[tuple[str, ...]]:
    trouble = facts["loader"]["trouble"]
    if trouble:
        return [("-", "-", trouble)]
    words = {(True, True): "yes", (False, True): "NO", (True, False): "yes, but no such file"}
    return [
        (
            library["name"],
            library["path"],
            words.get((library["cached"], library["found"]), "NO, and no such file"),
        )
        for library in facts["loader"]["libraries"]
    ]


def _limits(facts: dict[str, Any]) -> list[tuple[str, ...]]:
    return [
        (
            told["gpu"],
            _limit(told["ledger"], "-"),
            _limit(told["driver"], "unknown"),
            "-" if told["used"] is None else amount(told["used"]),
            limit_tables.by(told),
        )
        for told in facts["memory"]
    ]


def _limit(told: dict[str, Any] | None, unknown: str) -> str:
    if told is None:
        return unknown
    return "none" if told["limit"] is None else amount(told["limit"])


def _variables(facts: dict[str, Any]) -> list[tuple[str, ...]]:
    return [(entry, where) for where in ("process", "config") for entry in facts["env"][where]]
