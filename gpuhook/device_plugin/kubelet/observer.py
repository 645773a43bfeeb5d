# SPDX-License-Identifier: Apache-2.0
"""Logs and counts the events of the offered resources."""

from __future__ import annotations

from gpuhook.host.logs import logger

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from gpuhook.device_plugin.metrics.counters import Counters
    from gpuhook.errors import GpuhookError

_SHORT_RETRY = 0.5  # seconds
_MAX_IDS = 16  # of one container, in a log line


class Observer:
    """Called for each event; the methods neither raise nor wait.

    `seconds` is the time that a call took, `retry` the seconds until the next try. `on_allocate` is
    called after Allocate has answered for containers.
    """

    def __init__(self, counters: Counters, on_allocate: Callable[[], None] = lambda: None) -> None:
        self._log = logger()
        self._counters = counters
        self._on_allocate = on_allocate

    def serving(self, resource: str, socket: str) -> None:
        self._log.info("serving", resource=resource, socket=socket)

    def serving_failed(self, resource: str, reason: GpuhookError, retry: float | None) -> None:
        """`retry` None: the plugin waits until the socket is free."""
        self._write_failure("not serving", resource, reason, retry)
        self._counters.count("troubles", "not-serving")

    def stopped(self, resource: str) -> None:
        self._log.info("no longer offered", resource=resource)
        self._counters.remove_streams(resource)

    def registered(self, resource: str, seconds: float) -> None:
        self._log.info("registered", resource=resource, milliseconds=_milliseconds(seconds))
        self._counters.count("registrations", resource, "registered")
        self._counters.add_duration("registration", resource, seconds)

    def registration_failed(self, resource: str, reason: GpuhookError, retry: float) -> None:
        self._write_failure("not registered", resource, reason, retry)
        self._counters.count("registrations", resource, "failed")

    def registration_skipped(self, resource: str) -> None:
        self._log.info("not registered: no kubelet socket is configured", resource=resource)

    def kubelet_absent(self, socket: str) -> None:
        self._log.info("waiting for the kubelet", socket=socket)
        self._counters.count("troubles", "kubelet-absent")

    def unwatched(self, resource: str) -> None:
        """The kubelet registered the resource and opened no ListAndWatch stream."""
        self._log.warning("the kubelet is not watching, registering again", resource=resource)
        self._counters.count("troubles", "unwatched")

    def watch_failed(self, reason: OSError) -> None:
        """The plugin polls a directory that inotify cannot watch."""
        self._log.warning("inotify is not available, checking every second", reason=str(reason))
        self._counters.count("troubles", "no-inotify")

    def list_sent(self, resource: str, devices: int, size: int) -> None:
        self._log.debug("list sent", resource=resource, devices=devices, bytes=size)
        self._counters.count("lists", resource)

    def streams(self, resource: str, count: int) -> None:
        self._log.debug("streams", resource=resource, count=count)
        self._counters.set_streams(resource, count)

    def allocated(self, resource: str, requests: Sequence[Sequence[str]], seconds: float) -> None:
        """Allocate was answered; `requests` are the ids for each container."""
        ids = [" ".join(_shorten(one)) for one in requests]
        took = _milliseconds(seconds)
        self._log.info("allocated", resource=resource, devices=ids, milliseconds=took)
        self._counters.count("allocations", resource, "allocated", by=len(requests))
        self._counters.add_duration("allocate", resource, seconds)
        self._on_allocate()

    def preferred(self, resource: str, seconds: float) -> None:
        self._log.debug("preferred", resource=resource, milliseconds=_milliseconds(seconds))
        self._counters.add_duration("preferred_allocation", resource, seconds)

    def pre_started(self, resource: str, ids: Sequence[str], seconds: float) -> None:
        took = _milliseconds(seconds)
        self._log.info("start allowed", resource=resource, devices=_shorten(ids), milliseconds=took)
        self._counters.count("starts", resource, "started")

    def refused(self, resource: str, method: str, reason: str, seconds: float) -> None:
        took = _milliseconds(seconds)
        self._log.warning(
            "refused", resource=resource, method=method, reason=reason, milliseconds=took
        )
        self._counters.count("refusals", resource, method)
        if method == "Allocate":
            self._counters.count("allocations", resource, "refused")
            self._counters.add_duration("allocate", resource, seconds)
        elif method == "PreStartContainer":
            self._counters.count("starts", resource, "refused")

    def broken(self, resource: str, method: str, error: Exception) -> None:
        """A bug in gpuhook has ended a call; refused() follows."""
        self._log.error("failed", resource=resource, method=method, exc_info=error)
        self._counters.count("troubles", "fault")

    def _write_failure(
        self, event: str, resource: str, reason: GpuhookError, retry: float | None
    ) -> None:
        """Write a warning, or a debug line if the next try is soon.

        A starting kubelet creates its socket before it listens.
        """
        is_short = retry is not None and retry < _SHORT_RETRY
        write = self._log.debug if is_short else self._log.warning
        fields = {} if retry is None else {"retry": round(retry, 1)}
        write(
            event,
            resource=resource,
            **fields,
            code=reason.code,
            reason=reason.message,
            hint=reason.hint,
        )


def _shorten(ids: Sequence[str]) -> list[str]:
    """Return the ids for a log line: a container may hold thousands of memory units."""
    if len(ids) <= _MAX_IDS:
        return list(ids)
    return [*sorted(ids)[: _MAX_IDS // 2], f"and {len(ids) - _MAX_IDS // 2} more"]


def _milliseconds(seconds: float) -> float:
    return round(seconds * 1000, 3)
