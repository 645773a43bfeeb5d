# SPDX-License-Identifier: Apache-2.0
"""`gpuhook inspect`: the GPU parts of a running container, and their faults."""

from __future__ import annotations

from functools import partial
from typing import Any

import click

from gpuhook.cli.containers import limit_tables
from gpuhook.cli.options import command_sections, node_options, parameters
from gpuhook.cli.options import container_options as options
from gpuhook.errors import GpuhookError, printable
from gpuhook.host import console
from gpuhook.host.error_text import fault_document
from gpuhook.host.text_table import table
from gpuhook.inspect import gpu_containers, inspection
from gpuhook.live import container_worker
from gpuhook.memory_limits import limit_report
from gpuhook.memory_limits.warm import limit_records
from gpuhook.request import parse
from gpuhook.request.memory_request import amount
from gpuhook.usage import node_usage, usage_devices

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

    from gpuhook.target.running_container import Target
    from gpuhook.usage.display_names import GpuNames

_MAX_LINE = 4096


@click.command(cls=command_sections.SectionedCommand)
@options.container
@options.state_root
@parameters.output("table", "wide", "json", "yaml", help="wide adds the UUIDs of the GPUs.")
@click.option("--exit-code", is_flag=True, help="Exit with status 1 if there are findings.")
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
    """Show the GPU parts of a running CONTAINER: nodes, mounts, libraries, limits, variables.

    For each driver library, the output shows whether the container's loader finds it. For each
    node, it shows whether the device cgroup allows opening it. It also shows the versions of the
    mounted driver and of the node's driver. For each memory limit, it shows the value in the
    ledger, the value in the driver, and the memory in use. It lists granted parts that are missing,
    with the command that restores them. The command changes nothing and does not run anything in
    the container.
    """
    library = partial(node_options.library, **nvml)

    def look(found: Target) -> tuple[dict[str, Any], list[GpuhookError]]:
        with limit_report.LimitReader(library) as asked:
            memory = _memory(found, asked)
        limits = memory.document()["gpus"] if memory else []
        facts = inspection.inspect_container(
            found.held, found.found, found.spec, found.entry, limits
        )
        wrong = [*_missing(found), *inspection.findings(facts, found.spec)]
        return facts, wrong + (memory.findings() if memory else [])

    with console.progress("looking at the container"):
        facts, wrong = container_worker.work_on(container, state_roots, look)
    devices = node_usage.node_devices()
    facts["gpus"] = inspection.gpus(facts, usage_devices.by_node(devices))
    if output in (console.JSON, console.YAML):
        console.document({**facts, "findings": list(map(fault_document, wrong))}, output)
    else:
        limited = (limit["gpu"] for limit in facts["memory"])
        names = node_usage.names_of(devices, [*facts["gpus"], *limited])
        _print(facts, wrong, names, is_wide=output == console.WIDE)
    ctx.exit(1 if exit_code and wrong else 0)


def _print(
    facts: dict[str, Any], wrong: list[GpuhookError], names: GpuNames, *, is_wide: bool
) -> None:
    for line in _head(facts, names, is_wide=is_wide):
        click.echo(line)
    left_out: list[str] = []
    for headers, rows in _sections(facts, names, is_wide=is_wide):
        shown = rows or [("-",) * len(headers)]
        text, others = console.table_text(headers, shown, is_wide=is_wide)
        click.echo("\n" + text, nl=False)
        left_out += others
    console.say_left_out(left_out)
    for code, hint in dict.fromkeys((one.code, one.hint) for one in wrong):
        click.echo()
        for one in wrong:
            if (one.code, one.hint) == (code, hint):
                click.echo(f"{code}: {printable(one.message, _MAX_LINE)}")
        click.echo(f"hint: {hint}")


def _memory(found: Target, asked: limit_report.LimitReader) -> limit_report.ContainerLimits | None:
    """Return the memory limits, None for a container that cannot have one; asks the driver."""
    is_limited = parse.limits_memory(found.spec)
    if not (is_limited or limit_records.records_of(found.entry)):
        return None
    return limit_report.container_limits(found, asked)


def _missing(found: Target) -> list[GpuhookError]:
    """Return a finding for each missing part, or the fault that prevents the check."""
    try:
        return gpu_containers.missing_parts(found, options.context())
    except GpuhookError as error:
        return [error]


def _head(facts: dict[str, Any], names: GpuNames, *, is_wide: bool) -> list[str]:
    container, driver, cgroup = facts["container"], facts["driver"], facts["cgroup"]
    head = [
        ("Container", f"{container['id']}, {container['status']}, pid {container['pid']}"),
        ("Name", container["name"] or "-"),
        ("Image", container["image"] or "-"),
        ("GPUs", names.listed(facts["gpus"])),
        *([("", uuid) for uuid in facts["gpus"]] if is_wide else []),
        ("Created by", _joined(", ", container["engine"], container["runtime"])),
        ("Pod", _joined("/", container["namespace"], container["pod"], container["container"])),
        ("Bundle", container["bundle"] or "-"),
        ("Driver", _driver(driver)),
        ("Device cgroup", _joined(" ", cgroup["version"], cgroup["path"])),
        *(("", _program(program)) for program in cgroup["programs"]),
        ("Ledger", _ledger(facts["ledger"])),
    ]
    return table(None, [(f"{name}:" if name else "", text) for name, text in head]).splitlines()


def _sections(
    facts: dict[str, Any], names: GpuNames, *, is_wide: bool
) -> Iterator[tuple[tuple[str, ...], list[tuple[str, ...]]]]:
    """Yield the headers and the rows of each table."""
    yield ("NODE", "DEVICE", "MODE", "OWNER", "KIND", "CGROUP"), _nodes(facts)
    yield ("MOUNT", "DRIVER", "OPTIONS", "SOURCE"), _mounts(facts)
    yield ("LIBRARY", "PATH", "LOADER FINDS IT"), _libraries(facts)
    if facts["memory"]:
        uuid = ("UUID",) if is_wide else ()
        headers = ("MEMORY OF", "LIMIT", "DRIVER", "USED", "BY", *uuid)
        yield headers, _limits(facts, names, is_wide=is_wide)
    yield ("VARIABLE", "OF"), _variables(facts)


def _joined(separator: str, *words: str | None) -> str:
    return separator.join(word for word in words if word) or "-"


def _driver(driver: dict[str, Any]) -> str:
    running = driver["running"] or "no driver"
    if driver["mounted"] is None:
        return f"{running} on this node, which containers need no files of"
    mounted = " and ".join(driver["mounted"]) or "none"
    return f"{running} on this node, {mounted} in the container"


def _program(program: dict[str, Any]) -> str:
    name = f"program {program['id']} {program['name']}".rstrip()
    origin = "" if program["own"] else f", of a parent cgroup ({program['cgroup']})"
    added = f", with {len(program['added'])} rules of gpuhook" if program["added"] else ""
    hidden = "" if program["rules"] is not None else ", not readable as rules"
    return f"{name}, attached: {program['attached']}{origin}{added}{hidden}"


def _ledger(entry: dict[str, Any] | None) -> str:
    if entry is None:
        return "no entry"
    devices = ", ".join(entry.get("devices") or ()) or "no device"
    live = entry.get("live")
    text = f"{entry.get('route') or 'unknown route'}: {devices}"
    given = [str(node.get("path")) for node in _live_nodes(live)]
    text += f"; added later: {', '.join(given)}" if given else ""
    removed = ", ".join(entry.get("withdrawn") or ())
    return text + (f"; removed: {removed}" if removed else "")


def _live_nodes(live: object) -> list[dict[str, Any]]:
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
    # A v1 cgroup that allows everything does not show what it denies.
    is_partial = "shows no denials" in node["reason"]
    return "allowed, but denials are not shown" if is_partial else "allowed"


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


def _limits(facts: dict[str, Any], names: GpuNames, *, is_wide: bool) -> list[tuple[str, ...]]:
    return [
        (
            names.listed([limit["gpu"]]),
            _limit(limit["ledger"], "-"),
            _limit(limit["driver"], "unknown"),
            "-" if limit["used"] is None else amount(limit["used"]),
            limit_tables.enforcer(limit),
            *([limit["gpu"]] if is_wide else []),
        )
        for limit in facts["memory"]
    ]


def _limit(limit: dict[str, Any] | None, unknown: str) -> str:
    if limit is None:
        return unknown
    return "none" if limit["limit"] is None else amount(limit["limit"])


def _variables(facts: dict[str, Any]) -> list[tuple[str, ...]]:
    return [(entry, where) for where in ("process", "config") for entry in facts["env"][where]]
