# SPDX-License-Identifier: Apache-2.0
"""Keeps the slices of a pool in the API server as the pool is.

The kubelet deletes the slices of its node when it starts, and when a driver is gone for a while:
what others delete or change is written again. At the end the slices remain, so that a restart of
the driver changes nothing.
"""

from __future__ import annotations

import asyncio
from datetime import datetime, timezone
from typing import Any

from gpuhook.device_plugin import daemon_thread
from gpuhook.device_plugin.api_server.client import is_conflict, is_forbidden
from gpuhook.device_plugin.kubelet.backoff import Backoff
from gpuhook.dra.slices import server_features, slice_layout, slice_limits
from gpuhook.dra.slices.other_writer import OtherWriter
from gpuhook.dra.slices.server_form import server_form, with_times
from gpuhook.dra.slices.slice_client import SliceClient
from gpuhook.dra.slices.slice_plan import SliceLayout, SliceMemory, StoredSlice
from gpuhook.dra.slices.slice_watch import SliceWatch
from gpuhook.errors import GpuhookError, fault

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from gpuhook.device_plugin.api_server.client import ApiServer
    from gpuhook.dra.pool.pool_device import Pool
    from gpuhook.dra.slices.server_features import ServerFeatures
    from gpuhook.dra.slices.slice_plan import SlicePlan

RESYNC = 600.0  # seconds until the slices are compared without a reason
_FIRST_PAUSE, _LONGEST_PAUSE = 1.0, 60.0
_MOST_CONFLICTS = 5


class SlicePublisher:
    """Publishes the pool of a driver in the task run(); publish() sets the pool.

    `trouble` is why the slices are not up to date. `published` is set while they are.
    """

    def __init__(
        self,
        server: ApiServer,
        driver: str,
        node: str,
        log: Any,
        *,
        first_pause: float = _FIRST_PAUSE,
        resync: float = RESYNC,
    ) -> None:
        self._client = SliceClient(server, driver, node)
        self._log = log
        self._resync = resync
        self._retry = Backoff(first_pause, _LONGEST_PAUSE)
        self._desired: Pool | None = None
        self._features: ServerFeatures | None = None
        self._memory = SliceMemory()
        self._other = OtherWriter()
        self._written: Pool | None = None  # the pool of the last complete round
        self._generation = 0
        self._wake = asyncio.Event()
        self._watch = SliceWatch(
            self._client,
            self._memory,
            self._wake.set,
            self._on_watch_fault,
            least_delay=lambda: resync if self._other.is_active else 0.0,
            first_delay=first_pause / 2,
        )
        self._reported: set[str] = set()
        self._published: Pool | None = None
        self.trouble = ""
        self.published = asyncio.Event()

    @property
    def pool(self) -> Pool | None:
        """The devices as the API server has them; the wanted ones until it has any."""
        return self._published or self._desired

    @property
    def features(self) -> ServerFeatures | None:
        """What the API server knows, None until it has answered."""
        return self._features

    def publish(self, pool: Pool) -> None:
        """Set the pool; what differs from the last one is written soon."""
        if pool != self._desired:
            self._desired = pool
            self.published.clear()
            self._wake.set()

    async def run(self) -> None:
        """Publish until cancelled."""
        watch = asyncio.create_task(self._watch.follow())
        watch.add_done_callback(lambda _: self._wake.set())
        try:
            while not watch.done():
                pool = self._desired
                delay = self._resync if pool is None else await self._round(pool)
                timer = asyncio.get_running_loop().call_later(delay, self._wake.set)
                try:
                    await self._wake.wait()  # wait_for() may lose a cancellation
                finally:
                    timer.cancel()
            await watch  # it ends by a bug alone
        finally:
            watch.cancel()
            await asyncio.gather(watch, return_exceptions=True)

    async def _round(self, pool: Pool) -> float:
        """Write the slices once; return the seconds until the next time."""
        self._wake.clear()
        try:
            await daemon_thread.begin(lambda: self._reconcile(pool), "gpuhook-dra-slices")
        except GpuhookError as error:
            self._report(error)
            return self._retry.next()
        self._retry.reset()
        if self.trouble:
            self._log.info("the ResourceSlices are up to date again")
        self.trouble = ""
        if pool is self._desired:
            self.published.set()
        return self._resync

    def _report(self, error: GpuhookError) -> None:
        """Log an error, unless it is the one of the last time."""
        if error.message != self.trouble:
            self._log.warning(error.message, code=error.code, hint=error.hint)
        self.trouble = error.message

    def _on_watch_fault(self, error: GpuhookError) -> None:
        """Probe the server again: it may have been restarted, with other feature gates."""
        if is_forbidden(error):
            self._once_fault(error)
        self._features = None

    # The rest of a round runs in a thread.

    def _reconcile(self, desired: Pool) -> None:
        """Write what differs; a server that drops fields gets another form of the pool."""
        for _ in range(len(server_features.ServerFeatures().gates) + 1):
            if self._features is None:
                self._set_features(self._client.probe(), "the API server has")
            dropped = self._write_despite_conflicts(desired)
            if not dropped:
                return
            features = self._client.features.without(dropped)
            self._set_features(features, "the API server stored slices with")

    def _write_despite_conflicts(self, desired: Pool) -> set[str]:
        """Write, and read the slices again if another client has changed one meanwhile."""
        for _ in range(_MOST_CONFLICTS):
            try:
                return self._write(desired)
            except GpuhookError as error:
                if not is_conflict(error):
                    raise
        return self._write(desired)

    def _set_features(self, features: ServerFeatures, text: str) -> None:
        if features != self._features:
            self._log.info(f"{text}: {features}")
        lost = server_features.ServerFeatures().gates - features.gates
        for warning in server_features.dropped_fields(lost):
            self._once(warning)
        self._client.features = self._features = features

    def _write(self, desired: Pool) -> set[str]:
        """Make the slices those of the pool; return the gates whose fields the server dropped."""
        features = self._client.features
        owner = self._client.owner()
        if not owner:
            self._once("the slices have no owner: the service account may not get nodes")
        stored, self._watch.version = self._client.list()
        now = datetime.now(timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
        timed = with_times(server_form(desired, features), (one.spec for one in stored), now)
        form = self._within_limits(timed)
        layout = SliceLayout(
            slice_layout.slice_specs(form, features), self._is_equal(owner), self._generation
        )
        plan = layout.plan(stored)
        if desired is self._written and not plan.is_empty:
            self._note_other(stored)
        dropped = self._apply(plan, owner)
        self._generation = plan.generation
        if not dropped:
            self._published, self._written = form, desired
            self._report_published(form, plan, len(layout.specs))
        return dropped

    def _note_other(self, stored: list[StoredSlice]) -> None:
        """Report another program that writes the slices again and again, and write seldom then."""
        if any(map(self._memory.is_foreign, stored)):
            self._other.note()
        if self._other.is_active:
            self._once_fault(fault("GH2612", driver=self._client.driver, node=self._client.node))

    def _is_equal(self, owner: dict[str, Any]) -> Callable[[StoredSlice, dict[str, Any]], bool]:
        def compare(one: StoredSlice, spec: dict[str, Any]) -> bool:
            is_owned = not owner or one.metadata.get("ownerReferences") == [owner]
            return is_owned and self._memory.is_accepted(one, spec)

        return compare

    def _apply(self, plan: SlicePlan, owner: dict[str, Any]) -> set[str]:
        dropped: set[str] = set()
        for one in plan.deletes:
            self._client.delete(one)
            self._memory.add_deleted(one)
        for one, spec in plan.updates:
            dropped |= self._kept(spec, self._client.update(one, spec, owner))
        for number, spec in plan.creates:
            if not dropped:
                dropped |= self._kept(spec, self._client.create(number, spec, owner))
        return dropped

    def _kept(self, spec: dict[str, Any], stored: StoredSlice) -> set[str]:
        """Remember a slice as the server stored it; return the gates whose fields it dropped."""
        self._memory.add(spec, stored)
        return server_features.dropped_gates(spec, stored.spec)

    def _within_limits(self, pool: Pool) -> Pool:
        """Return the pool without devices for which the API server would refuse a slice."""
        kept, refused = slice_limits.within_limits(pool)
        for name, reason in refused.items():
            self._once_fault(fault("GH2610", device=name, reason=reason))
        return kept

    def _report_published(self, pool: Pool, plan: SlicePlan, slices: int) -> None:
        if not plan.is_empty:
            self._log.info(
                f"published {len(pool.devices)} devices in {slices} ResourceSlices",
                generation=plan.generation,
            )
        if not pool.devices:
            reason = pool.reason or "no device can be published"
            self._once(f"the pool has no devices: {reason}")

    def _once(self, message: str, **fields: str) -> None:
        if message not in self._reported:
            self._reported.add(message)
            self._log.warning(message, **fields)

    def _once_fault(self, error: GpuhookError) -> None:
        self._once(error.message, code=error.code, hint=error.hint)
