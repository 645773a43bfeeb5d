# SPDX-License-Identifier: Apache-2.0
"""A publisher that runs in its own thread, against the API server of the tests."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from gpuhook.device_plugin.api_server.client import ApiServer
from gpuhook.dra.pool.pool_device import Pool
from gpuhook.dra.slices.slice_publisher import SlicePublisher
from tests.cluster_api.cluster_server import Cluster
from tests.cluster_api.object_kinds import Object
from tests.unit.dra.pools import NODE
from tests.waiting import eventually

DRIVER = "gpu.nvidia.com"


class RecordedLog:
    """Log lines as (level, text)."""

    def __init__(self) -> None:
        self.lines: list[tuple[str, str]] = []

    def info(self, text: str, **fields: Any) -> None:
        self.lines.append(("info", text))

    def warning(self, text: str, **fields: Any) -> None:
        self.lines.append(("warning", f"{text} {fields.get('code', '')}".strip()))

    def texts(self, level: str) -> list[str]:
        return [text for one, text in self.lines if one == level]


class Running:
    """A publisher in its event loop."""

    def __init__(self, cluster: Cluster, **options: Any) -> None:
        self.cluster = cluster
        self.log = RecordedLog()
        self.loop = asyncio.new_event_loop()
        self._options = {"first_pause": 0.02, **options}
        self.publisher: SlicePublisher | None = None
        self._task: asyncio.Task[None] | None = None
        self._thread = threading.Thread(target=self._main)

    def _main(self) -> None:
        asyncio.set_event_loop(self.loop)
        server = ApiServer(self.cluster.access, 5)
        self.publisher = SlicePublisher(server, DRIVER, NODE, self.log, **self._options)
        self._task = self.loop.create_task(self.publisher.run())
        self.loop.run_until_complete(asyncio.gather(self._task, return_exceptions=True))
        self.loop.close()

    def start(self) -> None:
        self._thread.start()
        eventually(lambda: self._task, "the publisher")

    def stop(self) -> None:
        assert self._task is not None
        self.loop.call_soon_threadsafe(self._task.cancel)
        self._thread.join(20)
        assert not self._thread.is_alive()

    @property
    def pool(self) -> Pool | None:
        assert self.publisher is not None
        return self.publisher.pool

    def publish(self, pool: Pool, *, waits: bool = True) -> None:
        """Set the pool, and wait until it is published."""
        publisher = self.publisher
        assert publisher is not None
        done = threading.Event()

        def begin() -> None:
            publisher.publish(pool)
            done.set()

        self.loop.call_soon_threadsafe(begin)
        assert done.wait(20)
        if waits:
            eventually(publisher.published.is_set, f"publication; {self.log.lines}")


@contextmanager
def publishing(cluster: Cluster, pool: Pool | None = None, **options: Any) -> Iterator[Running]:
    """Run a publisher; with a pool, it is published at first, and watched."""
    before = cluster.watches
    one = Running(cluster, **options)
    one.start()
    try:
        if pool is not None:
            one.publish(pool)
            eventually(lambda: cluster.watches > before, "a watch")
        yield one
    finally:
        one.stop()
        eventually(lambda: cluster.watches <= before, "the end of the watch")


def devices(cluster: Cluster) -> list[Object]:
    """Return the stored devices of all slices, in the order of the names of the slices."""
    return [one for s in cluster.store.slices() for one in s["spec"].get("devices", ())]


def names(cluster: Cluster) -> list[str]:
    return [one["name"] for one in devices(cluster)]


def generations(cluster: Cluster) -> list[tuple[int, int]]:
    """Return (generation, number of slices) as each slice has them."""
    pools = [one["spec"]["pool"] for one in cluster.store.slices()]
    return [(pool["generation"], pool["resourceSliceCount"]) for pool in pools]
