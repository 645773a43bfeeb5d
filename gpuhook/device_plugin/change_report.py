# SPDX-License-Identifier: Apache-2.0
"""What a turn of the plugin tells people: what is new against the turn before, once."""

from __future__ import annotations

from gpuhook.device_plugin import daemon_thread
from gpuhook.device_plugin.config.sharing_section import MEMORY_UNITS
from gpuhook.device_plugin.health import affected_pods
from gpuhook.device_plugin.metrics import ledger_entries, overcommitment, unit_holders
from gpuhook.device_plugin.offer import sharing_notes
from gpuhook.errors import GpuhookError, printable
from gpuhook.request.memory_request import MIB

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from gpuhook.device_plugin.config.config_source import LoadedConfig
    from gpuhook.device_plugin.notifier import News
    from gpuhook.device_plugin.offer.offered_devices import Device, Resource
    from gpuhook.device_plugin.reconcile import TurnOutcome
    from gpuhook.device_plugin.services.policy_service import PolicyState


class TurnNews:
    """Remembers what was told. `pod_resources` is the socket that tells who holds what."""

    def __init__(self, news: News, pod_resources: str) -> None:
        self._news = news
        self._pod_resources = pod_resources
        self._warnings: frozenset[str] = frozenset()
        self._failure = ""
        self._refused = ""
        self._is_asked = False
        self._doubts: frozenset[str] = frozenset()
        self._counts: dict[str, tuple[int, int]] | None = None  # None: not told of any yet
        self._unhealthy: frozenset[str] = frozenset()
        self._isolation: frozenset[sharing_notes.SharingNote] = frozenset()
        self._faults: dict[str, frozenset[str]] = {}  # messages by the reason of their event
        self._divided: dict[str, object] = {}  # how resources divide memory, by their names
        self._unit_sizes: dict[str, int] = {}  # of memory units, MiB by resource

    def configured(self, loaded: LoadedConfig) -> None:
        """Tell which configuration is in force, and what is doubtful in it."""
        self._news.good("ConfigApplied", f"configuration {_called(loaded)}", loaded.digest)
        self._doubts = frozenset()
        self._refused, self._is_asked = "", False
        self.read(loaded)

    def read(self, loaded: LoadedConfig) -> None:
        """Tell what is doubtful in a configuration that says the same, as far as that is new.

        Where the last one was refused, or somebody has asked, also that it says the same.
        """
        same = f"configuration {_called(loaded)}, as before"
        if self._refused:
            self._news.good("ConfigApplied", same)
        elif self._is_asked:
            self._news.log.info(same)
        self._refused, self._is_asked = "", False
        doubts = {str(finding): finding.hint for finding in loaded.findings}
        for doubt, hint in doubts.items():
            if doubt not in self._doubts:
                self._news.log.warning(doubt, **({"hint": hint} if hint else {}))
        self._doubts = frozenset(doubts)

    def asked(self) -> None:
        """Tell that all is read anew because somebody asked, who wants to hear what comes of it."""
        self._is_asked = True
        self._news.log.info("SIGHUP: reading the configuration and the node anew")

    def refused(
        self, error: Exception, serving: LoadedConfig | None, refused: LoadedConfig | None = None
    ) -> None:
        """Tell that a configuration was not taken, and which one goes on, None for none.

        `refused` is what could be read of it: it knows the place of the entry that is at fault.
        """
        if str(error) == self._refused and not self._is_asked:
            return
        self._refused, self._is_asked = str(error), False
        fields = {"goes_on": serving.digest} if serving is not None else {}
        if refused is not None:
            fields["at"] = refused.place(str(error))
        if isinstance(error, GpuhookError):
            self._news.failed("ConfigRefused", error, **fields)
        else:
            self._news.bad("ConfigRefused", str(error), **fields)

    def turn_failed(self, error: Exception) -> None:
        """Tell why there is nothing new to offer."""
        failure = f"{type(error).__name__}: {error}"
        if failure == self._failure:
            return
        self._failure = failure
        if isinstance(error, GpuhookError):
            self._news.failed("NotOffered", error)
        elif isinstance(error, OSError):
            self._news.bad("NotOffered", str(error))
        else:  # a fault of ours: where it is, is worth more than what it says
            self._news.bad(
                "NotOffered", f"gpuhook failed: {printable(repr(error))}", exc_info=error
            )

    def went_well(self) -> None:
        """Take that the node was looked at and offers something: the next failure is news."""
        self._failure = ""

    def worked_out(self, outcome: TurnOutcome) -> None:
        """Tell the warnings that were not there before, what was written and what was started."""
        for warning in dict.fromkeys(outcome.warnings):
            if warning not in self._warnings:
                self._news.log.warning(warning)
        self._warnings = frozenset(outcome.warnings)
        for path in outcome.written:
            self._news.log.info("CDI spec written", path=path)
        self._failed("MpsNotStarted", outcome.mps.faults)
        for resource in outcome.mps.started:
            self._news.good("MpsStarted", f"the MPS control daemon of {resource} runs", resource)
        for resource in outcome.mps.changed:
            self._news.log.warning(
                "the MPS control daemon was told other limits, which are those of the servers that "
                "it starts from now on: one that runs keeps the old ones, for new clients too",
                resource=resource,
            )
        self.policies(outcome.policies)
        for one in outcome.offer.resources:
            if one.sharing == MEMORY_UNITS:
                self._sized(one.name, max(limit.hard for limit in one.memory.values()) // MIB)

    def policies(self, state: PolicyState) -> None:
        """Tell what of the GPUs' policies was changed, and what could not be, once."""
        for sentence in state.changed:
            self._news.good("PolicySet", sentence, sentence)
        self._failed("PolicyNotSet", state.faults)

    def label_unread(self, faults: Iterable[GpuhookError]) -> None:
        """Tell why the node's label chooses no configuration, once."""
        self._failed("LabelNotRead", faults)

    def _failed(self, reason: str, faults: Iterable[GpuhookError]) -> None:
        """Tell the faults with their codes and hints, each once as long as it lasts."""
        before = self._faults.get(reason, frozenset())
        for error in faults:
            if str(error) not in before:
                self._news.failed(reason, error, str(error))
        self._faults[reason] = frozenset(str(error) for error in faults)

    def _sized(self, name: str, size: int) -> None:
        """Tell of units that have another size now: the kubelet counts on in those that are held.

        It keeps the ids that a container got, for as long as that runs.
        """
        before = self._unit_sizes.get(name, size)
        self._unit_sizes[name] = size
        if before != size:
            self._news.bad(
                "UnitsResized",
                f"a unit of {name} is {size} MiB now, and was {before} MiB: containers that run "
                "hold as many as before, so that the node may give away more or less than it has "
                "until they have been started anew",
                name,
            )

    def offered(self, resources: tuple[Resource, ...], unhealthy: Mapping[str, str]) -> None:
        """Tell how much is offered, which devices have become unhealthy, and whose they are."""
        counts = {one.name: _count(one, unhealthy) for one in resources}
        before = self._counts
        if counts or not self._failure:  # else it is only not known yet
            self._counted(counts)
        known = {d.uuid: d for resource in resources for d in resource.devices}
        new = [d for uuid, d in known.items() if uuid in unhealthy and uuid not in self._unhealthy]
        self._unhealthy = frozenset(unhealthy)
        if new:
            self._news.later(self._became_unhealthy(resources, new, unhealthy))
        divided = {one.name: one.memory for one in resources if one.memory}
        if divided and divided != self._divided:
            is_change = bool(self._counts) and before is not None
            self._news.later(self._overcommitted(resources, is_change=is_change))
        self._divided = dict(divided)

    def isolated(
        self,
        resources: tuple[Resource, ...],
        bounds: Mapping[str, str],
        unheld: tuple[str, str] = ("", ""),
    ) -> None:
        """Tell what is isolated for those who share, and what is not, as far as that is new.

        A limit that nobody holds is a warning, with why: `unheld`, and what to do about it.
        """
        told = sharing_notes.sharing_notes(resources, bounds, unheld)
        for one in told:
            if one not in self._isolation:
                tell = self._news.log.warning if one.hint else self._news.log.info
                tell("sharing", **one.fields())
        self._isolation = frozenset(told)

    def _counted(self, counts: dict[str, tuple[int, int]]) -> None:
        before, self._counts = self._counts, counts
        for name, (healthy, total) in counts.items():
            if before is None or before.get(name) != (healthy, total):
                self._news.log.info("offered", resource=name, healthy=healthy, total=total)
        for name in (before or {}).keys() - counts.keys():
            self._news.log.info("offered", resource=name, healthy=0, total=0)
        if not counts and before != counts:
            self._news.bad("NothingOffered", "this node offers no GPU")

    async def _overcommitted(self, resources: tuple[Resource, ...], *, is_change: bool) -> None:
        """Tell of memory that containers were given under another configuration."""
        holdings = await unit_holders.ask(socket=self._pod_resources)
        if holdings.reason and is_change:
            self._news.log.warning(
                "memory is divided in another way now, and the memory of running pods is not known",
                cause=holdings.reason,
            )
        entries = await daemon_thread.begin(ledger_entries.read, "gpuhook-ledger")
        units = holdings.by_resource
        for one in overcommitment.overcommitments(resources, units, entries.values()):
            facts = {"gpu": one.device.uuid, "resource": one.resource, "pods": list(one.held)}
            self._news.bad("MemoryNotCounted", one.sentence, one.device.uuid, **facts)

    async def _became_unhealthy(
        self, resources: tuple[Resource, ...], new: list[Device], unhealthy: Mapping[str, str]
    ) -> None:
        """Tell of the devices of each GPU in one sentence, with the pods that hold them."""
        holdings = await unit_holders.ask(socket=self._pod_resources)
        held = {
            unit: (holder.namespace, holder.pod, holder.container)
            for unit, holder in holdings.holders.items()
        }
        by_gpu: dict[tuple[str, str], list[Device]] = {}
        for device in new:
            by_gpu.setdefault((device.gpu, unhealthy[device.uuid]), []).append(device)
        for (gpu, reason), devices in by_gpu.items():
            hits = affected_pods.affected(resources, {device.uuid for device in devices})
            units = [unit for hit in hits for unit in hit.units]
            pods = None if holdings.reason else affected_pods.pods(units, held)
            label = f"GPU {devices[0].gpu_index} ({gpu}):"
            sentence = affected_pods.sentence(label, reason, hits, pods)
            self._news.bad("GpuUnhealthy", sentence, gpu, gpu=gpu, pods=_listed(pods))


def _called(loaded: LoadedConfig) -> str:
    return f"{loaded.name or loaded.path or 'of defaults'}, {loaded.digest}"


def _count(resource: Resource, unhealthy: Mapping[str, str]) -> tuple[int, int]:
    healthy = sum(unit.device.uuid not in unhealthy for unit in resource.units)
    return healthy, len(resource.units)


def _listed(pods: Iterable[str] | None) -> list[str] | None:
    return None if pods is None else list(pods)
