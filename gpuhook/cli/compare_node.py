# SPDX-License-Identifier: Apache-2.0
"""The node that `gpuhook compare` works on: how gpuhook grants there, container after container."""

from __future__ import annotations

import os
from typing import Any

from gpuhook.cli.options import container_options, node_options
from gpuhook.compare import comparison
from gpuhook.compare.compare_plan import own_spec
from gpuhook.compare.expected_injection import Giving
from gpuhook.containers.warm import runtime_state
from gpuhook.entry.plan_context import PlanContext
from gpuhook.errors import GpuhookError, fault, rebuild
from gpuhook.host import worker_pool
from gpuhook.host.error_text import unforeseen, worded
from gpuhook.host.worker import NoAnswerError
from gpuhook.live import container_worker
from gpuhook.node import described_node as described
from gpuhook.node.described_node import DescribedNode, Heard
from gpuhook.target import running_container

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from gpuhook.containers.warm.runtime_state import Found
    from gpuhook.vendors.nvidia.inventory.inventory import Node

_NO_LIBRARY = "GH1200"
_AT_ONCE = min(4, os.cpu_count() or 1)
_STARTED = (runtime_state.RUNNING, runtime_state.PAUSED)


class Comparing:
    """How gpuhook grants on the node of the options, and what was compared by it."""

    def __init__(self, options: dict[str, Any]) -> None:
        """Take the arguments of node_options.load_node; raises what it and generate-cdi raise."""
        self._options = options
        self._log = Heard()
        self._by = ""
        self._driver: str | None = None
        self._giving = Giving(self._made())

    def _made(self) -> PlanContext:
        plain = container_options.context()
        plain.log = self._log
        self._by = "" if self._options.get("inventory") else _own(plain)
        if self._by:
            return plain
        node = self._node()
        self._by, self._driver = described.NAME, node.driver.version
        described_node = DescribedNode(node, plain.settings)
        return PlanContext(plain.settings, described_node, self._log)

    def _node(self) -> Node:
        try:
            return node_options.load_node(
                **self._options, require_nodes=False, warn_of_losses=False
            )
        except GpuhookError as error:
            if error.code != _NO_LIBRARY:
                raise
            raise fault("GH1942", root=self._options["driver_root"]) from error

    def document(self) -> dict[str, Any]:
        """Return by what gpuhook grants on this node, and the driver where that was asked."""
        return {"by": self._by, "driver": self._driver}

    def is_ready(self, found: Found) -> bool:
        """Return whether a container is started, and whose it is we may know.

        One that is only created may not have all that it gets.
        """
        return found.status in _STARTED and found.is_ours

    def named(self, found: Found) -> dict[str, Any]:
        """Return the comparison of a container, {} if it has no GPU; raises its faults.

        GH1760 where its file systems keep that waiting.
        """
        compared = next(iter(self.all_of([found])), {})
        if "code" in compared:
            raise rebuild(compared["code"], compared["message"], compared["hint"])
        return compared

    def _named(self, found: Found) -> dict[str, Any]:
        with running_container.hold(found) as one:
            compared = comparison.compare_container(one, self._giving)
        return compared.document() if compared is not None else {}

    def all_of(self, chosen: Sequence[Found]) -> list[dict[str, Any]]:
        """Return the comparisons of those that have GPUs, or why one could not be compared.

        In another process: one container must not keep the others from being compared.
        """
        answers = worker_pool.each(self._caught, chosen, container_worker.SECONDS, _AT_ONCE)
        results = [self._told(found, answer) for found, answer in answers]
        return [one for one in results if one]

    def _told(self, found: Found, answer: Any) -> dict[str, Any]:
        if isinstance(answer, NoAnswerError):
            return self.failure(found.id, container_worker.no_answer(found.id, answer))
        return dict(answer)

    def _caught(self, found: Found) -> dict[str, Any]:
        try:
            return self._named(found)
        except (GpuhookError, OSError) as error:
            return self.failure(found.id, worded(error))
        except Exception as error:  # no mistake of ours may end it for the others
            return self.failure(found.id, unforeseen(error))

    def failure(self, container: str, error: GpuhookError) -> dict[str, Any]:
        """Return why a container could not be compared, as the documents have it, and a hint."""
        return {**container_options.failure(container, error), "hint": error.hint}


def _own(plain: PlanContext) -> str:
    return own_spec(plain.settings, plain.node.kind)
