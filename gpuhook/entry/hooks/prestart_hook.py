# SPDX-License-Identifier: Apache-2.0
"""`gpuhook-hook prestart`: injects the requested GPUs into a container that already exists.

For engines that only support hooks, in the stages prestart and createRuntime: the runtime has made
the container's namespaces, mounts and cgroup, and has not yet entered its root file system. The
request is checked and resolved as in the wrapper; then the plan is made and executed in the
container.
"""

from __future__ import annotations

import sys
import time

from gpuhook.apply.live import hotplug_plan
from gpuhook.apply.live.live_injection import LiveRecord
from gpuhook.apply.rootfs import hook_args
from gpuhook.apply.spec import change_record, oci_spec
from gpuhook.containers.hot import ledger
from gpuhook.containers.warm import ledger_changes
from gpuhook.containers.warm.process_handle import Process
from gpuhook.entry import cold_command, plan_context
from gpuhook.entry.hooks import hook_root, oci_state
from gpuhook.entry.plan_context import context_of
from gpuhook.errors import GpuhookError, fault, printable
from gpuhook.host.hot import bundle, files, procfs, settings
from gpuhook.request import parse
from gpuhook.request.replicas import replicas_of
from gpuhook.request.resolve import Grant
from gpuhook.vendors.hot import prefilter
from gpuhook.vendors.warm import config_devices, live_jobs

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

    from gpuhook.apply.live.hotplug_steps import Live
    from gpuhook.apply.live.live_injection import InjectedItems
    from gpuhook.apply.rootfs.hook_args import Jobs
    from gpuhook.cdi.hot.container_edits import ContainerEdits
    from gpuhook.entry.hooks.oci_state import HookState
    from gpuhook.entry.plan_context import PlanContext, VendorContext
    from gpuhook.host.hot.engine_log import EngineLog
    from gpuhook.request.parse import Source
    from gpuhook.request.plan import Injection

_DRY_RUN = "--dry-run"
_MAX_LINE = 9000  # the length of two paths
# By the route of an entry in the ledger.
_GIVEN_BY = {
    "prestart": "the prestart hook injected its GPUs",
    "attach": "`gpuhook attach` attached its GPUs",
}


def run(arguments: list[str], log: EngineLog) -> None:
    """Give the container whose state is on standard input its GPUs, or raise why not.

    With --dry-run, print the changes, or why there are none.
    """
    began = time.monotonic()
    for word in arguments:
        if word != _DRY_RUN:
            raise fault("GH1640", argument=word, reason=f"prestart has only the option {_DRY_RUN}")
    state = oci_state.read()
    log.container = state.id
    served = _served(state.spec)
    lines = (
        [f"nothing to do: {served}"] if served else _give(state, log, began, is_dry=bool(arguments))
    )
    if arguments:
        _print(state, lines)
    else:
        _keep_warnings(state, log)


def _served(spec: dict[str, Any]) -> str:
    """Return what has already injected the container's GPUs, "" for nothing."""
    if change_record.KEY in spec:
        return "gpuhook-runtime injected its GPUs"
    if not hook_args.hooks_in(spec) or prefilter.is_further(spec):
        return ""
    return "its engine injected its GPUs by CDI"


def _give(state: HookState, log: EngineLog, began: float, *, is_dry: bool) -> list[str]:
    """Do the work, unless it is a dry run; return a line for each step of a dry run."""
    spec = state.spec
    context, trouble = _context(log, spec, is_dry=is_dry)
    requests = plan_context.sources_logged(spec, context)
    if not requests:
        if not is_dry and not hook_args.hooks_in(spec) and _has_limited_gpus(spec, context):
            _bound(state, log, began)
        return ["nothing to do: it requests no GPU"]
    if trouble is not None:
        raise trouble
    # Only now: a container that requests nothing starts, whatever its state is.
    state.require_id()
    given = plan_context.plans_logged(spec, requests)
    if not given:
        return ["nothing to do: only its image requests a GPU, and the node has no driver"]
    for one, injection in given:
        nodes = [node["path"] for node in injection.edits.get("deviceNodes") or ()]
        jobs = injection.hook_jobs
        plan_context.enforce_requirements(injection.requirements, jobs, nodes, one)
    grant = Grant.joined([injection.grant for _, injection in given])
    todo = [job for _, injection in given for job in injection.hook_jobs]
    with _process(state) as process:
        known = _existing_entry(state, process)
        if known is not None:
            route = str(known.get("route"))
            return [f"nothing to do: {_GIVEN_BY.get(route, 'it has GPUs already')}"]
        is_exclusive = _claim(given, context, is_dry=is_dry)
        if not is_dry:
            state.require_not_begun()
        with hotplug_plan.open_live(process, hook_root.place_of_root(process, state), spec) as held:
            wanted, plan = _planned(held, spec, grant, todo)
            for what in plan.skipped:
                log.warning(fault("GH1641", what=what))
            if is_dry:
                return _lines(plan)
            plan.execute(held)
            entry = _limited_entry(state, process, requests, grant, context)
            entry["live"] = _live_record(wanted.edits, todo, held.made)
    _enter(state, entry, began, log, is_required=is_exclusive)
    return []


def _claim(
    given: list[tuple[VendorContext, Injection]], context: PlanContext, *, is_dry: bool
) -> bool:
    """Return whether a device is exclusive; GH1063 if another container has it."""
    if not context.settings.exclusive_devices:
        return False
    from gpuhook.entry import exclusive_devices  # few nodes have any

    grants = [(one, injection.grant) for one, injection in given]
    return exclusive_devices.claim(grants, is_dry=is_dry)


def _limited_entry(
    state: HookState,
    process: Process,
    requests: list[tuple[VendorContext, Source]],
    grant: Grant,
    context: PlanContext,
) -> dict[str, Any]:
    """Limit the memory of a container that got its GPUs; return its entry in the ledger."""
    spec, entry = state.spec, _entry(state, process, requests, grant)
    names = [*grant.devices, *grant.in_full(plan_context.requested_names(requests))]
    if parse.limits_memory(spec):
        memory = _limit(spec, entry["nodes"], names, process, context.log)
        if memory:
            entry["memory"] = memory
    entry["replicas"] = grant.replicas or replicas_of(
        spec, grant.devices, lambda: context.covered(entry["nodes"])
    )
    return entry


def _has_limited_gpus(spec: dict[str, Any], context: PlanContext) -> bool:
    """Return whether an engine has injected GPUs with limited memory, by their nodes alone."""
    paths = oci_spec.device_paths(spec)
    has_gpus = any(one.node.is_gpu_node(path) for one in context.every() for path in paths)
    return has_gpus and parse.limits_memory(spec)


def _bound(state: HookState, log: EngineLog, began: float) -> None:
    """Limit the memory of a container that requests no GPU but has some.

    A device plugin may provide the nodes of a pod that requests none.
    """
    state.require_id()
    with _process(state) as process:
        if _existing_entry(state, process) is not None:
            return
        state.require_not_begun()
        memory = _limit(state.spec, oci_spec.device_paths(state.spec), [], process, log)
        if not memory:
            return
        entry = _entry(state, process)
    entry["memory"] = memory
    _enter(state, entry, began, log)


def _limit(
    spec: dict[str, Any], nodes: list[str], names: list[str], process: Process, log: EngineLog
) -> list[dict[str, Any]]:
    """Limit the container's memory of its GPUs; return the ledger's records."""
    bundle.load("gpuhook.entry.hooks.limit_hook")
    from gpuhook.entry.hooks import limit_hook

    return limit_hook.in_container(spec, nodes, names, process, log, is_inside=False)


def _planned(
    held: Live, spec: dict[str, Any], grant: Grant, todo: list[Jobs]
) -> tuple[hotplug_plan.DesiredState, hotplug_plan.HotplugPlan]:
    """Return the desired state of the container, and the plan to reach it."""
    wanted, reasons = live_jobs.desired_state(held.root, grant.edits, todo, is_running=False)
    live_jobs.add_profile(wanted, held.root, todo)
    wanted.owner = oci_spec.owner(spec)
    plan = hotplug_plan.plan(held, wanted)
    plan.skipped += reasons
    return wanted, plan


def _context(
    log: EngineLog, spec: dict[str, Any], *, is_dry: bool
) -> tuple[PlanContext, GpuhookError | None]:
    """Return the context of a plan for `spec` on this node, and the error of its settings."""
    compiler = cold_command.Compiler(sys.argv[0])
    trouble = None
    try:
        chosen = settings.load(compiler.compile_settings)
    except GpuhookError as error:
        chosen, trouble = settings.Settings(), error
    refresh = None if is_dry else compiler.refresh
    others = prefilter.is_further(spec)
    found = context_of(chosen, log, compiler.compile_spec, refresh, has_others=others)
    return found, trouble


def _process(state: HookState) -> Process:
    """Return the container's init; GH1642 for a process of another container."""
    process = Process(state.init_pid())
    try:
        hook_root.require_container(process, state)
    except BaseException:
        process.close()
        raise
    return process


def _existing_entry(state: HookState, process: Process) -> dict[str, Any] | None:
    """Return the ledger's entry of this life of the container: --gpus and hooks.d may both name us.

    The first hook's entry has the created items; a second entry would have none.
    """
    known = ledger_changes.find_entry("", state.id)
    return known if known and known.get("init") == [process.pid, process.started] else None


def _lines(plan: hotplug_plan.HotplugPlan) -> list[str]:
    steps = [f"  {step}" for step in plan.describe()]
    return ["would do", *steps] if steps else ["nothing to do: it has everything"]


def _print(state: HookState, steps: list[str]) -> None:
    """Print as `gpuhook attach --dry-run` does."""
    lines = [f"{state.id or state.bundle}: {steps[0]}", *steps[1:]]
    text = "".join(printable(line, _MAX_LINE) + "\n" for line in lines)
    try:
        files.write_whole(1, text.encode("utf-8", "replace"))
    except OSError as error:
        error.filename = "standard output"
        raise


def _entry(
    state: HookState,
    process: Process,
    requests: Sequence[tuple[VendorContext, Source]] = (),
    grant: Grant | None = None,
) -> dict[str, Any]:
    given = grant.edits.get("deviceNodes") or () if grant else ()
    nodes = [*oci_spec.device_paths(state.spec), *(node["path"] for node in given)]
    entry = ledger.new_entry(
        state.spec.get("annotations"),
        state.bundle,
        "prestart",
        devices=grant.devices if grant else (),
        nodes=nodes,
        identities=plan_context.identities([one for one, _ in requests], nodes),
        requested=plan_context.requested_names(requests),
        source="; ".join([source.where for _, source in requests]),
    )
    entry["pid"] = state.pid
    entry["started"] = process.started
    entry["init"] = [state.pid, process.started]
    return entry


def _keep_warnings(state: HookState, log: EngineLog) -> None:
    """Add the warnings to the ledger's entry; a container that was assigned nothing gets one."""
    pid, made = state.pid, None
    if log.warnings and isinstance(pid, int) and pid > 1:
        made = {
            **ledger.pod_of(state.spec.get("annotations")),
            "bundle": state.bundle,
            "route": "",
            "pid": pid,
            "started": procfs.start_time(pid),
        }
    oci_state.keep_warnings(state, log, made)


def _enter(
    state: HookState,
    entry: dict[str, Any],
    began: float,
    log: EngineLog,
    *,
    is_required: bool = False,
) -> None:
    """Write the entry; a failure is a warning, or raised if the entry `is_required`."""
    entry["milliseconds"] = round((time.monotonic() - began) * 1000, 2)
    warning = ledger.enter("", state.id, entry)
    if warning is not None and is_required:
        raise warning
    if warning is not None:
        log.warning(warning)


def _live_record(edits: ContainerEdits, todo: list[Jobs], made: InjectedItems) -> dict[str, Any]:
    """Return the ledger's record of this injection."""
    record = LiveRecord()
    record.edits = config_devices.with_numbers(edits)
    record.jobs = [job.arguments() for job in todo]
    record.made = made
    return record.document()
