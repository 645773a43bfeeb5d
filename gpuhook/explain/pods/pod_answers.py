# SPDX-License-Identifier: Apache-2.0
"""The allocation of gpuhook's device plugin to the containers of a pod, on a node.

The pod is the only one on the node: all healthy units are free. The containers of a pod get
different units, but the kubelet reuses the units of an init container.
"""

from __future__ import annotations

from collections import Counter

from gpuhook.device_plugin.allocate import memory_grants
from gpuhook.device_plugin.allocate.allocate import merged
from gpuhook.device_plugin.config.sharing_section import MEMORY_UNITS, MPS, NOT_SHARED
from gpuhook.errors import GpuhookError, RequestError
from gpuhook.explain.pods.plugin_offer import PluginOffer, plugin_offer
from gpuhook.explain.pods.pod_requests import (
    INIT,
    PENDING,
    PLUGIN,
    REFUSED,
    SCHEDULER,
    WARNING,
    Allocated,
    Objection,
    PodAnswer,
)
from gpuhook.host.suggestion import nearest

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence

    from gpuhook.device_plugin.config.configuration import Configuration
    from gpuhook.device_plugin.offer.offered_devices import Resource
    from gpuhook.explain.pods.pod_requests import PodRequest
    from gpuhook.request.memory_request import MemoryLimit
    from gpuhook.vendors.vendor_part import VendorPart

_MOST_SHOWN = 8


def of_pods(
    asked: Sequence[PodRequest],
    parts: Sequence[VendorPart],
    configuration: Configuration,
) -> tuple[Allocated, ...]:
    """Return the allocation of each container, with each pod alone on the node.

    `parts` have the GPUs of the vendors, at least one. Raises what offer.resources.offered()
    raises for a configuration that does not fit the node.
    """
    offered = plugin_offer(parts, configuration)
    pods: dict[int, _Pod] = {}
    found = []
    for one in asked:
        pod = pods.setdefault(one.position, _Pod(offered))
        found.append(pod.container(one))
    return tuple(found)


class _Pod:
    """The units that the containers of one pod have got so far."""

    def __init__(self, offered: PluginOffer) -> None:
        self._offered = offered
        self._taken: set[str] = set()
        self._reusable: dict[str, list[str]] = {}  # of init containers, by resource

    def container(self, asked: PodRequest) -> Allocated:
        answers: list[PodAnswer] = []
        objections: list[Objection] = []
        warnings = [*self._offered.warnings]
        for name, count in asked.gpus.items():
            resource = self._offered.resources.get(name)
            if resource is None:
                objections.append(_no_such_resource(name, self._offered, asked))
                continue
            try:
                answer = self._answer(asked, resource, count)
            except GpuhookError as error:
                objections.append(_refused(error, asked))
                continue
            if answer is None:
                objections.append(self._insufficient(resource, count, asked))
                continue
            answers.append(answer)
            warnings += _runtime_notes(answer, asked)
            objections += _sharing_objections(answer, asked)
        return Allocated(
            answers=tuple(answers),
            allocation=merged([answer.allocation for answer in answers]),
            objections=tuple(objections),
            warnings=tuple(warnings),
        )

    def _free(self, resource: Resource) -> list[str]:
        return [
            unit.id
            for unit in resource.units
            if unit.id not in self._taken and unit.device.uuid not in self._offered.unusable
        ]

    def _answer(self, asked: PodRequest, resource: Resource, count: int) -> PodAnswer | None:
        """Return the units, None if the scheduler finds too few; raises the plugin's faults."""
        reusable = self._reusable.get(resource.name, [])
        free = self._free(resource)
        again = reusable[:count]
        if count - len(again) > len(free):
            return None
        units = again
        if len(again) < count:
            units = self._offered.answering.preferred(resource, [*again, *free], again, count)
        (allocation,) = self._offered.answering.allocate(resource, [units])
        self._taken.update(units)
        if asked.kind == INIT:
            self._reusable[resource.name] = list(dict.fromkeys([*reusable, *units]))
        else:
            self._reusable[resource.name] = [unit for unit in reusable if unit not in units]
        given = set(units)
        uuids = {unit.device.uuid for unit in resource.units if unit.id in given}
        devices = tuple(device for device in resource.devices if device.uuid in uuids)
        indices = {device.index for device in devices}
        isolation = tuple(
            one
            for one in self._offered.isolation
            if one.resource == resource.name and (not one.devices or indices & set(one.devices))
        )
        taken = sum(unit.id in self._taken for unit in resource.units)
        offered = taken + len(self._free(resource))
        return PodAnswer(
            resource=resource.name,
            sharing=resource.sharing,
            units=tuple(units),
            devices=devices,
            isolation=isolation,
            allocation=allocation,
            taken=taken,
            offered=offered,
            limits=_limits(resource, given),
        )

    def _insufficient(self, resource: Resource, count: int, asked: PodRequest) -> Objection:
        free = len(self._free(resource))
        instead = f"{resource.name}: {free} at most on this node, {count} requested"
        taken = sum(unit.id in self._taken for unit in resource.units)
        if taken:
            instead += f"; {taken} are already allocated"
        for device in resource.devices:
            if device.uuid in self._offered.unusable:
                reason = self._offered.unusable[device.uuid]
                instead += f"; GPU {device.index} is unhealthy: {reason}"
                break
        return _pending("insufficient", resource.name, instead, asked)


def _limits(resource: Resource, units: Collection[str]) -> tuple[MemoryLimit, ...]:
    """Return the limits that the runtime sets for units: of whole GPUs, not those of MPS."""
    if resource.sharing == MPS:
        return ()
    whole = (one for one in resource.units if one.device.profile is None)
    counts = Counter(unit.device.uuid for unit in whole if unit.id in units)
    return tuple(memory_grants.limits(resource, counts))


def _runtime_notes(answer: PodAnswer, asked: PodRequest) -> Iterator[str]:
    if answer.limits and answer.is_complete and asked.runtime_class is None:
        yield (
            "no runtimeClassName: the memory is limited only if the node's default runtime is "
            "gpuhook-runtime"
        )


def _no_such_resource(name: str, offered: PluginOffer, asked: PodRequest) -> Objection:
    names = sorted(offered.resources)
    like = nearest(name, names)
    rest = f"; this node offers {', '.join(names[:_MOST_SHOWN]) or 'nothing'}"
    instead = (f"{like}: {asked.gpus.get(name, 1)}" if like else "a resource of this node") + rest
    return _pending("resource-unknown", name, instead, asked)


def _pending(identifier: str, name: str, instead: str, asked: PodRequest) -> Objection:
    said = f"0/1 nodes are available: 1 Insufficient {name}."
    return Objection(identifier, SCHEDULER, PENDING, said, instead, asked.where)


def _refused(error: GpuhookError, asked: PodRequest) -> Objection:
    status = "InvalidArgument" if isinstance(error, RequestError) else "FailedPrecondition"
    said = (
        f"UnexpectedAdmissionError: Allocate failed due to rpc error: code = {status} desc = "
        f"{error.code}: {error.message} ({error.hint}), which is unexpected"
    )
    return Objection("allocation", PLUGIN, REFUSED, said, error.hint, asked.where)


def _sharing_objections(answer: PodAnswer, asked: PodRequest) -> Iterator[Objection]:
    """Yield a warning for several slices of one device: they add no computing time."""
    is_sliced = answer.sharing not in (NOT_SHARED, MEMORY_UNITS)
    if not is_sliced or len(answer.units) <= len(answer.devices):
        return
    indices = ", ".join(device.index for device in answer.devices)
    yield Objection(
        "slices-of-one",
        PLUGIN,
        WARNING,
        f"{len(answer.units)} of {answer.resource} are on {len(answer.devices)} device(s), "
        f"{indices}: several slices of one device provide no additional computing time",
        f"{answer.resource}: {len(answer.devices)}",
        asked.where,
    )
