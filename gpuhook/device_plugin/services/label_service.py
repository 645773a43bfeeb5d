# SPDX-License-Identifier: Apache-2.0
"""The feature labels that the plugin itself keeps up to date: NFD's file, the node's own labels.

Off unless configured: a cluster that runs a feature discovery of GPUs has these labels already. So
what makes labels is imported when they are asked for.
"""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass

from gpuhook.device_plugin import daemon_thread
from gpuhook.device_plugin.config.configuration import LabelFlags
from gpuhook.device_plugin.kubelet.backoff import Backoff
from gpuhook.errors import GpuhookError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gpuhook.device_plugin.api_server.client import ApiServer
    from gpuhook.device_plugin.config.configuration import Configuration
    from gpuhook.device_plugin.config.launch_options import Launch
    from gpuhook.device_plugin.node_snapshot import Look
    from gpuhook.device_plugin.notifier import News
    from gpuhook.device_plugin.offer.offered_devices import Resource


_FIRST_PAUSE, _LONGEST_PAUSE = 1.0, 60.0  # seconds between two tries
_ENDS_WITHIN = 5.0  # seconds


@dataclass(frozen=True, slots=True)
class _Node:
    """What labels are made of."""

    configuration: Configuration
    look: Look
    resources: tuple[Resource, ...]


class Labelling:
    """Writes the labels when there are others; `server` is None without an API server.

    It does so beside the turns: health does not wait for an API server that does not answer.
    """

    def __init__(self, launch: Launch, server: ApiServer | None, news: News) -> None:
        self._launch = launch
        self._server = server
        self._news = news
        self._wanted: _Node | None = None
        self._known: _Node | None = None  # what the labels were made of
        self._task: asyncio.Task[None] | None = None
        self._path: str | None = None  # of the file that was written
        self._told = ""
        self._on_node: dict[str, str] = {}
        self._begun = int(time.time())

    def offered(
        self, configuration: Configuration, look: Look, resources: tuple[Resource, ...]
    ) -> None:
        """Label the node as one that offers `resources`. What fails is told, and tried again.

        Labels that were written and are no longer kept up to date are taken away.
        """
        self._wanted = _Node(configuration, look, resources)
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._keep())

    async def end(self, configuration: Configuration) -> None:
        """Take the labels away, if that is asked for and can be done in a moment."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait({self._task})
        if not configuration.own.remove_labels_on_exit:
            return
        try:
            self._write(None, {})
            await asyncio.wait_for(self._label_node({}), _ENDS_WITHIN)
        except asyncio.TimeoutError:
            self._news.log.warning("the labels were not removed", cause="no answer in time")
        except (GpuhookError, OSError) as error:
            self._news.log.warning("the labels were not removed", cause=str(error))

    async def _keep(self) -> None:
        """Label the node as it is wanted by now, until that is done."""
        from gpuhook.device_plugin.api_server.client import is_forbidden

        backoff = Backoff(_FIRST_PAUSE, _LONGEST_PAUSE)
        told = ""
        while (wanted := self._wanted) is not None and wanted != self._known:
            try:
                await self._label(wanted)
            except Exception as error:  # also a fault of ours is no reason for none ever
                if str(error) != told:
                    told = str(error)
                    self._news.log.warning("the labels stay as they are", cause=told)
                if not (isinstance(error, GpuhookError) and is_forbidden(error)):
                    await asyncio.sleep(backoff.next())
                    continue
            self._known = wanted

    async def _label(self, wanted: _Node) -> None:
        own = wanted.configuration.own
        found: dict[str, str] = {}
        if own.labels or own.label_node:
            found = await daemon_thread.begin(lambda: self._labels(wanted), "gpuhook-labels")
        self._write(_file_of(wanted) if own.labels else None, found)
        if own.label_node and self._server is None:
            self._tell_once(
                "labelNode has no effect: there is no API server to speak to; it takes NODE_NAME "
                "and the token of a service account"
            )
        await self._label_node(found if own.label_node else {})

    def _labels(self, wanted: _Node) -> dict[str, str]:
        from gpuhook.device_plugin.labels import label_facts
        from gpuhook.device_plugin.labels.node_labels import LabelFacts, labels

        gfd, look = wanted.configuration.flags.gfd, wanted.look
        facts = LabelFacts()
        if self._launch.inventory is None:
            facts = label_facts.facts(look.seen, self._launch.host_root, gfd.machine_type_file)
        timestamp = None if gfd.no_timestamp else self._begun
        return labels(look.node, wanted.resources, wanted.configuration, facts, timestamp)

    def _write(self, path: str | None, found: dict[str, str]) -> None:
        """Have the labels in the file `path`, and in no file that was written before."""
        if path is None and self._path is None:
            return
        from gpuhook.device_plugin.labels import feature_file

        if self._path is not None and self._path != path:
            feature_file.remove(self._path)
            self._path = None
        if path is not None:
            self._path = path
            feature_file.write(path, found)

    def _tell_once(self, message: str) -> None:
        if message != self._told:
            self._told = message
            self._news.log.warning(message)

    async def _label_node(self, wanted: dict[str, str]) -> None:
        """Have the node carry these labels, and none that it got from here before."""
        server = self._server
        if server is None or wanted == self._on_node:
            return
        from gpuhook.device_plugin.api_server import node_object

        changes: dict[str, str | None] = dict.fromkeys(self._on_node.keys() - wanted.keys())
        changes.update(wanted)
        name = self._launch.node_name
        await daemon_thread.begin(
            lambda: node_object.set_labels(server, name, changes), "gpuhook-labels"
        )
        self._on_node = wanted


def _file_of(wanted: _Node) -> str | None:
    """Return the file to write; for a dump, none that this machine's feature discovery reads."""
    path = wanted.configuration.flags.gfd.output_file
    return None if wanted.look.is_dump and path == LabelFlags().output_file else path
