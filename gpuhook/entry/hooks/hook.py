# SPDX-License-Identifier: Apache-2.0
"""gpuhook-hook: the program that container runtimes call while they create a container.

`apply` is the createContainer hook of gpuhook's CDI specs; `prestart` injects GPUs into a container
that already exists, for engines that only support hooks. Each verb is a module. The OCI state comes
on standard input.
"""

from __future__ import annotations

import os
import sys

from gpuhook import __version__
from gpuhook.errors import fault
from gpuhook.host.hot import bundle, state
from gpuhook.host.hot.engine_log import EngineLog, as_fault

PROGRAM = "gpuhook-hook"
_MAX_LOG = 1 << 20
USAGE = """usage: gpuhook-hook apply [options]      (OCI state on standard input)
       gpuhook-hook prestart [--dry-run] (OCI state on standard input)
       gpuhook-hook limit [options]      (OCI state on standard input)
       gpuhook-hook toolkit NAME [options]  (OCI state on standard input)
       gpuhook-hook --version

apply: called by container runtimes from a CDI spec that `gpuhook generate-cdi` wrote.

  --library PATH=SONAME   a mounted library of the loader: its link and its cache entry
  --link TARGET::PATH     a symbolic link to make
  --ldconfig PATH         make the loader's cache with this program on the host
  --chmod MODE:PATH       set the permission bits of a directory that the runtime makes
  --skip JOB              leave out links, loader-cache or profile; repeatable
  --cuda-compat DIR       the image's directory of CUDA forward compatibility libraries
  --driver-version V      the version of the host's driver
  --cuda-version V        the highest CUDA version of the host's driver
  --driver-params         hide ModifyDeviceFiles: 1 of the driver's parameters
  --whole                 apply all of this, whatever a container requests
  --fingerprint F         the host that the spec describes; any other host is refused
  --libcuda PATH          the host's libcuda, part of the fingerprint
  --host-root DIR         the directory with the host's proc and sys (default /)

prestart: the OCI hook of the stages prestart and createRuntime. Gives the container the GPUs that
its config.json requests, unless gpuhook-runtime or a CDI engine has done so.

  --dry-run               print the changes, and make none; also for a running container:
                          runc state ID | gpuhook-hook prestart --dry-run

limit: the createRuntime hook that gpuhook-runtime adds to a container whose memory is limited.

  --gpu DEVICE=HARD,SOFT[,asked]
                          bytes of this GPU; asked: the container itself requests them
  --grant DEVICE=HARD,SOFT[,asked]
                          the granted bytes, which are set if the driver refuses less
  --guarantee WHEN        auto (default), always or never: when the driver gets SOFT
  --nvml PATH             the driver's libnvidia-ml.so.1 (default: search for it)
  --root DIR              the runtime's state root, which identifies the ledger's entry
  --required              stop the container if a limit cannot be enforced

toolkit: a hook of NVIDIA's container toolkit by its name and with its options, for CDI specs that
the toolkit wrote: create-symlinks, update-ldcache, enable-cuda-compat, chmod,
disable-device-node-modification, update-application-profile. Others are ignored.
"""
# NVIDIA's hook program has these verbs, too; Docker calls it by its name.
_NOTHING_TO_DO = ("poststart", "poststop")
_FLAGS = ("config", "debug")  # of NVIDIA's hook: its settings file, and verbose output


def main() -> None:
    """Run one hook; exit status 1, and one line with the reason, stops the container."""
    os.umask(0o022)
    words = _without_flags(sys.argv[1:])
    if not words or words[0] == "help" or words[-1] in ("-h", "--help"):
        os.write(1 if words else 2, USAGE.encode())
        os._exit(0 if words else 2)
    if words[0] in ("--version", "-version"):
        os.write(1, f"{PROGRAM} {__version__}\n".encode())
        os._exit(0)
    # A dry run is a command of a user; a hook that a runtime calls has no terminal.
    log = EngineLog(PROGRAM, _log())
    if "--dry-run" in words:
        from gpuhook.host.warm.terminal_log import TerminalLog

        log = TerminalLog(PROGRAM, _log())
    os._exit(_status(words, log))


def _without_flags(words: list[str]) -> list[str]:
    """Return the arguments from the verb on, without NVIDIA's flags before it."""
    while words:
        name, equals, _ = words[0].partition("=")
        flag = name.lstrip("-") if name.startswith("-") else ""
        if flag not in _FLAGS:
            break
        words = words[1 + (flag == "config" and not equals) :]
    return words


def _log() -> str:
    """Return the file of the hooks' errors and warnings: runtimes pass them no --log.

    A full file is renamed, and a new one started.
    """
    path = os.path.join(state.directory(), "hook.log")
    try:
        os.makedirs(state.directory(), 0o755, exist_ok=True)
        if os.stat(path).st_size > _MAX_LOG:
            os.rename(path, path + ".1")
    except OSError:
        return path  # it does not exist yet, or /run cannot be written, as EngineLog will find
    return path


def _status(words: list[str], log: EngineLog) -> int:
    try:
        _run(words[0], words[1:], log)
    except Exception as error:  # the engine shows one line, not a traceback
        log.failure(as_fault(error, "the container"))
        return 1
    return 0


def _run(verb: str, words: list[str], log: EngineLog) -> None:
    if verb == "apply":
        bundle.load("gpuhook.entry.hooks.apply_hook")
        from gpuhook.entry.hooks import apply_hook

        apply_hook.run(words, log)
    elif verb == "prestart":
        bundle.load("gpuhook.entry.hooks.prestart_hook")
        from gpuhook.entry.hooks import prestart_hook

        prestart_hook.run(words, log)
    elif verb == "limit":
        bundle.load("gpuhook.entry.hooks.limit_hook")
        from gpuhook.entry.hooks import limit_hook

        limit_hook.run(words, log)
    elif verb == "toolkit":
        for part in ("apply_hook", "toolkit_hook"):
            bundle.load("gpuhook.entry.hooks." + part)
        from gpuhook.entry.hooks import toolkit_hook

        toolkit_hook.run(words, log)
    elif verb not in _NOTHING_TO_DO:
        raise fault("GH1640", argument=verb, reason="there is no such command")
