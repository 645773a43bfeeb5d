# SPDX-License-Identifier: Apache-2.0
"""Several observers as one."""

from __future__ import annotations

from typing import Any, cast

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from gpuhook.kubernetes.serving.observer import Observer


def all_of(*observers: Observer) -> Observer:
    """Return the observer that passes everything on to each of `observers`, in their order."""
    return cast("Observer", _All(observers))


class _All:
    def __init__(self, observers: tuple[Observer, ...]) -> None:
        self._observers = observers

    def __getattr__(self, name: str) -> Callable[..., None]:
        methods = [getattr(observer, name) for observer in self._observers]

        def passed_on(*arguments: Any) -> None:
            for method in methods:
                method(*arguments)

        return passed_on
