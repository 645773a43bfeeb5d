# SPDX-License-Identifier: Apache-2.0
"""Guard and metrics of a node whose devices are shared by claims."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

from gpuhook.device_plugin import node_snapshot
from gpuhook.device_plugin.config.gpuhook_section import Metrics
from gpuhook.device_plugin.config.launch_options import Launch
from gpuhook.device_plugin.metrics.counters import Counters
from gpuhook.dra.node_services import NodeServices
from gpuhook.dra.pool.sharing_form import sharing_forms
from tests.unit.dra.claims.share_claims import configuration


def test_the_guard_watches_the_limits_of_the_ledger() -> None:
    """No unit has a limit of the kubelet's, so an idle node wakes nothing."""

    async def run() -> None:
        loaded = configuration(more="gpuhook: {guard: {action: kill}}")
        loaded = replace(loaded, own=replace(loaded.own, metrics=Metrics("")))
        launch = Launch(inventory="t4")
        snapshot = node_snapshot.take(launch, loaded)
        parts = tuple(replace(part, library="/lib/libnvidia-ml.so.1") for part in snapshot.parts)
        forms = sharing_forms(loaded, *snapshot.inventories)
        anything: Any = SimpleNamespace()
        made = NodeServices(launch, loaded, anything, Counters(), anything, held=lambda: ())
        found = replace(snapshot, parts=parts)
        made.update(loaded, found, forms)
        await made.update_metrics(loaded, found, forms, {})
        (watched,) = made._guard._resources
        assert [one.uuid for one in watched.devices] == list(forms.forms)
        assert (made._guard._units, made._guard._settings.action) == ({}, "kill")
        offered = made._metrics._scrape.offered
        assert offered.guards
        assert len(offered.resources[0].units) == 4
        assert not made.has_servers
        assert await made.set_modes(loaded, snapshot, forms) == ()
        await made.end()

    asyncio.run(run())
