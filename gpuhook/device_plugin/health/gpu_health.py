# SPDX-License-Identifier: Apache-2.0
"""The health of a node's GPUs and MIG instances, from what is reported of them.

Pure: no clock, no file, no NVML. A GPU that was marked by an XID, or was lost, becomes healthy by
evidence alone: a new boot, the driver loaded anew, the GPU plugged in anew, the driver's word that
it needs no action, or the operator's. That it answers questions again is no evidence: a GPU that
needs a reset often does.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Protocol

from gpuhook.device_plugin.health.health_marks import Evidence, HealthMark
from gpuhook.device_plugin.health.xid_verdict import XidVerdict, judgement
from gpuhook.vendors.nvidia.gpu import xids

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from gpuhook.device_plugin.config.gpuhook_section import Health
    from gpuhook.device_plugin.offer.offered_devices import Device
    from gpuhook.vendors.nvidia.inventory.inventory import Gpu

ALL = "all"


class XidEvent(Protocol):
    """An XID as NVML reports it; what it does not name is None."""

    @property
    def uuid(self) -> str | None:
        """Of the physical GPU."""

    @property
    def xid(self) -> int:
        """The number of the error."""

    @property
    def gpu_instance(self) -> int | None:
        """Of the MIG instance, as below."""

    @property
    def compute_instance(self) -> int | None:
        """Of the MIG instance."""


@dataclass(frozen=True, slots=True)
class Ended:
    """A mark that is wiped, and the evidence for it."""

    mark: HealthMark
    evidence: str


class HealthBook:
    """What is wrong with which GPU. `version` grows when that changes.

    `wants_probe`: something was reported that no GPU could be found for, so that the GPUs should be
    looked at now instead of at the next turn.
    """

    def __init__(
        self, settings: Health, evidence: Evidence, marks: Iterable[HealthMark] = ()
    ) -> None:
        self.version = 0
        self.wants_probe = False
        self._settings = settings
        self._evidence = evidence
        self._marks = {_key(mark): mark for mark in marks}
        self._indexes: dict[str, int] = {}
        self._doubtful: set[str] = set()
        self._lost: set[str] = set()  # as the last list has them
        self._strangers: frozenset[str] = frozenset()  # lost GPUs of which nothing is known
        self._driver_trouble = ""

    @property
    def marks(self) -> tuple[HealthMark, ...]:
        """All marks, the oldest first."""
        return tuple(sorted(self._marks.values(), key=lambda mark: mark.since))

    def unhealthy(self, devices: Iterable[Device]) -> dict[str, str]:
        """Return the UUIDs of the unhealthy ones of `devices`, each with its reasons."""
        found = {}
        marks = self.marks
        for device in devices:
            hits = [mark.reason for mark in marks if mark.hits(device.gpu, device.instance)]
            if self._driver_trouble:
                hits.insert(0, self._driver_trouble)
            if hits:
                found[device.uuid] = "; ".join(dict.fromkeys(hits))
        return found

    def to_ask(self) -> tuple[str, ...]:
        """Return the GPUs of which the driver's recovery action should be read again."""
        if not self._settings.ask_driver:
            return ()
        marked = {mark.gpu for mark in self._marks.values() if mark.by_driver}
        doubtful = self._doubtful if self._goes_by_driver() else set()
        return tuple(sorted(marked | doubtful))

    def label(self, gpu: str) -> str:
        """Return what people call a GPU: "GPU 0 (GPU-...)"."""
        return HealthMark(gpu, "", "", index=self._indexes.get(gpu)).label

    def xid(self, event: XidEvent, action: str | None, now: float) -> XidVerdict:
        """Take an XID and the GPU's recovery action as it was read after it; None: not known.

        One of an unknown GPU marks nobody. `now` is in seconds since 1970.
        """
        verdict = judgement(event.xid, self._settings, action)
        if event.uuid is None:
            self.wants_probe = True
            reason = f"{verdict.reason}, of a GPU that the driver does not name"
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

    def action(self, gpu: str, action: str | None, now: float) -> tuple[Ended, ...]:
        """Take the driver's recovery action of a GPU, and return the marks that it wipes.

        "none" wipes those that it may; another marks the GPU, unless the settings leave the driver
        no say; None, not known, does nothing.
        """
        self._doubtful.discard(gpu)
        if action is None:
            return ()
        if action == xids.NO_ACTION:
            words = "the driver needs no action"

            def ended(mark: HealthMark) -> str:
                is_still = mark.source == "lost" and gpu in self._lost
                return words if mark.gpu == gpu and mark.by_driver and not is_still else ""

            return self._wipe(ended)
        if not self._goes_by_driver():
            return ()
        remedy = xids.REMEDIES.get(action, action)
        known = self._marks.get((gpu, None, "action"))
        if known is None or known.remedy != remedy:
            self._mark(HealthMark(gpu, "action", f"the driver asks: {remedy}", remedy), now)
        return ()

    def seen(self, gpus: Iterable[Gpu], now: float) -> tuple[str, ...]:
        """Take the GPUs as NVML lists them now, and return what is new of them, in sentences.

        A lost one is marked, and one that is not listed any more until it is listed again. Only for
        a list that NVML gave: where it fails, nothing is known of any GPU.
        """
        self.wants_probe = False
        listed = tuple(gpus)
        named = {gpu.uuid for gpu in listed if gpu.uuid}
        unseen = {i: uuid for uuid, i in self._indexes.items() if uuid not in named}
        news: list[str] = []
        strangers: set[str] = set()
        present: set[str] = set()
        self._lost.clear()
        for gpu in listed:
            uuid = gpu.uuid or unseen.get(gpu.index)  # a lost one often cannot say its UUID
            if uuid is None:
                strangers.add(gpu.loss or f"GPU {gpu.index} does not say its UUID")
                continue
            present.add(uuid)
            if uuid not in self._indexes:
                self._doubtful.add(uuid)  # it may have needed a reset before it was watched
            self._indexes[uuid] = gpu.index
            if gpu.lost:
                self._lost.add(uuid)
                news += self.lost(uuid, gpu.lost, now)
        news += sorted(strangers - self._strangers)
        self._strangers = frozenset(strangers)
        for uuid in sorted(self._indexes.keys() - present):
            news += self._absent(uuid, now)
        back = self._wipe(lambda m: "listed" if m.source == "absent" and m.gpu in present else "")
        return (*news, *(f"{ended.mark.label} is listed again" for ended in back))

    def lost(self, uuid: str, reason: str, now: float) -> tuple[str, ...]:
        """Take that a GPU is lost, and return the sentence that says so if that is news."""
        if (uuid, None, "lost") in self._marks:
            return ()
        self._mark(HealthMark(uuid, "lost", f"lost: {reason}"), now)
        return (f"{self.label(uuid)} is lost: {reason}",)

    def was_unwatched(self) -> None:
        """Take that XIDs of before this moment may have gone unheard: the driver is to be asked."""
        self._doubtful.update(self._indexes)

    def driver_gone(self, reason: str) -> None:
        """Take that the driver does not answer at all: nothing is healthy until driver_back()."""
        if reason != self._driver_trouble:
            self._driver_trouble = reason
            self.version += 1

    def driver_back(self) -> None:
        """Take that the driver answers again. This wipes no mark: evidence() does."""
        self.driver_gone("")

    def evidence(self, evidence: Evidence) -> tuple[Ended, ...]:
        """Take what can be seen now of the boot, the driver and the PCI devices.

        Returns the marks that it wipes: those made before a change. What cannot be read now, as of
        a GPU that is lost, is remembered as it was.
        """
        last = self._evidence
        self._evidence = Evidence(
            evidence.boot or last.boot,
            evidence.driver or last.driver,
            {**last.slots, **evidence.slots},
        )
        return self._wipe(lambda mark: mark.ended_by(evidence))

    def cleared(self, gpu: str, asked: float) -> tuple[Ended, ...]:
        """Wipe the marks of a GPU (or of ALL) made up to `asked`, for the operator says so."""
        words = "cleared by the operator"
        gone = self._wipe(lambda m: words if gpu in (m.gpu, ALL) and m.since <= asked else "")
        for one in gone:
            if one.mark.source == "absent":  # it was taken out for good
                self._indexes.pop(one.mark.gpu, None)
        return gone

    def configured(self, settings: Health) -> tuple[Ended, ...]:
        """Take new settings; XIDs that they ignore lose their marks."""
        self._settings = settings
        words = "the configuration ignores it now"

        def ended(mark: HealthMark) -> str:
            number = _xid(mark)
            return words if number is not None and settings.rule(number) is False else ""

        return self._wipe(ended)

    def _absent(self, uuid: str, now: float) -> list[str]:
        if (uuid, None, "absent") in self._marks:
            return []
        words = "the driver does not list it any more"
        self._mark(HealthMark(uuid, "absent", words, by_driver=False, is_condition=True), now)
        return [f"{self.label(uuid)} is not listed by the driver any more"]

    def _goes_by_driver(self) -> bool:
        """Return whether there are XIDs of which the settings leave the word to the driver."""
        chosen = self._settings
        return chosen.ask_driver and not chosen.ignores_all and chosen.critical_xids is None

    def _mark(self, mark: HealthMark, now: float) -> None:
        """Add or renew a mark, with what is the evidence now."""
        known = self._evidence
        made = replace(
            mark,
            index=self._indexes.get(mark.gpu),
            since=now,
            boot=known.boot,
            driver=known.driver,
            slot=known.slots.get(mark.gpu),
        )
        self._marks[_key(made)] = made
        self.version += 1

    def _wipe(self, ended: Callable[[HealthMark], str]) -> tuple[Ended, ...]:
        gone = [Ended(mark, words) for mark in self.marks if (words := ended(mark))]
        for one in gone:
            del self._marks[_key(one.mark)]
        self.version += bool(gone)
        return tuple(gone)


def _key(mark: HealthMark) -> tuple[str, tuple[int, int | None] | None, str]:
    return mark.gpu, mark.instance, mark.source


def _instance(event: XidEvent) -> tuple[int, int | None] | None:
    return None if event.gpu_instance is None else (event.gpu_instance, event.compute_instance)


def _xid(mark: HealthMark) -> int | None:
    """Return the number of the XID that made a mark, None for another mark."""
    word, _, number = mark.source.partition(" ")
    return int(number) if word == "xid" and number.isdecimal() else None
