# SPDX-License-Identifier: Apache-2.0
"""gpuhook-runtime: what the launcher asks before it runs the low-level runtime.

HOT. The launcher (a /bin/sh of a few lines) calls this for `create` and `run`, and once for other
commands when no low-level runtime is on record. The answer on standard output is the path of the
low-level runtime; the launcher then executes it with unchanged arguments, descriptors and
standard streams. Exit status 3 means that the container must not start and that the reason has
been reported; any other failure leaves the decision to the launcher.
"""

from __future__ import annotations

import os
import sys

from gpuhook import files, settings, state
from gpuhook.engine_log import EngineLog
from gpuhook.errors import GpuhookError, fault
from gpuhook.programs import cold, oci_command
from gpuhook.vendors.nvidia import words

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gpuhook.programs.oci_command import Command

REFUSED = 3
LOW_LEVEL_ENV = "GPUHOOK_LOW_LEVEL_RUNTIME"
_MAX_CONFIG = 64 << 20


def main() -> None:
    """Answer the launcher: argv is its own path, then the arguments of the runtime."""
    launcher, argv = sys.argv[1], sys.argv[2:]
    os.umask(0o022)
    command = oci_command.parse(argv)
    log = EngineLog("gpuhook-runtime", command.log, command.log_format)
    try:
        low_level = _prepare(command, launcher, log)
    except GpuhookError as error:
        log.failure(error)
        status = REFUSED
    except OSError as error:
        where = error.filename or error.filename2 or "the host"
        log.failure(fault("GH1490", where=where, reason=error.strerror or str(error)))
        status = REFUSED
    else:
        os.write(1, os.fsencode(low_level) + b"\n")
        status = 0
    # Nothing is buffered and nobody waits for the interpreter to take itself apart.
    os._exit(status)


def _prepare(command: Command, launcher: str, log: EngineLog) -> str:
    """Return the low-level runtime's path, after config.json has been edited if need be."""
    compiler = cold.Compiler(launcher)
    trouble: GpuhookError | None = None
    try:
        chosen = settings.load(compiler.compile_settings)
    except GpuhookError as error:
        chosen, trouble = settings.Settings(), error
    low_level = find_low_level(chosen.low_level_runtimes, launcher)
    _remember(low_level)
    if command.name not in oci_command.EDITED:
        return low_level
    path = command.config or os.path.join(command.bundle, "config.json")
    try:
        raw = files.read(path, _MAX_CONFIG)
    except FileNotFoundError as error:
        raise fault("GH1300", path=path) from error
    prefixes = [prefix.encode() for prefix in chosen.annotation_prefixes]
    if any(mark in raw for mark in (*words.MARKS, *prefixes)):
        _load_bundled("gpuhook.programs.create")
        from gpuhook.programs.create import Create

        create = Create(command, chosen, log, compiler.compile_spec, trouble)
        create.edit(path, raw, low_level)
    return low_level


def _load_bundled(module: str) -> None:
    """Load a module out of the launcher's bundle, where there is one: it is much the faster way."""
    bundle = sys.modules.get("gpuhook_bundle")
    if bundle is not None:
        bundle.load(module)


def find_low_level(names: list[str], launcher: str) -> str:
    """Return the path of the first low-level runtime of `names` that is there; GH1401 if none.

    The environment of the engine may name another one (GPUHOOK_LOW_LEVEL_RUNTIME).
    """
    chosen = os.environ.get(LOW_LEVEL_ENV)
    names = [chosen] if chosen else names
    dirs = [*os.environ.get("PATH", "").split(":"), *state.PROGRAM_DIRS]
    for name in names:
        candidates = [name] if "/" in name else [f"{place}/{name}" for place in dirs if place]
        for path in candidates:
            if _is_program(path) and not _is_same_file(path, launcher):
                return os.path.abspath(path)
    raise fault("GH1401", names=", ".join(names), dirs=":".join(dict.fromkeys(dirs)))


def _is_program(path: str) -> bool:
    return os.path.isfile(path) and os.access(path, os.X_OK)


def _is_same_file(path: str, other: str) -> bool:
    """Return whether both are one file: a runtime named runc may be a link to ourselves."""
    try:
        one, two = os.stat(path), os.stat(other)
    except OSError:
        return False
    return (one.st_dev, one.st_ino) == (two.st_dev, two.st_ino)


def _remember(low_level: str) -> None:
    """Note the low-level runtime where the launcher looks: other commands then need no Python."""
    if os.environ.get(LOW_LEVEL_ENV):
        return
    path = os.path.join(state.directory(), "low-level-runtime")
    content = os.fsencode(low_level) + b"\n"
    try:
        if files.read(path, 8192) == content:
            return
    except OSError:
        pass
    try:
        os.makedirs(os.path.dirname(path), 0o755, exist_ok=True)
        files.replace(path, content, mode=0o644)
    except OSError:
        return  # an unwritable /run costs the launcher a Python start per command, nothing else
