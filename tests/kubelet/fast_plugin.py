# SPDX-License-Identifier: Apache-2.0
"""`gpuhook` whose event loop has a fast clock: CLOCK_SPEED seconds in each second.

All intervals of the device plugin, such as checks and retries, are the loop's. The driver and the
kubelet are no faster: the plugin waits for them in real seconds.
"""

from __future__ import annotations

import asyncio
import os
import selectors
from typing import Any

from gpuhook.cli import main
from gpuhook.device_plugin.health import health_service
from gpuhook.device_plugin.kubelet import plugin_sockets, resource_offer

SPEED = float(os.environ.get("CLOCK_SPEED", "1"))


class FastSelector(selectors.DefaultSelector):
    """Waits for the fraction of the time that the loop asks for."""

    def select(self, timeout: float | None = None) -> Any:
        """Wait as select() of the loop's time does."""
        return super().select(timeout and timeout / SPEED)


class FastLoop(asyncio.SelectorEventLoop):
    """An event loop whose clock is fast."""

    def __init__(self) -> None:
        super().__init__(FastSelector())

    def time(self) -> float:
        """Return the seconds of the fast clock."""
        return super().time() * SPEED


if __name__ == "__main__":
    vars(health_service)["_DRIVER_TIMEOUT"] *= SPEED
    vars(plugin_sockets)["_GRACE"] *= SPEED
    vars(resource_offer)["_STREAM_TIMEOUT"] *= SPEED
    vars(resource_offer)["_REOPEN_TIMEOUT"] *= SPEED
    vars(asyncio.events)["new_event_loop"] = FastLoop  # asyncio.run() calls it
    main(prog_name="gpuhook")
