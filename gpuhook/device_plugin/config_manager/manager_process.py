# SPDX-License-Identifier: Apache-2.0
"""The process of config-manager: selects once, or follows the label until it is stopped."""

from __future__ import annotations

import asyncio
import os
import signal
import sys

from gpuhook.device_plugin.api_server import service_account
from gpuhook.device_plugin.api_server.client import ApiServer
from gpuhook.device_plugin.api_server.node_label import NodeLabel, read_labels
from gpuhook.device_plugin.config import config_source
from gpuhook.device_plugin.config_manager import config_choice
from gpuhook.device_plugin.config_manager.manager_options import ManagerOptions, options
from gpuhook.errors import GpuhookError, fault
from gpuhook.host.hot import procfs
from gpuhook.host.logs import configure, logger

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gpuhook.device_plugin.api_server.service_account import ApiAccess

LOOK = 2.0  # seconds between checks of the mounted ConfigMap


def main() -> None:
    """Run, and exit with status 1 after logging a fault."""
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
    """Select a configuration once (ONESHOT), or follow the label and the ConfigMap until SIGTERM.

    Raises GH1801, GH1862 to GH1864, GH2107, GH2109 and OSError. While it follows, an unknown name
    is logged, and the configuration remains.
    """
    server = ApiServer(access)
    if chosen.oneshot:
        labels, _ = read_labels(server, chosen.node_name)
        _apply(chosen, labels.get(chosen.node_label), has_new_text=False)
        return
    asyncio.run(_Follower(chosen, server).run())


class _Follower:
    """Follows the label and the editions of the ConfigMap.

    The edition last seen differs from the one that the plugin has while the label names an unknown
    configuration. Then the next known label also signals the new edition.
    """

    def __init__(self, chosen: ManagerOptions, server: ApiServer) -> None:
        self._options = chosen
        self._seen = self._applied = config_choice.edition(chosen)
        self._label: str | None = None
        self._is_known = False
        self._stop = asyncio.Event()
        self._refused: GpuhookError | None = None
        self._watch = NodeLabel(
            server, chosen.node_name, self._changed, self._failed, label=chosen.node_label
        )

    async def run(self) -> None:
        """Follow until SIGTERM or SIGINT; raises GH1863 if it cannot read the label."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._stop.set)
        label = asyncio.create_task(self._watch.run())
        label.add_done_callback(lambda _: self._stop.set())
        while not self._stop.is_set():
            try:
                await asyncio.wait_for(self._stop.wait(), LOOK)
            except (TimeoutError, asyncio.TimeoutError):
                if self._is_known and config_choice.edition(self._options) != self._seen:
                    self._update()
        if label.done() and not label.cancelled():
            label.result()
            if self._refused is not None:
                raise self._refused
        label.cancel()

    def _changed(self, label: str | None) -> None:
        self._label, self._is_known = label, True
        self._update()

    def _update(self) -> None:
        """Apply the label and the current edition; a failure is logged."""
        self._seen = now = config_choice.edition(self._options)
        try:
            _apply(self._options, self._label, has_new_text=now != self._applied)
        except GpuhookError as error:
            _log(error)
        except OSError as error:
            logger().error("the configuration remains unchanged", reason=str(error))
        else:
            self._applied = now

    def _failed(self, error: GpuhookError | None) -> None:
        self._refused = error
        if error is None:
            logger().info("the API server answers again")
        else:
            _log(error)


def _apply(chosen: ManagerOptions, label: str | None, *, has_new_text: bool) -> None:
    """Link the configuration of the label, and signal the plugin if that is a change."""
    name = config_choice.choose(label, config_source.names(chosen.config_file_srcdir), chosen)
    is_new = config_choice.link(chosen, name)
    shown = name or "an empty one"
    if not is_new and not has_new_text:
        logger().info("the configuration is already active", config=shown)
        return
    logger().info("selected a configuration", config=shown, label=label or "")
    if chosen.send_signal:
        try:
            pids = _send_signal(chosen)
        except PermissionError:
            process = chosen.process_to_signal
            logger().error("permission denied to signal: run as its user", process=process)
            return
        logger().info("sent a signal", signal=chosen.signal, pids=pids)


def processes(name: str, proc: str = "/proc") -> list[int]:
    """Return the PIDs of processes whose first word is `name`, or a path with that base name."""
    pids = []
    for pid in procfs.pids(proc):
        try:
            with open(f"{proc}/{pid}/cmdline", "rb") as file:
                first = os.fsdecode(file.read(4096).partition(b"\0")[0])
        except OSError:
            continue  # the process has exited
        if name in (first, os.path.basename(first)):
            pids.append(pid)
    return sorted(pids)


def _send_signal(options: ManagerOptions) -> list[int]:
    """Send the signal to the processes of that name, and return their PIDs.

    The list may be empty: a process that starts later reads the new configuration.
    """
    pids = []
    for pid in processes(options.process_to_signal):
        if pid == os.getpid():
            continue
        try:
            os.kill(pid, options.signal)
        except ProcessLookupError:
            continue
        pids.append(pid)
    return pids


def _log(error: GpuhookError) -> None:
    logger().error(error.message, code=error.code, hint=error.hint)
