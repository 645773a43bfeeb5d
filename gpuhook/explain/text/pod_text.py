# SPDX-License-Identifier: Apache-2.0
"""One container of a pod as text: its request, the objections and the allocation."""

from __future__ import annotations

from gpuhook.errors import printable

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

    from gpuhook.device_plugin.allocate.container_allocation import Allocation
    from gpuhook.explain.pods.pod_answers import Allocated, PodAnswer
    from gpuhook.explain.pods.pod_requests import Objection, PodRequest

_LONGEST = 2000
_WORST_FIRST = ("refused", "pending", "warning")
_MOST_UNITS = 8
_MOST_MOUNTS = 4
_MOST_NODES = 12


def lines(
    asked: PodRequest, allocated: Allocated | None = None, *, is_wide: bool = False
) -> list[str]:
    """Return the lines, without line ends and control characters.

    Only a wide text has all of many mounts.
    """
    found = list(_request(asked))
    objections = [*asked.objections, *(allocated.objections if allocated else ())]
    objections.sort(key=lambda one: _WORST_FIRST.index(one.result))
    found += [line for one in objections for line in _objection(one)]
    found += [f"note: {note}" for note in asked.notes]
    if allocated is not None:
        found += _allocated(allocated, is_wide=is_wide)
    return [printable(line, _LONGEST) for line in found]


def _request(asked: PodRequest) -> Iterator[str]:
    for name, count in asked.gpus.items():
        yield f"requests {count} of {name}"
    if not asked.gpus and not asked.claims:
        yield "requests no GPU in its resources"
    if asked.runtime_class:
        yield f"runs with runtimeClassName {asked.runtime_class}"


def _objection(one: Objection) -> Iterator[str]:
    yield f"{one.result} by the {one.by}: {one.said}"
    yield f"  at {one.where}; write instead: {one.instead}"


def _allocated(allocated: Allocated, *, is_wide: bool) -> Iterator[str]:
    for answer in allocated.answers:
        yield from _answer(answer)
    if allocated.answers:
        yield from _allocation(allocated.allocation, is_wide=is_wide)
    for warning in allocated.warnings:
        yield f"note: {warning}"


def _answer(answer: PodAnswer) -> Iterator[str]:
    names = [
        f"GPU {device.index}" + (f" ({device.model})" if device.model else "")
        for device in answer.devices
    ]
    shared = "" if answer.sharing == "none" else f", shared by {answer.sharing}"
    what = f"{len(answer.units)} of {answer.resource}"
    yield f"the device plugin allocates {what}{shared}: {_listed(names, _MOST_UNITS)}"
    yield f"  as {_listed(answer.units, _MOST_UNITS)}"
    for note in answer.isolation:
        some = f" (GPU {', '.join(note.devices)})" if note.devices else ""
        for question, sentence in note.isolation.sentences():
            yield f"  {question}{some}: {sentence}"
        if note.hint:
            yield f"  to limit the memory: {note.hint}"


def _allocation(given: Allocation, *, is_wide: bool) -> Iterator[str]:
    for name, value in given.envs.items():
        yield f"the device plugin sets {name}={value}"
    if is_wide or len(given.mounts) <= _MOST_MOUNTS:
        for mount in given.mounts:
            yield f"the device plugin mounts {mount.host_path} at {mount.container_path}"
    else:
        paths = [mount.container_path for mount in given.mounts]
        some = ", ".join(paths[:2])
        yield f"the device plugin mounts {len(paths)} files: {some}, ... (-o wide has all)"
    if given.devices:
        paths = [device.container_path for device in given.devices]
        yield f"the device plugin passes {_listed(paths, _MOST_NODES)}"
    for name, value in given.annotations.items():
        yield f"the device plugin annotates {name}={value}"
    if given.cdi_devices:
        names = _listed(given.cdi_devices, _MOST_UNITS)
        yield f"the device plugin passes the CDI devices {names} to the engine"


def _listed(names: list[str] | tuple[str, ...], most: int) -> str:
    rest = len(names) - most
    return ", ".join(names[:most]) + (f" and {rest} more" if rest > 0 else "")
