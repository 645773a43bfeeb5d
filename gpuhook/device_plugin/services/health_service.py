# SPDX-License-Identifier: Apache-2.0
"""The health of the node's GPUs, kept up to date: what the driver reports goes into the book.

Everything here runs in the plugin's loop; the thread that waits for NVML posts to heard().
"""

from __future__ import annotations

import asyncio
import time
from contextlib import asynccontextmanager, contextmanager
from functools import partial

from gpuhook.device_plugin.health import health_marks_file
from gpuhook.device_plugin.health import recovery_evidence as health_evidence
from gpuhook.device_plugin.health.gpu_health import HealthBook
from gpuhook.device_plugin.health.nvml_watcher import (
    LONGEST_PAUSE,
    EventSource,
    Failed,
    Message,
    NvmlWatching,
    Reported,
    Watcher,
    poster,
)
from gpuhook.device_plugin.triggers import Reason

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping

    from gpuhook.device_plugin.config.gpuhook_section import Health
    from gpuhook.device_plugin.health.gpu_health import Ended
    from gpuhook.device_plugin.node_snapshot import Look
    from gpuhook.device_plugin.notifier import News
    from gpuhook.device_plugin.offer.offered_devices import Device
    from gpuhook.device_plugin.triggers import Triggers

_ENDS_WITHIN = 5.0  # seconds
_ANSWERS_WITHIN = 60.0  # seconds; NVML that starts wakes every GPU, which takes a few for each


class Monitoring:
    """Watches the GPUs of a node. `count_xid` is told each XID: the GPU's UUID, its number.

    Unless it `keeps` the marks it has nothing to do with the state directory: what a dump tells is
    not of this machine, whose own plugin may run.
    """

    def __init__(
        self,
        settings: Health,
        host_root: str,
        triggers: Triggers,
        news: News,
        count_xid: Callable[[str, int], None],
        *,
        keeps: bool = True,
    ) -> None:
        self._keeps = keeps
        self._host_root = host_root
        self._triggers = triggers
        self._news = news
        self._count_xid = count_xid
        evidence = health_evidence.read((), host_root)
        self._book = HealthBook(settings, evidence, health_marks_file.read() if keeps else ())
        self._version = self._kept = self._book.version  # that was told, that was written
        self._trouble = ""  # why it was not written
        self._watcher: Watcher | None = None
        self._library: tuple[str, str | None] | None = None
        self._is_gone = False  # the driver, at the last look
        self._deafness = ""  # why no events are waited for, if that is so
        self._unwatched: Mapping[str, str] = {}  # GPUs that have none, and why

    def unhealthy(self, devices: Iterable[Device]) -> dict[str, str]:
        """Return the reasons of the devices that are not to be given away, by UUID."""
        return self._book.unhealthy(devices)

    def configured(self, settings: Health) -> None:
        """Go by these settings from now on."""
        self._told_ended(self._book.configured(settings))
        self._changed()

    def looked(self, look: Look, loop: asyncio.AbstractEventLoop) -> None:
        """Take what was seen of the node, and watch the GPUs that are there."""
        gpus = look.seen.gpus
        self._told_ended(self._book.evidence(health_evidence.read(gpus, self._host_root)))
        if look.trouble is not None:
            self._is_gone = True
            self._book.driver_gone(f"the driver does not answer: {look.trouble.message}")
        else:
            self._book.driver_back()
            if self._is_gone and self._watcher is not None:
                self._watcher.restart()
            self._is_gone = False
            for sentence in self._book.seen(gpus, time.time()):
                self._news.bad("GpuLost", sentence)
            uuids = [gpu.uuid for gpu in gpus if gpu.uuid and gpu.lost is None]
            self._watch(look, uuids, loop)
        self._changed()

    def polled(self) -> None:
        """Do what operators have asked for, and ask the driver about GPUs that are marked."""
        for gpu, when in health_marks_file.clear_requests().items() if self._keeps else ():
            self._told_ended(self._book.cleared(gpu, when))
            try:
                health_marks_file.done(gpu)
            except OSError as error:
                self._news.log.warning("a request stays", gpu=gpu, cause=str(error))
        marked = self._book.to_ask()
        if marked and self._watcher is not None:
            self._watcher.ask(marked)
        self._changed()

    def heard(self, message: Message) -> None:
        """Take what the watching thread has posted."""
        if isinstance(message, Reported):
            self._reported(message)
        elif isinstance(message, NvmlWatching):
            self._watching(message)
        elif isinstance(message, Failed):
            self._failed(message)
        else:
            for uuid, action in message.by_gpu.items():
                self._told_ended(self._book.action(uuid, action, time.time()))
        self._changed()

    def _heard_of(self, library: tuple[str, str | None], message: Message) -> None:
        """Take a message, but for the last words about a driver that was replaced."""
        if library == self._library:
            self.heard(message)

    @asynccontextmanager
    async def aside(self) -> AsyncIterator[None]:
        """Leave NVML to others for a while: who starts it then sees the GPUs that there are now."""
        watcher = self._watcher
        if watcher is not None:
            await asyncio.to_thread(watcher.set_aside, _ENDS_WITHIN)
        try:
            yield
        finally:
            if watcher is not None:
                watcher.resume()

    @contextmanager
    def looking(self) -> Iterator[None]:
        """Count the driver as gone if this takes too long, until a look is taken by looked()."""
        timer = asyncio.get_running_loop().call_later(_ANSWERS_WITHIN, self._hangs)
        try:
            yield
        finally:
            timer.cancel()

    def _hangs(self) -> None:
        reason = f"the driver has not answered for {_ANSWERS_WITHIN:g} seconds"
        self._is_gone = True
        self._book.driver_gone(reason)
        self._news.bad("DriverHangs", f"{reason}: no GPU is given away until it does")
        self._changed()

    async def end(self) -> None:
        """End the watching thread, which takes as long as one wait."""
        if self._watcher is not None:
            self._watcher.stop()
            await asyncio.to_thread(self._watcher.join, _ENDS_WITHIN)

    def _watch(self, look: Look, uuids: list[str], loop: asyncio.AbstractEventLoop) -> None:
        if look.is_dump:
            return
        library = look.library
        if self._watcher is None or self._library != library:
            from gpuhook.vendors.nvidia.nvml import nvml_device, nvml_events

            if self._watcher is not None:
                self._watcher.stop()
            source = EventSource(
                partial(nvml_events.watched, *library), nvml_device.recovery_action
            )
            self._library = library
            self._watcher = Watcher(source, poster(loop, partial(self._heard_of, library)))
            self._watcher.start(uuids)
        else:
            self._watcher.watch(uuids)

    def _reported(self, report: Reported) -> None:
        verdict = self._book.xid(report, report.action, time.time())
        self._count_xid(report.uuid or "", report.xid)
        label = self._book.label(report.uuid) if report.uuid else "a GPU"
        told = self._news.log.warning if verdict.unhealthy else self._news.log.info
        told(
            f"{label}: {verdict.reason}",
            gpu=report.uuid,
            xid=report.xid,
            times=report.count,
            remedy=verdict.remedy,
        )
        if self._book.wants_probe:
            self._triggers.pull(Reason.NODE)

    def _watching(self, watching: NvmlWatching) -> None:
        for uuid, reason in watching.unwatched.items():
            if self._unwatched.get(uuid) != reason:
                self._news.log.warning("no events of a GPU", gpu=uuid, cause=reason)
        self._unwatched = watching.unwatched
        self._lost(watching.lost)
        self._book.was_unwatched()
        if self._is_gone and self._deafness:  # it answers again
            self._triggers.pull(Reason.NODE)
        self._deafness = ""

    def _failed(self, failed: Failed) -> None:
        if failed.times == 1:
            self._news.bad("WatchFailed", f"no XID is heard of: {failed.reason}")
        elif failed.pause < LONGEST_PAUSE or failed.reason != self._deafness:
            self._news.log.warning("no events yet", cause=failed.reason, retry=failed.pause)
        self._deafness = failed.reason
        self._lost(failed.lost)
        self._triggers.pull(Reason.NODE)

    def _lost(self, gpus: Mapping[str, str]) -> None:
        for uuid, reason in gpus.items():
            for sentence in self._book.lost(uuid, reason, time.time()):
                self._news.bad("GpuLost", sentence, uuid)

    def _told_ended(self, gone: Iterable[Ended]) -> None:
        """Tell of the marks that are wiped, each GPU once for one evidence."""
        sources: dict[tuple[str, str, str], list[str]] = {}
        for one in gone:
            about = one.mark.gpu, one.mark.label, one.evidence
            sources.setdefault(about, []).append(one.mark.source)
        marked = {mark.gpu for mark in self._book.marks}
        for (gpu, label, evidence), ended in sources.items():
            reasons = ", ".join(ended)
            message = f"{label}: healthy again after {reasons}: {evidence}"
            if gpu in marked:
                message = f"{label}: no more marked by {reasons}, still unhealthy: {evidence}"
                self._news.log.info(message, gpu=gpu)
            else:
                self._news.good("GpuHealthy", message, gpu, gpu=gpu)

    def _changed(self) -> None:
        """Keep the marks, and have the kubelet told, if there is something new in the book."""
        if self._book.version != self._version:
            self._version = self._book.version
            self._triggers.pull(Reason.HEALTH)
        if self._keeps and self._kept != self._version:
            self._keep_marks()

    def _keep_marks(self) -> None:
        """Write the marks; a full disk is tried again at each poll, and told once."""
        try:
            health_marks_file.write(self._book.marks)
        except OSError as error:
            if str(error) != self._trouble:
                self._news.log.warning("the marks were not kept", cause=str(error))
            self._trouble = str(error)
        else:
            self._kept, self._trouble = self._version, ""
