# SPDX-License-Identifier: Apache-2.0
"""Containers that requested devices and started without: no plugin was there to answer.

The runtime lists the containers of the node when a plugin connects, in several parts on a large
node. Containers are only reported: NRI cannot give devices to one that runs.
"""

from __future__ import annotations

from gpuhook.containers.hot import ledger
from gpuhook.entry import plan_context
from gpuhook.errors import GpuhookError
from gpuhook.host.hot.engine_log import EngineLog
from gpuhook.nri import injection
from gpuhook.nri.wire import nri_messages
from gpuhook.nri.wire.nri_messages import NriContainer, PodSandbox
from gpuhook.nri.wire.protobuf_wire import Message, WireError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from gpuhook.nri.injection import Injector


class _SilentLog(EngineLog):
    """A log that drops all: the container has started."""

    def warning(self, error: GpuhookError) -> None:
        """Drop a warning."""


class Synchronized:
    """The containers of a node that may have requested devices, and the node's pods, as bytes."""

    def __init__(self) -> None:
        self.pods: dict[str, bytes] = {}
        self.containers: list[bytes] = []

    def add(self, data: memoryview, marks: Sequence[bytes]) -> bool:
        """Keep what matters of a SynchronizeRequest; returns whether more parts follow."""
        pods, containers, more = nri_messages.synchronized(data)
        self.pods.update((nri_messages.pod_identity(pod), bytes(pod)) for pod in pods)
        for raw in map(bytes, containers):
            if any(mark in raw for mark in marks):
                self.containers.append(raw)
        return more


def without_devices(
    seen: Synchronized, injector: Injector
) -> Iterator[tuple[PodSandbox, NriContainer]]:
    """Yield each container whose request the policy accepts and that has no device of it."""
    # An entry that still expects its process may be of an answer that came too late.
    holders = {
        entry["id"]
        for entry in ledger.living()
        if ledger.is_holder(entry) and "expected" not in entry
    }
    for raw in seen.containers:
        try:
            container = NriContainer(Message(raw))
            pod = PodSandbox(Message(seen.pods.get(container.pod_id, b"")))
            if container.state == nri_messages.STOPPED or container.identity in holders:
                continue
            if _lacks_devices(pod, container, injector):
                yield pod, container
        except (WireError, GpuhookError, OSError):
            continue  # what it requests is not known


def _lacks_devices(pod: PodSandbox, container: NriContainer, injector: Injector) -> bool:
    log = _SilentLog("gpuhook-nri")
    spec = injection.container_spec(pod, container)
    context = injector.specs.context(injector.settings.chosen, log)
    injector.policy.restrict(spec, pod, container, context)
    requests = plan_context.sources_logged(spec, context)
    return any(one.node.has_driver() and not one.node.has_nodes(spec) for one, _ in requests)
