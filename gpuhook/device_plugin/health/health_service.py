# SPDX-License-Identifier: Apache-2.0
"""Keeps the health of the node's GPUs current from NVML's events and the plugin's snapshots.

All of it runs in the plugin's loop; the thread that waits for NVML posts to on_message().
"""

from __future__ import annotations

import asyncio
import time
from contextlib import asynccontextmanager, contextmanager
from functools import partial

from gpuhook.device_plugin.health import device_trouble, health_marks, recovery_evidence
from gpuhook.device_plugin.health.gpu_health import GpuHealth
from gpuhook.device_plugin.triggers import Reason
from gpuhook.vendors.nvidia.hot.vocabulary import VENDOR
from gpuhook.vendors.nvidia.nvml import nvml_device, nvml_events
from gpuhook.vendors.nvidia.plugin import nvidia_part
from gpuhook.vendors.nvidia.plugin.nvml_watcher import (
    LONGEST_PAUSE,
    Message,
    Watcher,
    WatchFailed,
    WatchStarted,
    XidReport,
    poster,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping

    from gpuhook.device_plugin.config.gpuhook_section import Health
    from gpuhook.device_plugin.health.device_trouble import DeviceTrouble
    from gpuhook.device_plugin.health.gpu_health import EndedMark
    from gpuhook.device_plugin.node_snapshot import NodeSnapshot
    from gpuhook.device_plugin.notifier import Notifier
    from gpuhook.device_plugin.offer.offered_devices import Device
    from gpuhook.device_plugin.triggers import Triggers

_MODULE = "nvidia"  # of the kernel
_STOP_TIMEOUT = 5.0  # seconds
_DRIVER_TIMEOUT = 60.0  # seconds; NVML's start wakes every GPU, a few seconds for each


class HealthService:
    """Watches the GPUs of a node. `count_xid` gets the GPU's UUID and the number of each XID.

    `clear_others` gets the GPU of an operator's request, to clear what other services know of it.
    `service` is the one whose marks it keeps, of health_marks.SERVICES.

    If the node is not `is_this_machine`, but an inventory file, the state directory is not used:
    it belongs to this machine's plugin.
    """

    session_domain = VENDOR  # of the GPUs whose driver is kept open

    def __init__(
        self,
        settings: Health,
        host_root: str,
        triggers: Triggers,
        notifier: Notifier,
        count_xid: Callable[[str, int], None],
        *,
        clear_others: Callable[[str], None] = lambda _: None,
        is_this_machine: bool = True,
        service: str = health_marks.PLUGIN,
    ) -> None:
        self._service = service
        self._is_this_machine = is_this_machine
        self._host_root = host_root
        self._triggers = triggers
        self._notifier = notifier
        self._count_xid = count_xid
        self._clear_others = clear_others
        evidence = recovery_evidence.read({}, _MODULE, host_root)
        stored = health_marks.read(service) if is_this_machine else ()
        self._health = GpuHealth(settings, evidence, stored)
        self._version = self._stored = self._health.version
        self._store_error = ""
        self._watcher: Watcher | None = None
        self._library: tuple[str, str | None] | None = None
        self._is_driver_gone = False  # at the last snapshot
        self._watch_error = ""  # why no events arrive
        self._unwatched: Mapping[str, str] = {}  # reasons of GPUs without events

    def unhealthy(self, devices: Iterable[Device]) -> dict[str, str]:
        """Return the reasons of the unhealthy ones of NVIDIA's devices, by UUID."""
        return device_trouble.reasons(self.troubles(devices))

    def troubles(self, devices: Iterable[Device]) -> dict[str, tuple[DeviceTrouble, ...]]:
        """Return the troubles of the unhealthy ones of NVIDIA's devices, by UUID."""
        own = self.session_domain
        return self._health.troubles(device for device in devices if device.domain == own)

    def configure(self, settings: Health) -> None:
        self._report_ended(self._health.configure(settings))
        self._publish()

    def update(self, snapshot: NodeSnapshot, loop: asyncio.AbstractEventLoop) -> None:
        """Apply a snapshot of the node, and watch its GPUs."""
        own = nvidia_part.own_part(snapshot.parts)
        gpus = () if own.error is not None else own.seen.gpus
        slots = {gpu.uuid: gpu.pci_bus_id for gpu in gpus if gpu.uuid and gpu.pci_bus_id}
        evidence = recovery_evidence.read(slots, _MODULE, self._host_root)
        self._report_ended(self._health.update_evidence(evidence))
        if own.error is not None:
            self._is_driver_gone = True
            message = f"the driver does not answer: {own.error.message}"
            self._health.set_driver_trouble(message)
        else:
            self._health.set_driver_trouble("")
            if self._is_driver_gone and self._watcher is not None:
                self._watcher.restart()
            self._is_driver_gone = False
            for sentence in self._health.update_gpus(gpus, time.time()):
                self._notifier.warn("GpuLost", sentence)
            uuids = [gpu.uuid for gpu in gpus if gpu.uuid and gpu.lost is None]
            if not snapshot.is_dump and own.library:
                self._watch(own.library_and_module, uuids, loop)
        self._publish()

    def on_poll(self) -> None:
        """Handle the requests of operators, and query the driver about marked GPUs."""
        requests = health_marks.clear_requests(self._service) if self._is_this_machine else {}
        for gpu, when in requests.items():
            self._report_ended(self._health.clear(gpu, when, time.time()))
            self._clear_others(gpu)
            try:
                health_marks.remove_request(gpu, self._service)
            except OSError as error:
                self._notifier.log.warning(
                    "cannot remove a request to clear marks", gpu=gpu, cause=str(error)
                )
        marked = self._health.gpus_to_query()
        if marked and self._watcher is not None:
            self._watcher.query_actions(marked)
        self._publish()

    def on_message(self, message: Message) -> None:
        """Handle a message of the watching thread."""
        if isinstance(message, XidReport):
            self._on_xid(message)
        elif isinstance(message, WatchStarted):
            self._on_watch_started(message)
        elif isinstance(message, WatchFailed):
            self._on_watch_failed(message)
        else:
            for uuid, action in message.by_gpu.items():
                self._report_ended(self._health.update_action(uuid, action, time.time()))
        self._publish()

    def _on_library_message(self, library: tuple[str, str | None], message: Message) -> None:
        """Handle a message, except late ones of a driver that was replaced."""
        if library == self._library:
            self.on_message(message)

    @asynccontextmanager
    async def without_session(self) -> AsyncIterator[None]:
        """End NVML in the watching thread, so that its next start lists the current GPUs."""
        watcher = self._watcher
        if watcher is not None:
            await asyncio.to_thread(watcher.suspend, _STOP_TIMEOUT)
        try:
            yield
        finally:
            if watcher is not None:
                watcher.resume()

    @contextmanager
    def driver_deadline(self) -> Iterator[None]:
        """Make all GPUs unhealthy if the block takes too long, until the next update()."""
        timer = asyncio.get_running_loop().call_later(_DRIVER_TIMEOUT, self._on_driver_timeout)
        try:
            yield
        finally:
            timer.cancel()

    def _on_driver_timeout(self) -> None:
        reason = f"the driver has not answered for {_DRIVER_TIMEOUT:g} seconds"
        self._is_driver_gone = True
        self._health.set_driver_trouble(reason)
        self._notifier.warn("DriverHangs", f"{reason}: no GPU is assigned until it does")
        self._publish()

    async def end(self) -> None:
        """End the watching thread, after its current wait."""
        if self._watcher is not None:
            self._watcher.stop()
            await asyncio.to_thread(self._watcher.join, _STOP_TIMEOUT)

    def _watch(
        self, library: tuple[str, str | None], uuids: list[str], loop: asyncio.AbstractEventLoop
    ) -> None:
        if self._watcher is None or self._library != library:
            if self._watcher is not None:
                self._watcher.stop()
            self._library = library
            self._watcher = Watcher(
                partial(nvml_events.watched, *library),
                nvml_device.recovery_action,
                poster(loop, partial(self._on_library_message, library)),
            )
            self._watcher.start(uuids)
        else:
            self._watcher.watch(uuids)

    def _on_xid(self, report: XidReport) -> None:
        verdict = self._health.add_xid(report, report.action, time.time())
        self._count_xid(report.uuid or "", report.xid)
        label = self._health.label(report.uuid) if report.uuid else "a GPU"
        log = self._notifier.log
        write = log.warning if verdict.unhealthy else log.info
        write(
            f"{label}: {verdict.reason}",
            gpu=report.uuid,
            xid=report.xid,
            times=report.count,
            remedy=verdict.remedy,
        )
        if self._health.needs_probe:
            self._triggers.pull(Reason.NODE)

    def _on_watch_started(self, started: WatchStarted) -> None:
        for uuid, reason in started.unwatched.items():
            if self._unwatched.get(uuid) != reason:
                self._notifier.log.warning("no events of a GPU", gpu=uuid, cause=reason)
        self._unwatched = started.unwatched
        self._mark_lost(started.lost)
        self._health.query_all()
        if self._is_driver_gone and self._watch_error:  # it answers again
            self._triggers.pull(Reason.NODE)
        self._watch_error = ""

    def _on_watch_failed(self, failed: WatchFailed) -> None:
        if failed.times == 1:
            self._notifier.warn("WatchFailed", f"no XIDs are reported: {failed.reason}")
        elif failed.pause < LONGEST_PAUSE or failed.reason != self._watch_error:
            self._notifier.log.warning("no events yet", cause=failed.reason, retry=failed.pause)
        self._watch_error = failed.reason
        self._mark_lost(failed.lost)
        self._triggers.pull(Reason.NODE)

    def _mark_lost(self, gpus: Mapping[str, str]) -> None:
        for uuid, reason in gpus.items():
            for sentence in self._health.mark_lost(uuid, reason, time.time()):
                self._notifier.warn("GpuLost", sentence, uuid)

    def _report_ended(self, ended: Iterable[EndedMark]) -> None:
        """Report removed marks, once for each GPU and evidence."""
        sources: dict[tuple[str, str, str], list[str]] = {}
        for one in ended:
            about = one.mark.gpu, one.mark.label, one.evidence
            sources.setdefault(about, []).append(one.mark.source)
        marked = {mark.gpu for mark in self._health.marks}
        for (gpu, label, evidence), names in sources.items():
            reasons = ", ".join(names)
            message = f"{label}: healthy again after {reasons}: {evidence}"
            if gpu in marked:
                message = f"{label}: no longer marked by {reasons}, still unhealthy: {evidence}"
                self._notifier.log.info(message, gpu=gpu)
            else:
                self._notifier.info("GpuHealthy", message, gpu, gpu=gpu)

    def _publish(self) -> None:
        """After a change, trigger a turn and store the marks."""
        if self._health.version != self._version:
            self._version = self._health.version
            self._triggers.pull(Reason.HEALTH)
        if self._is_this_machine and self._stored != self._version:
            self._store_marks()

    def _store_marks(self) -> None:
        """Write the marks; a failure is reported once, and retried at each poll."""
        try:
            health_marks.write(self._health.marks, self._service)
        except OSError as error:
            if str(error) != self._store_error:
                self._notifier.log.warning("the marks were not stored", cause=str(error))
            self._store_error = str(error)
        else:
            self._stored, self._store_error = self._version, ""
