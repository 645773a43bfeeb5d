# SPDX-License-Identifier: Apache-2.0
"""One container of a pod as lines of text: what it asks for, who objects, what it would get."""

from __future__ import annotations

from gpuhook.errors import printable

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

    from gpuhook.diagnose.pods.answers import Allocated, Answer
    from gpuhook.diagnose.pods.asked import Asked, Objection
    from gpuhook.kubernetes.allocation.allocation import Allocation

_LONGEST = 2000
_USUAL = "container"  # of Asked.kind: there is nothing to say about it
_MOST_UNITS = 8
_MOST_MOUNTS = 12


def lines(asked: Asked, allocated: Allocated | None = None) -> list[str]:
    """Return the lines, without line ends and control characters."""
    found = [_title(asked), *_indented(_asks(asked))]
    objections = (*asked.objections, *(allocated.objections if allocated else ()))
    found += _indented(line for one in objections for line in _objection(one))
    found += _indented(f"note: {note}" for note in asked.notes)
    if allocated is not None:
        found += _indented(_given(allocated))
    return [printable(line, _LONGEST) for line in found]


def _title(asked: Asked) -> str:
    kind = "container" if asked.kind == _USUAL else f"{asked.kind} container"
    workload = asked.workload or f"Pod/{asked.pod}"
    return f"{workload} in {asked.namespace}, {kind} {asked.container} ({asked.where})"


def _indented(found: Iterator[str]) -> list[str]:
    return [f"  {line}" for line in found]


def _asks(asked: Asked) -> Iterator[str]:
    for name, count in asked.gpus.items():
        yield f"asks for {count} of {name}"
    if not asked.gpus and not asked.claims:
        yield "asks for no GPU by its resources"
    if asked.runtime_class:
        yield f"runs with runtimeClassName {asked.runtime_class}"


def _objection(one: Objection) -> Iterator[str]:
    yield f"{one.result} by the {one.by}: {one.said}"
    yield f"  at {one.where}; write instead: {one.instead}"


def _given(allocated: Allocated) -> Iterator[str]:
    for answer in allocated.answers:
        yield from _answer(answer)
    if allocated.answers:
        yield from _handed(allocated.allocation)
    for warning in allocated.warnings:
        yield f"note: {warning}"


def _answer(answer: Answer) -> Iterator[str]:
    named = [
        f"GPU {device.index}" + (f" ({device.model})" if device.model else "")
        for device in answer.devices
    ]
    shared = "" if answer.sharing == "none" else f", shared by {answer.sharing}"
    units = _listed(answer.units, _MOST_UNITS)
    yield f"gets {len(answer.units)} of {answer.resource}{shared}: of {_listed(named, _MOST_UNITS)}"
    yield f"  units {units}"
    for told in answer.told:
        some = f" (GPU {', '.join(told.devices)})" if told.devices else ""
        for question, sentence in told.isolation.sentences():
            yield f"  {question}{some}: {sentence}"
        if told.hint:
            yield f"  to bound the memory: {told.hint}"


def _handed(given: Allocation) -> Iterator[str]:
    for name, value in given.envs.items():
        yield f"the device plugin sets {name}={value}"
    for mount in given.mounts[:_MOST_MOUNTS]:
        yield f"the device plugin mounts {mount.host_path} at {mount.container_path}"
    if len(given.mounts) > _MOST_MOUNTS:
        yield f"the device plugin mounts {len(given.mounts) - _MOST_MOUNTS} files more"
    if given.devices:
        paths = [device.container_path for device in given.devices]
        yield f"the device plugin passes {_listed(paths, _MOST_MOUNTS)}"
    for name, value in given.annotations.items():
        yield f"the device plugin annotates {name}={value}"
    if given.cdi_devices:
        yield f"the device plugin names {_listed(given.cdi_devices, _MOST_UNITS)} to the engine"


def _listed(names: list[str] | tuple[str, ...], most: int) -> str:
    rest = len(names) - most
    return ", ".join(names[:most]) + (f" and {rest} more" if rest > 0 else "")
