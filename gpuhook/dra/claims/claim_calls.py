# SPDX-License-Identifier: Apache-2.0
"""The kubelet's calls for claims: in parallel, and answered before the kubelet gives up.

The work on a claim goes on after the deadline, and its success remains: the kubelet repeats the
call, which then gets the result.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from functools import partial
from typing import Any, TypeVar

from gpuhook.device_plugin import daemon_thread
from gpuhook.errors import fault
from gpuhook.host.error_text import worded

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from gpuhook.dra.claims.claim import ClaimName
    from gpuhook.dra.claims.preparation import Preparation, Step
    from gpuhook.dra.claims.prepared_claim import PreparedDevice

T = TypeVar("T")
DEADLINE = 40.0  # seconds; the kubelet waits for 45
_FORMER = "the former call for this claim"


@dataclass(slots=True)
class _Work:
    """The work on a claim: the call that began it, and what it waits for."""

    call: str
    step: str = ""
    result: asyncio.Future[Any] = field(init=False)

    def note(self, step: str) -> None:
        """Note what the work waits for."""
        self.step = step


class ClaimCalls:
    """Answers calls by a Preparation; only from one event loop."""

    def __init__(self, preparation: Preparation, deadline: float = DEADLINE) -> None:
        self._preparation = preparation
        self._deadline = deadline
        self._work: dict[str, _Work] = {}

    async def prepare(
        self, names: Sequence[ClaimName]
    ) -> dict[str, tuple[PreparedDevice, ...] | Exception]:
        """Return the devices of each claim by UID, or why it is not prepared."""
        return await self._all("prepare", self._preparation.prepare, names)

    async def unprepare(self, names: Sequence[ClaimName]) -> dict[str, Exception | None]:
        """Return None for each claim by UID, or why it is not unprepared."""
        return await self._all("unprepare", self._preparation.unprepare, names)

    async def _all(
        self, call: str, function: Callable[[ClaimName, Step], T], names: Sequence[ClaimName]
    ) -> dict[str, T | Exception]:
        by_uid = {name.uid: name for name in names}
        answers = await asyncio.gather(
            *(self._one(call, function, name) for name in by_uid.values()), return_exceptions=True
        )
        found: dict[str, T | Exception] = {}
        for uid, answer in zip(by_uid, answers, strict=True):
            if isinstance(answer, OSError):
                found[uid] = worded(answer)
            elif isinstance(answer, BaseException) and not isinstance(answer, Exception):
                raise answer
            else:
                found[uid] = answer
        return found

    async def _one(self, call: str, function: Callable[[ClaimName, Step], T], name: ClaimName) -> T:
        """Return the result of the work on a claim; raises GH2604 after the deadline.

        A repeated call waits for the work of the first one.
        """
        end = asyncio.get_running_loop().time() + self._deadline
        while (work := self._work.get(name.uid)) is not None and work.call != call:
            await self._wait(work, name, end, _FORMER)
        if work is None:
            work = self._work[name.uid] = _Work(call)
            work.result = daemon_thread.begin(partial(function, name, work.note), "gpuhook-claim")
            work.result.add_done_callback(lambda _: self._work.pop(name.uid))
        await self._wait(work, name, end)
        result: T = work.result.result()
        return result

    async def _wait(self, work: _Work, name: ClaimName, end: float, what: str = "") -> None:
        left = end - asyncio.get_running_loop().time()
        await asyncio.wait({work.result}, timeout=max(left, 0))
        if not work.result.done():
            reason = f"it waits for {what or work.step}"
            raise fault("GH2604", what=f"the claim {name}", seconds=self._deadline, reason=reason)
        await asyncio.sleep(0)  # the work is removed
