# SPDX-License-Identifier: Apache-2.0
"""Follows the changes of a driver's slices that other clients make."""

from __future__ import annotations

import asyncio
from typing import TypeVar

from gpuhook.device_plugin import daemon_thread
from gpuhook.device_plugin.api_server.client import GoneError
from gpuhook.device_plugin.kubelet.backoff import Backoff
from gpuhook.errors import GpuhookError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from gpuhook.device_plugin.api_server.client import Changes
    from gpuhook.dra.slices.slice_client import SliceClient
    from gpuhook.dra.slices.slice_plan import SliceMemory

T = TypeVar("T")
_FIRST_PAUSE, _LONGEST_PAUSE = 1.0, 60.0
_LONGEST_DELAY = 30.0  # after changes of others, which may be another driver's


class SliceWatch:
    """The watch of a publisher; `wake` makes that compare the slices.

    `version` is that of the last list, and "" until there is one. `on_fault` gets the error that
    has ended a watch. `least_delay` returns the seconds before the next comparison, 0 for the usual
    delay from `first_delay` on.
    """

    def __init__(
        self,
        client: SliceClient,
        memory: SliceMemory,
        wake: Callable[[], None],
        on_fault: Callable[[GpuhookError], None],
        *,
        least_delay: Callable[[], float],
        first_delay: float,
    ) -> None:
        self.version = ""
        self._client = client
        self._memory = memory
        self._wake = wake
        self._on_fault = on_fault
        self._least_delay = least_delay
        self._calm = Backoff(first_delay, _LONGEST_DELAY)
        self._is_ended = False
        self._changes: Changes | None = None
        self._disturbed = 0.0  # when another client changed a slice
        self._timer: asyncio.TimerHandle | None = None

    async def follow(self) -> None:
        """Wake the publisher after changes of other clients, until cancelled."""
        self._is_ended = False
        try:
            await self._follow()
        finally:
            self._is_ended = True
            if self._timer is not None:
                self._timer.cancel()
            self._close()

    async def _follow(self) -> None:
        pause = Backoff(_FIRST_PAUSE, _LONGEST_PAUSE)
        version = ""
        while True:
            version = version or self.version
            if not version:
                await asyncio.sleep(_FIRST_PAUSE / 4)
                continue
            try:
                version = await self._follow_one(version)
                pause.reset()
            except GoneError:  # changes may be lost: list the slices
                version = self.version = ""
                self._wake()
            except GpuhookError as error:
                self._on_fault(error)
                self._wake()
                await asyncio.sleep(pause.next())

    async def _follow_one(self, version: str) -> str:
        """Follow one watch to its end; return the version to continue with."""
        changes = await _in_thread(lambda: self._open(version))
        try:
            while (change := await _in_thread(changes.next)) is not None:
                one = self._client.stored(change.get("object"))
                version = one.version or version
                if not self._memory.is_own_change(str(change.get("type")), one):
                    self._wake_later()
        finally:
            self._close()
        await asyncio.sleep(_FIRST_PAUSE / 4)  # in case the server ends each watch at once
        return version

    def _open(self, version: str) -> Changes:
        """Open a watch in a thread; no one waits for it if follow() has ended meanwhile."""
        self._changes = changes = self._client.watch(version)
        if self._is_ended:
            self._close()
        return changes

    def _close(self) -> None:
        changes, self._changes = self._changes, None
        if changes is not None:
            changes.interrupt()  # after a cancellation the thread still waits in next()
            changes.close()

    def _wake_later(self) -> None:
        """Compare the slices soon, and later if others change them again and again."""
        loop = asyncio.get_running_loop()
        if loop.time() - self._disturbed > 2 * _LONGEST_DELAY:
            self._calm.reset()
        if self._timer is None or self._timer.when() <= loop.time():
            delay = self._least_delay() or self._calm.next()
            self._timer = loop.call_later(delay, self._wake)
        self._disturbed = loop.time()


async def _in_thread(call: Callable[[], T]) -> T:
    """Return the result of `call`; an answer without end does not keep the process alive."""
    return await daemon_thread.begin(call, "gpuhook-dra-slices")
