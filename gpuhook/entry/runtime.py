# SPDX-License-Identifier: Apache-2.0
"""gpuhook-runtime: the program that the launcher calls before it runs the low-level runtime.

The launcher (a /bin/sh of a few lines) calls this for `create` and `run`, and once for other
commands if no low-level runtime is recorded. The answer on standard output is the path of the
low-level runtime; the launcher then executes it with unchanged arguments, descriptors and standard
streams. Exit status 3 means that the container must not start and that the reason has been
reported; any other failure leaves the decision to the launcher, which refuses a config.json that
names GPUs, and reports a reason unless the status is 4.
"""

from __future__ import annotations

import os
import sys

from gpuhook.entry import cold_command, oci_command
from gpuhook.errors import GpuhookError, fault
from gpuhook.host.hot import bundle, files, settings, state
from gpuhook.host.hot.engine_log import EngineLog, as_fault, unforeseen
from gpuhook.vendors.hot.prefilter import FURTHER, MARKS, has_unusual_escapes

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from gpuhook.entry.create import Create
    from gpuhook.entry.oci_command import Command
    from gpuhook.entry.plan_context import PlanContext

REFUSED = 3
UNDECIDED = 4
LOW_LEVEL_ENV = "GPUHOOK_LOW_LEVEL_RUNTIME"
_MAX_CONFIG = 64 << 20


def main() -> None:
    """Answer the launcher: argv is its own path, then the arguments of the runtime."""
    launcher, argv = sys.argv[1], sys.argv[2:]
    os.umask(0o022)
    command = oci_command.parse(argv)
    log = EngineLog("gpuhook-runtime", command.log, command.log_format)
    log.container = command.identity
    try:
        low_level = _prepare(command, launcher, log)
    except Exception as error:  # a bug here must not stop a container without GPUs
        log.failure(as_fault(error, "the host"))
        status = REFUSED if isinstance(error, (GpuhookError, OSError)) else UNDECIDED
    else:
        os.write(1, os.fsencode(low_level) + b"\n")
        status = 0
    # Nothing is buffered, and the interpreter's shutdown takes time.
    os._exit(status)


def _prepare(command: Command, launcher: str, log: EngineLog) -> str:
    """Return the low-level runtime's path, after editing config.json if needed."""
    compiler = cold_command.Compiler(launcher)
    chosen, trouble = read_settings(compiler)
    if trouble is None:
        low_level = find_low_level(chosen.low_level_runtimes, launcher)
        _remember(low_level)
    else:
        # The runtime that created the node's containers knows them.
        low_level = find_low_level([*_remembered(), *chosen.low_level_runtimes], launcher)
    if command.name not in oci_command.EDITED:
        return low_level
    path = command.config or os.path.join(command.bundle, "config.json")
    try:
        raw = files.read(path, _MAX_CONFIG)
    except FileNotFoundError as error:
        raise fault("GH1300", path=path) from error
    marks = own_marks(chosen)
    if may_ask(raw, marks):
        others = any(word.encode() in raw for word in FURTHER) or has_unusual_escapes(raw)
        try:
            create_of, context_of = _code_of_create()
            context = context_of(
                chosen, log, compiler.compile_spec, compiler.refresh, has_others=others
            )
            create_of(command, context, launcher, trouble).edit(path, raw, low_level)
        except (GpuhookError, OSError):
            raise
        except Exception as error:
            if any(mark in raw for mark in marks):
                raise unforeseen(error) from error  # the launcher does not know these
            raise
    return low_level


def _code_of_create() -> tuple[type[Create], Callable[..., PlanContext]]:
    """Return the code for a container that may request a GPU; ImportError if it cannot be read.

    An OSError would refuse a container that requests none.
    """
    try:
        bundle.load("gpuhook.entry.create")
        from gpuhook.entry.create import Create
        from gpuhook.entry.plan_context import context_of
    except OSError as error:
        raise ImportError(str(error)) from error
    return Create, context_of


def own_marks(chosen: settings.Settings) -> list[bytes]:
    """Return the words of requests on a node with these settings, in addition to MARKS."""
    return [mark.encode() for mark in (*chosen.annotation_prefixes, *chosen.swarm_resources)]


def may_ask(raw: bytes, marks: list[bytes]) -> bool:
    """Return whether a config.json may request anything from gpuhook: others are not parsed.

    `marks` are own_marks() of the node's settings.
    """
    return any(mark in raw for mark in (*MARKS, *marks)) or has_unusual_escapes(raw)


def read_settings(
    compiler: cold_command.Compiler,
) -> tuple[settings.Settings, GpuhookError | None]:
    """Return (the node's settings, None), or the defaults and the error of the settings."""
    try:
        return settings.load(compiler.compile_settings), None
    except GpuhookError as error:
        return settings.Settings(), error
    except OSError as error:
        reason = error.strerror or str(error)
        return settings.Settings(), fault("GH1530", path=settings.path(), reason=reason)


def find_low_level(names: list[str], launcher: str) -> str:
    """Return the path of the first low-level runtime of `names` that exists; GH1401 without one.

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
    """Return whether both are one file: a runtime named runc may be a link to the launcher."""
    try:
        one, two = os.stat(path), os.stat(other)
    except OSError:
        return False
    return (one.st_dev, one.st_ino) == (two.st_dev, two.st_ino)


def _remember(low_level: str) -> None:
    """Record the low-level runtime for the launcher: other commands then need no Python."""
    if os.environ.get(LOW_LEVEL_ENV):
        return
    if _remembered() == [low_level]:
        return
    path = _record()
    try:
        os.makedirs(os.path.dirname(path), 0o755, exist_ok=True)
        files.replace(path, os.fsencode(low_level) + b"\n", mode=0o644)
    except OSError:
        return  # an unwritable /run costs the launcher a Python start per command, nothing else


def _remembered() -> list[str]:
    """Return the recorded low-level runtime, [] without a record."""
    try:
        return [os.fsdecode(files.read(_record(), 8192)[:-1])]
    except (OSError, GpuhookError):
        return []


def _record() -> str:
    return os.path.join(state.directory(), "low-level-runtime")
