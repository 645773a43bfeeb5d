# SPDX-License-Identifier: Apache-2.0
"""The answers of a vendor for the plan of one container (request/plan.py).

For type checkers only: no program imports it. A vendor without capabilities, hooks or extra devices
returns empty answers. No method assumes driver files or UUIDs. interfaces/ has the answers to
commands and services.
"""

from __future__ import annotations

from typing import Any, Protocol

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence
    from typing import TypeAlias

    from gpuhook.apply.rootfs.hook_args import Jobs
    from gpuhook.cdi.hot.compiled_spec import Compiled
    from gpuhook.cdi.hot.container_edits import ContainerEdits
    from gpuhook.cdi.hot.registry import Registry
    from gpuhook.errors import GpuhookError
    from gpuhook.host.hot.settings import Settings
    from gpuhook.request.extra_requests import Extra
    from gpuhook.request.parse import Source, Vocabulary

    HookJobs: TypeAlias = Jobs  # of gpuhook's own hook, in any vendor's spec


class VendorNode(Protocol):
    """A node with one vendor's devices."""

    @property
    def vocabulary(self) -> Vocabulary:
        """The variables, paths and kinds of the vendor's requests."""

    @property
    def kind(self) -> str:
        """The CDI kind of a device whose name has none."""

    def serves(self, name: str) -> bool:
        """Return whether a name in an annotation, which may be of any vendor, is of this one."""

    def serves_resource(self, variable: str, value: str) -> bool:
        """Return whether an orchestrator's variable names devices of this vendor."""

    @property
    def is_here(self) -> bool:
        """Whether it is this machine, so that its /dev can be read."""

    # The nodes of the other vendors of a plan: the first one serves what none of them serves.
    others: Sequence[VendorNode]

    @property
    def apart(self) -> tuple[str, ...]:
        """The devices that `all` does not include."""

    @property
    def capability_words(self) -> tuple[str, ...]:
        """All capabilities, () for a vendor without."""

    def registry(self) -> Registry:
        """Return the registry of the node's CDI specs."""

    def registry_for(self, names: Sequence[str]) -> Registry:
        """Return that registry with the node's current devices among `names`."""

    def alias(self, name: str) -> str | None:
        """Return the name in the node's specs of the device with another name, None if unknown."""

    def full_names(self, name: str) -> list[str]:
        """Return the full names of a short form, [] for another name."""

    def refusal(self, name: str, error: GpuhookError, source: Source | None) -> GpuhookError:
        """Return the fault to raise for a requested name in place of the registry's `error`."""

    def has_driver(self) -> bool:
        """Return whether the node has a driver loaded; GH2561 if it does not answer."""

    def missing_driver(self) -> tuple[str, str]:
        """Return what a node without has_driver() lacks, and how to get it: texts of a fault."""

    def is_node(self, path: str) -> bool:
        """Return whether a path is that of a device node of the vendor's driver."""

    def is_gpu_node(self, path: str) -> bool:
        """Return whether a path is the node of one device, not of all of them."""

    @property
    def control_nodes(self) -> tuple[str, ...]:
        """The device nodes of every container with devices, even if a spec has them per device."""

    def own_nodes(self, paths: Collection[str]) -> frozenset[str]:
        """Return which of a container's device nodes are of the vendor."""

    def nodes_by_device(self) -> dict[str, frozenset[str]]:
        """Return the paths of the own nodes of each device, by qualified name."""

    def identities(self, paths: Collection[str]) -> dict[str, str]:
        """Return which device each of these nodes is of, if its name could be another's later."""

    def covered(self, nodes: Collection[str]) -> frozenset[str]:
        """Return the names of the devices that have nodes, and all of them among `nodes`."""

    def noted_nodes(self) -> dict[str, str]:
        """Return the ids of the devices by their own nodes, as a record of the node has them.

        {} for a vendor without such a record.
        """

    def driver_library(self) -> str:
        """Return the host path of the driver's library, "" if it is unknown or there is none."""

    def has_nodes(self, spec: dict[str, Any]) -> bool:
        """Return whether a config.json has device nodes of the vendor."""

    def parse_capabilities(
        self,
        text: str | None,
        allowed: Sequence[str],
        default: Sequence[str],
        unknown: list[str] | None,
    ) -> frozenset[str]:
        """Return the capabilities in `text`; adds to `unknown`, or raises GH1020."""

    def filter_edits(
        self, compiled: Compiled, edits: ContainerEdits, capabilities: frozenset[str]
    ) -> ContainerEdits:
        """Return the part of a spec's or a device's edits that `capabilities` need."""

    def further_names(self, spec: dict[str, Any]) -> list[str]:
        """Return the devices that a container's other variables request."""

    def is_extra(self, name: str) -> bool:
        """Return whether a device's name is of a kind that comes in addition to the devices."""

    def extra_requests(self, spec: dict[str, Any], settings: Settings) -> list[Extra]:
        """Return the requests of a container in addition to its devices, judged by policy."""

    def take_jobs(
        self, edits: ContainerEdits, capabilities: frozenset[str]
    ) -> tuple[ContainerEdits, list[HookJobs]]:
        """Return `edits` without our hooks, and the jobs of these."""

    def require_fresh(self, job: HookJobs) -> None:
        """Raise GH1120 if the spec of a job describes another state of the host."""

    def require_current(self, spec: Compiled) -> None:
        """Raise GH1120 if a spec without hooks describes another state of the host."""

    def changes(self, spec: Compiled) -> list[str]:
        """Return what changed on the host since gpuhook wrote a spec, [] for another program's."""

    def await_refresh(self, spec: Compiled) -> None:
        """Treat a spec as fresh: a create would write it again first."""

    def forget(self) -> None:
        """Drop cached specs after they were written again."""

    def requires(self, environment: Mapping[str, str]) -> bool:
        """Return whether variables may require something of the driver."""

    def judge_requirements(
        self, environment: Mapping[str, str], jobs: Sequence[HookJobs], nodes: Iterable[str]
    ) -> list[GpuhookError]:
        """Return warnings of requirements that cannot be judged; raises those that are not met."""
