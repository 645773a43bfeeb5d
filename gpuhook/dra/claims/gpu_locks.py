# SPDX-License-Identifier: Apache-2.0
"""One lock for each GPU: claims of different GPUs are prepared at the same time."""

from __future__ import annotations

import threading
from contextlib import ExitStack, contextmanager

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator


class GpuLocks:
    """The locks, by UUID; several are taken in one order."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._locks: dict[str, threading.Lock] = {}

    @contextmanager
    def hold(self, uuids: Iterable[str]) -> Iterator[None]:
        """Wait for the locks, and hold them."""
        with ExitStack() as stack:
            for uuid in sorted(set(uuids)):
                with self._lock:
                    lock = self._locks.setdefault(uuid, threading.Lock())
                stack.enter_context(lock)
            yield
