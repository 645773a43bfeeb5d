# SPDX-License-Identifier: Apache-2.0
"""The commands that `gpuhook setup` runs: refresh, configure and doctor, as functions."""

from __future__ import annotations

import json
import os

from gpuhook.cli.diagnosis import doctor_target
from gpuhook.cli.engines import configure_options, engine_place
from gpuhook.cli.generate import generate_call, refresh
from gpuhook.engines.configure.host_files import Host
from gpuhook.host import console
from gpuhook.node_facts.check import first_items
from gpuhook.setup.node_commands import HAS, WRITES, SpecState
from gpuhook.vendors.spec_case import FOREIGN, FORGOTTEN, STALE
from gpuhook.vendors.vendor_inventory import NodePlace

_KEPT = "another program wrote it, and it is kept"

TYPE_CHECKING = False
if TYPE_CHECKING:
    import click

    from gpuhook.cli.generate.refresh_plan import VendorCase
    from gpuhook.engines.configure.configure_engine import Where
    from gpuhook.engines.configure.engine_plan import EngineOptions, Route
    from gpuhook.node_facts.check import ExaminedNode


class SetupCommands:
    """The commands for this node, called in this process; see `NodeCommands`."""

    def __init__(self, root: click.Context) -> None:
        """Take the context of the command `gpuhook`."""
        self._root = root
        self.host = Host()

    def node(self) -> ExaminedNode:
        """Return the node as `gpuhook doctor` examines it."""
        return doctor_target.target_of_options(None, NodePlace(), ()).look()

    def specs(self, *, is_dry: bool) -> list[SpecState]:
        """Write the first or stale specs as `gpuhook refresh` does, and return all."""
        cases = refresh.refreshed(self._root, is_dry=is_dry)
        return [self._spec(one) for one in cases if one.case.state != FORGOTTEN]

    def _spec(self, of_vendor: VendorCase) -> SpecState:
        case = of_vendor.case
        if case.state != STALE:
            is_foreign = case.reason == FOREIGN
            reason = _KEPT if is_foreign else case.reason
            return SpecState(case.path, HAS, reason, is_foreign=is_foreign, error=case.error)
        text = generate_call.text(case.words, of_vendor.vendor.name, "json", self._root)
        spec = json.loads(text)
        files = len(spec["containerEdits"].get("mounts") or ())
        names = first_items([one["name"] for one in spec["devices"]])
        contents = f"{spec['kind']}: {names}" + (f"; {files} driver files" if files else "")
        is_new = not os.path.lexists(case.path)
        return SpecState(case.path, WRITES, case.reason, contents, is_new=is_new)

    def place(self, engine: str) -> Where:
        """Return the place of the files of the user's engine."""
        return engine_place.where(engine, "/")

    def options(
        self, engine: str, route: Route | None, names: tuple[str, ...], *, takes_over: bool
    ) -> EngineOptions:
        """Return the options of `gpuhook configure ENGINE`, and print its warnings."""
        found, warnings = configure_options.engine_options(
            engine,
            self.host,
            route=route,
            names=names,
            runtime_path="",
            hook_path="",
            has_cdi=None,
            is_default=False,
            takes_over=takes_over,
        )
        for sentence in warnings:
            console.warn(sentence)
        return found
