# SPDX-License-Identifier: Apache-2.0
"""`gpuhook-hook prestart`: a container that exists already gets the GPUs it asks for.

WARM. For engines that offer hooks and nothing else, in the stages prestart and createRuntime: the
runtime has made the container's namespaces, mounts and cgroup, and has not yet entered its root
file system. The request is judged and resolved as in the wrapper; then the plan is made, and
carried out in the container.
"""

from __future__ import annotations

import os
import sys
import time

from gpuhook import settings
from gpuhook.container import ledger, ledger_changes, live, oci, record
from gpuhook.container.made import LiveRecord
from gpuhook.container.process import Process
from gpuhook.errors import GpuhookError, fault
from gpuhook.programs import cold, granting, hook_state
from gpuhook.programs.rootfs_jobs import root_path
from gpuhook.vendors.nvidia import granted
from gpuhook.vendors.nvidia import live as nvidia_live

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from gpuhook.cdi.edits import ContainerEdits
    from gpuhook.container.made import Made
    from gpuhook.container.operations import Live
    from gpuhook.engine_log import EngineLog
    from gpuhook.grant.request import Source
    from gpuhook.grant.resolve import Grant
    from gpuhook.programs.hook_state import HookState
    from gpuhook.vendors.nvidia.jobs import Jobs

_DRY_RUN = "--dry-run"


def run(words: list[str], log: EngineLog) -> None:
    """Give the container whose state is on standard input its GPUs, or raise why not."""
    began = time.monotonic()
    for word in words:
        if word != _DRY_RUN:
            raise fault("GH1640", argument=word, reason="there is no such option")
    state = hook_state.read()
    spec = state.spec
    if record.ANNOTATION in (spec.get("annotations") or {}) or granting.our_hooks(spec):
        return  # the wrapper, or an engine with our CDI spec, was there before
    grants, trouble = _granting(log)
    source = grants.source(spec)
    if source is None:
        return
    if trouble is not None:
        raise trouble
    grant = grants.of(spec, source)
    if grant is None:
        return
    todo = grants.jobs(grant, granting.capabilities_of(spec))
    with _process(state) as process, live.opened(process, _place(process, state), spec) as held:
        if not words and _is_done(state, process):
            return
        capabilities = granting.capabilities_of(spec)
        wanted, reasons = nvidia_live.wanted(held.root, grant.edits, todo)
        nvidia_live.add_profile(wanted, held.root, capabilities)
        wanted.owner = oci.owner(spec)
        plan = live.plan(held, wanted)
        plan.skipped += reasons
        for what in plan.skipped:
            log.warning(fault("GH1641", what=what))
        if words:
            _print(plan)
            return
        plan.execute(held)
        entry = _entry(state, source, grant, held)
        entry["live"] = _live_record(wanted.edits, todo, held.made)
    entry["milliseconds"] = round((time.monotonic() - began) * 1000, 2)
    _enter(state, entry, log)


def _granting(log: EngineLog) -> tuple[granting.Granting, GpuhookError | None]:
    """Return how this node grants, and what is wrong with its settings."""
    compiler = cold.Compiler(sys.argv[0])
    trouble = None
    try:
        chosen = settings.load(compiler.compile_settings)
    except GpuhookError as error:
        chosen, trouble = settings.Settings(), error
    return granting.Granting(chosen, log, compiler.compile_spec), trouble


def _process(state: HookState) -> Process:
    """Return the container's init; GH1643 where this stage does not tell it, or shares our mounts.

    In createContainer, startContainer and the later stages inside the container, the state's pid
    is of the container's own pid namespace, or 0.
    """
    if state.pid <= 1:
        raise fault("GH1643", reason=f"the state's pid is {state.pid or 'missing'}")
    process = Process(state.pid)
    ours = os.stat("/proc/self/ns/mnt")
    if process.namespace("mnt") == (ours.st_dev, ours.st_ino):
        process.close()
        raise fault("GH1643", reason=f"process {state.pid} has the host's mount namespace")
    return process


def _is_done(state: HookState, process: Process) -> bool:
    """Return whether this hook has run: --gpus and hooks.d may both name it for a container.

    What the first one made is in the ledger; a second entry would say that nothing was.
    """
    known = ledger_changes.find_entry("", state.id) if ledger.is_id(state.id) else None
    return known is not None and known.get("init") == [process.pid, process.started]


def _place(process: Process, state: HookState) -> str:
    """Return where the container's root is in what its init calls /.

    Until the runtime has entered it, that is still the host's tree.
    """
    host, found = os.stat("/"), os.stat("root/", dir_fd=process.fd)
    if (found.st_dev, found.st_ino) != (host.st_dev, host.st_ino):
        return "/"
    return root_path(state.bundle, state.spec)


def _print(plan: live.Plan) -> None:
    lines = plan.describe() or ["nothing: the container has all of it"]
    os.write(1, "".join(line + "\n" for line in lines).encode("utf-8", "surrogateescape"))


def _entry(state: HookState, source: Source, grant: Grant, held: Live) -> dict[str, Any]:
    nodes = [node["path"] for node in grant.edits.get("deviceNodes") or ()]
    return {
        **ledger.pod_of(state.spec.get("annotations")),
        "bundle": state.bundle,
        "devices": grant.devices,
        "nodes": [*oci.device_paths(state.spec), *nodes],
        "replicas": grant.replicas,
        "requested": source.names,
        "source": source.where,
        "route": "prestart",
        "runtime": "",
        "pid": state.pid,
        "started": held.process.started,
        "init": [state.pid, held.process.started],
    }


def _enter(state: HookState, entry: dict[str, Any], log: EngineLog) -> None:
    told = ledger.enter("", state.id, entry) if ledger.is_id(state.id) else None
    if told is not None:
        log.warning(told)


def _live_record(edits: ContainerEdits, todo: list[Jobs], made: Made) -> dict[str, Any]:
    """Return what the ledger keeps of what a container was given while it lived."""
    record = LiveRecord()
    record.edits = granted.with_numbers(edits)
    record.jobs = [job.arguments() for job in todo]
    record.made = made
    return record.document()
