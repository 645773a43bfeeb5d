# SPDX-License-Identifier: Apache-2.0
"""The device plugin's process: start, signals, end."""

from __future__ import annotations

import asyncio
import faulthandler
from contextlib import suppress

from gpuhook.device_plugin.active_config import load
from gpuhook.device_plugin.api_server.api_clients import ApiClients
from gpuhook.device_plugin.notifier import Notifier
from gpuhook.device_plugin.plugin import Plugin
from gpuhook.device_plugin.triggers import Reason, Triggers
from gpuhook.host.logs import logger

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gpuhook.device_plugin.config.launch_options import Launch


def run(launch: Launch) -> int:
    """Serve until SIGTERM, SIGINT or SIGQUIT, and return the exit status, 0.

    SIGHUP reloads the configuration and the node. Raises GpuhookError and OSError if the plugin
    cannot start.
    """
    with suppress(OSError, RuntimeError):  # of a stderr that is no file
        # A crash of a driver's library names its function.
        faulthandler.enable(all_threads=False)
    asyncio.run(_serve(launch))
    return 0


async def _serve(launch: Launch) -> None:
    log = logger()
    triggers = Triggers()
    triggers.handle_signals()
    clients = ApiClients(launch, log)
    await clients.start(lambda: triggers.pull(Reason.CONFIGURATION))
    try:
        loaded = load(launch, clients.label, "")
        plugin = Plugin(launch, loaded, clients, triggers, Notifier(log, clients.events))
        try:
            await plugin.keep()
        finally:
            await plugin.end()
    finally:
        await clients.end()
