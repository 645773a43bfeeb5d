# SPDX-License-Identifier: Apache-2.0
"""Several observers as one."""

from __future__ import annotations

from typing import Any, cast

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from gpuhook.device_plugin.kubelet.observer import Observer


def all_of(*observers: Observer) -> Observer:
    """Return the observer that passes everything on to each of `observers`, in their order."""
    return cast("Observer", _All(observers))


def on_allocate(call: Callable[[], None]) -> Observer:
    """Return the observer that calls `call` when containers were answered by Allocate."""
    return cast("Observer", _OnAllocate(call))


class _OnAllocate:
    def __init__(self, call: Callable[[], None]) -> None:
        self._call = call

    def allocated(self, *_told: Any) -> None:
        self._call()

    def __getattr__(self, _name: str) -> Callable[..., None]:
        return _nothing


def _nothing(*_told: Any) -> None:
    return


class _All:
    def __init__(self, observers: tuple[Observer, ...]) -> None:
        self._observers = observers

    def __getattr__(self, name: str) -> Callable[..., None]:
        methods = [getattr(observer, name) for observer in self._observers]

        def passed_on(*arguments: Any) -> None:
            for method in methods:
                method(*arguments)

        return passed_on
