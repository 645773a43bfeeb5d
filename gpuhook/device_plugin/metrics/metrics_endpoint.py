# SPDX-License-Identifier: Apache-2.0
"""The device plugin's metrics, collected once for all clients of a moment."""

from __future__ import annotations

import asyncio
from functools import partial

from gpuhook.device_plugin import daemon_thread
from gpuhook.device_plugin.metrics import exposition
from gpuhook.host.http_endpoint import HttpEndpoint

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gpuhook.device_plugin.metrics.counters import Counters
    from gpuhook.device_plugin.metrics.scrape import Scrape


class MetricsEndpoint(HttpEndpoint):
    """The endpoint of the plugin. It runs in the plugin's loop."""

    def __init__(self, address: str, scrape: Scrape, counters: Counters) -> None:
        """Serve what `scrape` collects, and the counters."""
        super().__init__(address)
        self._scrape = scrape
        self._counters = counters
        self._collecting: asyncio.Task[exposition.ScrapedFacts] | None = None

    async def stop(self) -> None:
        await super().stop()
        if self._collecting is not None:
            self._collecting.cancel()
            await asyncio.gather(self._collecting, return_exceptions=True)

    async def metrics(self, accept: str) -> tuple[bytes, str]:
        """Return the metrics in the format that the client prefers."""
        facts = await asyncio.shield(self._collect())
        text = partial(exposition.text, facts, self._counters.snapshot(), accept)
        return await daemon_thread.begin(text, "gpuhook-metrics")

    def _collect(self) -> asyncio.Task[exposition.ScrapedFacts]:
        """Return the task that collects the facts, one for all simultaneous requests."""
        if self._collecting is None or self._collecting.done():
            self._collecting = asyncio.get_running_loop().create_task(self._scrape.pull())
        return self._collecting
