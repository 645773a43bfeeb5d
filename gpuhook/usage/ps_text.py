# SPDX-License-Identifier: Apache-2.0
"""The document gpuhook/ps/v1 as a table, and what is isolated as paragraphs."""

from __future__ import annotations

import time

from gpuhook.host.text_table import shortened, table
from gpuhook.memory_limits import guard_state
from gpuhook.request.memory_request import amount
from gpuhook.usage.display_names import pod_container, short_id
from gpuhook.vendors.nvidia.gpu import sharing_isolation as isolation_words

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from typing import Any

HEADERS = (
    "CONTAINER", "POD", "NAMESPACE", "GPUS", "REPLICAS", "MEMORY", "SHARE", "BUSY", "LIMIT",
    "ROUTE", "SINCE",
)  # fmt: skip
WIDE = ("ENGINE", "PROCESSES", "REQUEST", "TIME-SLICE", "COMPUTE-MODE")
WARNINGS = "WARNINGS"
HOST, UNKNOWN = "(host)", "(unknown)"
WORTH_TELLING = 256 << 20  # bytes: a driver rounds, and has a little for itself


def headers(document: dict[str, Any], *, is_wide: bool) -> tuple[str, ...]:
    """Return the headers of rows()."""
    names = (*HEADERS, *WIDE) if is_wide else HEADERS
    return (*names, WARNINGS) if any(_warned(document, is_wide=is_wide)) else names


def rows(document: dict[str, Any], *, is_wide: bool) -> list[tuple[str, ...]]:
    """Return the rows of the table: containers, processes of the host, memory of unknown processes.

    A wide table also has the containers that started without a GPU. A column of warnings is last,
    if a container has one.
    """
    warned = _warned(document, is_wide=is_wide)
    found = _rows(document, is_wide=is_wide)
    if not any(warned):
        return found
    warned += ["-"] * (len(found) - len(warned))
    return [(*row, codes or "-") for row, codes in zip(found, warned)]


def _warned(document: dict[str, Any], *, is_wide: bool) -> list[str]:
    """Return the codes of each container's warnings, in the order of the rows."""
    listed = [*document["containers"], *(document["without_gpu"] if is_wide else ())]
    return [",".join(dict.fromkeys(told["code"] for told in one["warnings"])) for one in listed]


def _rows(document: dict[str, Any], *, is_wide: bool) -> list[tuple[str, ...]]:
    found = [_row(one, is_wide=is_wide) for one in document["containers"]]
    if is_wide:
        found += [_without_gpu(one) for one in document["without_gpu"]]
    for gpu in document["gpus"]:
        of_it = [one for one in document["processes"] if one["gpu"] == gpu["gpu"]]
        hosts = [one for one in of_it if one["host"]]
        strange = [one for one in of_it if not one["host"]]
        if hosts:
            used = _total([one["used"] for one in hosts])
            found.append(_others(HOST, gpu, used, hosts, is_wide=is_wide))
        if strange or (gpu["unattributed"] or 0) >= WORTH_TELLING:
            found.append(_others(UNKNOWN, gpu, gpu["unattributed"], strange, is_wide=is_wide))
    return found


def _row(one: dict[str, Any], *, is_wide: bool) -> tuple[str, ...]:
    def shown(names: list[str]) -> str:
        return ",".join(names if is_wide else [shortened(name) for name in names]) or "-"

    cells = (
        one["id"] if is_wide else short_id(one["id"]),
        pod_container(one),
        one["namespace"] or "-",
        shown(list(dict.fromkeys([*one["gpus"], *(told["gpu"] for told in one["usage"])]))),
        shown(one["replicas"]),
        *_usage(one["usage"], is_wide=is_wide),
        _each(_limit(limit) for limit in one["memory"]),
        _route(one),
        guard_state.ago(time.time() - one["since"]),
    )
    if not is_wide:
        return cells
    requests = _each(amount(limit["request"]) for limit in one["memory"] if limit["request"])
    slices, modes = (
        _each(turns[key] for turns in one["turns"].values() if key in turns)
        for key in ("time_slice", "compute_mode")
    )
    uses = [use for told in one["usage"] for use in told["processes"]]
    return (*cells, one["engine"] or "-", _processes(uses), requests, slices, modes)


def _route(one: dict[str, Any]) -> str:
    return f"{one['route'] or '-'}{' (device plugin)' * one['device_plugin']}"


def _without_gpu(one: dict[str, Any]) -> tuple[str, ...]:
    """Return the row of a container that requested a GPU and started without one."""
    names = (one["id"], pod_container(one), one["namespace"] or "-")
    nothing = ("-",) * (len(HEADERS) - len(names) - 1)
    return (*names, *nothing, guard_state.ago(time.time() - one["since"]), *("-",) * len(WIDE))


def _usage(told: Sequence[dict[str, Any]], *, is_wide: bool) -> tuple[str, str, str]:
    """Return the cells of memory, of its share and of how busy: of each device, or of all."""
    if is_wide:
        memory = [_of(one["used"], one["total"]) for one in told]
        return ",".join(memory) or "-", ",".join(map(_share, told)) or "-", _percents(told)
    known = [one for one in told if one["used"] is not None]
    if not known:
        return "-", "-", _percents(told)
    used, total = _total([one["used"] for one in known]), _total([one["total"] for one in known])
    return _of(used, total), _share(max(known, key=_part)), _percents(told)


def _of(used: int | None, total: int | None) -> str:
    if used is None:
        return "-"
    return f"{amount(used)}/{amount(total)}" if total else amount(used)


def _part(told: dict[str, Any]) -> float:
    share = told["share"]
    if told["used"] is None or not share or not share["bytes"]:
        return 0.0
    return float(told["used"] / share["bytes"])


def _share(told: dict[str, Any]) -> str:
    if told["used"] is None or not told["share"]:
        return "-"
    return f"{round(100 * _part(told))}% of {amount(told['share']['bytes'])}"


def _percents(told: Sequence[dict[str, Any]]) -> str:
    return _each(f"{one['percent']}%" for one in told if one["percent"] is not None)


def _others(
    name: str,
    gpu: dict[str, Any],
    used: int | None,
    uses: list[dict[str, Any]],
    *,
    is_wide: bool,
) -> tuple[str, ...]:
    """Return the row of what no container has."""
    uuid = gpu["gpu"] or gpu["index"]
    busy = [one["percent"] for one in uses if one["percent"] is not None]
    cells = (
        name,
        "-",
        "-",
        uuid if is_wide else shortened(uuid),
        "-",
        _of(used, gpu["total"]),
        "-",
        f"{sum(busy)}%" if busy else "-",
        "-",
        "-",
        "-",
    )
    return (*cells, "-", _processes(uses), "-", "-", "-") if is_wide else cells


def _processes(uses: Iterable[dict[str, Any]]) -> str:
    return ",".join(dict.fromkeys(f"{one['pid']}:{one['name'] or '?'}" for one in uses)) or "-"


def _total(values: Sequence[int | None]) -> int | None:
    known = [value for value in values if value is not None]
    return sum(known) if known else None


def _limit(limit: dict[str, Any]) -> str:
    if limit["limit"] is None and not limit["request"]:
        return "none"
    over = guard_state.over(limit["guard"])
    words = f"{amount(limit['limit']) if limit['limit'] else 'none'} {limit['by']}"
    return f"{words} ({over})" if over else words


def _each(words: Iterable[str]) -> str:
    """Return what is true of each GPU, once where it is the same of all."""
    return ",".join(dict.fromkeys(words)) or "-"


def isolation(held: Iterable[dict[str, Any]], *, is_wide: bool) -> list[str]:
    """Return a paragraph for each container and GPU: how it is shared, and the four answers."""
    lines: list[str] = []
    for one in held:
        whose = "/".join(filter(None, (one["namespace"], one["pod"], one["container"])))
        name = one["id"] if is_wide else short_id(one["id"])
        for told in one["sharing"]:
            gpu = told["gpu"] if is_wide else shortened(told["gpu"])
            lines.append(" ".join(filter(None, (name, whose, gpu))) + f": {_way(told)}")
            answers = [(f"  {key}:", text) for key, text in told["isolation"].items()]
            over = (
                guard_state.sentence(limit["guard"])
                for limit in one["memory"]
                if limit["gpu"] == told["gpu"]
            )
            answers += [("  now:", text) for text in over if text]
            lines += table(None, answers).splitlines()
    return lines


def _way(told: dict[str, Any]) -> str:
    if told["sharing"] == isolation_words.EXCLUSIVE:
        return "for itself alone, as far as the ledger knows"
    return f"shared, {told['sharing']}"
