# SPDX-License-Identifier: Apache-2.0
"""The document gpuhook/ps/v1 as a table, and the isolation of each GPU as paragraphs."""

from __future__ import annotations

import time

from gpuhook.host.text_table import table
from gpuhook.memory_limits import guard_state
from gpuhook.request.memory_request import amount
from gpuhook.usage.display_names import NOTHING, GpuNames, container_name, short_id, short_image
from gpuhook.usage.gpu_processes import known_sum
from gpuhook.vendors.usage import device_isolation

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from typing import Any

HEADERS = ("CONTAINER", "NAME", "IMAGE", "GPUS", "MEMORY", "SHARE", "BUSY", "LIMIT")
ORDER = ("MEMORY", "GPUS", "NAME", "SHARE", "LIMIT", "BUSY")  # the most important columns
WIDE = (
    "NAMESPACE", "UUIDS", "REPLICAS", "CLAIMS", "SHARES", "ROUTE", "SINCE", "ENGINE", "PROCESSES",
    "REQUEST", "TIME-SLICE", "COMPUTE-MODE",
)  # fmt: skip
WARNINGS = "WARNINGS"
HOST, UNKNOWN = "(host)", "(unknown)"
_SIGNIFICANT = 256 << 20  # bytes; a driver rounds, and uses some memory itself


def columns(document: dict[str, Any], *, is_wide: bool) -> tuple[list[str], list[list[str]]]:
    """Return headers and rows: containers, processes on the host, memory of unknown processes.

    A wide table also has the containers that started without a GPU. If a container has warnings,
    the last column has their codes.
    """
    gpus = gpu_names(document)
    rows = [_container(one, gpus, is_wide=is_wide) for one in document["containers"]]
    if is_wide:
        rows += [_named(one, is_wide=True) for one in document["without_gpu"]]
    for gpu in document["gpus"]:
        rows += _others(gpu, document["processes"], gpus)
    headers = [*HEADERS, *(WIDE if is_wide else ())]
    if any(WARNINGS in row for row in rows):
        headers.append(WARNINGS)
    return headers, [[row.get(name) or NOTHING for name in headers] for row in rows]


def gpu_names(document: Mapping[str, Any]) -> GpuNames:
    """Return the names of the devices in a document gpuhook/ps/v1."""
    held = (gpu for one in document["containers"] for gpu in one["gpus"])
    return GpuNames(document["gpus"], held)


def _container(one: dict[str, Any], names: GpuNames, *, is_wide: bool) -> dict[str, str]:
    limits, turns = one["memory"], one["turns"].values()
    claims = one.get("claims", ())  # an older gpuhook of another node has none
    memory, share, busy = _usage(one["usage"], is_wide=is_wide)
    gpus = list(dict.fromkeys([*one["gpus"], *(use["gpu"] for use in one["usage"])]))
    return {
        **_named(one, is_wide=is_wide),
        "GPUS": names.listed(gpus),
        "MEMORY": memory,
        "SHARE": share,
        "BUSY": busy,
        "LIMIT": _each(_limit(limit) for limit in limits),
        "UUIDS": ",".join(gpus),
        "REPLICAS": ",".join(one["replicas"]),
        "ROUTE": f"{one['route'] or NOTHING}{' (device plugin)' * one['device_plugin']}",
        "ENGINE": one["engine"],
        "PROCESSES": _processes(process for use in one["usage"] for process in use["processes"]),
        "CLAIMS": _each(f"{claim['namespace']}/{claim['claim']}" for claim in claims),
        "SHARES": _each(claim["share"] for claim in claims if claim["share"]),
        "REQUEST": _each(amount(limit["request"]) for limit in limits if limit["request"]),
        "TIME-SLICE": _each(turn["time_slice"] for turn in turns if "time_slice" in turn),
        "COMPUTE-MODE": _each(turn["compute_mode"] for turn in turns if "compute_mode" in turn),
    }


def _named(one: dict[str, Any], *, is_wide: bool) -> dict[str, str]:
    """Return the cells that all containers have, WARNINGS only with warnings."""
    codes = ",".join(dict.fromkeys(warning["code"] for warning in one["warnings"]))
    return {
        "CONTAINER": one["id"] if is_wide else short_id(one["id"]),
        "NAME": container_name(one, one["name"]),
        "IMAGE": one["image"] if is_wide else short_image(one["image"]),
        "NAMESPACE": one["namespace"],
        "SINCE": guard_state.ago(time.time() - one["since"]),
        **({WARNINGS: codes} if codes else {}),
    }


def _usage(uses: Sequence[dict[str, Any]], *, is_wide: bool) -> tuple[str, str, str]:
    """Return the cells MEMORY, SHARE and BUSY: of each device if `is_wide`, else of all."""
    if is_wide:
        memory = [_of(one["used"], one["total"]) for one in uses]
        shares = [_share(one, is_wide=True) for one in uses]
        return ",".join(memory) or NOTHING, ",".join(shares) or NOTHING, _percents(uses)
    known = [one for one in uses if one["used"] is not None]
    if not known:
        return NOTHING, NOTHING, _percents(uses)
    used, total = (
        known_sum([one["used"] for one in known]),
        known_sum([one["total"] for one in known]),
    )
    share = _share(max(known, key=_part), is_wide=False)
    return _of(used, total), share, _percents(uses)


def _of(used: int | None, total: int | None) -> str:
    if used is None:
        return NOTHING
    return f"{amount(used)}/{amount(total)}" if total else amount(used)


def _part(use: dict[str, Any]) -> float:
    share = use["share"]
    if use["used"] is None or not share or not share["bytes"]:
        return 0.0
    return float(use["used"] / share["bytes"])


def _share(use: dict[str, Any], *, is_wide: bool) -> str:
    if use["used"] is None or not use["share"]:
        return NOTHING
    percent = f"{round(100 * _part(use))}%"
    return f"{percent} of {amount(use['share']['bytes'])}" if is_wide else percent


def _percents(uses: Sequence[dict[str, Any]]) -> str:
    return _each(f"{one['percent']}%" for one in uses if one["percent"] is not None)


def _others(
    gpu: dict[str, Any], processes: list[dict[str, Any]], names: GpuNames
) -> Iterator[dict[str, str]]:
    """Yield the rows of the processes on a GPU that are in no container."""
    of_it = [one for one in processes if one["gpu"] == gpu["gpu"]]
    hosts = [one for one in of_it if one["host"]]
    strange = [one for one in of_it if not one["host"]]
    if hosts:
        used = known_sum([one["used"] for one in hosts])
        yield _other(HOST, gpu, used, hosts, names)
    if strange or (gpu["unattributed"] or 0) >= _SIGNIFICANT:
        yield _other(UNKNOWN, gpu, gpu["unattributed"], strange, names)


def _other(
    name: str,
    gpu: dict[str, Any],
    used: int | None,
    uses: list[dict[str, Any]],
    names: GpuNames,
) -> dict[str, str]:
    busy = [one["percent"] for one in uses if one["percent"] is not None]
    return {
        "CONTAINER": name,
        "GPUS": names.listed([gpu["gpu"] or gpu["index"]]),
        "MEMORY": _of(used, gpu["total"]),
        "BUSY": f"{sum(busy)}%" if busy else "",
        "UUIDS": gpu["gpu"] or "",
        "PROCESSES": _processes(uses),
    }


def _processes(uses: Iterable[dict[str, Any]]) -> str:
    return ",".join(dict.fromkeys(f"{one['pid']}:{one['name'] or '?'}" for one in uses)) or NOTHING


def _limit(limit: dict[str, Any]) -> str:
    if limit["limit"] is None and not limit["request"]:
        return "none"
    over = guard_state.over(limit["guard"])
    words = f"{amount(limit['limit']) if limit['limit'] else 'none'} {limit['by']}"
    return f"{words} ({over})" if over else words


def _each(words: Iterable[str]) -> str:
    """Return the different values of all GPUs."""
    return ",".join(dict.fromkeys(words)) or NOTHING


def isolation(document: dict[str, Any], *, is_wide: bool) -> list[str]:
    """Return a paragraph for each container and GPU: its sharing, and the four answers."""
    names, lines = gpu_names(document), []
    for one in document["containers"]:
        pod = (one["namespace"], one["pod"], one["container"])
        owner = "/".join(filter(None, pod)) or one["name"]
        name = one["id"] if is_wide else short_id(one["id"])
        for sharing in one["sharing"]:
            gpu = [names.listed([sharing["gpu"]]), *([sharing["gpu"]] if is_wide else [])]
            lines.append(" ".join(filter(None, (name, owner, *dict.fromkeys(gpu)))))
            lines[-1] += f": {_mode(sharing)}"
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
    if sharing["sharing"] == device_isolation.EXCLUSIVE:
        return "not shared, as far as the ledger knows"
    return f"shared, {sharing['sharing']}"
