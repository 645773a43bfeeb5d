# SPDX-License-Identifier: Apache-2.0
"""The metrics: their names, help texts and values for Prometheus.

Pure. An unknown value has no series: a dashboard then shows a gap and not a zero.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from gpuhook.device_plugin.config.sharing_section import MEMORY_UNITS
from gpuhook.device_plugin.metrics import container_memory, metric_family
from gpuhook.device_plugin.metrics.counters import COUNTERS, DURATIONS
from gpuhook.device_plugin.metrics.metric_family import COUNTER, GAUGE, HISTOGRAM, MetricFamily
from gpuhook.device_plugin.metrics.unit_holders import Holdings

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from gpuhook.device_plugin.metrics.container_memory import (
        ContainerMemory,
        DeviceUse,
        HolderEntry,
    )
    from gpuhook.device_plugin.metrics.counters import CounterSnapshot
    from gpuhook.device_plugin.offer.offered_devices import Device, Resource

MAX_SERIES = 4096  # of one metric
_OF_CONTAINER = ("gpu", "namespace", "pod", "container")

# The labels and help text of each gauge.
GAUGES = {
    "gpuhook_devices": (
        ("resource", "state"),
        "Devices offered, by their health in the kubelet's list",
    ),
    "gpuhook_replicas": (
        ("resource", "state"),
        "Units offered: replicas of devices, or devices that are not shared",
    ),
    "gpuhook_replicas_held": (("resource",), "Units allocated to containers of pods"),
    "gpuhook_replica_holder": (
        ("resource", "unit", *_OF_CONTAINER),
        "1 for each unit that a container of a pod holds; for memory units, their number by device",
    ),
    "gpuhook_claim_holder": (
        ("claim", "share", *_OF_CONTAINER),
        "1 for each device, or share of one, that a container has by a claim",
    ),
    "gpuhook_gpu_info": (
        ("gpu", "index", "model", "profile", "parent"),
        "1 for each offered GPU or MIG instance",
    ),
    "gpuhook_gpu_memory_total_bytes": (("gpu",), "Memory of a GPU or MIG instance"),
    "gpuhook_gpu_memory_used_bytes": (("gpu",), "Memory in use, by any process"),
    "gpuhook_gpu_memory_unattributed_bytes": (
        ("gpu",),
        "Memory in use outside of containers: contexts, processes on the host",
    ),
    "gpuhook_gpu_processes": (("gpu",), "Processes that use the GPU or MIG instance"),
    "gpuhook_gpu_utilization_ratio": (
        ("gpu",),
        "Part of the last moments in which a GPU worked, from 0 to 1",
    ),
    "gpuhook_container_memory_used_bytes": (
        _OF_CONTAINER,
        "GPU memory that the processes of a container use",
    ),
    "gpuhook_container_memory_fair_share_bytes": (
        _OF_CONTAINER,
        "Fair share of GPU memory for the units that a container holds",
    ),
    "gpuhook_container_memory_limit_bytes": (
        (*_OF_CONTAINER, "by"),
        "GPU memory that a container may use, and what enforces the limit",
    ),
    "gpuhook_container_memory_guaranteed_bytes": (
        _OF_CONTAINER,
        "GPU memory that is guaranteed to a container; 0 without a guarantee",
    ),
    "gpuhook_unit_memory_limit_bytes": (
        ("resource", "gpu"),
        "GPU memory that one unit grants: a replica with a limit, or a unit of memory",
    ),
    "gpuhook_gpu_memory_granted_bytes": (("gpu",), "Sum of the limits of the containers on a GPU"),
    "gpuhook_watch_streams": (("resource",), "Open ListAndWatch streams"),
    "gpuhook_config_info": (("name", "hash"), "1 for the active configuration"),
    "gpuhook_source_up": (("source",), "Whether a source of these metrics has answered"),
    "gpuhook_series_left_out": ((), "Series omitted because there are too many"),
}


@dataclass(frozen=True, slots=True)
class ScrapedFacts:
    """The facts at the time of a scrape.

    `sources` are the drivers that were queried, and whether they answered.
    """

    resources: tuple[Resource, ...] = ()
    unhealthy: frozenset[str] = frozenset()  # UUIDs of devices
    holdings: Holdings = field(default_factory=Holdings)
    uses: tuple[DeviceUse, ...] = ()
    sources: Mapping[str, bool] = field(default_factory=dict)
    containers: tuple[ContainerMemory, ...] = ()
    entries: tuple[HolderEntry, ...] = ()  # of the ledger


def text(facts: ScrapedFacts, counters: CounterSnapshot, accept: str = "") -> tuple[bytes, str]:
    """Return the metrics and their content type, in the format of the header `accept`."""
    return metric_family.text(metrics(facts, counters), accept)


def metrics(facts: ScrapedFacts, counters: CounterSnapshot) -> Iterator[MetricFamily]:
    """Yield every metric; an unknown one has no series."""
    gauges = _gauges(facts, counters)
    left_out = sum(max(0, len(series) - MAX_SERIES) for series in gauges.values())
    gauges["gpuhook_series_left_out"] = {(): left_out}
    for name, (labels, help_text) in GAUGES.items():
        series = list(gauges[name].items())[:MAX_SERIES]
        yield MetricFamily(name, GAUGE, help_text, labels, series)
    for name, (labels, help_text) in COUNTERS.items():
        counts = counters.counters.get(name, {}).items()
        yield MetricFamily(f"gpuhook_{name}", COUNTER, help_text, labels, counts)
    for name, help_text in DURATIONS.items():
        durations = [((key,), value) for key, value in counters.durations.get(name, {}).items()]
        yield MetricFamily(
            f"gpuhook_{name}_seconds", HISTOGRAM, help_text, ("resource",), durations
        )


_Series = dict[tuple[str, ...], float]


def _gauges(facts: ScrapedFacts, counters: CounterSnapshot) -> dict[str, _Series]:
    return {
        **_offered(facts),
        **_held(facts),
        **_memory(facts),
        "gpuhook_claim_holder": {
            (one.claim, one.share, one.device, *entry.names): 1
            for entry in facts.entries
            for one in entry.claims
        },
        "gpuhook_watch_streams": {(name,): n for name, n in counters.streams.items()},
        "gpuhook_config_info": {counters.configuration: 1} if counters.configuration else {},
        "gpuhook_source_up": {
            **{(name,): float(answers) for name, answers in facts.sources.items()},
            ("pod-resources",): float(not facts.holdings.reason),
        },
    }


def _offered(facts: ScrapedFacts) -> dict[str, _Series]:
    devices: _Series = {}
    units: _Series = {}
    info: _Series = {}
    for resource in facts.resources:
        info |= {_info(device): 1 for device in resource.devices}
        bad = [device for device in resource.devices if device.uuid in facts.unhealthy]
        broken = sum(len(resource.index.ids[device.uuid]) for device in bad)
        devices[resource.name, "healthy"] = len(resource.devices) - len(bad)
        devices[resource.name, "unhealthy"] = len(bad)
        units[resource.name, "healthy"] = len(resource.units) - broken
        units[resource.name, "unhealthy"] = broken
    return {
        "gpuhook_unit_memory_limit_bytes": {
            (resource.name, uuid): memory.hard
            for resource in facts.resources
            for uuid, memory in resource.memory.items()
        },
        "gpuhook_devices": devices,
        "gpuhook_replicas": units,
        "gpuhook_gpu_info": info,
    }


def _info(device: Device) -> tuple[str, ...]:
    parent = device.gpu if device.gpu != device.uuid else ""
    return device.uuid, device.index, device.model or "", device.profile or "", parent


def _held(facts: ScrapedFacts) -> dict[str, _Series]:
    counts: _Series = {}
    holders: _Series = {}
    for resource in () if facts.holdings.reason else facts.resources:
        counts[resource.name,] = 0
        is_memory = resource.sharing == MEMORY_UNITS  # a container may hold thousands of them
        for unit in resource.units:
            holder = facts.holdings.holders.get(unit.id)
            if holder is not None:
                counts[resource.name,] += 1
                uuid = unit.device.uuid
                key = (resource.name, uuid if is_memory else unit.id, uuid, *holder)
                holders[key] = holders.get(key, 0) + 1
    return {"gpuhook_replicas_held": counts, "gpuhook_replica_holder": holders}


def _memory(facts: ScrapedFacts) -> dict[str, _Series]:
    uses, containers = facts.uses, facts.containers
    of = {(one.gpu, one.namespace, one.pod, one.container): one for one in containers}
    values: dict[str, dict[tuple[str, ...], int | None]] = {
        "gpuhook_gpu_memory_total_bytes": {(u.uuid,): u.total_bytes for u in uses},
        "gpuhook_gpu_memory_used_bytes": {(u.uuid,): u.used_bytes for u in uses},
        "gpuhook_gpu_memory_unattributed_bytes": {
            (u.uuid,): container_memory.unattributed(u, containers) for u in uses
        },
        "gpuhook_gpu_processes": {
            (u.uuid,): None if u.processes is None else len({one.pid for one in u.processes})
            for u in uses
        },
        "gpuhook_container_memory_used_bytes": {k: c.used_bytes for k, c in of.items()},
        "gpuhook_container_memory_fair_share_bytes": {k: c.fair_share_bytes for k, c in of.items()},
        "gpuhook_container_memory_limit_bytes": {
            (*key, one.limited_by): one.limit_bytes for key, one in of.items()
        },
        "gpuhook_container_memory_guaranteed_bytes": {k: c.guaranteed_bytes for k, c in of.items()},
    }
    busy: _Series = {(u.uuid,): u.percent / 100 for u in uses if u.percent is not None}
    granted: Counter[tuple[str, ...]] = Counter()
    for one in containers:
        if one.limit_bytes is not None:
            granted[one.gpu,] += one.limit_bytes
    known: dict[str, _Series] = {
        name: {key: value for key, value in series.items() if value is not None}
        for name, series in values.items()
    }
    return {
        **known,
        "gpuhook_gpu_memory_granted_bytes": dict(granted),
        "gpuhook_gpu_utilization_ratio": busy,
    }
