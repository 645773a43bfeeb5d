# SPDX-License-Identifier: Apache-2.0
"""The devices, files and rules that a running container has of its GPUs, and its faults."""

from __future__ import annotations

import os
import stat
from typing import Any

from gpuhook.containers.hot import ledger
from gpuhook.errors import GpuhookError, fault
from gpuhook.host.hot import state
from gpuhook.inspect.found_libraries import loader_facts
from gpuhook.request import parse
from gpuhook.target.node_changes import node_changes
from gpuhook.usage import injection_route
from gpuhook.vendors.catalogue import vendors

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from gpuhook.apply.live.cgroup.device_cgroup import DeviceRules
    from gpuhook.apply.live.hotplug_steps import Live
    from gpuhook.containers.warm.runtime_state import Found
    from gpuhook.kernel.bpf.device_filter import Rule
    from gpuhook.kernel.mountinfo import Mount

SCHEMA = "gpuhook/inspect/v1"


def inspect_container(
    live: Live,
    found: Found,
    spec: dict[str, Any],
    entry: dict[str, Any],
    memory: list[dict[str, Any]] | None = None,
) -> dict[str, Any]:
    """Return the facts of a running container, as schemas/inspect.json has them.

    `spec` is its config.json and `entry` its ledger entry, {} without one; `memory`
    are its limits. Raises OSError, and GH1732 if it ends meanwhile.
    """
    mounted = live.root.mounts()
    traces = [vendor.traces for vendor in vendors()]
    mounts = [
        mount_facts(mount)
        for mount in mounted
        if any(one.is_driver_mount(mount.target) for one in traces)
    ]
    nodes = list(_nodes(live, {mount.target for mount in mounted}))
    return {
        "schema": SCHEMA,
        "container": _container(found, spec),
        "driver": _driver(mounts, nodes),
        "cgroup": {
            "version": live.rules.version,
            "path": live.rules.path,
            "programs": _programs(live.rules),
        },
        "nodes": nodes,
        "mounts": mounts,
        "loader": loader_facts(live, mounts),
        "memory": memory or [],
        "env": {
            "process": _variables(live.process.environment()),
            "config": _variables(parse.variables(spec)),
        },
        "ledger": entry or None,
        "findings": [],
    }


def findings(facts: dict[str, Any], spec: dict[str, Any]) -> list[GpuhookError]:
    """Return the faults of a container, worst first; `spec` is its config.json."""
    identity = facts["container"]["id"]
    wrong = []
    request = _unheard(facts)
    if request:
        wrong.append(fault("GH1745", container=identity, request=request))
    gone_with_gpus = _departed(facts, spec)
    if gone_with_gpus:
        wrong.append(fault("GH1123", container=identity, nodes=", ".join(gone_with_gpus)))
    wrong += filter(None, [node_changes(identity, facts["ledger"] or {})])
    driver = facts["driver"]
    if driver["agree"] is False:
        mounted = " and ".join(driver["mounted"])
        wrong.append(fault("GH1741", container=identity, mounted=mounted, now=driver["running"]))
    gone = [mount["path"] for mount in facts["mounts"] if mount["removed"]]
    if gone:
        wrong.append(fault("GH1742", container=identity, path=gone[0], count=len(gone)))
    if facts["loader"]["trouble"]:
        wrong.append(fault("GH1743", container=identity, reason=facts["loader"]["trouble"]))
    return wrong


def _departed(facts: dict[str, Any], spec: dict[str, Any]) -> list[str]:
    """Return the device nodes of a container whose GPU or MIG instance no longer exists.

    A privileged container has all nodes of the host.
    """
    if injection_route.has_all_devices(spec):
        return []
    nodes, root = usable_nodes(facts), state.host_root()
    return [path for vendor in vendors() for path in vendor.traces.stale(nodes, root)]


def usable_nodes(facts: dict[str, Any]) -> list[str]:
    """Return the paths of the driver's device nodes that the container's cgroup allows.

    A container with CAP_MKNOD can make nodes of any number under any name: they are no evidence.
    """
    nodes = facts["nodes"]
    return [node["path"] for node in nodes if node["allowed"] and _has_own_number(node)]


def gpus(facts: dict[str, Any], by_node: Mapping[str, str]) -> list[str]:
    """Return the UUIDs of the GPUs and MIG instances whose nodes a container has.

    `by_node` has device node -> UUID. If it has none of the container's, the paths are returned.
    """
    paths = [node["path"] for node in facts["nodes"] if _has_own_number(node)]
    known = [by_node[path] for path in paths if path in by_node]
    return known or [path for path in paths if injection_route.is_device_node(path)]


def _has_own_number(node: dict[str, Any]) -> bool:
    """Return whether a node with the name of a GPU node has the numbers of that GPU."""
    number = (node["major"], node["minor"])
    return all(vendor.traces.has_own_number(node["path"], number) for vendor in vendors())


def _unheard(facts: dict[str, Any]) -> str:
    """Return the variable that requests GPUs if the container has none and never had, else ""."""
    if facts["nodes"] or (facts["ledger"] or {}).get("withdrawn"):
        return ""
    for vendor in vendors():
        name = vendor.vocabulary.devices_env + "="
        asked = [entry for entry in facts["env"]["config"] if entry.startswith(name)]
        if asked and asked[-1][len(name) :].strip() not in ("", "void", "none"):
            return str(asked[-1])
    return ""


def _container(found: Found, spec: dict[str, Any]) -> dict[str, Any]:
    pod = ledger.pod_of(spec.get("annotations"))
    return {
        "id": found.id,
        "pid": found.pid,
        "status": found.status,
        "engine": found.engine or None,
        "runtime": found.runtime or None,
        "bundle": found.bundle or None,
        "root": found.root_path or None,
        "state_root": found.state_root or None,
        "pod": pod.get("pod"),
        "namespace": pod.get("namespace"),
        "container": pod.get("container"),
        "name": found.name or pod.get("container"),
        "image": found.image or None,
    }


def _driver(mounts: list[dict[str, Any]], nodes: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the versions of the node's driver and of the mounted files, and if they agree.

    The driver is that of the first vendor whose nodes or files the container has. `mounted` is
    None for a vendor whose driver has no files in containers.
    """
    root, versions = state.host_root(), sorted({one["version"] for one in mounts if one["version"]})
    all_traces = [vendor.traces for vendor in vendors()]
    paths = [] if versions else [node["path"] for node in nodes]
    own = (one for one in all_traces if any(one.is_device_node(path, root) for path in paths))
    traces = next(own, all_traces[0])
    running = traces.running_driver(root)
    if not traces.HAS_FILES:
        return {"running": running, "mounted": None, "agree": None}
    agree = versions == [running] if running and versions else None
    return {"running": running, "mounted": versions, "agree": agree}


def mount_facts(mount: Mount) -> dict[str, Any]:
    """Return a mount as schemas/inspect.json has it."""
    # A program is mounted at a fixed name; the path of its source may have the version.
    versions = (
        vendor.traces.driver_version(path)
        for path in (mount.target, mount.root)
        for vendor in vendors()
    )
    return {
        "path": mount.target,
        "source": mount.root,
        "options": mount.options,
        "version": next(filter(None, versions), None),
        "removed": mount.is_deleted,
    }


def _nodes(live: Live, mounted: set[str]) -> Iterator[dict[str, Any]]:
    traces, root = [vendor.traces for vendor in vendors()], state.host_root()
    nodes: dict[str, os.stat_result] = {}
    for directory in dict.fromkeys(path for one in traces for path in one.NODE_DIRECTORIES):
        for name in live.root.directory_names(directory):
            path = f"{directory}/{name}"
            found = live.root.status(path, follow=False)
            if found is None or not stat.S_ISCHR(found.st_mode):
                continue
            number = (os.major(found.st_rdev), os.minor(found.st_rdev))
            if any(one.is_node(path, number, root) for one in traces):
                nodes[path] = found
    numbers = [(os.major(one.st_rdev), os.minor(one.st_rdev)) for one in nodes.values()]
    verdicts = live.rules.verdicts("c", numbers, "rw") if numbers else []
    for (path, found), number, verdict in zip(nodes.items(), numbers, verdicts, strict=True):
        yield _node(path, found, number, verdict, is_bound=path in mounted)


def _node(
    path: str,
    found: os.stat_result,
    number: tuple[int, int],
    verdict: tuple[bool, str],
    *,
    is_bound: bool,
) -> dict[str, Any]:
    return {
        "path": path,
        "major": number[0],
        "minor": number[1],
        "mode": f"{stat.S_IMODE(found.st_mode):04o}",
        "uid": found.st_uid,
        "gid": found.st_gid,
        "bound": is_bound,
        "allowed": verdict[0],
        "reason": verdict[1],
    }


def _programs(rules: DeviceRules) -> list[dict[str, Any]]:
    """Return the device programs; `rules` is null if the instructions cannot be decoded."""
    return [
        {
            "id": program.id,
            "name": program.name,
            "cgroup": program.cgroup,
            "attached": program.flags,
            "own": program.own,
            "added": [_worded(rule) for rule in program.ours],
            "rules": None if program.rules is None else [_worded(rule) for rule in program.rules],
        }
        for program in rules.programs()
    ]


def _worded(rule: Rule) -> str:
    return f"{'allow' if rule.allow else 'deny'} {rule.line}"


def _variables(env: list[str]) -> list[str]:
    starts = tuple(start for vendor in vendors() for start in vendor.traces.VARIABLES)
    return [entry for entry in env if entry.startswith(starts)]
