# SPDX-License-Identifier: Apache-2.0
"""Keeps the feature labels current, in NFD's file or on the node.

Off by default, since a cluster with a GPU feature discovery has these labels already. So the
modules that compute labels are imported only when they are enabled.
"""

from __future__ import annotations

import asyncio
import re
import time
from dataclasses import dataclass, replace

from gpuhook.device_plugin import daemon_thread, driver_calls
from gpuhook.device_plugin.config.configuration import LabelFlags
from gpuhook.device_plugin.kubelet.backoff import Backoff
from gpuhook.errors import GpuhookError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from gpuhook.device_plugin.api_server.client import ApiServer
    from gpuhook.device_plugin.config.configuration import Configuration
    from gpuhook.device_plugin.config.launch_options import Launch
    from gpuhook.device_plugin.labels.label_parts import LabelPart
    from gpuhook.device_plugin.node_snapshot import NodeSnapshot
    from gpuhook.device_plugin.notifier import Notifier
    from gpuhook.device_plugin.offer.offered_devices import Resource


_FIRST_PAUSE, _LONGEST_PAUSE = 1.0, 60.0  # seconds between two tries
_REMOVE_TIMEOUT = 5.0  # seconds


@dataclass(frozen=True, slots=True)
class _LabelSource:
    """The values that labels are computed from."""

    configuration: Configuration
    snapshot: NodeSnapshot
    resources: tuple[Resource, ...]


class LabelService:
    """Writes changed labels; `server` is None without an API server.

    It works in a task, so that turns do not wait for an API server that does not answer.
    """

    def __init__(self, launch: Launch, server: ApiServer | None, notifier: Notifier) -> None:
        self._launch = launch
        self._server = server
        self._notifier = notifier
        self._current: _LabelSource | None = None
        self._written: _LabelSource | None = None  # the source of the written labels
        self._task: asyncio.Task[None] | None = None
        self._path: str | None = None  # of the written file
        self._reported: set[str] = set()
        self._last: dict[str, LabelPart] = {}
        self._node_labels: dict[str, str] = {}
        self._started_at = int(time.time())

    def update(
        self, configuration: Configuration, snapshot: NodeSnapshot, resources: tuple[Resource, ...]
    ) -> None:
        """Write the labels for an offer. Failures are reported and retried.

        Labels that the configuration no longer enables are removed.
        """
        self._current = _LabelSource(configuration, snapshot, resources)
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._write_current())

    async def end(self, configuration: Configuration) -> None:
        """Remove the labels, if configured, within five seconds."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait({self._task})
        if not configuration.own.remove_labels_on_exit:
            return
        try:
            self._write_file(None, {})
            await asyncio.wait_for(self._label_node({}), _REMOVE_TIMEOUT)
        except asyncio.TimeoutError:
            self._notifier.log.warning("the labels were not removed", cause="no answer in time")
        except (GpuhookError, OSError) as error:
            self._notifier.log.warning("the labels were not removed", cause=str(error))

    async def _write_current(self) -> None:
        """Write labels until the written ones are current."""
        backoff = Backoff(_FIRST_PAUSE, _LONGEST_PAUSE)
        reported = ""
        while (source := self._current) is not None and source != self._written:
            try:
                await self._label(source)
            except Exception as error:  # a bug, too, is retried
                if str(error) != reported:
                    reported = str(error)
                    self._notifier.log.warning("the labels were not updated", cause=reported)
                if not self._is_forbidden(error):
                    await asyncio.sleep(backoff.next())
                    continue
            self._written = source

    def _is_forbidden(self, error: Exception) -> bool:
        """Return whether the API server refuses the labels."""
        if self._server is None or not isinstance(error, GpuhookError):
            return False
        from gpuhook.device_plugin.api_server.client import is_forbidden

        return is_forbidden(error)

    async def _label(self, source: _LabelSource) -> None:
        """Write the labels; then raise the error of a vendor whose labels are unknown.

        Its earlier labels remain.
        """
        from gpuhook.device_plugin.labels.label_parts import merged

        own = source.configuration.own
        parts: dict[str, LabelPart] = {}
        if own.labels or own.label_node:
            parts = await daemon_thread.begin(lambda: self._known(source), "gpuhook-labels")
        values = merged(parts.values())
        self._write_file(_file_path(source) if own.labels else None, values)
        if own.label_node and self._server is None:
            self._warn_once(
                "labelNode has no effect: no access to the API server; it needs NODE_NAME and the "
                "token of a service account"
            )
        owned = [one.names for one in parts.values() if one.is_owner and own.label_node]
        await self._label_node(values if own.label_node else {}, owned)
        for part in parts.values():
            if part.error is not None:
                raise part.error

    def _known(self, source: _LabelSource) -> dict[str, LabelPart]:
        """Return the labels by vendor, with the last known ones of a vendor that fails."""
        parts = self._parts(source)
        for domain, part in parts.items():
            for warning in part.warnings:
                self._warn_once(warning)
            if part.error is not None and domain in self._last:
                parts[domain] = replace(part, values=self._last[domain].values)
        self._last = parts
        return parts

    def _parts(self, source: _LabelSource) -> dict[str, LabelPart]:
        from gpuhook.device_plugin.labels.label_parts import label_parts

        is_here = self._launch.inventory is None
        return label_parts(
            source.snapshot.parts,
            source.resources,
            source.configuration,
            host_root=self._launch.host_root if is_here else None,
            call=lambda vendor, read: driver_calls.call_driver(vendor, "labels", read),
            timestamp=None if source.configuration.flags.gfd.no_timestamp else self._started_at,
        )

    def _write_file(self, path: str | None, values: dict[str, str]) -> None:
        """Write the labels to the file `path`, and remove an earlier file of another path."""
        if path is None and self._path is None:
            return
        from gpuhook.device_plugin.labels import feature_file

        if self._path is not None and self._path != path:
            feature_file.remove(self._path)
            self._path = None
        if path is not None:
            self._path = path
            feature_file.write(path, values)

    def _warn_once(self, message: str) -> None:
        if message not in self._reported:
            self._reported.add(message)
            self._notifier.log.warning(message)

    async def _label_node(self, values: dict[str, str], owned: Sequence[str] = ()) -> None:
        """Set these labels on the node, and remove the plugin's earlier labels.

        All other labels whose names match one of `owned` are removed, too.
        """
        server = self._server
        if server is None or values == self._node_labels:
            return
        from gpuhook.device_plugin.api_server import node_label

        changes: dict[str, str | None] = dict.fromkeys(self._node_labels.keys() - values.keys())
        changes.update(values)
        name = self._launch.node_name

        def change() -> None:
            now = node_label.set_labels(server, name, changes)
            others = (one for one in now if one not in values)
            stale = [one for one in others if any(re.fullmatch(own, one) for own in owned)]
            if stale:
                node_label.set_labels(server, name, dict.fromkeys(stale))

        await daemon_thread.begin(change, "gpuhook-labels")
        self._node_labels = values


def _file_path(source: _LabelSource) -> str | None:
    """Return the file to write; for an inventory file not the one that this machine's NFD reads."""
    path = source.configuration.flags.gfd.output_file
    return None if source.snapshot.is_dump and path == LabelFlags().output_file else path
