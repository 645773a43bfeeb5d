# SPDX-License-Identifier: Apache-2.0
"""The feature labels that the plugin itself keeps up to date: NFD's file, the node's own labels.

Off unless configured: a cluster that runs a feature discovery of GPUs has these labels already. So
what makes labels is imported when they are asked for.
"""

from __future__ import annotations

import asyncio
import time

from gpuhook.errors import GpuhookError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gpuhook.kubernetes.api_server import ApiServer
    from gpuhook.kubernetes.configuration import Configuration
    from gpuhook.kubernetes.devices import Resource
    from gpuhook.kubernetes.launch import Launch
    from gpuhook.kubernetes.news import News
    from gpuhook.kubernetes.node_look import Look


class Labelling:
    """Writes the labels when there are others; `server` is None without an API server."""

    def __init__(self, launch: Launch, server: ApiServer | None, news: News) -> None:
        self._launch = launch
        self._server = server
        self._news = news
        self._path: str | None = None  # of the file that was written
        self._told = ""
        self._known: object = None  # what the labels were made of
        self._on_node: dict[str, str] = {}
        self._begun = int(time.time())

    async def offered(
        self, configuration: Configuration, look: Look, resources: tuple[Resource, ...]
    ) -> None:
        """Label the node as one that offers `resources`. What fails is told, and tried again.

        Labels that were written and are no longer kept up to date are taken away.
        """
        own = configuration.own
        known = (configuration, look.node, resources)
        if known == self._known:
            return
        found: dict[str, str] = {}
        try:
            if own.labels or own.label_node:
                found = await asyncio.to_thread(self._labels, configuration, look, resources)
            self._write(configuration.flags.gfd.output_file if own.labels else None, found)
            if own.label_node and self._server is None:
                self._tell_once("labelNode has no effect: there is no API server to speak to")
            await self._label_node(found if own.label_node else {})
        except (GpuhookError, OSError) as error:
            self._news.log.warning("the labels stay as they are", cause=str(error))
            return
        self._known = known

    async def end(self, configuration: Configuration) -> None:
        """Take the labels away, if that is asked for."""
        if not configuration.own.remove_labels_on_exit:
            return
        try:
            self._write(None, {})
            await self._label_node({})
        except (GpuhookError, OSError) as error:
            self._news.log.warning("the labels were not removed", cause=str(error))

    def _labels(
        self, configuration: Configuration, look: Look, resources: tuple[Resource, ...]
    ) -> dict[str, str]:
        from gpuhook.kubernetes import label_facts
        from gpuhook.kubernetes.labels import Facts, labels

        gfd = configuration.flags.gfd
        facts = Facts()
        if self._launch.inventory is None:
            facts = label_facts.facts(look.seen, self._launch.host_root, gfd.machine_type_file)
        timestamp = None if gfd.no_timestamp else self._begun
        return labels(look.node, resources, configuration, facts, timestamp)

    def _write(self, path: str | None, found: dict[str, str]) -> None:
        """Have the labels in the file `path`, and in no file that was written before."""
        if path is None and self._path is None:
            return
        from gpuhook.kubernetes import feature_file

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
        if self._server is None or wanted == self._on_node:
            return
        from gpuhook.kubernetes import node_object

        gone: dict[str, str | None] = dict.fromkeys(self._on_node.keys() - wanted.keys())
        name = self._launch.node_name
        await asyncio.to_thread(node_object.set_labels, self._server, name, {**gone, **wanted})
        self._on_node = wanted
