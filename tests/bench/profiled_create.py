# SPDX-License-Identifier: Apache-2.0
"""The program of `make profile` in place of the launcher's: a create that marks its phases.

    python3 -ISXutf8 profiled_create.pyc LAUNCHER ARGUMENTS...

It is run by the interpreter of the wrapper, and imports nothing of the tests. GPUHOOK_PROFILE_LIB
is the installed package, GPUHOOK_PROFILE_OUT the file that gets a line for each part between two
marks: the phase and the nanoseconds. GPUHOOK_PROFILE_YIELDS=1 calls sched_yield(2) at each mark:
callgrind --dump-before=sched_yield then counts the instructions of each part.
GPUHOOK_PROFILE_INSIDE are modules, with commas, of which every function becomes a phase.
"""

import gc
import posix
import sys
from time import perf_counter_ns

_NODE = "gpuhook.vendors.nvidia.hot.nvidia_node"
# Phase, module, function. A phase inside another one is subtracted from it.
PHASES = (
    ("settings", "gpuhook.entry.runtime", "read_settings"),
    ("low-level runtime", "gpuhook.entry.runtime", "find_low_level"),
    ("low-level runtime", "gpuhook.entry.runtime", "_remember"),
    ("config.json: parse", "gpuhook.apply.spec.config_json", "parsed"),
    ("request", "gpuhook.entry.plan_context", "context_of"),
    ("request", "gpuhook.entry.plan_context", "sources_logged"),
    ("resolve", "gpuhook.entry.plan_context", "plans_logged"),
    ("CDI: read the compiled specs", "gpuhook.cdi.hot.registry", "load"),
    (
        "CDI: is the spec fresh?",
        "gpuhook.vendors.nvidia.hot.nvidia_node",
        "NvidiaNode.require_fresh",
    ),
    ("CDI: edits of the devices", "gpuhook.cdi.hot.compiled_spec", "Compiled.device"),
    ("config.json: apply the edits", "gpuhook.apply.spec.oci_spec", "apply"),
    ("config.json: record of changes", "gpuhook.apply.spec.change_record", "take_back"),
    ("config.json: record of changes", "gpuhook.apply.spec.change_record", "survey"),
    ("config.json: record of changes", "gpuhook.apply.spec.change_record", "write"),
    ("root file system: plan", "gpuhook.vendors.hot.rootfs_jobs", "do"),
    ("root file system: covered by mounts?", "gpuhook.vendors.hot.rootfs_jobs", "_is_covered"),
    ("root file system: links", "gpuhook.vendors.hot.rootfs_jobs", "provide"),
    ("root file system: ld.so.cache", "gpuhook.apply.rootfs.rootfs_files", "_provide_loader"),
    ("config.json: serialise", "gpuhook.host.hot.fastjson", "dumps"),
    ("ledger", "gpuhook.entry.create", "Create._enter_in_ledger"),
    ("files written", "gpuhook.host.hot.files", "replace"),
)
MODULES = "modules: "
_ENVIRONMENT = posix.environ
_IS_COUNTED = _ENVIRONMENT.get(b"GPUHOOK_PROFILE_YIELDS") == b"1"
TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

_phases = ["interpreter: start"]
_parts: "list[tuple[str, int]]" = []
_waiting = list(PHASES)


def mark() -> None:
    """End a part; it belongs to the innermost phase."""
    _parts.append((_phases[-1], perf_counter_ns()))
    if _IS_COUNTED:
        posix.sched_yield()


def marked(phase: str, function: "Callable[..., object]") -> "Callable[..., object]":
    """Return `function` as a phase."""

    def call(*arguments: object, **options: object) -> object:
        mark()
        _phases.append(phase)
        try:
            return function(*arguments, **options)
        finally:
            mark()
            _phases.pop()

    return call


_GENERATOR = 0x20
_CALL = marked("", mark).__code__


def mark_loaded() -> None:
    """Mark the functions of PHASES in the modules that have been loaded since."""
    for one in _waiting[:]:
        phase, module, function = one
        if module in sys.modules:
            owner: object = sys.modules[module]
            *outer, name = function.split(".")
            for part in outer:
                owner = getattr(owner, part)
            setattr(owner, name, marked(phase, getattr(owner, name)))
            _waiting.remove(one)


def mark_inside(names: "list[str]") -> None:
    """Mark every function of modules, except generators, whose work is done by their callers."""
    for module in [sys.modules[name] for name in names if name in sys.modules]:
        short = module.__name__.rpartition(".")[2] + "."
        for owner in [module, *vars(module).values()]:
            if owner is not module and getattr(owner, "__module__", "") != module.__name__:
                continue
            for name, function in list(getattr(owner, "__dict__", {}).items()):
                if _is_markable(function, module.__name__):
                    setattr(owner, name, marked(short + function.__qualname__, function))
        names.remove(module.__name__)


def _is_markable(function: object, module: str) -> bool:
    if not isinstance(function, type(mark)) or function.__module__ != module:
        return False
    return function.__code__ is not _CALL and not function.__code__.co_flags & _GENERATOR


def write_parts() -> None:
    """Write the parts; the first one starts with the program."""
    fd = posix.open(_ENVIRONMENT[b"GPUHOOK_PROFILE_OUT"], posix.O_WRONLY | posix.O_CREAT, 0o600)
    lines = [f"{phase}\t{time}\n" for phase, time in _parts]
    imported = [
        name
        for name, module in sys.modules.items()
        if name.startswith("gpuhook.") and getattr(module, "__spec__", None)
    ]
    lines.append(f"imported\t{' '.join(imported)}\n")
    posix.write(fd, "".join(lines).encode())
    posix.close(fd)


def profiled(status: int) -> None:
    """Exit as the wrapper does, after the parts are written."""
    mark()
    write_parts()
    leave(status)


def run() -> None:
    """Run the create."""
    mark()
    _phases[:] = ["other"]
    sys.path[:0] = [_ENVIRONMENT[b"GPUHOOK_PROFILE_LIB"].decode()]
    bundle: Any = __import__("gpuhook_bundle")

    bundle.loads = marked(MODULES + "byte code", bundle.loads)
    bundle.exec = lambda code, space: marked(MODULES + space["__name__"], exec)(code, space)
    load = marked(MODULES + "byte code", bundle.load)

    def load_marked(entry: str) -> None:
        load(entry)
        mark_loaded()
        mark_inside(inside)

    inside = _ENVIRONMENT.get(b"GPUHOOK_PROFILE_INSIDE", b"").decode().split(",")
    bundle.load = load_marked
    bundle.load("gpuhook.entry.runtime")
    vars(sys.modules["gpuhook_os"])["_exit"] = profiled
    sys.modules["gpuhook.entry.runtime"].main()


leave = posix._exit
if __name__ == "__main__":
    gc.disable()
    run()
