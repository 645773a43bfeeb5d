# SPDX-License-Identifier: Apache-2.0
"""The containers of one node compared, each in a child process with a deadline."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any

from gpuhook.compare import comparison
from gpuhook.compare.expected_injection import PlanNode, own_spec, read_specs
from gpuhook.containers.warm import runtime_state
from gpuhook.entry.plan_context import PlanContext
from gpuhook.errors import GpuhookError, printable, rebuild
from gpuhook.host import console, worker_pool
from gpuhook.host.error_text import fault_document, worded
from gpuhook.host.hot import state
from gpuhook.host.hot.engine_log import unforeseen
from gpuhook.host.worker import NoAnswerError
from gpuhook.live import container_worker
from gpuhook.node.described_devices import further_devices
from gpuhook.node.kept_log import KeptLog
from gpuhook.target import running_container
from gpuhook.usage import node_usage
from gpuhook.vendors.catalogue import vendor_of, vendors
from gpuhook.vendors.spec.spec_choices import DESCRIBED

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from gpuhook.containers.warm.runtime_state import Found
    from gpuhook.vendors.interface import VendorNode
    from gpuhook.vendors.usage.usage_device import UsageDevice

_PROCESSES = min(4, os.cpu_count() or 1)
_STARTED = (runtime_state.RUNNING, runtime_state.PAUSED)
_MAX_LINE = 4096
_NO_DRIVER = "GH1942"  # of the first vendor: another one may be here


@dataclass(frozen=True, slots=True)
class NodeComparison:
    """Compares containers with the plan of one node.

    `by` is the path of the spec that the plan comes from, or says that the node was described in
    memory; `driver` is the driver's version in the second case. `devices` are the node's GPUs.
    """

    plan_node: PlanNode
    by: str
    driver: str | None = None
    devices: tuple[UsageDevice, ...] = ()

    def document(self) -> dict[str, Any]:
        """Return the source of the plan as JSON has it."""
        return {"by": self.by, "driver": self.driver}

    def container(self, found: Found) -> dict[str, Any]:
        """Return the comparison of a container, {} if it has no GPU; raises its faults.

        Raises GH1756 for another user's container, whose config.json is not read, and GH1760 if the
        container's file systems do not answer in time.
        """
        running_container.require_ours(found)
        compared = next(iter(self.containers([found])), {})
        if "code" in compared:
            raise rebuild(compared["code"], compared["message"], compared["hint"])
        return compared

    def containers(self, chosen: Sequence[Found]) -> list[dict[str, Any]]:
        """Return the comparison of each container with a GPU, or its failure.

        Child processes compare: one container that does not answer does not delay the others.
        """
        answers = worker_pool.each(self._result, chosen, container_worker.SECONDS, _PROCESSES)
        results = [
            failure(found.id, container_worker.no_answer(found.id, answer))
            if isinstance(answer, NoAnswerError)
            else dict(answer)
            for found, answer in console.counted(answers, len(chosen), "containers")
        ]
        return [one for one in results if one]

    def _result(self, found: Found) -> dict[str, Any]:
        try:
            with running_container.hold(found) as one:
                return comparison.compare_container(one, self.plan_node)
        except (GpuhookError, OSError) as error:
            return failure(found.id, worded(error))
        except Exception as error:  # a bug must not end the comparison of the others
            return failure(found.id, unforeseen(error))


def node_comparison(
    context: PlanContext, load: Callable[[], object], *, is_here: bool
) -> NodeComparison:
    """Return the comparison by the node's CDI spec, else by the node that `load` returns.

    `context` is the plan of this node's specs, which only apply if `is_here`. Raises what `load`
    and describing the node raise.
    """
    log, settings = KeptLog(), context.settings
    specs = read_specs(settings, settings.default_kind, context.node.kind)
    # A spec of another tool is not what gpuhook adds.
    others: list[VendorNode] = []
    if is_here:
        others = further_devices(settings, is_described=lambda kind: bool(own_spec(specs, kind)))
    context = PlanContext(settings, context.node, log, others=others)
    kinds = [one.node.kind for one in context.every()]
    paths = [path for kind in kinds if (path := own_spec(specs, kind))] if is_here else []
    if paths:
        by = ", ".join(paths)
        return NodeComparison(PlanNode(context, specs), by, devices=node_usage.node_devices())
    try:
        node = load()
    except GpuhookError as error:
        is_absent = all(vendor.absence(state.host_root()) for vendor in vendors())
        if error.code != _NO_DRIVER or not is_here or is_absent:
            raise
        return NodeComparison(
            PlanNode(context, specs), DESCRIBED, devices=node_usage.node_devices()
        )
    vendor = vendor_of(node)
    described = vendor.described_node(node, settings).node
    plan = PlanContext(settings, described, log, others=others)
    version, devices = vendor.driver_version(node).version, vendor.inventory_devices(node)
    return NodeComparison(PlanNode(plan, specs), DESCRIBED, version, devices)


def is_comparable(found: Found) -> bool:
    """Return whether a container has started and belongs to this user.

    A container that is only created may not have all its edits yet.
    """
    return found.status in _STARTED and found.is_ours


def failure(container: str, error: GpuhookError) -> dict[str, Any]:
    """Return a container that could not be compared as the document has it, and the hint."""
    return {
        "container": container,
        **fault_document(error),
        "message": printable(error.message, _MAX_LINE),
    }
