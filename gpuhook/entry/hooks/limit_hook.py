# SPDX-License-Identifier: Apache-2.0
"""`gpuhook-hook limit`: limits a container's memory of its GPUs before its program starts.

A createRuntime hook that the wrapper adds: the container's cgroup exists, and the hook runs on the
host's side as the host's root. `apply` and `prestart` do the same without a wrapper.
"""

from __future__ import annotations

import sys

from gpuhook.containers.hot import ledger
from gpuhook.containers.warm import ledger_changes
from gpuhook.containers.warm.process_handle import Process, is_hosts_root
from gpuhook.entry import cold_command
from gpuhook.entry.hooks import oci_state
from gpuhook.entry.plan_context import context_of
from gpuhook.errors import GpuhookError, fault
from gpuhook.host.hot import settings
from gpuhook.memory_limits.hot import container_limits
from gpuhook.memory_limits.warm import cgroup_limits, memory_cgroup
from gpuhook.request.memory_request import MemoryLimit

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable
    from typing import Any

    from gpuhook.entry.plan_context import PlanContext
    from gpuhook.host.hot.engine_log import EngineLog

_GPU, _NVML, _ROOT, _REQUIRED = "--gpu", "--nvml", "--root", "--required"
_GUARANTEE, _GRANT = "--guarantee", "--grant"
_ASKED = "asked"
_MAX_DIGITS = 20


class _Call:
    """The parsed arguments."""

    __slots__ = ("grants", "guarantee", "library", "limits", "required", "root")

    def __init__(self) -> None:
        self.limits: list[MemoryLimit] = []
        self.grants: list[MemoryLimit] = []
        self.guarantee = settings.AUTO
        self.library = ""
        self.required = False
        self.root = ""


def run(words: list[str], log: EngineLog) -> None:
    """Limit the container whose state is on standard input, as `words` say.

    Raises GH1640 for other words, and, if the limit is required, the reason why it is not enforced.
    """
    call = _parsed(words)
    state = oci_state.read()
    state.require_id()
    log.container = state.id
    faults: list[GpuhookError] = []
    with Process(state.init_pid()) as process:
        records = cgroup_limits.set_or_report(
            call.limits,
            lambda: call.library,
            lambda: _directories(process),
            faults,
            call.guarantee,
            grants=call.grants,
        )
        note(call.root, state.id, process, records, log)
    cgroup_limits.judge(records, faults, log, required=call.required)
    oci_state.keep_warnings(state, log)


def in_container(
    spec: dict[str, Any],
    nodes: Collection[str],
    names: Iterable[str],
    process: Process,
    log: EngineLog,
    *,
    is_inside: bool,
) -> list[dict[str, Any]]:
    """Limit a container that has the device nodes `nodes`, by its config.json.

    For the other hooks: `names` are those of its devices, `is_inside` means that this hook itself
    is in the container's cgroup. Returns the ledger's records, [] for a container without a limit.
    Raises the reason why a container with such a limit cannot start.
    """
    compiler = cold_command.Compiler(sys.argv[0])
    # The state of the host's root cannot be trusted if a user namespace does not map root.
    is_root = is_hosts_root()
    chosen = settings.load(compiler.compile_settings) if is_root else settings.Settings()
    context = context_of(chosen, log, compiler.compile_spec)
    limits = _limits(spec, nodes, names, context)
    if not limits:
        return []
    is_asked = any(limit.is_asked for limit in limits)
    required = container_limits.is_required(chosen.limits_on_failure, is_asked=is_asked)
    faults: list[GpuhookError] = []
    find: Callable[[Process], list[str]] = _directories_inside if is_inside else _directories
    records = cgroup_limits.set_or_report(
        limits,
        context.node.driver_library,
        lambda: find(process),
        faults,
        chosen.limits_guarantee,
        grants=() if required else container_limits.wider(spec, limits),
    )
    cgroup_limits.judge(records, faults, log, required=required)
    return records


def _limits(
    spec: dict[str, Any], nodes: Collection[str], names: Iterable[str], context: PlanContext
) -> list[MemoryLimit]:
    policy = context.settings.limits_on_failure
    request = container_limits.DeviceRequest(
        spec, nodes, names, lambda: context.node.covered(nodes)
    )
    try:
        memory_cgroup.require_hosts_root()
    except GpuhookError as error:
        if container_limits.is_required(policy, is_asked=container_limits.is_asked(spec)):
            raise
        context.log.warning(error)
        return []
    return container_limits.known_limits(request, policy, context.log.warning)[1]


def _directories(process: Process) -> list[str]:
    memory_cgroup.require_hosts_root()
    own = memory_cgroup.directories(process, None)
    memory_cgroup.require_alone(own, process)
    return own


def _directories_inside(process: Process) -> list[str]:
    own = memory_cgroup.entered(process)
    memory_cgroup.require_alone(own, process)
    return own


def note(
    root: str, identity: str, process: Process, records: list[dict[str, Any]], log: EngineLog
) -> None:
    """Record the result in the entry that the wrapper has made."""

    def changed(entry: dict[str, Any]) -> dict[str, Any] | None:
        if "route" not in entry:
            return None  # the container has no entry
        return {**entry, "memory": records}

    try:
        ledger_changes.update(root, identity, (process.pid, process.started), changed)
    except OSError as error:
        log.warning(ledger.not_recorded(identity, error))


def _parsed(words: list[str]) -> _Call:
    call = _Call()
    left = iter(words)
    for option in left:
        if option == _REQUIRED:
            call.required = True
            continue
        value = next(left, None)
        if value is None:
            raise fault("GH1640", argument=option, reason="it lacks its value")
        if option == _GPU:
            call.limits.append(_limit(value))
        elif option == _GRANT:
            call.grants.append(_limit(value))
        elif option == _NVML:
            call.library = value
        elif option == _GUARANTEE and value in (settings.AUTO, settings.ALWAYS, settings.NEVER):
            call.guarantee = value
        elif option == _ROOT:
            call.root = value
        else:
            raise fault("GH1640", argument=option, reason="there is no such option")
    if not call.limits:
        raise fault("GH1640", argument="no --gpu", reason="one is needed")
    return call


def _limit(value: str) -> MemoryLimit:
    device, _, rest = value.partition("=")
    numbers = rest.split(",")
    is_asked = numbers[-1] == _ASKED
    if is_asked:
        numbers.pop()
    if not device or len(numbers) != 2 or not all(map(_is_number, numbers)):
        raise fault("GH1640", argument=value, reason="it is not DEVICE=HARD,SOFT in bytes")
    return MemoryLimit(device, int(numbers[0]), int(numbers[1]), is_asked=is_asked)


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) <= _MAX_DIGITS
