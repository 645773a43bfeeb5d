# SPDX-License-Identifier: Apache-2.0
"""The health of a node's GPUs and MIG instances.

Pure: no clock, no file, no NVML. A GPU with a mark of an XID, or a lost one, becomes healthy only
by evidence: a reboot, a reload of the driver, a replugged GPU, a driver that requires no action, or
`gpuhook health clear`. Successful queries are no evidence: a GPU that needs a reset often answers.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import inf

from gpuhook.device_plugin.health import device_trouble
from gpuhook.device_plugin.health.device_trouble import SILENT, DeviceTrouble
from gpuhook.device_plugin.health.health_marks import ALL, Evidence, HealthMark
from gpuhook.device_plugin.health.xid_verdict import XidVerdict, xid_verdict
from gpuhook.vendors.nvidia.gpu import xids

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from gpuhook.device_plugin.config.gpuhook_section import Health
    from gpuhook.device_plugin.offer.offered_devices import Device
    from gpuhook.vendors.nvidia.inventory.inventory import Gpu
    from gpuhook.vendors.nvidia.plugin.nvml_watcher import XidReport


@dataclass(frozen=True, slots=True)
class EndedMark:
    """A removed mark, and the evidence for its removal."""

    mark: HealthMark
    evidence: str


class GpuHealth:
    """The marks of all GPUs. `version` grows with each change.

    `needs_probe`: an event could not be matched to a GPU, so the GPUs should be listed now instead
    of at the next change.
    """

    def __init__(
        self, settings: Health, evidence: Evidence, marks: Iterable[HealthMark] = ()
    ) -> None:
        self.version = 0
        self.needs_probe = False
        self._settings = settings
        self._evidence = evidence
        self._marks = {_key(mark): mark for mark in marks}
        self._indexes: dict[str, int] = {}
        self._doubtful: set[str] = set()
        self._lost: set[str] = set()  # in the last list of GPUs
        self._unidentified: frozenset[str] = frozenset()  # lost GPUs without a UUID
        self._driver_trouble = ""

    @property
    def marks(self) -> tuple[HealthMark, ...]:
        """All marks, the oldest first."""
        return tuple(sorted(self._marks.values(), key=lambda mark: mark.since))

    def unhealthy(self, devices: Iterable[Device]) -> dict[str, str]:
        """Return the unhealthy ones of `devices`: the reasons by UUID."""
        return device_trouble.reasons(self.troubles(devices))

    def troubles(self, devices: Iterable[Device]) -> dict[str, tuple[DeviceTrouble, ...]]:
        """Return the troubles of the unhealthy ones of `devices` by UUID, the oldest first."""
        found = {}
        marks = [(mark, _trouble(mark)) for mark in self.marks]
        first = (DeviceTrouble(SILENT, self._driver_trouble),) if self._driver_trouble else ()
        for device in devices:
            hits = [trouble for mark, trouble in marks if mark.hits(device.gpu, device.instance)]
            if first or hits:
                found[device.uuid] = (*first, *hits)
        return found

    def gpus_to_query(self) -> tuple[str, ...]:
        """Return the GPUs whose recovery action should be read again."""
        if not self._settings.ask_driver:
            return ()
        marked = {mark.gpu for mark in self._marks.values() if mark.by_driver}
        doubtful = self._doubtful if self._driver_decides() else set()
        return tuple(sorted(marked | doubtful))

    def label(self, gpu: str) -> str:
        """Return the GPU in messages: "GPU 0 (GPU-...)"."""
        return HealthMark(gpu, "", "", index=self._indexes.get(gpu)).label

    def add_xid(self, event: XidReport, action: str | None, now: float) -> XidVerdict:
        """Add an XID; `action` is the GPU's recovery action read after it, None if unknown.

        An XID of an unknown GPU adds no mark. `now` is in seconds since 1970.
        """
        verdict = xid_verdict(event.xid, self._settings, action)
        if event.uuid is None:
            self.needs_probe = True
            reason = f"{verdict.reason}, of a GPU that the driver does not identify"
            return XidVerdict(False, reason, verdict.remedy)
        if verdict.is_doubtful:
            self._doubtful.add(event.uuid)
        if verdict.unhealthy:
            instance = _instance(event) if verdict.is_contained else None
            self._mark(
                HealthMark(
                    event.uuid,
                    f"xid {event.xid}",
                    verdict.reason,
                    verdict.remedy,
                    instance=instance,
                    by_driver=verdict.by_driver,
                ),
                now,
            )
        return verdict

    def update_action(self, gpu: str, action: str | None, now: float) -> tuple[EndedMark, ...]:
        """Apply a GPU's recovery action, and return the marks that it ends.

        "none" ends the marks with `by_driver`. Any other action marks the GPU, unless the settings
        exclude the driver. None, unknown, has no effect.
        """
        self._doubtful.discard(gpu)
        if action is None:
            return ()
        if action == xids.NO_ACTION:
            words = "the driver requires no action"

            def ended(mark: HealthMark) -> str:
                is_still = mark.source == "lost" and gpu in self._lost
                return words if mark.gpu == gpu and mark.by_driver and not is_still else ""

            return self._remove(ended)
        if not self._driver_decides():
            return ()
        remedy = xids.REMEDIES.get(action, action)
        known = self._marks.get((gpu, None, "action"))
        if known is None or known.remedy != remedy:
            self._mark(HealthMark(gpu, "action", f"the driver requires: {remedy}", remedy), now)
        return ()

    def update_gpus(self, gpus: Iterable[Gpu], now: float) -> tuple[str, ...]:
        """Apply NVML's list of GPUs, and return its changes as sentences.

        Lost GPUs are marked, and GPUs missing in the list until they are listed again. Must not be
        called without a list from NVML: a failing NVML proves nothing about any GPU.
        """
        self.needs_probe = False
        listed = tuple(gpus)
        named = {gpu.uuid for gpu in listed if gpu.uuid}
        unseen = {i: uuid for uuid, i in self._indexes.items() if uuid not in named}
        changes: list[str] = []
        unidentified: set[str] = set()
        present: set[str] = set()
        self._lost.clear()
        for gpu in listed:
            uuid = gpu.uuid or unseen.get(gpu.index)  # a lost one often does not report its UUID
            if uuid is None:
                unidentified.add(gpu.loss or f"GPU {gpu.index} does not report its UUID")
                continue
            present.add(uuid)
            if uuid not in self._indexes:
                self._doubtful.add(uuid)  # it may need a reset since before the plugin started
            self._indexes[uuid] = gpu.index
            if gpu.lost:
                self._lost.add(uuid)
                changes += self.mark_lost(uuid, gpu.lost, now)
        changes += sorted(unidentified - self._unidentified)
        self._unidentified = frozenset(unidentified)
        for uuid in sorted(self._indexes.keys() - present):
            changes += self._absent(uuid, now)
        back = self._remove(lambda m: "listed" if m.source == "absent" and m.gpu in present else "")
        return (*changes, *(f"{ended.mark.label} is listed again" for ended in back))

    def mark_lost(self, uuid: str, reason: str, now: float) -> tuple[str, ...]:
        """Mark a GPU as lost, and return a sentence unless it was marked before."""
        if (uuid, None, "lost") in self._marks:
            return ()
        self._mark(HealthMark(uuid, "lost", f"lost: {reason}"), now)
        return (f"{self.label(uuid)} is lost: {reason}",)

    def query_all(self) -> None:
        """Query the recovery actions of all GPUs: XIDs before this moment may have been missed."""
        self._doubtful.update(self._indexes)

    def set_driver_trouble(self, reason: str) -> None:
        """Make all GPUs unhealthy because the driver does not answer; "": it answers again.

        The end of the trouble removes no mark: update_evidence() does.
        """
        if reason != self._driver_trouble:
            self._driver_trouble = reason
            self.version += 1

    def update_evidence(self, evidence: Evidence) -> tuple[EndedMark, ...]:
        """Apply the current evidence, and return the marks that it ends.

        A value that cannot be read now, such as the slot of a lost GPU, keeps its last value.
        """
        last = self._evidence
        self._evidence = Evidence(
            evidence.boot or last.boot,
            evidence.driver or last.driver,
            {**last.slots, **evidence.slots},
        )
        return self._remove(lambda mark: mark.ended_by(evidence))

    def clear(self, gpu: str, requested: float, now: float = inf) -> tuple[EndedMark, ...]:
        """Remove the marks of a GPU (or ALL) made up to the time of the operator's request."""

        def ended(mark: HealthMark) -> str:
            is_named = gpu in (mark.gpu, ALL)
            return "cleared by the operator" if is_named and mark.is_before(requested, now) else ""

        gone = self._remove(ended)
        for one in gone:
            if one.mark.source == "absent":  # removed from the node for good
                self._indexes.pop(one.mark.gpu, None)
        return gone

    def configure(self, settings: Health) -> tuple[EndedMark, ...]:
        """Apply new settings, and return the marks of XIDs that they ignore, which are removed."""
        self._settings = settings
        words = "the configuration now ignores it"

        def ended(mark: HealthMark) -> str:
            number = _xid(mark)
            return words if number is not None and settings.rule(number) is False else ""

        return self._remove(ended)

    def _absent(self, uuid: str, now: float) -> list[str]:
        if (uuid, None, "absent") in self._marks:
            return []
        words = "the driver no longer lists it"
        self._mark(HealthMark(uuid, "absent", words, by_driver=False, is_condition=True), now)
        return [f"{self.label(uuid)} is no longer listed by the driver"]

    def _driver_decides(self) -> bool:
        """Return whether the settings let the driver decide about any XID."""
        chosen = self._settings
        return chosen.ask_driver and not chosen.ignores_all and chosen.critical_xids is None

    def _mark(self, mark: HealthMark, now: float) -> None:
        """Add or renew a mark, with the current evidence."""
        known, renewed = self._evidence, self._marks.get(_key(mark))
        mark = replace(
            mark,
            index=self._indexes.get(mark.gpu),
            since=now,
            first=now if renewed is None else renewed.first or renewed.since,
            boot=known.boot,
            driver=known.driver,
            slot=known.slots.get(mark.gpu),
        )
        self._marks[_key(mark)] = mark
        self.version += 1

    def _remove(self, ended: Callable[[HealthMark], str]) -> tuple[EndedMark, ...]:
        gone = [EndedMark(mark, words) for mark in self.marks if (words := ended(mark))]
        for one in gone:
            del self._marks[_key(one.mark)]
        self.version += bool(gone)
        return tuple(gone)


def _key(mark: HealthMark) -> tuple[str, tuple[int, int | None] | None, str]:
    return mark.gpu, mark.instance, mark.source


def _trouble(mark: HealthMark) -> DeviceTrouble:
    kind, _, value = mark.source.partition(" ")
    return DeviceTrouble(kind, mark.reason, mark.remedy, value, mark.first or mark.since)


def _instance(event: XidReport) -> tuple[int, int | None] | None:
    return None if event.gpu_instance is None else (event.gpu_instance, event.compute_instance)


def _xid(mark: HealthMark) -> int | None:
    """Return the number of a mark's XID, None for another kind of mark."""
    word, _, number = mark.source.partition(" ")
    return int(number) if word == "xid" and number.isdecimal() else None
