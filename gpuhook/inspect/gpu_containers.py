# SPDX-License-Identifier: Apache-2.0
"""The running containers with GPUs: what they lack, and which stack gave them their GPUs.

A child process with a deadline reads each container: a file system of the container may never
answer.
"""

from __future__ import annotations

import os
from functools import partial
from typing import Any

from gpuhook.apply.live.hotplug_steps import AccessStep
from gpuhook.apply.rootfs import hook_args
from gpuhook.apply.spec import change_record
from gpuhook.containers import find
from gpuhook.errors import GpuhookError, fault
from gpuhook.host import console, worker_pool
from gpuhook.host.error_text import fault_document, worded
from gpuhook.host.hot import files
from gpuhook.host.worker import NoAnswerError
from gpuhook.inspect import inspection
from gpuhook.live import container_worker, remote_mounts, repair
from gpuhook.node import spec_node
from gpuhook.target import running_container
from gpuhook.usage import injection_route
from gpuhook.vendors.catalogue import vendors

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from gpuhook.containers.warm.runtime_state import Found
    from gpuhook.entry.plan_context import PlanContext
    from gpuhook.target.running_container import Target

GPUHOOK = "gpuhook"
_PATIENCE = 5.0  # seconds for one container
_AT_ONCE = min(4, os.cpu_count() or 1)
_GAVE_UP = 4  # containers that do not answer, after which the rest is skipped
_SHOWN = 4  # of a long list of driver files
_OURS = ("gpuhook-prestart", "gpuhook-hook")
_OF_CONTAINERS = "GH17"  # the block of faults of live containers
_DENIED = "GH1744"


def inspect_all(state_roots: Sequence[str] = ()) -> dict[str, Any]:
    """Return the faults of the running containers.

    {"looked_at": number of running containers, "containers": those that have, were granted or
    request GPUs, "trouble": those that cannot be read, each with where, code, message and hint}. A
    container has id, engine, runtime, pod, namespace, container, nodes (paths of the
    device nodes that it was assigned), missing and findings (each with code, message and hint),
    injected_by (a list of "gpuhook" and vendors' stacks), and repairable: whether
    `gpuhook repair` restores what is missing. Raises GH1746 without permission.
    """
    living, broken = find.everything(state_roots)
    mine = [found for found in living if found.is_ours]
    documents: list[dict[str, Any]] = []
    trouble: list[dict[str, str]] = []
    read = partial(_read, _context())
    answers = worker_pool.each(read, mine, _PATIENCE, _AT_ONCE)
    answers = console.counted(answers, len(mine), "containers")
    late, skipped = 0, mine[:0]
    for number, (found, answer) in enumerate(answers, 1):
        if isinstance(answer, NoAnswerError):
            error = container_worker.no_answer(found.id, answer, _PATIENCE)
            trouble.append(_trouble(found.id, error))
            late += 1
            if late == _GAVE_UP:
                skipped = mine[number:]
                break
        elif isinstance(answer, GpuhookError):
            trouble.append(_trouble(found.id, answer))
        elif answer:
            documents.append(answer)
    trouble += [
        _trouble(found.id, fault("GH1904", container=found.id, count=late)) for found in skipped
    ]
    trouble += [_trouble(os.path.basename(where), error) for where, error in broken.items()]
    return {"looked_at": len(mine), "containers": documents, "trouble": trouble}


def _context() -> PlanContext | None:
    """Return the context of plans on this node; installation.settings reports broken settings."""
    try:
        return spec_node.context_of_node()
    except GpuhookError:
        return None


def _read(context: PlanContext | None, found: Found) -> dict[str, Any] | GpuhookError:
    """Return the facts of one container or its fault, {} if it has nothing to do with GPUs."""
    try:
        with running_container.hold(found) as held:
            return _facts(held, context) if _has_root(held) else {}
    except (GpuhookError, OSError) as error:
        wrong = worded(error)
        return {} if wrong.code in running_container.GONE else wrong


def _has_root(held: Target) -> bool:
    """Return whether a container's root file system can be read.

    Raises GH1747 or GH1748 if not, for a container with granted devices.
    """
    try:
        held.held.require_root()
    except GpuhookError as error:
        if error.code not in ("GH1747", "GH1748") or held.granted or held.entry:
            raise
        return False
    return True


def _facts(held: Target, context: PlanContext | None) -> dict[str, Any]:
    remote_mounts.require_none(held, context)
    facts = inspection.inspect_container(held.held, held.found, held.spec, held.entry)
    wrong = inspection.findings(facts, held.spec)
    missing, is_repairable = _missing(held, context)
    denied = _denied(facts)
    if denied and not any(error.code == _DENIED for error in missing):
        missing.insert(0, fault("GH1744", container=held.found.id, nodes=", ".join(denied)))
        is_repairable = False
    if not (facts["nodes"] or facts["mounts"] or held.granted or wrong or missing):
        return {}
    container = facts["container"]
    names = ("id", "engine", "runtime", "pod", "namespace", "container")
    return {
        **{name: container[name] for name in names},
        "nodes": _assigned(facts, held),
        "missing": [fault_document(error) for error in missing],
        "findings": [fault_document(error) for error in wrong],
        "injected_by": injectors(held.spec, held.entry),
        "repairable": is_repairable,
    }


def _assigned(facts: dict[str, Any], held: Target) -> list[str]:
    """Return the paths of the driver's device nodes that were assigned to a container."""
    if injection_route.has_all_devices(held.spec):  # the ledger has the assigned ones
        nodes = (held.entry or {}).get("nodes")
        return [str(path) for path in nodes] if isinstance(nodes, list) else []
    return inspection.usable_nodes(facts)


def _missing(held: Target, context: PlanContext | None) -> tuple[list[GpuhookError], bool]:
    """Return what the container lacks of its granted devices, and whether repair restores it.

    If the node's specs do not describe its devices, nothing is known to be missing.
    """
    try:
        found = missing_parts(held, context)
    except GpuhookError as error:
        if error.code.startswith(_OF_CONTAINERS):
            raise
        return [], False
    return found, bool(found)


def missing_parts(held: Target, context: PlanContext | None) -> list[GpuhookError]:
    """Return what the container lacks of its granted devices, device rules first.

    Raises what repair.missing() raises.
    """
    wrong: list[GpuhookError] = []
    container = held.found.id
    for operation in repair.missing(held, context).operations:
        lines = operation.describe()
        if isinstance(operation, AccessStep):
            names = ", ".join(operation.names())
            wrong.insert(0, fault("GH1744", container=container, nodes=names))
        elif lines:
            more = f"; and {len(lines) - _SHOWN} more" if len(lines) > _SHOWN else ""
            what = "; ".join(lines[:_SHOWN]) + more
            wrong.append(fault("GH1740", container=container, what=what))
    return wrong


def _denied(facts: dict[str, Any]) -> list[str]:
    """Return the nodes that a container's device cgroup denies although it has driver files.

    Every container with a GPU may open the control node: if that is denied, its rules were lost. On
    a node without a spec, this is the only evidence for containers of a vendor's prestart hook. A
    container with the whole /dev of the host has no GPU and no driver files.
    """
    nodes, entry = facts["nodes"], facts["ledger"] or {}
    if not facts["mounts"] or entry.get("withdrawn"):
        return []
    denied = [node["path"] for node in nodes if not node["allowed"]]
    return denied if any(vendor.traces.CONTROL_NODE in denied for vendor in vendors()) else []


def injectors(spec: dict[str, Any], entry: dict[str, Any]) -> list[str]:
    """Return the stacks that gave a container its GPUs, by config.json and the ledger.

    config.json has the hooks of a vendor's toolkit, but no mark of its runtime's own changes. The
    file of a hook shows whether gpuhook provides it under the vendor's name.
    """
    prestart = injection_route.hook_paths(spec, "prestart")
    stages = ("createRuntime", "createContainer", "startContainer", "poststop")
    later = injection_route.hook_paths(spec, *stages)
    known = vendors()
    hooks = [
        (path, vendor.traces.HOOK_INJECTOR)
        for vendor in known
        for path in prestart
        if os.path.basename(path) in vendor.vocabulary.foreign_hooks
    ]
    hooks += [
        (path, by)
        for vendor in known
        for path in later
        if (by := vendor.traces.SPEC_HOOKS.get(os.path.basename(path)))
    ]
    others = [by for path, by in hooks if not is_ours(path)]
    found = []
    if (
        entry.get("route")
        or change_record.KEY in spec
        or hook_args.hooks_in(spec)
        or any(os.path.basename(path) in _OURS for path in prestart)
        or len(others) < len(hooks)
    ):
        found.append(GPUHOOK)
    return [*found, *dict.fromkeys(others)]


def is_ours(path: str) -> bool:
    """Return whether the hook at `path` is gpuhook's, under any name."""
    try:
        return b"gpuhook" in files.read(path, 1 << 16)
    except (OSError, GpuhookError):
        return False  # too large for a launcher of gpuhook


def _trouble(where: str, error: GpuhookError) -> dict[str, str]:
    return {"where": where, **fault_document(error)}
