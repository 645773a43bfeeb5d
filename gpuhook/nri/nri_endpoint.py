# SPDX-License-Identifier: Apache-2.0
"""The NRI plugin's endpoint of metrics, in a thread with an event loop."""

from __future__ import annotations

import asyncio
from threading import Thread

from gpuhook.host.http_endpoint import HttpEndpoint

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gpuhook.nri.nri_counters import NriCounters


class NriEndpoint(HttpEndpoint):
    """The endpoint of the counters."""

    def __init__(self, address: str, counters: NriCounters) -> None:
        super().__init__(address)
        self._counters = counters

    async def metrics(self, accept: str) -> tuple[bytes, str]:
        return self._counters.text(accept)


def serve(address: str, counters: NriCounters) -> int:
    """Serve the counters in a thread; returns the port.

    Raises GH1890 if the address cannot be used, GH1891 for a text that is not one.
    """
    loop = asyncio.new_event_loop()
    Thread(target=loop.run_forever, name="gpuhook-metrics", daemon=True).start()
    endpoint = NriEndpoint(address, counters)
    error = asyncio.run_coroutine_threadsafe(endpoint.start(), loop).result()
    if error is not None:
        raise error
    return endpoint.port or 0
