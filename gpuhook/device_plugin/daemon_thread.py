# SPDX-License-Identifier: Apache-2.0
"""A blocking call that the loop waits for, and that nobody waits for at the process's end.

The loop's own executor is joined at the end: a driver that hangs would keep the process from
ending.
"""

from __future__ import annotations

import asyncio
from contextvars import copy_context
from threading import Thread
from typing import TypeVar

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

T = TypeVar("T")


def begin(call: Callable[[], T], name: str) -> asyncio.Future[T]:
    """Run `call` in a thread of its own; returns the future of what it returns or raises.

    The thread has the caller's context variables, such as which NVML library is meant.
    """
    context = copy_context()
    loop = asyncio.get_running_loop()
    future: asyncio.Future[T] = loop.create_future()

    def resolve(result: T | None, error: BaseException | None) -> None:
        if future.done():
            return
        if error is not None:
            future.set_exception(error)
        else:
            future.set_result(result)  # type: ignore[arg-type] # None only with an error

    def run() -> None:
        result, error = None, None
        try:
            result = context.run(call)
        except BaseException as raised:  # told to whoever waits
            error = raised
        try:
            loop.call_soon_threadsafe(resolve, result, error)
        except RuntimeError:
            return  # the loop has ended meanwhile

    Thread(target=run, name=name, daemon=True).start()
    return future
