# SPDX-License-Identifier: Apache-2.0
"""The device plugin's process: it starts, has signals taken as reasons for turns, and ends."""

from __future__ import annotations

import asyncio
import signal

from gpuhook.device_plugin.api_clients import Connections
from gpuhook.device_plugin.notifier import News
from gpuhook.device_plugin.plugin import Plugin
from gpuhook.device_plugin.services.config_service import load
from gpuhook.device_plugin.triggers import Reason, Triggers
from gpuhook.host.logs import logger

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gpuhook.device_plugin.config.launch_options import Launch


def run(launch: Launch) -> int:
    """Serve until SIGTERM or SIGINT, and return the exit status, 0.

    SIGHUP has the configuration and the node read anew. Raises what keeps it from starting,
    GpuhookError and OSError.
    """
    asyncio.run(_served(launch))
    return 0


async def _served(launch: Launch) -> None:
    log = logger()
    triggers = Triggers()
    _catch_signals(triggers)
    connections = Connections(launch, log)
    await connections.start(lambda: triggers.pull(Reason.CONFIGURATION))
    try:
        loaded = load(launch, connections.label, "")
        plugin = Plugin(launch, loaded, connections, triggers, News(log, connections.events))
        try:
            await plugin.keep()
        finally:
            await plugin.end()
    finally:
        await connections.end()


def _catch_signals(triggers: Triggers) -> None:
    """Have signals take turns, from the start: the first process of a container has no others."""
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGQUIT):
        loop.add_signal_handler(number, triggers.pull, Reason.STOP)
    anew = (Reason.ASKED, Reason.CONFIGURATION, Reason.NODE)
    loop.add_signal_handler(signal.SIGHUP, triggers.pull, *anew)
