# SPDX-License-Identifier: Apache-2.0
"""Logs and counts the events of the offered resources."""

from __future__ import annotations

from typing import Any

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from gpuhook.device_plugin.metrics.counters import Counters
    from gpuhook.errors import GpuhookError

_SHORT_RETRY = 0.5  # seconds
_MAX_IDS = 16  # of one container, in a log line


class Observer:
    """Called for each event; the methods neither raise nor wait. Times are in seconds.

    `on_allocate` is called after Allocate has answered for containers.
    """

    def __init__(self, counters: Counters, on_allocate: Callable[[], None] = lambda: None) -> None:
        from gpuhook.host.logs import logger  # 50 ms, for the programs that log

        self._log = logger()
        self._counters = counters
        self._on_allocate = on_allocate

    def serving(self, resource: str, socket: str) -> None:
        """Handle a resource that is served on `socket`, for the first time or again."""
        self._log.info("serving", resource=resource, socket=socket)

    def serving_failed(self, resource: str, reason: GpuhookError, retry: float | None) -> None:
        """Handle a resource that cannot be served; the next try is in `retry` seconds.

        `retry` None: the plugin waits until the socket is free.
        """
        fields = {"retry": round(retry, 1)} if retry is not None else {}
        self._write_failure("not serving", resource, reason, retry, fields)
        self._counters.trouble("not-serving")

    def stopped(self, resource: str) -> None:
        """Handle the end of a resource's offer."""
        self._log.info("no longer offered", resource=resource)
        self._counters.remove_streams(resource)

    def registered(self, resource: str, seconds: float) -> None:
        """Handle a registration that the kubelet accepted after `seconds`."""
        self._log.info("registered", resource=resource, milliseconds=_milliseconds(seconds))
        self._counters.count("registrations", resource, "registered")
        self._counters.add_duration("registration", resource, seconds)

    def registration_failed(self, resource: str, reason: GpuhookError, retry: float) -> None:
        """Handle a failed registration; the next try is in `retry` seconds."""
        fields = {"retry": round(retry, 1)}
        self._write_failure("not registered", resource, reason, retry, fields)
        self._counters.count("registrations", resource, "failed")

    def registration_skipped(self, resource: str) -> None:
        """Handle an empty kubelet socket in the configuration."""
        self._log.info("not registered: no kubelet socket is configured", resource=resource)

    def kubelet_absent(self, socket: str) -> None:
        """Handle a missing kubelet socket."""
        self._log.info("waiting for the kubelet", socket=socket)
        self._counters.trouble("kubelet-absent")

    def unwatched(self, resource: str) -> None:
        """Handle a kubelet that registered the resource and opened no ListAndWatch stream."""
        self._log.warning("the kubelet does not watch, registering again", resource=resource)
        self._counters.trouble("unwatched")

    def watch_failed(self, reason: OSError) -> None:
        """Handle a directory that inotify cannot watch; the plugin polls it each second."""
        self._log.warning("no inotify, looking each second", reason=str(reason))
        self._counters.trouble("no-inotify")

    def list_sent(self, resource: str, devices: int, size: int) -> None:
        """Handle a list of `devices` devices, `size` bytes, sent on a stream."""
        self._log.debug("list sent", resource=resource, devices=devices, bytes=size)
        self._counters.count("lists", resource)

    def streams(self, resource: str, count: int) -> None:
        """Handle a changed number of open ListAndWatch streams."""
        self._log.debug("streams", resource=resource, count=count)
        self._counters.set_streams(resource, count)

    def allocated(self, resource: str, requests: Sequence[Sequence[str]], seconds: float) -> None:
        """Handle an answered Allocate; `requests` are the ids for each container."""
        ids = [" ".join(_shorten(one)) for one in requests]
        took = _milliseconds(seconds)
        self._log.info("allocated", resource=resource, devices=ids, milliseconds=took)
        self._counters.count("allocations", resource, "allocated", by=len(requests))
        self._counters.add_duration("allocate", resource, seconds)
        self._on_allocate()

    def preferred(self, resource: str, seconds: float) -> None:
        """Handle an answered GetPreferredAllocation."""
        self._log.debug("preferred", resource=resource, milliseconds=_milliseconds(seconds))
        self._counters.add_duration("preferred_allocation", resource, seconds)

    def pre_started(self, resource: str, ids: Sequence[str], seconds: float) -> None:
        """Handle a PreStartContainer that allowed the start."""
        took = _milliseconds(seconds)
        self._log.info("start allowed", resource=resource, devices=_shorten(ids), milliseconds=took)
        self._counters.count("starts", resource, "started")

    def refused(self, resource: str, method: str, reason: str, seconds: float) -> None:
        """Handle a call answered with an error; `reason` is the message."""
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
        """Handle a bug in gpuhook that ended a call; refused() follows."""
        self._log.error("failed", resource=resource, method=method, exc_info=error)
        self._counters.trouble("fault")

    def _write_failure(
        self,
        event: str,
        resource: str,
        reason: GpuhookError,
        retry: float | None,
        fields: dict[str, Any],
    ) -> None:
        """Write a warning, or a debug line if the next try is soon.

        A starting kubelet creates its socket before it listens.
        """
        is_short = retry is not None and retry < _SHORT_RETRY
        write = self._log.debug if is_short else self._log.warning
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
