# SPDX-License-Identifier: Apache-2.0
"""config-manager's process: once, or for as long as the pod is there."""

from __future__ import annotations

import asyncio
import os
import signal
import sys

from gpuhook.device_plugin.api_server import node_object, service_account
from gpuhook.device_plugin.api_server.client import ApiServer
from gpuhook.device_plugin.api_server.node_label import NodeLabel
from gpuhook.device_plugin.config_manager import config_choice, process_signal
from gpuhook.device_plugin.config_manager.manager_options import ManagerOptions, options
from gpuhook.errors import GpuhookError, fault
from gpuhook.host.logs import configure, logger

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gpuhook.device_plugin.api_server.service_account import ApiAccess

LOOK = 2.0  # seconds between looks at the mounted ConfigMap


def main() -> None:
    """Run, and end the process with its status: 1 for a fault, which is logged."""
    configure("text")
    try:
        access = service_account.in_cluster(os.environ)
        if access is None:
            raise fault("GH2110")
        run(options(sys.argv[1:], os.environ), access)
    except GpuhookError as error:
        _log(error)
        sys.exit(1)
    except OSError as error:
        logger().error("config-manager ends", reason=str(error))
        sys.exit(1)


def run(chosen: ManagerOptions, access: ApiAccess) -> None:
    """Choose once (ONESHOT), or follow the label and the ConfigMap until SIGTERM.

    Raises what keeps it from choosing: GH1862 to GH1864, GH2107, GH2109, OSError. Once it follows,
    a name that there is none of is logged, and the configuration stays.
    """
    server = ApiServer(access)
    if chosen.oneshot:
        labels, _ = node_object.labels(server, chosen.node_name)
        _apply(chosen, labels.get(chosen.node_label), has_new_text=False)
        return
    asyncio.run(_Following(chosen, server).run())


class _Following:
    """The label and the editions of the ConfigMap: what was seen last, and what the plugin has.

    They differ while the label names what is not there: an edition that came meanwhile is told
    with the next label that can be followed.
    """

    def __init__(self, chosen: ManagerOptions, server: ApiServer) -> None:
        self._options = chosen
        self._seen = self._told = config_choice.edition(chosen)
        self._label: str | None = None
        self._is_known = False
        self._stop = asyncio.Event()
        self._refused: GpuhookError | None = None
        self._follower = NodeLabel(
            server, chosen.node_name, self._changed, self._failed, label=chosen.node_label
        )

    async def run(self) -> None:
        """Follow until SIGTERM or SIGINT; raises GH1863 where the label may not be read."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._stop.set)
        label = asyncio.create_task(self._follower.run())
        label.add_done_callback(lambda _: self._stop.set())
        while not self._stop.is_set():
            try:
                await asyncio.wait_for(self._stop.wait(), LOOK)
            except (TimeoutError, asyncio.TimeoutError):
                self._look()
        if label.done() and not label.cancelled():
            label.result()
            if self._refused is not None:
                raise self._refused
        label.cancel()

    def _look(self) -> None:
        """See whether the kubelet has brought another edition."""
        if self._is_known and config_choice.edition(self._options) != self._seen:
            self._take_up()

    def _changed(self, label: str | None) -> None:
        self._label, self._is_known = label, True
        self._take_up()

    def _take_up(self) -> None:
        self._seen = now = config_choice.edition(self._options)
        if _is_applied(self._options, self._label, has_new_text=now != self._told):
            self._told = now

    def _failed(self, error: GpuhookError | None) -> None:
        self._refused = error
        if error is None:
            logger().info("the API server answers again")
        else:
            _log(error)


def _is_applied(chosen: ManagerOptions, label: str | None, *, has_new_text: bool) -> bool:
    """Apply, and return whether that could be done; what keeps it from that is logged."""
    try:
        _apply(chosen, label, has_new_text=has_new_text)
    except GpuhookError as error:
        _log(error)
    except OSError as error:
        logger().error("the configuration stays as it is", reason=str(error))
    else:
        return True
    return False


def _apply(chosen: ManagerOptions, label: str | None, *, has_new_text: bool) -> None:
    """Have the destination lead where the label says, and tell the plugin if that is new."""
    name = config_choice.chosen(label, config_choice.names(chosen.config_file_srcdir), chosen)
    is_new = config_choice.lead(chosen, name)
    told = name or "an empty one"
    if not is_new and not has_new_text:
        logger().info("the configuration is chosen already", config=told)
        return
    logger().info("chose a configuration", config=told, label=label or "")
    if chosen.send_signal:
        try:
            pids = process_signal.tell(chosen)
        except PermissionError:
            who = chosen.process_to_signal
            logger().error("the process may not be signalled: run as its user", process=who)
            return
        logger().info("sent a signal", signal=chosen.signal, pids=pids)


def _log(error: GpuhookError) -> None:
    logger().error(error.message, code=error.code, hint=error.hint)
