# SPDX-License-Identifier: Apache-2.0
"""A blocking call in a daemon thread, awaited by the event loop.

asyncio joins the threads of its executor at exit, so a driver that hangs would keep the process
from ending. A daemon thread is not joined.
"""

from __future__ import annotations

import asyncio
from contextvars import copy_context
from threading import Thread
from typing import Any, TypeVar

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

T = TypeVar("T")


def begin(call: Callable[[], T], name: str) -> asyncio.Future[T]:
    """Run `call` in a new thread and return the future of its result or exception.

    The thread has the caller's context variables, such as the NVML library in use. asyncio does not
    report the exception of an abandoned call.
    """
    context = copy_context()
    loop = asyncio.get_running_loop()
    future: asyncio.Future[T] = loop.create_future()
    future.add_done_callback(_retrieve_exception)

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
        except BaseException as raised:  # the future raises it
            error = raised
        try:
            loop.call_soon_threadsafe(resolve, result, error)
        except RuntimeError:
            return  # the loop has exited

    Thread(target=run, name=name, daemon=True).start()
    return future


def _retrieve_exception(future: asyncio.Future[Any]) -> None:
    if not future.cancelled():
        future.exception()
