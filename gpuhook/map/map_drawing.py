# SPDX-License-Identifier: Apache-2.0
"""The picture of a document gpuhook/ps/v1: the cells of each GPU, and their holders.

A GPU is divided into its MIG instances or partitions, by their memory; a part, or a whole GPU, into
its replicas; without replicas, into the containers that hold it. The replicas of one container
are one cell.
"""

from __future__ import annotations

from dataclasses import replace

from gpuhook.device_plugin.kubelet.device_checkpoint import unit_order
from gpuhook.host.text_table import counted
from gpuhook.map.map_model import FREE, HELD, LOST, OVER, UNCUT, Bar, Cell, Picture, size
from gpuhook.request import replicas
from gpuhook.usage.display_names import GpuNames, model, short_id

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from typing import Any

    Units = Mapping[str, Sequence[str]]

_SMALLEST = 0.01  # part of a GPU's width; a smaller remainder gets no cell
_LEAST_UNKNOWN = 256 << 20  # bytes without a process that get a note: a driver rounds


def picture(
    node: str,
    document: Mapping[str, Any],
    units: Units,
    *,
    when: str = "",
    warnings: Sequence[str] = (),
) -> Picture:
    """Return the picture of a node; `units` has all replicas of each device, held or free."""
    gpus = list(document["gpus"])
    whole = [gpu for gpu in gpus if ":" not in gpu["index"]]
    whole = whole if gpus else _devices_of_holders(document["containers"])
    bars = tuple(_bar(gpu, gpus, document, units) for gpu in whole)
    return Picture(node, bars, _summary(bars), when, tuple(warnings))


def _devices_of_holders(containers: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return the devices that only the containers name."""
    held = list(dict.fromkeys(gpu for one in containers for gpu in one["gpus"]))
    names = GpuNames((), held)
    nothing = dict.fromkeys(("of", "name", "profile", "total", "used", "unattributed", "percent"))
    facts = {**nothing, "split": False, "lost": None}
    return [{**facts, "gpu": gpu, "index": names.listed([gpu])} for gpu in held]


def _bar(
    gpu: Mapping[str, Any],
    gpus: Sequence[Mapping[str, Any]],
    document: Mapping[str, Any],
    units: Units,
) -> Bar:
    containers = document["containers"]
    if gpu["lost"]:
        cells: tuple[Cell, ...] = (Cell(1.0, LOST, label=gpu["lost"]),)
    elif gpu["split"]:
        own = [one for one in gpus if one["of"] == gpu["gpu"] and one is not gpu]
        cells = _instances(gpu, own, containers, units)
    else:
        cells = tuple(_cells(gpu, containers, units, 1.0))
    return Bar(
        gpu["index"],
        model(gpu),
        gpu["gpu"] or "",
        cells,
        gpu["total"],
        gpu["used"],
        gpu["percent"],
        tuple(_notes(gpu, document)),
    )


def _instances(
    gpu: Mapping[str, Any],
    own: Sequence[Mapping[str, Any]],
    containers: Sequence[Mapping[str, Any]],
    units: Units,
) -> tuple[Cell, ...]:
    """Return the cells of a GPU that is divided, and a cell for the memory without an instance."""
    total = gpu["total"] or sum(one["total"] or 0 for one in own) or 1
    known = sum(one["total"] or 0 for one in own)
    scale = max(total, known)
    found: list[Cell] = []
    for one in own:
        # The mode of a whole GPU does not tell its parts apart.
        kind = one["index"].rpartition(" ")[2] if gpu["profile"] else one["profile"]
        part = (one["total"] or 0) / scale or 1 / (len(own) + 1)
        if one["lost"]:
            found.append(Cell(part, LOST, label=one["lost"], size=one["total"]))
        else:
            cells = _cells(one, containers, units, part)
            found += [
                replace(cell, label=" ".join(filter(None, (kind, cell.label)))) for cell in cells
            ]
    rest = 1.0 - sum(cell.part for cell in found)
    if rest > _SMALLEST:
        found.append(Cell(rest, UNCUT, label="no instance"))
    return tuple(found)


def _cells(
    device: Mapping[str, Any],
    containers: Sequence[Mapping[str, Any]],
    units: Units,
    part: float,
) -> list[Cell]:
    """Return the cells of a device that has `part` of its GPU's width."""
    uuid, total = device["gpu"], device["total"]
    holders = [
        one
        for one in containers
        if uuid in one["gpus"] or any(use["gpu"] == uuid for use in one["usage"])
    ]
    known = {one: None for one in units.get(uuid, ()) if replicas.device_of(one)}
    for one in holders:
        known |= dict.fromkeys(r for r in one["replicas"] if replicas.device_of(r) == uuid)
    if known:
        return _replicas(device, holders, sorted(known, key=unit_order), part)
    if not holders:
        return [Cell(part, FREE, size=total)]
    each, many = part / len(holders), len(holders)
    labels = [f"{number}/{many}" if many > 1 else "" for number in range(1, many + 1)]
    return [
        _cell(one, uuid, each, label, total) for one, label in zip(holders, labels, strict=True)
    ]


def _replicas(
    device: Mapping[str, Any],
    holders: Sequence[Mapping[str, Any]],
    known: Sequence[str],
    part: float,
) -> list[Cell]:
    """Return a cell for each replica; the replicas of one container are one cell."""
    uuid, total = device["gpu"], device["total"]
    extra = [one for one in holders if not any(r in known for r in one["replicas"])]
    each = part / (len(known) + len(extra))
    share = None if total is None else total // len(known)
    held = {replica: one for one in holders for replica in one["replicas"]}
    cells: list[Cell] = []
    drawn: set[str] = set()
    for replica in known:
        one = held.get(replica)
        if one is None:
            cells.append(Cell(each, FREE, label=_replica_suffix(replica), size=share))
        elif one["id"] not in drawn:
            drawn.add(one["id"])
            own = [r for r in known if held.get(r) is one]
            label = " ".join(map(_replica_suffix, own))
            bytes_ = None if share is None else share * len(own)
            cells.append(_cell(one, uuid, each * len(own), label, bytes_))
    return cells + [_cell(one, uuid, each, "no replica", total) for one in extra]


def _cell(
    container: Mapping[str, Any], uuid: str, part: float, label: str, share: int | None
) -> Cell:
    use = next((use for use in container["usage"] if use["gpu"] == uuid), None)
    limit = use["share"] if use else None
    return Cell(
        part,
        OVER if use and use["over"] else HELD,
        label=label,
        holder=_name(container),
        container=container["id"],
        route=container["route"],
        size=limit["bytes"] if limit else share,
        used=use["used"] if use else None,
        percent=use["percent"] if use else None,
        image=container["image"] or "",
    )


def _name(container: Mapping[str, Any]) -> str:
    """Return the name of a container: its pod's, its name in the engine, else a short id."""
    pod = [container["namespace"], container["pod"], container["container"]]
    if container["pod"]:
        return "/".join(filter(None, pod))
    return container["name"] or short_id(str(container["id"]))


def _notes(gpu: Mapping[str, Any], document: Mapping[str, Any]) -> Iterable[str]:
    """Yield notes on memory that no cell shows."""
    hosts = [one for one in document["processes"] if one["gpu"] == gpu["gpu"] and one["host"]]
    if hosts:
        names = ", ".join(dict.fromkeys(one["name"] or str(one["pid"]) for one in hosts))
        used = size(sum(one["used"] or 0 for one in hosts))
        yield f"processes on the host use {used} ({names})"
    left = gpu["unattributed"] or 0
    if left >= _LEAST_UNKNOWN:
        yield f"{size(left)} are in use by unknown processes"


def _replica_suffix(replica: str) -> str:
    return replicas.SEPARATOR + replica.rpartition(replicas.SEPARATOR)[2]


def _summary(bars: Sequence[Bar]) -> str:
    """Return the summary of the node, in one line."""
    cells = [cell for bar in bars for cell in bar.cells if cell.state not in (UNCUT, LOST)]
    held = sum(1 for cell in cells if cell.holder)
    over = sum(1 for cell in cells if cell.state == OVER)
    known = [(bar.used, bar.total) for bar in bars if bar.used is not None and bar.total]
    words = [counted(len(bars), "GPU"), f"{held} of {counted(len(cells), 'part')} held"]
    if over:
        words.append(f"{over} above {'its' if over == 1 else 'their'} share")
    if known:
        used, total = (sum(values) for values in zip(*known, strict=True))
        words.append(f"{size(used)} of {size(total)} in use")
    return " · ".join(words)
