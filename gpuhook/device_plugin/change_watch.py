# SPDX-License-Identifier: Apache-2.0
"""What makes the plugin take a turn by itself: files of the configuration, and the node's /proc.

Files are watched by inotify. The kernel tells nobody of GPUs and instances that come and go, so
that is looked at every few seconds, at the cost of a few small reads.
"""

from __future__ import annotations

import asyncio

from gpuhook.device_plugin import node_snapshot
from gpuhook.device_plugin.config import config_source
from gpuhook.device_plugin.kubelet.directory_watch import DirectoryWatch
from gpuhook.device_plugin.triggers import Reason
from gpuhook.host.logs import logger

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from gpuhook.device_plugin.config.launch_options import Launch
    from gpuhook.device_plugin.node_snapshot import Look
    from gpuhook.device_plugin.triggers import Triggers

_LONGEST = 60.0  # seconds between two turns that fail, or lack something


class Lookout:
    """Pulls the triggers of a plugin for what it sees, looking every `seconds`."""

    def __init__(self, launch: Launch, triggers: Triggers, seconds: float) -> None:
        self._launch = launch
        self._triggers = triggers
        self._seconds = seconds
        self._last: Look = node_snapshot.Look()
        self._quiet = 0.0  # seconds since the last turn that was not well
        self._patience = 0.0  # seconds from that to the next one, 0 if the last turn was well
        self._polled: Callable[[], None] = _nobody
        self._timer: asyncio.TimerHandle | None = None
        self._watch: DirectoryWatch | None = None
        self._directories: tuple[str, ...] = ()  # that are watched
        self._is_blind = False  # there are some, and no inotify

    def start(self, polled: Callable[[], None]) -> None:
        """Begin; `polled` is called at each look."""
        self._polled = polled
        self._watch_files()
        self._later()

    def configured(self, seconds: float) -> None:
        """Look every `seconds` from now on."""
        if seconds != self._seconds:
            self._seconds = seconds
            if self._timer is not None:
                self._timer.cancel()
                self._later()

    def looked(self, look: Look) -> None:
        """Compare with this look at the node from now on."""
        self._last = look

    def settled(self) -> None:
        """Take that a turn has ended well: only a change is a reason for another."""
        self._patience = 0.0

    def unsettled(self) -> None:
        """Take that a turn has failed, or lacked something: there will be another, later each time.

        A driver or a GPU that is missing, or a part of a driver: /proc does not tell when it is
        there. What fails in between, such as a daemon at each look, does not put it off.
        """
        if self._quiet < self._patience:
            return
        self._quiet = 0.0
        self._patience = min(max(self._seconds, self._patience * 2), _LONGEST)

    def is_another_node(self) -> bool:
        """Return whether GPUs may have come or gone since the last look."""
        return not self._last.is_whole or node_snapshot.has_changed(self._last, self._launch)

    def stop(self) -> None:
        """End, and leave nothing behind."""
        if self._timer is not None:
            self._timer.cancel()
        self._unwatch_files()

    def _later(self) -> None:
        self._timer = asyncio.get_running_loop().call_later(self._seconds, self._poll)

    def _poll(self) -> None:
        self._later()
        self._quiet += self._seconds
        is_due = self._patience > 0 and self._quiet >= self._patience
        if is_due or node_snapshot.has_changed(self._last, self._launch):
            self._triggers.pull(Reason.NODE)
        self._watch_files()
        if self._is_blind:
            self._triggers.pull(Reason.CONFIGURATION)  # unseen changes
        self._polled()

    def _watch_files(self) -> None:
        """Watch the directories of the configuration, wherever its links lead to by now.

        Without inotify, of which a node may have too little, they are looked at with the rest.
        """
        directories = config_source.watched(self._launch.source)
        try:
            if self._watch is not None and directories == self._directories:
                self._watch.renew()
            elif directories:
                self._unwatch_files()
                self._watch = DirectoryWatch(directories, self._file_changed, writes=True)
        except OSError as error:
            self._unwatch_files()
            if not self._is_blind:
                logger().warning("no inotify, looking at each poll", reason=str(error))
        self._is_blind = bool(directories) and self._watch is None
        self._directories = directories

    def _unwatch_files(self) -> None:
        if self._watch is not None:
            self._watch.close()
        self._watch = None

    def _file_changed(self, _path: str | None, _made: bool) -> None:
        """Have the configuration read: what is not new makes no difference."""
        if config_source.watched(self._launch.source) != self._directories:
            self._watch_files()
        self._triggers.pull(Reason.CONFIGURATION)


def _nobody() -> None:
    return
