# SPDX-License-Identifier: Apache-2.0
"""The commands of setup on a simulated node."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from gpuhook.engines.configure.configure_engine import Where
from gpuhook.engines.configure.engine_plan import EngineOptions, default_route
from gpuhook.engines.configure.host_files import Host
from gpuhook.setup.node_commands import HAS, WRITES, SpecState
from tests.doctor.case import FaultCase
from tests.doctor.parts import driver

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gpuhook.engines.configure.engine_plan import Route
    from gpuhook.node_facts.check import ExaminedNode

SPEC = "/var/run/cdi/nvidia.yaml"
MISSING = SpecState(SPEC, WRITES, "this node has no CDI spec", is_new=True)


@dataclass
class SimulatedCommands:
    """The commands; `spec` is the state of the node's spec.

    `homes` are the home directories of rootless engines. `names` are the names of the runtime that
    each engine was configured with.
    """

    case: FaultCase
    spec: SpecState = MISSING
    homes: dict[str, str] = field(default_factory=dict)
    names: dict[str, tuple[str, ...]] = field(default_factory=dict)

    @property
    def host(self) -> Host:
        return Host(str(self.case.root))

    def node(self) -> ExaminedNode:
        return self.case.examined()

    def specs(self, *, is_dry: bool) -> list[SpecState]:
        if not is_dry and self.spec.state == WRITES:
            driver.write_spec(self.case, SPEC)
            self.spec = SpecState(SPEC, HAS, "it matches this host")
        return [self.spec]

    def place(self, engine: str) -> Where:
        return Where(engine, home=self.homes.get(engine))

    def options(
        self, engine: str, route: Route | None, names: tuple[str, ...], *, takes_over: bool
    ) -> EngineOptions:
        self.names[engine] = names
        chosen = route or default_route(engine)
        programs = ("/usr/bin/gpuhook-runtime", "/usr/bin/gpuhook-prestart")
        first, *others = names or ("nvidia",)
        options = EngineOptions(chosen, first, *programs, takes_over=takes_over)
        return replace(options, further_names=tuple(others))
