# SPDX-License-Identifier: Apache-2.0
"""The document gpuhook/ps/v1 as a table, and the isolation of each GPU as paragraphs."""

from __future__ import annotations

import time

from gpuhook.host.text_table import shortened, table
from gpuhook.memory_limits import guard_state
from gpuhook.request.memory_request import amount
from gpuhook.usage.display_names import pod_container, short_id
from gpuhook.usage.gpu_processes import known_sum
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
_SIGNIFICANT = 256 << 20  # bytes; a driver rounds, and uses some memory itself


def headers(document: dict[str, Any], *, is_wide: bool) -> tuple[str, ...]:
    """Return the headers of rows()."""
    names = (*HEADERS, *WIDE) if is_wide else HEADERS
    return (*names, WARNINGS) if any(_warned(document, is_wide=is_wide)) else names


def rows(document: dict[str, Any], *, is_wide: bool) -> list[tuple[str, ...]]:
    """Return the rows: containers, processes of the host, memory of unknown processes.

    A wide table also has the containers that started without a GPU. If a container has warnings,
    the last column has their codes.
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
            used = known_sum([one["used"] for one in hosts])
            found.append(_others(HOST, gpu, used, hosts, is_wide=is_wide))
        if strange or (gpu["unattributed"] or 0) >= _SIGNIFICANT:
            found.append(_others(UNKNOWN, gpu, gpu["unattributed"], strange, is_wide=is_wide))
    return found


def _row(one: dict[str, Any], *, is_wide: bool) -> tuple[str, ...]:
    def shown(names: list[str]) -> str:
        return ",".join(names if is_wide else [shortened(name) for name in names]) or "-"

    cells = (
        one["id"] if is_wide else short_id(one["id"]),
        pod_container(one),
        one["namespace"] or "-",
        shown(list(dict.fromkeys([*one["gpus"], *(use["gpu"] for use in one["usage"])]))),
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
    processes = [process for use in one["usage"] for process in use["processes"]]
    return (*cells, one["engine"] or "-", _processes(processes), requests, slices, modes)


def _route(one: dict[str, Any]) -> str:
    return f"{one['route'] or '-'}{' (device plugin)' * one['device_plugin']}"


def _without_gpu(one: dict[str, Any]) -> tuple[str, ...]:
    """Return the row of a container that requested a GPU and started without one."""
    names = (one["id"], pod_container(one), one["namespace"] or "-")
    nothing = ("-",) * (len(HEADERS) - len(names) - 1)
    return (*names, *nothing, guard_state.ago(time.time() - one["since"]), *("-",) * len(WIDE))


def _usage(uses: Sequence[dict[str, Any]], *, is_wide: bool) -> tuple[str, str, str]:
    """Return the cells MEMORY, SHARE and BUSY: of each device if `is_wide`, else of all."""
    if is_wide:
        memory = [_of(one["used"], one["total"]) for one in uses]
        return ",".join(memory) or "-", ",".join(map(_share, uses)) or "-", _percents(uses)
    known = [one for one in uses if one["used"] is not None]
    if not known:
        return "-", "-", _percents(uses)
    used, total = (
        known_sum([one["used"] for one in known]),
        known_sum([one["total"] for one in known]),
    )
    return _of(used, total), _share(max(known, key=_part)), _percents(uses)


def _of(used: int | None, total: int | None) -> str:
    if used is None:
        return "-"
    return f"{amount(used)}/{amount(total)}" if total else amount(used)


def _part(use: dict[str, Any]) -> float:
    share = use["share"]
    if use["used"] is None or not share or not share["bytes"]:
        return 0.0
    return float(use["used"] / share["bytes"])


def _share(use: dict[str, Any]) -> str:
    if use["used"] is None or not use["share"]:
        return "-"
    return f"{round(100 * _part(use))}% of {amount(use['share']['bytes'])}"


def _percents(uses: Sequence[dict[str, Any]]) -> str:
    return _each(f"{one['percent']}%" for one in uses if one["percent"] is not None)


def _others(
    name: str,
    gpu: dict[str, Any],
    used: int | None,
    uses: list[dict[str, Any]],
    *,
    is_wide: bool,
) -> tuple[str, ...]:
    """Return the row of processes that are in no container."""
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


def _limit(limit: dict[str, Any]) -> str:
    if limit["limit"] is None and not limit["request"]:
        return "none"
    over = guard_state.over(limit["guard"])
    words = f"{amount(limit['limit']) if limit['limit'] else 'none'} {limit['by']}"
    return f"{words} ({over})" if over else words


def _each(words: Iterable[str]) -> str:
    """Return the different values of all GPUs."""
    return ",".join(dict.fromkeys(words)) or "-"


def isolation(held: Iterable[dict[str, Any]], *, is_wide: bool) -> list[str]:
    """Return a paragraph for each container and GPU: its sharing, and the four answers."""
    lines: list[str] = []
    for one in held:
        owner = "/".join(filter(None, (one["namespace"], one["pod"], one["container"])))
        name = one["id"] if is_wide else short_id(one["id"])
        for sharing in one["sharing"]:
            gpu = sharing["gpu"] if is_wide else shortened(sharing["gpu"])
            lines.append(" ".join(filter(None, (name, owner, gpu))) + f": {_mode(sharing)}")
            answers = [(f"  {key}:", text) for key, text in sharing["isolation"].items()]
            over = (
                guard_state.sentence(limit["guard"])
                for limit in one["memory"]
                if limit["gpu"] == sharing["gpu"]
            )
            answers += [("  now:", text) for text in over if text]
            lines += table(None, answers).splitlines()
    return lines


def _mode(sharing: dict[str, Any]) -> str:
    if sharing["sharing"] == isolation_words.EXCLUSIVE:
        return "not shared, as far as the ledger knows"
    return f"shared, {sharing['sharing']}"
