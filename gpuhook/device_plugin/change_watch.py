# SPDX-License-Identifier: Apache-2.0
"""Triggers turns for changes of the configuration's files and of the node.

inotify reports files. The kernel sends no event for GPUs and MIG instances that appear or go, so
files of the kernel are read at each poll, at the cost of a few small reads. A driver may block
their readers, so those of each vendor are read in a thread.
"""

from __future__ import annotations

import asyncio
from functools import partial

from gpuhook.device_plugin import daemon_thread, node_snapshot
from gpuhook.device_plugin.config import config_source
from gpuhook.device_plugin.kubelet.directory_watch import DirectoryWatch
from gpuhook.device_plugin.triggers import Reason
from gpuhook.host.logs import logger
from gpuhook.vendors.catalogue import vendors

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from gpuhook.device_plugin.config.launch_options import Launch
    from gpuhook.device_plugin.node_snapshot import NodeSnapshot
    from gpuhook.device_plugin.triggers import Triggers

_LONGEST_RETRY = 60.0  # seconds


class ChangeWatch:
    """Pulls the plugin's triggers. It polls every `seconds`."""

    def __init__(self, launch: Launch, triggers: Triggers, seconds: float) -> None:
        self._launch = launch
        self._triggers = triggers
        self._seconds = seconds
        self._last = node_snapshot.NodeSnapshot()
        self._since_failure = 0.0  # seconds since the last incomplete turn
        self._retry_after = 0.0  # seconds from that turn to the next, 0 after a complete turn
        self._on_poll: Callable[[], None] = lambda: None
        self._timer: asyncio.TimerHandle | None = None
        self._watch: DirectoryWatch | None = None
        self._directories: tuple[str, ...] = ()  # the watched ones
        self._comparisons: dict[str, asyncio.Future[bool]] = {}  # the last one of each vendor
        self._is_blind = False  # there are directories to watch, and no inotify

    def start(self, on_poll: Callable[[], None]) -> None:
        """Start polling; `on_poll` is called at each poll."""
        self._on_poll = on_poll
        self._watch_files()
        self._schedule_poll()

    def set_interval(self, seconds: float) -> None:
        if seconds != self._seconds:
            self._seconds = seconds
            if self._timer is not None:
                self._timer.cancel()
                self._schedule_poll()

    def set_snapshot(self, snapshot: NodeSnapshot) -> None:
        """Compare the node with this snapshot from now on."""
        self._last = snapshot

    def clear_retry(self) -> None:
        """Stop retrying after a complete turn."""
        self._retry_after = 0.0

    def schedule_retry(self) -> None:
        """Retry after an incomplete turn; the delay doubles up to one minute.

        /proc does not show when a missing driver, GPU or driver file becomes available. Failures
        before the retry is due, such as an MPS daemon that fails at each poll, do not delay it.
        """
        if self._since_failure < self._retry_after:
            return
        self._since_failure = 0.0
        self._retry_after = min(max(self._seconds, self._retry_after * 2), _LONGEST_RETRY)

    def may_have_other_devices(self, domain: str) -> bool:
        """Return whether devices of a vendor may have appeared or gone since the last snapshot."""
        if self._launch.inventory is not None:
            return False
        part = self._last.part(domain)
        is_whole = part is None or part.is_whole
        return not is_whole or node_snapshot.has_other_devices(domain, self._last, self._launch)

    def _compare_devices(self) -> None:
        """Compare the devices of each vendor, unless its last comparison still lasts."""
        for vendor in vendors():
            last = self._comparisons.get(vendor.domain)
            if last is None or last.done():
                compare = partial(
                    node_snapshot.has_other_devices, vendor.domain, self._last, self._launch
                )
                comparison = daemon_thread.begin(compare, "gpuhook-token")
                comparison.add_done_callback(partial(self._on_comparison, self._last))
                self._comparisons[vendor.domain] = comparison

    def _on_comparison(self, last: NodeSnapshot, done: asyncio.Future[bool]) -> None:
        is_done = not done.cancelled() and done.exception() is None
        if is_done and done.result() and last is self._last:
            self._triggers.pull(Reason.NODE)

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._unwatch_files()

    def _schedule_poll(self) -> None:
        self._timer = asyncio.get_running_loop().call_later(self._seconds, self._poll)

    def _poll(self) -> None:
        self._schedule_poll()
        self._since_failure += self._seconds
        is_due = self._retry_after > 0 and self._since_failure >= self._retry_after
        if is_due:
            self._triggers.pull(Reason.NODE)
        self._compare_devices()
        self._watch_files()
        if self._is_blind:
            self._triggers.pull(Reason.CONFIGURATION)
        self._on_poll()

    def _watch_files(self) -> None:
        """Watch the directories of the configuration, following its symbolic links.

        Without inotify, whose instances are limited per user, the files are read at each poll.
        """
        directories = config_source.watched(self._launch.source)
        try:
            if self._watch is not None and directories == self._directories:
                self._watch.renew()
            elif directories:
                self._unwatch_files()
                self._watch = DirectoryWatch(directories, self._on_file_change, writes=True)
        except OSError as error:
            self._unwatch_files()
            if not self._is_blind:
                logger().warning(
                    "inotify is not available, checking at each poll", reason=str(error)
                )
        self._is_blind = bool(directories) and self._watch is None
        self._directories = directories

    def _unwatch_files(self) -> None:
        if self._watch is not None:
            self._watch.close()
        self._watch = None

    def _on_file_change(self, _path: str | None, _made: bool) -> None:
        if config_source.watched(self._launch.source) != self._directories:
            self._watch_files()
        self._triggers.pull(Reason.CONFIGURATION)
