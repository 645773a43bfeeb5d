# SPDX-License-Identifier: Apache-2.0
"""What is told about the life of the offered resources, for logs and metrics."""

from __future__ import annotations

from typing import Protocol, cast

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from gpuhook.errors import GpuhookError

_A_MOMENT = 0.5
_MOST_SHOWN = 16  # ids of one container


class Observer(Protocol):
    """Who wants to know. Times are in seconds; nothing here may raise or wait."""

    def serving(self, resource: str, socket: str) -> None:
        """Tell that the resource is served on `socket`, for the first time or anew."""

    def serving_failed(self, resource: str, reason: GpuhookError, retry: float | None) -> None:
        """Tell that it is not; tried again in `retry` seconds, or when the socket is free."""

    def stopped(self, resource: str) -> None:
        """Tell that the resource is no longer offered."""

    def registered(self, resource: str, seconds: float) -> None:
        """Tell that the kubelet took the registration, and how long that was."""

    def registration_failed(self, resource: str, reason: GpuhookError, retry: float) -> None:
        """Tell that the kubelet did not; tried again in `retry` seconds."""

    def registration_skipped(self, resource: str) -> None:
        """Tell that there is no kubelet to register with: the configured socket is empty."""

    def kubelet_absent(self, socket: str) -> None:
        """Tell that the kubelet's socket is not there; it is waited for."""

    def unwatched(self, resource: str) -> None:
        """Tell that the kubelet took the registration and watches no list: registered again."""

    def watch_failed(self, reason: OSError) -> None:
        """Tell that the directory cannot be watched by inotify: it is looked at each second."""

    def list_sent(self, resource: str, devices: int, size: int) -> None:
        """Tell that a stream got a list of `devices` devices, `size` bytes."""

    def streams(self, resource: str, count: int) -> None:
        """Tell how many ListAndWatch streams there are now."""

    def allocated(self, resource: str, requests: Sequence[Sequence[str]], seconds: float) -> None:
        """Tell what Allocate handed out: the ids for each container."""

    def preferred(self, resource: str, seconds: float) -> None:
        """Tell that GetPreferredAllocation was answered."""

    def pre_started(self, resource: str, ids: Sequence[str], seconds: float) -> None:
        """Tell that PreStartContainer let a container start."""

    def refused(self, resource: str, method: str, reason: str, seconds: float) -> None:
        """Tell that a call was answered with an error; `reason` is the sentence."""

    def broken(self, resource: str, method: str, error: Exception) -> None:
        """Tell that a call could not be answered for a fault of ours."""


class Log:
    """The observer that writes log lines, and keeps quiet about what goes well all the time."""

    def __init__(self) -> None:
        from gpuhook.host.logs import logger  # 50 ms, for the programs that log

        self._log = logger()

    def serving(self, resource: str, socket: str) -> None:
        """Write where."""
        self._log.info("serving", resource=resource, socket=socket)

    def serving_failed(self, resource: str, reason: GpuhookError, retry: float | None) -> None:
        """Write why, for those who debug if it is tried again in a moment."""
        write = self._write_for(retry)
        again = {"retry": _seconds(retry)} if retry is not None else {}
        write("not serving", resource=resource, **again, **_said(reason))

    def stopped(self, resource: str) -> None:
        """Write that."""
        self._log.info("no longer offered", resource=resource)

    def registered(self, resource: str, seconds: float) -> None:
        """Write how long it took."""
        self._log.info("registered", resource=resource, milliseconds=_milliseconds(seconds))

    def registration_failed(self, resource: str, reason: GpuhookError, retry: float) -> None:
        """Write why, for those who debug if it is tried again in a moment."""
        write = self._write_for(retry)
        write("not registered", resource=resource, retry=_seconds(retry), **_said(reason))

    def registration_skipped(self, resource: str) -> None:
        """Write that nobody was told."""
        self._log.info("not registered: no kubelet socket is configured", resource=resource)

    def kubelet_absent(self, socket: str) -> None:
        """Write which socket is waited for."""
        self._log.info("waiting for the kubelet", socket=socket)

    def unwatched(self, resource: str) -> None:
        """Write that."""
        self._log.warning("the kubelet does not watch, registering again", resource=resource)

    def watch_failed(self, reason: OSError) -> None:
        """Write why."""
        self._log.warning("no inotify, looking each second", reason=str(reason))

    def list_sent(self, resource: str, devices: int, size: int) -> None:
        """Write the size, for those who debug."""
        self._log.debug("list sent", resource=resource, devices=devices, bytes=size)

    def streams(self, resource: str, count: int) -> None:
        """Write how many, for those who debug."""
        self._log.debug("streams", resource=resource, count=count)

    def allocated(self, resource: str, requests: Sequence[Sequence[str]], seconds: float) -> None:
        """Write who got what."""
        shown = [" ".join(_few(ids)) for ids in requests]
        took = _milliseconds(seconds)
        self._log.info("allocated", resource=resource, devices=shown, milliseconds=took)

    def preferred(self, resource: str, seconds: float) -> None:
        """Write how long it took, for those who debug."""
        self._log.debug("preferred", resource=resource, milliseconds=_milliseconds(seconds))

    def pre_started(self, resource: str, ids: Sequence[str], seconds: float) -> None:
        """Write which devices were looked at."""
        took = _milliseconds(seconds)
        self._log.info("start allowed", resource=resource, devices=_few(ids), milliseconds=took)

    def refused(self, resource: str, method: str, reason: str, seconds: float) -> None:
        """Write why."""
        took = _milliseconds(seconds)
        self._log.warning(
            "refused", resource=resource, method=method, reason=reason, milliseconds=took
        )

    def broken(self, resource: str, method: str, error: Exception) -> None:
        """Write where it came from."""
        self._log.error("failed", resource=resource, method=method, exc_info=error)

    def _write_for(self, retry: float | None) -> Callable[..., None]:
        """Return the debug log for what the next try will mend, else that for warnings.

        A kubelet that starts has its socket before it listens.
        """
        mended = retry is not None and retry < _A_MOMENT
        return cast("Callable[..., None]", self._log.debug if mended else self._log.warning)


def _few(ids: Sequence[str]) -> list[str]:
    """Return the ids as a line may show them: memory units are asked for by the thousand."""
    if len(ids) <= _MOST_SHOWN:
        return list(ids)
    return [*sorted(ids)[: _MOST_SHOWN // 2], f"and {len(ids) - _MOST_SHOWN // 2} more"]


def _said(reason: GpuhookError) -> dict[str, str]:
    return {"code": reason.code, "reason": reason.message, "hint": reason.hint}


def _seconds(pause: float) -> float:
    return round(pause, 1)


def _milliseconds(seconds: float) -> float:
    return round(seconds * 1000, 3)
