# SPDX-License-Identifier: Apache-2.0
"""`gpuhook-hook apply`: the one createContainer hook of gpuhook's CDI specs.

It runs in the container's mount namespace before the runtime pivots into the root file system. In
one process it refuses a stale spec and a driver that the image excludes, makes the links, merges
the loader cache, chooses the CUDA compatibility libraries, masks the driver's parameters and enters
the container in the ledger.
"""

from __future__ import annotations

import errno
import os
import sys
import time

from gpuhook.apply.rootfs import hook_args
from gpuhook.apply.rootfs.rootfs_files import provide
from gpuhook.apply.spec import change_record, oci_spec
from gpuhook.containers.hot import ledger
from gpuhook.containers.warm.process_handle import Process
from gpuhook.entry import cold_command
from gpuhook.entry.hooks import hook_root, oci_state
from gpuhook.entry.hooks.hook_root import HookRoot
from gpuhook.errors import GpuhookError, fault
from gpuhook.host.hot import bundle, fastjson, files, procfs, settings
from gpuhook.host.hot.settings import Settings
from gpuhook.request import parse
from gpuhook.request.replicas import claims_of, replicas_of
from gpuhook.vendors.hot import rootfs_jobs, rootfs_plan
from gpuhook.vendors.nvidia.hot import host_fingerprint, node_json, vocabulary
from gpuhook.vendors.nvidia.hot.rootfs import driver_params

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Collection
    from typing import Any

    from gpuhook.apply.rootfs.provision import Provision
    from gpuhook.apply.rootfs.root_directory import Root
    from gpuhook.entry.hooks.oci_state import HookState
    from gpuhook.host.hot.engine_log import EngineLog

_TOLERATED = (errno.EROFS, errno.EACCES, errno.EPERM, errno.EXDEV, errno.EISDIR, errno.EBUSY)


def run(arguments: list[str], log: EngineLog) -> None:
    """Do the jobs of `arguments` for the container whose state is on standard input."""
    began = time.monotonic()
    job = hook_args.parse(arguments)
    state = oci_state.read()
    log.container = state.id
    host_fingerprint.require_fresh(job)
    _require(job, state.spec, log)
    with HookRoot(state) as root:
        file_system(root, job, state.spec, log)
        for mode, path in job.chmod:
            chmod(root, mode, path, log)
        if job.driver_params:
            mask_params(root, job, log)
    pid = _init_pid()
    _enter_in_ledger(state, pid, _limit(state.spec, pid, log), began, log)
    oci_state.keep_warnings(state, log)


def _require(job: hook_args.Jobs, spec: dict[str, Any], log: EngineLog) -> None:
    """Refuse a container whose requirements are not met; the first of its hooks checks them.

    Raises the faults of check_requirements(). If the wrapper ran before, it has checked them.
    """
    environment = parse.environment(spec)
    if not vocabulary.requires(environment) or change_record.KEY in spec:
        return
    todo = _all_jobs(spec, job)
    if todo[0].arguments() != job.arguments():
        return
    bundle.load("gpuhook.vendors.nvidia.hot.requirement_check")
    from gpuhook.vendors.nvidia.hot import requirement_check

    try:
        found = requirement_check.check_requirements(
            environment, todo, rootfs_jobs.nodes(spec), requirement_check.noted_facts
        )
    except GpuhookError:
        # Only now: a container whose requirements are met does not wait for the settings.
        if _is_waived():
            return
        raise
    for doubt in found:
        log.warning(doubt)


def _is_waived() -> bool:
    """Return whether the node's settings waive requirements: broken ones waive nothing."""
    try:
        return settings.load(
            cold_command.Compiler(sys.argv[0]).compile_settings
        ).disable_requirements
    except (GpuhookError, OSError):
        return False


def _limit(spec: dict[str, Any], pid: int, log: EngineLog) -> list[dict[str, Any]]:
    """Limit the container's memory of its GPUs, unless a hook of the wrapper has done so.

    Returns the ledger's records, [] for a container without a limit.
    """
    if not parse.limits_memory(spec) or _is_limited(spec):
        return []
    bundle.load("gpuhook.entry.hooks.limit_hook")
    from gpuhook.entry.hooks import limit_hook

    with Process(pid) as process:
        nodes = oci_spec.device_paths(spec)
        return limit_hook.in_container(spec, nodes, [], process, log, is_inside=True)


def _is_limited(spec: dict[str, Any]) -> bool:
    """Return whether the wrapper's hook limits the container: no tenant can add hooks."""
    stage = fastjson.array(spec, "hooks", "createRuntime")
    return any(hook_args.is_ours(hook, hook_args.LIMIT) for hook in stage)


def _all_jobs(spec: dict[str, Any], job: hook_args.Jobs) -> list[hook_args.Jobs]:
    """Return the jobs of all gpuhook hooks of the container, in the order in which they run."""
    others = [hook_args.of_hook(hook) for hook in hook_args.hooks_in(spec)]
    is_there = any(other.arguments() == job.arguments() for other in others)
    return others if is_there else [job, *others]


def file_system(root: HookRoot, job: hook_args.Jobs, spec: dict[str, Any], log: EngineLog) -> None:
    """Make links, loader files and the application profile.

    A file that cannot be written, or is behind a foreign mount, does not stop the container: most
    of the driver works without it.
    """
    others = _all_jobs(spec, job)
    if hook_args.is_beside_toolkit(spec):
        bundle.load("gpuhook.vendors.nvidia.warm.toolkit_loader")
        from gpuhook.vendors.nvidia.warm import toolkit_loader

        others.append(toolkit_loader.loader_jobs(root, spec))
    whole, left_out = rootfs_plan.beside(root, job, others, rootfs_jobs.nodes(spec))
    if job.ldconfig:
        whole.index = lambda first, last: _indexed(root, job.ldconfig, first, last)
    provided(root, whole, left_out, log)


def provided(root: Root, whole: Provision, left_out: list[str], log: EngineLog) -> None:
    """Make a provision's links and files; warns of `left_out` and of failures."""
    for failure in provide(root, whole):
        if failure.errno not in _TOLERATED:
            raise failure
        left_out.append(f"{failure.filename}: {failure.strerror}")
    for what in left_out:
        log.warning(fault("GH1641", what=what))


def _indexed(root: Root, ldconfig: str, first: list[bytes], last: list[bytes]) -> bytes:
    """Return the loader cache that the host's ldconfig makes of the root file system."""
    from gpuhook.apply.live.ldconfig import cache_of  # few specs use it

    namespace = os.open("/proc/self/ns/mnt", os.O_RDONLY | os.O_CLOEXEC)
    try:
        return cache_of(namespace, root.directory("/"), ldconfig, first, last)
    finally:
        os.close(namespace)


def chmod(root: HookRoot, mode: int, path: str, log: EngineLog) -> None:
    """Set the permission bits of a directory that the runtime has made, and of no other."""
    root.admit("/dev", hook_root.TMPFS)
    try:
        os.chmod(f"/proc/self/fd/{root.directory(path)}", mode)
    except FileNotFoundError:
        return
    except OSError as error:
        log.warning(fault("GH1641", what=f"the mode of {path}: {error.strerror}"))


def mask_params(root: HookRoot, job: hook_args.Jobs, log: EngineLog) -> None:
    """Hide that the driver's parameters let any user make its device nodes, if they do."""
    from gpuhook.kernel import mounts

    content = driver_params.masked(job.host_root)
    if content is None:
        return
    directory, _, name = driver_params.PATH.rpartition("/")
    root.admit("/proc", hook_root.PROC)
    try:
        target = f"/proc/self/fd/{root.directory(directory)}/{name}"
        mounts.bind_read_only(driver_params.masked_file(content), target)
    except OSError as error:
        # Best effort, as in a user namespace: the device cgroup still applies.
        reason = error.strerror or str(error)
        log.warning(fault("GH1641", what=f"the mask over {driver_params.PATH}: {reason}"))


def _init_pid() -> int:
    """Return the pid of the container's init, our parent, in the host's pid namespace.

    The state has 1: the hook already runs in the container's pid namespace, while /proc is still
    the host's; os.getppid() returns the same as the state.
    """
    for line in files.read("/proc/self/status", 65536).split(b"\n"):
        if line.startswith(b"PPid:"):
            return int(line.split()[1])
    return 0


def _note(root: str, identity: str, pid: int, memory: list[dict[str, Any]], log: EngineLog) -> None:
    from gpuhook.entry.hooks import limit_hook

    with Process(pid) as process:
        limit_hook.note(root, identity, process, memory, log)


def _enter_in_ledger(
    state: HookState, pid: int, memory: list[dict[str, Any]], began: float, log: EngineLog
) -> None:
    if not ledger.is_id(state.id):
        return
    for known in ledger.living(is_swept=True):
        if known["id"] == state.id and "expected" in known:
            _complete(known, state, pid, memory, log)
            return
        if (known["id"], known.get("bundle")) == (state.id, state.bundle):
            if memory:
                _note(known["root"], state.id, pid, memory, log)
            return  # the wrapper has made the entry
    nodes = oci_spec.device_paths(state.spec)
    entry = ledger.new_entry(
        state.spec.get("annotations"),
        state.bundle,
        "cdi",
        nodes=nodes,
        replicas=replicas_of(state.spec, (), lambda: _known_devices(state.spec, nodes, log)),
        source="CDI, applied by the engine",
    )
    entry["pid"] = pid
    entry["started"] = procfs.start_time(pid)
    entry["milliseconds"] = round((time.monotonic() - began) * 1000, 2)
    if memory:
        entry["memory"] = memory
    claims = claims_of(state.spec, (), lambda: _known_devices(state.spec, nodes, log))
    if claims:
        entry["claims"] = claims
    trouble = ledger.enter("", state.id, entry)
    if trouble is not None:
        log.warning(trouble)


def _complete(
    known: dict[str, Any], state: HookState, pid: int, memory: list[dict[str, Any]], log: EngineLog
) -> None:
    """Enter the process of a container whose entry NRI's plugin has made before its creation."""
    entry = {**known, "bundle": state.bundle, "pid": pid, "started": procfs.start_time(pid)}
    del entry["expected"]
    trouble = ledger.enter(known["root"], state.id, entry)
    if trouble is not None:
        log.warning(trouble)
    if memory:
        _note(known["root"], state.id, pid, memory, log)


def _known_devices(spec: dict[str, Any], nodes: list[str], log: EngineLog) -> Collection[str]:
    """Return the ids of the container's devices, as far as this node's inventory has them.

    Without an inventory, on a node whose specs are all a device plugin's, these specs are used. The
    kernel's files name the devices of other vendors.
    """
    bundle.load("gpuhook.entry.hooks.limit_hook")
    from gpuhook.vendors.hot.memory_vendors import memory_vendors

    known = node_json.uuids()
    if known:
        found = {known[path] for path in nodes if path in known}
    else:
        from gpuhook.entry.plan_context import context_of

        found = {*context_of(Settings(), log, _pass_over).covered(nodes)}
    others = (vendor.devices(spec, nodes, (), tuple) for vendor in memory_vendors()[1:])
    return found.union(*others)


def _pass_over(*_paths: str) -> None:
    """Skip YAML specs that are not compiled yet: no interpreter is started for a ledger entry."""
