# SPDX-License-Identifier: Apache-2.0
"""gpuhook-hook: `apply` is the one createContainer hook of our CDI specs.

WARM. It runs in the container's mount namespace before the runtime pivots into the root file
system, with the OCI state on standard input. In one process it refuses a stale spec, makes the
links, merges the loader cache, chooses the CUDA compatibility libraries, masks the driver's
parameters and enters the container in the ledger.
"""

from __future__ import annotations

import errno
import os
import sys
import time

from gpuhook import fastjson, files
from gpuhook.container import ledger, oci
from gpuhook.container.provide import provide
from gpuhook.container.rootfs import Root
from gpuhook.engine_log import EngineLog
from gpuhook.errors import GpuhookError, fault
from gpuhook.programs.rootfs_jobs import root_path
from gpuhook.vendors.nvidia import freshness, jobs, params, provision

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

USAGE = """usage: gpuhook-hook apply [options]   (OCI state on standard input)

Called by container runtimes from a CDI spec that `gpuhook generate-cdi` wrote.

  --library PATH=SONAME   a mounted library of the loader: its link and its cache entry
  --link TARGET::PATH     a symbolic link to make
  --cuda-compat DIR       where the image may have CUDA forward compatibility libraries
  --driver-version V      the version of the host's driver
  --driver-params         hide ModifyDeviceFiles: 1 of the driver's parameters
  --fingerprint F         the host that the spec describes; another one is refused
  --libcuda PATH          the host's libcuda, part of the fingerprint
  --host-root DIR         where the host's proc and sys are (default /)
"""
_MAX_STATE = 4 << 20
_TOLERATED = (errno.EROFS, errno.EACCES, errno.EPERM, errno.EXDEV, errno.EISDIR, errno.EBUSY)


def main() -> None:
    """Run one hook; exit status 1, and one line that says why, stops the container."""
    os.umask(0o022)
    words = sys.argv[1:]
    if not words or words[0] in ("-h", "--help"):
        os.write(1 if words else 2, USAGE.encode())
        os._exit(0 if words else 2)
    log = EngineLog("gpuhook-hook")
    try:
        _apply(_job(words), _state(), log)
    except GpuhookError as error:
        log.failure(error)
        os._exit(1)
    except OSError as error:
        where = error.filename or error.filename2 or "the container"
        log.failure(fault("GH1690", where=where, reason=error.strerror or str(error)))
        os._exit(1)
    except Exception as error:  # the engine shows one line, not a traceback
        log.failure(fault("GH1691", kind=type(error).__name__, reason=error))
        os._exit(1)
    os._exit(0)


def _job(words: list[str]) -> jobs.Jobs:
    if words[0] != jobs.VERB:
        raise fault("GH1640", argument=words[0], reason="there is no such verb")
    return jobs.parse(words[1:])


def _apply(job: jobs.Jobs, state: dict[str, Any], log: EngineLog) -> None:
    began = time.monotonic()
    bundle = state.get("bundle") or state.get("bundlePath")
    if not isinstance(bundle, str):
        raise fault("GH1642", reason="it names no bundle")
    spec = _config(bundle)
    if job.fingerprint:
        now = freshness.fingerprint(job.host_root, job.libcuda)
        changed = freshness.differences(job.fingerprint, now)
        if changed:
            raise fault("GH1120", changes="; ".join(changed), dirs="the CDI spec directories")
    path = root_path(bundle, spec)
    with Root(path) as root:
        for mount in spec.get("mounts") or ():
            if isinstance(mount, dict) and mount.get("type") == "tmpfs":
                root.admit(str(mount.get("destination")))
        _file_system(root, job, log)
        if job.driver_params:
            _mask_params(root, job, log)
    _enter_in_ledger(state, spec, began, log)


def _file_system(root: Root, job: jobs.Jobs, log: EngineLog) -> None:
    """Make links and loader files.

    What cannot be written, or lies behind a mount of somebody else's files, does not stop the
    container: most of the driver works without.
    """
    whole, reason = provision.of(root, job)
    left_out = [reason] if reason else []
    for failure in provide(root, whole):
        if failure.errno not in _TOLERATED:
            raise failure
        left_out.append(f"{failure.filename}: {failure.strerror}")
    for what in left_out:
        log.warning(fault("GH1641", what=what))


def _mask_params(root: Root, job: jobs.Jobs, log: EngineLog) -> None:
    from gpuhook.kernel import mounts

    content = params.masked(job.host_root)
    if content is None:
        return
    directory, _, name = params.PATH.rpartition("/")
    root.admit("/proc")
    try:
        target = f"/proc/self/fd/{root.directory(directory)}/{name}"
        mounts.bind_read_only(params.masked_file(content), target)
    except OSError as error:
        # Best effort, as in a user namespace: the device cgroup still holds.
        reason = error.strerror or str(error)
        log.warning(fault("GH1641", what=f"the mask over {params.PATH}: {reason}"))


def _state() -> dict[str, Any]:
    chunks = []
    left = _MAX_STATE
    while left > 0:
        chunk = os.read(0, left)
        if not chunk:
            break
        chunks.append(chunk)
        left -= len(chunk)
    try:
        state = fastjson.loads(b"".join(chunks))
    except ValueError as error:
        raise fault("GH1642", reason=error) from error
    if not isinstance(state, dict):
        raise fault("GH1642", reason="it is no JSON object")
    return state


def _config(bundle: str) -> dict[str, Any]:
    path = os.path.join(bundle, "config.json")
    try:
        raw = files.read(path)
    except FileNotFoundError as error:
        raise fault("GH1300", path=path) from error
    return oci.parsed(path, raw)


def _init_pid() -> int:
    """Return the pid of the container's init, our parent, as the host numbers it.

    The state says 1: the hook runs in the container's pid namespace already, while /proc is the
    host's still, and os.getppid() does not know better than the state.
    """
    for line in files.read("/proc/self/status", 65536).split(b"\n"):
        if line.startswith(b"PPid:"):
            return int(line.split()[1])
    return 0


def _enter_in_ledger(
    state: dict[str, Any], spec: dict[str, Any], began: float, log: EngineLog
) -> None:
    identity, pid = state.get("id"), _init_pid()
    if not isinstance(identity, str) or not ledger.is_id(identity):
        return
    bundle = state.get("bundle")
    if any((e["id"], e.get("bundle")) == (identity, bundle) for e in ledger.living()):
        return  # the wrapper was there before
    entry = {
        **ledger.pod_of(spec.get("annotations")),
        "bundle": bundle,
        "devices": [],
        "nodes": oci.device_paths(spec),
        "replicas": [],
        "requested": [],
        "source": "CDI, applied by the engine",
        "route": "cdi",
        "runtime": "",
        "pid": pid,
        "started": ledger.start_time(pid),
        "milliseconds": round((time.monotonic() - began) * 1000, 2),
    }
    trouble = ledger.enter("", identity, entry)
    if trouble is not None:
        log.warning(trouble)
