# SPDX-License-Identifier: Apache-2.0
"""The metrics endpoint of the plugin, and what it is fed with."""

from __future__ import annotations

import os
from functools import partial

from gpuhook.device_plugin import driver_usage
from gpuhook.device_plugin.config.gpuhook_section import Metrics as MetricsSettings
from gpuhook.device_plugin.metrics import unit_holders
from gpuhook.device_plugin.metrics.metrics_endpoint import MetricsSource
from gpuhook.device_plugin.metrics.scrape import Offered, Scrape
from gpuhook.device_plugin.node_snapshot import Look

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

    from gpuhook.device_plugin.metrics.counters import Observations
    from gpuhook.device_plugin.notifier import News
    from gpuhook.device_plugin.offer.offered_devices import Resource


class Measuring:
    """Serves the metrics at the address that is configured, which may change.

    `pod_resources` is the socket that tells who holds what. The processes of the node are those of
    /proc below `host_root`.
    """

    def __init__(
        self, observations: Observations, news: News, pod_resources: str, host_root: str = "/"
    ) -> None:
        self._observations = observations
        self._news = news
        self._pod_resources = pod_resources
        self._proc = os.path.join(host_root, "proc")
        self._settings = MetricsSettings(address="")
        self._endpoint: MetricsSource | None = None
        self._offered = Offered()
        self._told = ""  # why there is no endpoint
        self._look = Look()

    async def offered(
        self,
        settings: MetricsSettings,
        look: Look,
        resources: tuple[Resource, ...],
        unhealthy: Mapping[str, str],
        *,
        guards: bool = False,
    ) -> None:
        """Tell of these resources from now on; `unhealthy` has device UUIDs.

        `guards`: the plugin ends processes of containers that are above a limit of memory.
        """
        units = (unit for resource in resources for unit in resource.units)
        bad = frozenset(unit.id for unit in units if unit.device.uuid in unhealthy)
        self._offered, self._look = Offered(resources, bad, guards), look
        if settings == self._settings:
            return
        await self.end()
        self._settings = settings
        scrape = Scrape(
            lambda: self._offered,
            lambda: driver_usage.driver_usage(self._look),
            partial(unit_holders.ask, socket=self._pod_resources),
            proc=self._proc,
        )
        self._endpoint = MetricsSource(settings.address, scrape, self._observations)
        failed = await self._endpoint.start()
        if failed is not None:
            await self.end()  # the next turn tries again
            if failed.message != self._told:
                self._news.failed("NoMetrics", failed)
            self._told = failed.message
            return
        self._told = ""
        if settings.address:
            self._news.log.info("metrics", address=settings.address)

    async def end(self) -> None:
        """End the endpoint."""
        self._settings = MetricsSettings(address="")
        if self._endpoint is not None:
            await self._endpoint.stop()
            self._endpoint = None
