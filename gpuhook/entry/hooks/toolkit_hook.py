# SPDX-License-Identifier: Apache-2.0
"""`gpuhook-hook toolkit`: the createContainer hooks that NVIDIA's CDI specs name.

A spec of NVIDIA's toolkit has a hook for each task, and each is a process. Here they work as
gpuhook's own hook does: the loader's cache is merged, not made by an ldconfig; a second start
changes nothing; a read-only root file system does not stop the container.
"""

from __future__ import annotations

import os

from gpuhook.apply.rootfs.provision import Provision
from gpuhook.entry.hooks import apply_hook, oci_state
from gpuhook.entry.hooks.hook_root import HookRoot
from gpuhook.errors import fault
from gpuhook.vendors.hot import rootfs_jobs
from gpuhook.vendors.nvidia.hot.rootfs import egl_profile
from gpuhook.vendors.nvidia.warm import hook_names, toolkit_hooks, toolkit_loader

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from gpuhook.host.hot.engine_log import EngineLog
    from gpuhook.vendors.nvidia.warm.toolkit_hooks import Call


def run(words: list[str], log: EngineLog) -> None:
    """Do the work of one of NVIDIA's hooks for the container whose state is on standard input.

    An unknown hook is ignored with a warning, as NVIDIA's program does: it belongs to a newer
    toolkit, and most of a driver works without it. Raises GH2140 and as `apply` does.
    """
    call = toolkit_hooks.call(words)
    if not call.is_known:
        log.warning(fault("GH2141", hook=call.name or "without a name"))
        return
    _take_state(call)
    state = oci_state.read()
    log.container = state.id
    with HookRoot(state) as root:
        _do(call, root, state.spec, log)
    oci_state.keep_warnings(state, log)


def _take_state(call: Call) -> None:
    """Put the state on standard input, if an option names its file."""
    path = call.last(toolkit_hooks.STATE_FILE)
    if path and path != "-":
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        os.dup2(fd, 0)
        os.close(fd)


def _do(call: Call, root: HookRoot, spec: dict[str, Any], log: EngineLog) -> None:
    job = toolkit_hooks.jobs_of(call)
    if call.name == hook_names.LINKS:
        apply_hook.file_system(root, job, spec, log)
    elif call.name == hook_names.LOADER:
        apply_hook.file_system(
            root, toolkit_loader.loader_jobs(root, spec, call.all("--folder")), spec, log
        )
    elif call.name == hook_names.PROFILE:
        made = Provision([], [], [])
        made.files.append((egl_profile.PATH, egl_profile.content(rootfs_jobs.nodes(spec))))
        apply_hook.provided(root, made, [], log)
    elif call.name == hook_names.PARAMS:
        apply_hook.mask_params(root, job, log)
    for mode, path in job.chmod:
        apply_hook.chmod(root, mode, path, log)
