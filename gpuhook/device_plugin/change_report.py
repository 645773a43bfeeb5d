# SPDX-License-Identifier: Apache-2.0
"""Reports the changes of each turn of the plugin once, in the log and as events."""

from __future__ import annotations

from typing import TypeVar

from gpuhook.device_plugin import daemon_thread
from gpuhook.device_plugin.config.sharing_section import MEMORY_UNITS
from gpuhook.device_plugin.health import affected_pods
from gpuhook.device_plugin.metrics import ledger_entries, overcommitment, unit_holders
from gpuhook.device_plugin.offer import sharing_notes
from gpuhook.errors import GpuhookError, printable
from gpuhook.request.memory_request import MIB

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Collection, Hashable, Iterable, Mapping

    from gpuhook.device_plugin.config.config_source import LoadedConfig
    from gpuhook.device_plugin.gpu_policies.policy_service import PolicyState
    from gpuhook.device_plugin.notifier import Notifier
    from gpuhook.device_plugin.offer.offered_devices import Device, Resource
    from gpuhook.device_plugin.reconcile import TurnOutcome

T = TypeVar("T", bound="Hashable")


class ChangeReport:
    """Compares each turn with the previous one. `pod_resources` is the kubelet's socket."""

    def __init__(self, notifier: Notifier, pod_resources: str) -> None:
        self._notifier = notifier
        self._log = notifier.log
        self._pod_resources = pod_resources
        self._last: dict[str, frozenset[object]] = {}  # the last reports of each kind
        self._failure = ""
        self._refusal = ""
        self._is_reload_requested = False
        self._counts: dict[str, tuple[int, int]] | None = None  # None: no offer reported yet
        self._unit_memory: dict[str, object] = {}  # memory of the units, by resource
        self._unit_sizes: dict[str, int] = {}  # of memory units, MiB by resource

    def report_config(self, loaded: LoadedConfig) -> None:
        """Report the configuration that is put in force, and its findings."""
        self._notifier.info("ConfigApplied", f"configuration {_title(loaded)}", loaded.digest)
        self._last.pop("findings", None)
        self._refusal, self._is_reload_requested = "", False
        self.report_same_config(loaded)

    def report_same_config(self, loaded: LoadedConfig) -> None:
        """Report new findings of a configuration with unchanged values.

        After a refused configuration or a SIGHUP, also report that the values are unchanged.
        """
        same = f"configuration {_title(loaded)}, as before"
        if self._refusal:
            self._notifier.info("ConfigApplied", same)
        elif self._is_reload_requested:
            self._log.info(same)
        self._refusal, self._is_reload_requested = "", False
        findings = {str(finding): finding.hint for finding in loaded.findings}
        for finding in self._new("findings", findings):
            hint = findings[finding]
            self._log.warning(finding, **({"hint": hint} if hint else {}))

    def report_reload_request(self) -> None:
        """Report a SIGHUP; its outcome is then reported even if nothing has changed."""
        self._is_reload_requested = True
        self._log.info("SIGHUP: reloading the configuration and rescanning the node")

    def report_refusal(
        self, error: Exception, active: LoadedConfig | None, refused: LoadedConfig | None = None
    ) -> None:
        """Report a refused configuration, and the one that remains in force, None for none.

        `refused` has the parts that could be read, with the place of the faulty entry.
        """
        if str(error) == self._refusal and not self._is_reload_requested:
            return
        self._refusal, self._is_reload_requested = str(error), False
        fields = {"goes_on": active.digest} if active is not None else {}
        if refused is not None:
            fields["at"] = refused.place(str(error))
        if isinstance(error, GpuhookError):
            self._notifier.report_fault("ConfigRefused", error, **fields)
        else:
            self._notifier.warn("ConfigRefused", str(error), **fields)

    def report_failure(self, error: Exception) -> None:
        failure = f"{type(error).__name__}: {error}"
        if failure == self._failure:
            return
        self._failure = failure
        if isinstance(error, GpuhookError):
            self._notifier.report_fault("NotOffered", error)
        elif isinstance(error, OSError):
            self._notifier.warn("NotOffered", str(error))
        else:  # a bug in gpuhook: the traceback says more than the message
            message = f"gpuhook failed: {printable(repr(error))}"
            self._notifier.warn("NotOffered", message, exc_info=error)

    def clear_failure(self) -> None:
        """Report the next failure even if it is the same as the last one."""
        self._failure = ""

    def report_outcome(self, outcome: TurnOutcome) -> None:
        """Report new warnings, written CDI specs, MPS daemons, policies and unit sizes."""
        for warning in self._new("warnings", outcome.warnings):
            self._log.warning(warning)
        for path in outcome.written:
            self._log.info("CDI spec written", path=path)
        self._report_faults("MpsNotStarted", outcome.mps.faults)
        for name in outcome.mps.started:
            self._notifier.info("MpsStarted", f"the MPS control daemon of {name} is running", name)
        for name in outcome.mps.changed:
            self._log.warning(
                "the limits of the MPS control daemon have changed; they apply to the MPS servers "
                "that it starts from now on: a running server keeps the old limits, also for new "
                "clients",
                resource=name,
            )
        self.report_policies(outcome.policies)
        for resource in outcome.offer.resources:
            if resource.sharing == MEMORY_UNITS:
                size = max(limit.hard for limit in resource.memory.values()) // MIB
                self._report_unit_size(resource.name, size)

    def report_policies(self, state: PolicyState) -> None:
        """Report changed policies of GPUs, and new failures to change one."""
        for sentence in state.changed:
            self._notifier.info("PolicySet", sentence, sentence)
        self._report_faults("PolicyNotSet", state.faults)

    def report_label_faults(self, faults: Iterable[GpuhookError]) -> None:
        """Report why the node's label selects no configuration."""
        self._report_faults("LabelNotRead", faults)

    def _report_faults(self, reason: str, faults: Iterable[GpuhookError]) -> None:
        """Report each fault once for as long as it persists."""
        by_text = {str(error): error for error in faults}
        for text in self._new(reason, by_text):
            self._notifier.report_fault(reason, by_text[text], text)

    def _new(self, kind: str, items: Collection[T]) -> list[T]:
        """Return the items that were not among the last ones of this kind."""
        before, self._last[kind] = self._last.get(kind, frozenset()), frozenset(items)
        return [item for item in dict.fromkeys(items) if item not in before]

    def _report_unit_size(self, name: str, size: int) -> None:
        """Report a changed size of units.

        The kubelet keeps the unit ids of running containers, so it counts them at the new size.
        """
        before = self._unit_sizes.get(name, size)
        self._unit_sizes[name] = size
        if before != size:
            self._notifier.warn(
                "UnitsResized",
                f"a unit of {name} is {size} MiB now, and was {before} MiB: running containers "
                "hold as many units as before, so the node may assign more or less memory than "
                "it has until they are restarted",
                name,
            )

    def report_offer(self, resources: tuple[Resource, ...], unhealthy: Mapping[str, str]) -> None:
        """Report changed numbers of units, and devices that became unhealthy with their pods."""
        counts = {one.name: _count(one, unhealthy) for one in resources}
        before = self._counts
        if counts or not self._failure:  # after a failure the offer is only not known yet
            self._report_counts(counts)
        known = {d.uuid: d for resource in resources for d in resource.devices}
        fresh = set(self._new("unhealthy", unhealthy))
        new = [device for uuid, device in known.items() if uuid in fresh]
        if new:
            self._notifier.schedule(self._report_unhealthy(resources, new, unhealthy))
        unit_memory = {one.name: one.memory for one in resources if one.memory}
        if unit_memory and unit_memory != self._unit_memory:
            is_change = bool(self._counts) and before is not None
            self._notifier.schedule(self._report_overcommitment(resources, is_change=is_change))
        self._unit_memory = dict(unit_memory)

    def report_isolation(
        self,
        resources: tuple[Resource, ...],
        unenforced: Mapping[str, tuple[str, str]] | None = None,
        *,
        guard: bool = False,
    ) -> None:
        """Report what is isolated between containers that share a device, if it has changed.

        A limit that no component enforces is a warning, with the reason and remedy in `unenforced`.
        """
        notes = sharing_notes.sharing_notes(resources, unenforced, guard=guard)
        for note in self._new("isolation", notes):
            write = self._log.warning if note.hint else self._log.info
            write("sharing", **note.fields())

    def _report_counts(self, counts: dict[str, tuple[int, int]]) -> None:
        before, self._counts = self._counts, counts
        for name, (healthy, total) in counts.items():
            if before is None or before.get(name) != (healthy, total):
                self._log.info("offered", resource=name, healthy=healthy, total=total)
        for name in (before or {}).keys() - counts.keys():
            self._log.info("offered", resource=name, healthy=0, total=0)
        if not counts and before != counts:
            self._notifier.warn("NothingOffered", "this node offers no GPU")

    async def _report_overcommitment(
        self, resources: tuple[Resource, ...], *, is_change: bool
    ) -> None:
        """Report memory that containers were assigned under another configuration."""
        holdings = await unit_holders.ask(self._pod_resources)
        if holdings.reason and is_change:
            self._log.warning(
                "the division of memory has changed, and the memory of running pods is not known",
                cause=holdings.reason,
            )
        entries = await daemon_thread.begin(ledger_entries.read, "gpuhook-ledger")
        units = holdings.by_resource
        for one in overcommitment.overcommitments(resources, units, entries.values()):
            facts = {"gpu": one.device.uuid, "resource": one.resource, "pods": list(one.held)}
            self._notifier.warn("MemoryNotCounted", one.sentence, one.device.uuid, **facts)

    async def _report_unhealthy(
        self, resources: tuple[Resource, ...], new: list[Device], unhealthy: Mapping[str, str]
    ) -> None:
        """Report the devices of each GPU in one sentence, with the pods that hold them."""
        holdings = await unit_holders.ask(self._pod_resources)
        by_gpu: dict[tuple[str, str], list[Device]] = {}
        for device in new:
            by_gpu.setdefault((device.gpu, unhealthy[device.uuid]), []).append(device)
        for (gpu, reason), devices in by_gpu.items():
            hits = affected_pods.affected(resources, {device.uuid for device in devices})
            units = [unit for hit in hits for unit in hit.units]
            pods = None if holdings.reason else affected_pods.pods(units, holdings.holders)
            label = f"GPU {devices[0].gpu_index} ({gpu}):"
            sentence = affected_pods.sentence(label, reason, hits, pods)
            listed = None if pods is None else list(pods)
            self._notifier.warn("GpuUnhealthy", sentence, gpu, gpu=gpu, pods=listed)


def _title(loaded: LoadedConfig) -> str:
    return f"{loaded.name or loaded.path or 'of defaults'}, {loaded.digest}"


def _count(resource: Resource, unhealthy: Mapping[str, str]) -> tuple[int, int]:
    healthy = sum(unit.device.uuid not in unhealthy for unit in resource.units)
    return healthy, len(resource.units)
