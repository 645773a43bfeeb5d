# SPDX-License-Identifier: Apache-2.0
"""Runs the metrics endpoint of the plugin, and provides its data."""

from __future__ import annotations

import os
from functools import partial

from gpuhook.device_plugin.config.gpuhook_section import Metrics as MetricsSettings
from gpuhook.device_plugin.metrics import unit_holders
from gpuhook.device_plugin.metrics.metrics_endpoint import MetricsEndpoint
from gpuhook.device_plugin.metrics.scrape import Offered, Scrape, VendorReader
from gpuhook.vendors.catalogue import vendor_of_resource

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

    from gpuhook.device_plugin.metrics.counters import Counters
    from gpuhook.device_plugin.node_snapshot import NodeSnapshot
    from gpuhook.device_plugin.notifier import Notifier
    from gpuhook.device_plugin.offer.offered_devices import Resource


class MetricsService:
    """Serves the metrics at the configured address, which may change.

    `pod_resources` is the kubelet's socket. /proc of the node is below `host_root`.
    """

    def __init__(
        self, counters: Counters, notifier: Notifier, pod_resources: str, host_root: str = "/"
    ) -> None:
        self._counters = counters
        self._notifier = notifier
        self._host_root = host_root
        holders = partial(unit_holders.ask, pod_resources)
        self._scrape = Scrape(holders, proc=os.path.join(host_root, "proc"))
        self._settings = MetricsSettings(address="")
        self._endpoint: MetricsEndpoint | None = None
        self._reported = ""  # why there is no endpoint

    async def update(
        self,
        settings: MetricsSettings,
        snapshot: NodeSnapshot,
        resources: tuple[Resource, ...],
        unhealthy: Mapping[str, str],
        *,
        guards: bool = False,
    ) -> None:
        """Serve metrics of these resources from now on; `unhealthy` has reasons by device UUID.

        `guards`: the plugin ends processes of containers above their memory limit.
        """
        self._scrape.offered = Offered(
            resources,
            frozenset(unhealthy),
            guards,
            self._readers(snapshot),
        )
        if settings == self._settings:
            return
        await self.end()
        self._settings = settings
        self._endpoint = MetricsEndpoint(settings.address, self._scrape, self._counters)
        failed = await self._endpoint.start()
        if failed is not None:
            await self.end()  # the next turn tries again
            if failed.message != self._reported:
                self._notifier.report_fault("NoMetrics", failed)
            self._reported = failed.message
            return
        self._reported = ""
        if settings.address:
            self._notifier.log.info("metrics", address=settings.address)

    def _readers(self, snapshot: NodeSnapshot) -> tuple[VendorReader, ...]:
        found = []
        for part in snapshot.parts:
            vendor = vendor_of_resource(part.domain)
            read = None if snapshot.is_dump else partial(vendor.usage, part, self._host_root)
            found.append(VendorReader(part.domain, vendor.usage_source, read))
        return tuple(found)

    async def end(self) -> None:
        self._settings = MetricsSettings(address="")
        if self._endpoint is not None:
            await self._endpoint.stop()
            self._endpoint = None
