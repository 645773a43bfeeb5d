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
        self._path = ""  # of the file that was written
        self._known: object = None  # what the labels were made of
        self._on_node: dict[str, str] = {}
        self._begun = int(time.time())

    async def offered(
        self, configuration: Configuration, look: Look, resources: tuple[Resource, ...]
    ) -> None:
        """Label the node as one that offers `resources`. What fails is told, and tried again."""
        own = configuration.own
        if not (own.labels or own.label_node):
            return
        known = (configuration, look.node, resources)
        if known == self._known:
            return
        from gpuhook.kubernetes import feature_file

        try:
            found = await asyncio.to_thread(self._labels, configuration, look, resources)
            if own.labels:
                self._path = configuration.flags.gfd.output_file
                feature_file.write(self._path, found)
            if own.label_node:
                await self._label_node(found)
        except (GpuhookError, OSError) as error:
            self._news.log.warning("the labels stay as they are", cause=str(error))
            return
        self._known = known

    async def end(self, configuration: Configuration) -> None:
        """Take the labels away, if that is asked for."""
        if not configuration.own.remove_labels_on_exit:
            return
        try:
            if self._path:
                from gpuhook.kubernetes import feature_file

                feature_file.remove(self._path)
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

    async def _label_node(self, wanted: dict[str, str]) -> None:
        """Have the node carry these labels, and none that it got from here before."""
        if self._server is None or wanted == self._on_node:
            return
        from gpuhook.kubernetes import node_object

        gone: dict[str, str | None] = dict.fromkeys(self._on_node.keys() - wanted.keys())
        name = self._launch.node_name
        await asyncio.to_thread(node_object.set_labels, self._server, name, {**gone, **wanted})
        self._on_node = wanted
