# SPDX-License-Identifier: Apache-2.0
"""The metrics: their names, what they mean, and their text for Prometheus.

Pure but for the library's import. What is not known has no series: a dashboard then shows a gap
and not a zero.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from gpuhook.device_plugin.config.sharing_section import MEMORY_UNITS
from gpuhook.device_plugin.metrics import container_memory
from gpuhook.device_plugin.metrics.unit_holders import Holdings

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from prometheus_client import Metric

    from gpuhook.device_plugin.metrics.container_memory import ContainerMemory, DeviceUse
    from gpuhook.device_plugin.metrics.counters import Counted
    from gpuhook.device_plugin.offer.offered_devices import Device, Resource

MAX_SERIES = 4096  # of one metric that containers make
_MAX_VALUE = 256
_OF_CONTAINER = ("gpu", "namespace", "pod", "container")

# Of each metric its labels and its help. Counters stand without _total, durations are histograms.
GAUGES = {
    "gpuhook_devices": (("resource", "state"), "Devices offered, by what the kubelet is told"),
    "gpuhook_replicas": (
        ("resource", "state"),
        "Units offered: replicas of devices, or devices that are not shared",
    ),
    "gpuhook_replicas_held": (("resource",), "Units that containers of pods hold"),
    "gpuhook_replica_holder": (
        ("resource", "unit", *_OF_CONTAINER),
        "1 for each unit that a container of a pod holds; its number of memory units, by device",
    ),
    "gpuhook_gpu_info": (
        ("gpu", "index", "model", "profile", "parent"),
        "1 for each GPU or MIG instance that is offered",
    ),
    "gpuhook_gpu_memory_total_bytes": (("gpu",), "Memory of a GPU or MIG instance"),
    "gpuhook_gpu_memory_used_bytes": (("gpu",), "Memory in use, whoever uses it"),
    "gpuhook_gpu_memory_unattributed_bytes": (
        ("gpu",),
        "Memory in use that is no container's: contexts, processes of the host",
    ),
    "gpuhook_gpu_processes": (("gpu",), "Processes that use the GPU or MIG instance"),
    "gpuhook_container_memory_used_bytes": (
        _OF_CONTAINER,
        "Memory of the GPU that the processes of a container use",
    ),
    "gpuhook_container_memory_fair_share_bytes": (
        _OF_CONTAINER,
        "What is kept of the GPU for a unit, or its part of it, times those that are held",
    ),
    "gpuhook_container_memory_limit_bytes": (
        (*_OF_CONTAINER, "by"),
        "Memory of the GPU that a container may use, and who holds it to that",
    ),
    "gpuhook_container_memory_guaranteed_bytes": (
        _OF_CONTAINER,
        "Memory of the GPU that is guaranteed to a container; 0 where that was left out",
    ),
    "gpuhook_unit_memory_limit_bytes": (
        ("resource", "gpu"),
        "Memory of the GPU that one unit grants: a replica with a limit, or a unit of memory",
    ),
    "gpuhook_gpu_memory_granted_bytes": (("gpu",), "Limits of the containers on a GPU, together"),
    "gpuhook_watch_streams": (("resource",), "ListAndWatch streams that are open"),
    "gpuhook_config_info": (("name", "hash"), "1 for the configuration in force"),
    "gpuhook_source_up": (("source",), "Whether a source of these numbers has answered"),
    "gpuhook_series_left_out": ((), "Series that were left out because there are too many"),
}
COUNTERS = {
    "allocations": "Containers that were answered by Allocate, and calls that were refused",
    "starts": "Containers that were let start by PreStartContainer, and refused",
    "refusals": "Calls of the kubelet that were answered with an error",
    "registrations": "Registrations with the kubelet",
    "lists": "Lists of devices sent to the kubelet",
    "troubles": "What went wrong and was got over",
    "config_reloads": "Looks at a configuration that had changed",
    "xid": "XIDs of the driver",
    "guard_actions": "What was done about containers above the memory limit that they hold",
}
HISTOGRAMS = {
    "allocate": "Time to answer Allocate",
    "preferred_allocation": "Time to answer GetPreferredAllocation",
    "registration": "Time that the kubelet took to answer Register",
}


@dataclass(frozen=True, slots=True)
class Pulled:
    """What is true when somebody asks. `uses` None: the driver did not answer."""

    resources: tuple[Resource, ...] = ()
    unhealthy: frozenset[str] = frozenset()  # ids of units
    holdings: Holdings = field(default_factory=Holdings)
    uses: tuple[DeviceUse, ...] | None = None
    containers: tuple[ContainerMemory, ...] = ()


def names() -> frozenset[str]:
    """Return the names of all series: what a dashboard or an alert may ask for."""
    found = set(GAUGES) | {f"gpuhook_{name}_total" for name in COUNTERS}
    for name in HISTOGRAMS:
        found |= {f"gpuhook_{name}_seconds_{part}" for part in ("bucket", "count", "sum")}
    return frozenset(found)


def text(pulled: Pulled, counted: Counted, accept: str = "") -> tuple[bytes, str]:
    """Return the metrics and their content type, in the form that the header `accept` asks for."""
    from prometheus_client import CollectorRegistry
    from prometheus_client.exposition import choose_encoder

    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Once(tuple(metrics(pulled, counted))))
    encoder, content_type = choose_encoder(accept)
    return encoder(registry), content_type


class _Once:
    """What the library asks for metrics; it has them already."""

    def __init__(self, found: tuple[Metric, ...]) -> None:
        self._found = found

    def collect(self) -> Iterable[Metric]:
        return self._found


def metrics(pulled: Pulled, counted: Counted) -> Iterator[Metric]:
    """Yield every metric; one of which nothing is known has no series."""
    from prometheus_client.core import (
        CounterMetricFamily,
        GaugeMetricFamily,
        HistogramMetricFamily,
    )

    from gpuhook.device_plugin.metrics.counters import COUNTERS as LABELS

    gauges = _gauges(pulled, counted)
    left_out = sum(max(0, len(series) - MAX_SERIES) for series in gauges.values())
    gauges["gpuhook_series_left_out"] = {(): left_out}
    for name, (labels, help_text) in GAUGES.items():
        gauge = GaugeMetricFamily(name, help_text, labels=labels)
        for key, value in list(gauges[name].items())[:MAX_SERIES]:
            gauge.add_metric(_shown(key), value)
        yield gauge
    for name, help_text in COUNTERS.items():
        of = name.removeprefix("config_")
        counter = CounterMetricFamily(f"gpuhook_{name}", help_text, labels=LABELS[of])
        for key, value in counted.counters.get(of, {}).items():
            counter.add_metric(_shown(key), value)
        yield counter
    for name, help_text in HISTOGRAMS.items():
        histogram = HistogramMetricFamily(
            f"gpuhook_{name}_seconds", help_text, labels=("resource",)
        )
        for resource, durations in counted.durations.get(name, {}).items():
            histogram.add_metric(_shown((resource,)), durations.cumulative(), durations.total)
        yield histogram


def _shown(key: Iterable[str]) -> list[str]:
    """Return values of labels as text that can be written, and not without end."""
    return [value[:_MAX_VALUE].encode("utf-8", "replace").decode() for value in key]


_Series = dict[tuple[str, ...], float]
_Values = dict[tuple[str, ...], "int | None"]


def _gauges(pulled: Pulled, counted: Counted) -> dict[str, _Series]:
    return {
        **_offered(pulled),
        **_held(pulled),
        **_memory(pulled),
        "gpuhook_watch_streams": {(name,): n for name, n in counted.streams.items()},
        "gpuhook_config_info": {counted.configuration: 1} if counted.configuration else {},
        "gpuhook_source_up": {
            ("nvml",): float(pulled.uses is not None),
            ("pod-resources",): float(not pulled.holdings.reason),
        },
    }


def _offered(pulled: Pulled) -> dict[str, _Series]:
    devices: Counter[tuple[str, ...]] = Counter()
    units: Counter[tuple[str, ...]] = Counter()
    info: _Series = {}
    for resource in pulled.resources:
        bad = {unit.device.uuid for unit in resource.units if unit.id in pulled.unhealthy}
        for device in resource.devices:
            info[_info(device)] = 1
            devices[resource.name, "unhealthy" if device.uuid in bad else "healthy"] += 1
        broken = sum(unit.id in pulled.unhealthy for unit in resource.units)
        units[resource.name, "unhealthy"] = broken
        units[resource.name, "healthy"] = len(resource.units) - broken
        for state in ("healthy", "unhealthy"):
            devices[resource.name, state] += 0
    return {
        "gpuhook_unit_memory_limit_bytes": {
            (resource.name, uuid): memory.hard
            for resource in pulled.resources
            for uuid, memory in resource.memory.items()
        },
        "gpuhook_devices": dict(devices),
        "gpuhook_replicas": dict(units),
        "gpuhook_gpu_info": info,
    }


def _info(device: Device) -> tuple[str, ...]:
    parent = device.gpu if device.gpu != device.uuid else ""
    return device.uuid, device.index, device.model or "", device.profile or "", parent


def _held(pulled: Pulled) -> dict[str, _Series]:
    counts: _Series = {}
    holders: _Series = {}
    for resource in () if pulled.holdings.reason else pulled.resources:
        counts[resource.name,] = 0
        is_memory = resource.sharing == MEMORY_UNITS  # a container may hold thousands of them
        for unit in resource.units:
            holder = pulled.holdings.holders.get(unit.id)
            if holder is not None:
                counts[resource.name,] += 1
                names = holder.namespace, holder.pod, holder.container
                uuid = unit.device.uuid
                key = (resource.name, uuid if is_memory else unit.id, uuid, *names)
                holders[key] = holders.get(key, 0) + 1
    return {"gpuhook_replicas_held": counts, "gpuhook_replica_holder": holders}


def _memory(pulled: Pulled) -> dict[str, _Series]:
    uses, containers = pulled.uses or (), pulled.containers
    rest: _Values = {(use.uuid,): container_memory.unattributed(use, containers) for use in uses}
    of = {(one.gpu, one.namespace, one.pod, one.container): one for one in containers}
    return {
        "gpuhook_gpu_memory_total_bytes": _known({(u.uuid,): u.total_bytes for u in uses}),
        "gpuhook_gpu_memory_used_bytes": _known({(u.uuid,): u.used_bytes for u in uses}),
        "gpuhook_gpu_memory_unattributed_bytes": _known(rest),
        "gpuhook_gpu_processes": {
            (u.uuid,): len({process.pid for process in u.processes})
            for u in uses
            if u.processes is not None
        },
        "gpuhook_container_memory_used_bytes": _known({k: c.used_bytes for k, c in of.items()}),
        "gpuhook_container_memory_fair_share_bytes": _known(
            {k: c.fair_share_bytes for k, c in of.items()}
        ),
        **_limits(of),
    }


def _limits(of: Mapping[tuple[str, str, str, str], ContainerMemory]) -> dict[str, _Series]:
    """Return what containers may use. One without a limit has no series, and no part in a sum."""
    granted: Counter[tuple[str, ...]] = Counter()
    for one in of.values():
        if one.limit_bytes is not None:
            granted[one.gpu,] += one.limit_bytes
    limits: _Values = {(*key, one.limited_by): one.limit_bytes for key, one in of.items()}
    return {
        "gpuhook_container_memory_limit_bytes": _known(limits),
        "gpuhook_container_memory_guaranteed_bytes": _known(
            {key: one.guaranteed_bytes for key, one in of.items()}
        ),
        "gpuhook_gpu_memory_granted_bytes": dict(granted),
    }


def _known(series: _Values) -> _Series:
    return {key: value for key, value in series.items() if value is not None}
