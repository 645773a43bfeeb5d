# SPDX-License-Identifier: Apache-2.0
"""What one container gets: NRI's description in, the adjustment out, by the plan of the wrapper.

The runtime has not made the root file system yet, so hooks of gpuhook do the work in it.
"""

from __future__ import annotations

import copy
import itertools
import os
import time
from dataclasses import dataclass

from gpuhook.apply.rootfs import hook_args
from gpuhook.containers.hot import ledger
from gpuhook.entry import exclusive_devices, plan_context
from gpuhook.entry.create import Create, Edited
from gpuhook.entry.oci_command import Command
from gpuhook.errors import fault
from gpuhook.host.hot import state
from gpuhook.host.hot.engine_log import EngineLog
from gpuhook.host.logs import logger
from gpuhook.nri.adjustment import Adjustment
from gpuhook.nri.runtime_support import CDI, EXPANDED, RuntimeSupport
from gpuhook.nri.wire import nri_messages
from gpuhook.nri.wire.nri_messages import NriContainer, PodSandbox
from gpuhook.nri.wire.protobuf_wire import Message
from gpuhook.request import annotation_origin, parse
from gpuhook.vendors.hot.rootfs_jobs import RootfsWork

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from gpuhook.entry.plan_context import PlanContext
    from gpuhook.errors import GpuhookError
    from gpuhook.nri.policy.request_policy import RequestPolicy
    from gpuhook.nri.spec_source import NodeSettings, NodeSpecs

ROUTE = "nri"
_POD_NAMES = ("io.kubernetes.pod.name", "io.kubernetes.pod.namespace")
_CONTAINER_NAME = "io.kubernetes.container.name"


class HookWork(RootfsWork):
    """All work in the root file system is done by hooks."""

    is_by_hooks = True


class ContainerLog(EngineLog):
    """The warnings of one container, also as lines of the service's log."""

    def __init__(self, names: dict[str, str]) -> None:
        super().__init__("gpuhook-nri")
        self._names = names

    def warning(self, error: GpuhookError) -> None:
        """Report what the container lacks."""
        if self.keep(error):
            logger().warning(error.message, code=error.code, hint=error.hint, **self._names)


@dataclass(frozen=True, slots=True)
class Decision:
    """The answer for a container: `response` is a CreateContainerResponse, b"" for no change."""

    response: bytes = b""
    devices: tuple[str, ...] = ()
    mode: str = ""
    source: str = ""


@dataclass(frozen=True, slots=True)
class ContainerRequest:
    """A container's part of a config.json after the policy, and `before` it."""

    spec: dict[str, Any]
    before: dict[str, Any]
    create: Create

    @property
    def is_empty(self) -> bool:
        """Whether nothing is left that requests a device or concerns the memory of one."""
        spec = self.spec
        if hook_args.hooks_in(spec) or parse.limits_memory(spec):
            return False
        return not plan_context.sources_logged(spec, self.create.context)


@dataclass(frozen=True, slots=True)
class Injector:
    """Decides what containers get. `hook` is the host's path of gpuhook-hook, "" to search it."""

    specs: NodeSpecs
    settings: NodeSettings
    policy: RequestPolicy
    launcher: str
    hook: str = ""

    def request(
        self, pod: PodSandbox, container: NriContainer, support: RuntimeSupport
    ) -> ContainerRequest:
        """Return what a container may request. No driver is asked.

        Raises the GpuhookError or OSError for which that is not known.
        """
        chosen, trouble = self.settings.chosen, self.settings.trouble
        log = ContainerLog(names(pod, container))
        spec = container_spec(pod, container)
        before = copy.deepcopy(spec)
        context = self.specs.context(chosen, log)
        if trouble is not None and _names_devices(spec, context):
            raise trouble  # the policy is not known
        self.policy.restrict(spec, pod, container, context)
        command = _command(container.identity, support, pod.runtime_handler)
        create = Create(command, context, self.launcher, trouble, HookWork(), hook=self.hook)
        return ContainerRequest(spec, before, create)

    @staticmethod
    def refused(request: ContainerRequest) -> Decision:
        """Return the decision for an empty request: what the policy has changed."""
        _enter(request.create, request.spec, Edited())
        return Decision(Adjustment(request.before, request.spec).response())

    def decide(
        self, request: ContainerRequest, *, is_cdi: bool, is_late: Callable[[], bool]
    ) -> Decision:
        """Return the decision for a container, and enter it in the ledger unless it `is_late`.

        Raises the GpuhookError or OSError for which an assigned device cannot be provided.
        """
        create, spec = request.create, request.spec
        try:
            edited = create.edited(spec, "")
            change = Adjustment(request.before, spec)
            mode = self._shape(change, edited, is_cdi=is_cdi)
            if change.left_out:
                create.log.warning(fault("GH2705", what=", ".join(change.left_out)))
            response = change.response()
            if not is_late():
                _enter(create, spec, edited)
        finally:
            exclusive_devices.release()
        devices = tuple(edited.grant.devices) if edited.grant else ()
        source = "; ".join(source.where for _, source in edited.requests)
        return Decision(response, devices, mode if edited.route else "", source)

    def _shape(self, change: Adjustment, edited: Edited, *, is_cdi: bool) -> str:
        """Let the runtime apply the specs if it can; returns the mode."""
        grant = edited.grant
        # A spec that is not a file is gpuhook's own description.
        is_file = grant is not None and all(os.path.isabs(spec.path) for spec in grant.specs)
        hook_path = self.hook
        if grant is not None and not is_file:
            hook_path = hook_path or state.find_program(self.launcher, hook_args.HOOK_NAME)
        for hook in itertools.chain(*change.hooks.values()) if hook_path else ():
            if os.path.basename(hook["path"]) == hook_args.HOOK_NAME:
                hook["path"] = hook_path
        if not (is_cdi and is_file and grant is not None and grant.devices):
            return EXPANDED
        change.by_cdi(grant.devices, grant.edits)
        return CDI


def _names_devices(spec: dict[str, Any], context: PlanContext) -> bool:
    """Return whether a container requests particular devices; images request all of them."""
    return any(source.is_grant for _, source in plan_context.sources_logged(spec, context))


def read_request(data: memoryview) -> tuple[PodSandbox, NriContainer]:
    """Return pod and container of a CreateContainerRequest; raises WireError."""
    pod, container = nri_messages.create_parts(data)
    return PodSandbox(Message(pod)), NriContainer(Message(container))


def names(pod: PodSandbox, container: NriContainer) -> dict[str, str]:
    """Return the names of a container for the log."""
    return {
        "namespace": pod.namespace,
        "pod": pod.name,
        "container": container.name,
        "id": container.identity,
    }


def container_spec(pod: PodSandbox, container: NriContainer) -> dict[str, Any]:
    """Return the container's part of a config.json, with the pod's names as engines write them.

    It is marked as by containerd; CRI-O's own mark, with the annotations of the kubelet, wins.
    """
    spec = container.spec
    annotations = spec["annotations"]
    for key, value in zip(
        (*_POD_NAMES, _CONTAINER_NAME), (pod.name, pod.namespace, container.name)
    ):
        annotations.setdefault(key, value)
    annotations.setdefault(annotation_origin.CONTAINERD, "container")
    return spec


def _command(identity: str, support: RuntimeSupport, handler: str) -> Command:
    command = Command()
    command.identity = identity
    command.root = support.state_root(handler)
    command.bundle = support.bundle(identity)
    return command


def _enter(create: Create, spec: dict[str, Any], edited: Edited) -> None:
    """Enter the container in the ledger, as one that no process has created yet.

    Raises GH1410 if that fails for an exclusive device: other containers would not know of it.
    """
    if not (edited.route or create.log.warnings) or not ledger.is_id(create.command.identity):
        return
    process = {"expected": time.monotonic() + ledger.CREATION}
    entry = create.ledger_entry(spec, edited, "", process, ROUTE)
    trouble = ledger.enter(create.command.root, create.command.identity, entry)
    if trouble is not None and create.is_exclusive:
        raise trouble
    if trouble is not None:
        create.log.warning(trouble)
