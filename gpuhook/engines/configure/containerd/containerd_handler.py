# SPDX-License-Identifier: Apache-2.0
"""gpuhook's handler of containerd: the default handler's settings with another program.

The settings of the default runtime (SystemdCgroup, a base spec, ...) apply to containers with GPUs,
too. NVIDIA's tool loses them if the default is not in the file.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from gpuhook.engines.read import toml_document
from gpuhook.engines.read.containerd_config import RUNC, covers
from gpuhook.engines.read.engine_config import NVIDIA_RUNTIME, gives_gpus
from gpuhook.errors import fault

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

    from gpuhook.engines.configure.engine_plan import EngineOptions
    from gpuhook.engines.read.containerd_config import Containerd
    from gpuhook.engines.read.engine_config import Runtime


BASE_SPEC = "/etc/containerd/gpuhook-base.json"
_CDI_PREFIX = "cdi.k8s.io/"
CDI_ANNOTATIONS = f"{_CDI_PREFIX}*"
_PROGRAM = ("binaryname", "runtime")  # options of runc's shims, of v2 and of the one before
_LEGACY = "default_runtime"  # a table in old configurations of containerd 1.x
_SHIM = "io.containerd.runc."
_NOT_COPIED = frozenset({"options", "runtime_engine", "runtime_type", "container_annotations"})


@dataclass(frozen=True, slots=True)
class Handler:
    """A handler's table and its program, "" if containerd chooses the program.

    `base_spec` is the default handler's base_runtime_spec, "" for none.
    """

    table: dict[str, Any]
    program: str
    base_spec: str = ""
    notes: tuple[str, ...] = ()


def runtimes_of(read: Containerd) -> dict[str, Any]:
    """Return the handlers' tables as they are in the files."""
    return {
        name: one
        for name, one in toml_document.table(read.cri, "containerd", "runtimes").items()
        if isinstance(one, dict)
    }


def gpu_handler(read: Containerd, options: EngineOptions) -> Handler:
    """Return the handler; the other settings of an existing one are kept."""
    written = runtimes_of(read)
    existing = written.get(options.name)
    name, model = _model(read, written)
    table = dict(existing) if existing is not None else _copied(model)
    notes: list[str] = []
    if existing is None and name:
        is_default = name in (read.configuration.default, _LEGACY)
        note = f"{options.name} uses the options of the {'default ' * is_default}runtime {name}"
        notes.append(note if is_default else f"{note}: the default does not use runc's shim")
    if existing is None and _drop_open_annotations(table):
        notes.append(
            f"pod_annotations of {name} that cover {CDI_ANNOTATIONS} are not copied: a pod could "
            "request any GPU by its own annotation"
        )
    shim = _options(table)
    program = _program(shim)
    if options.route == "wrapper" or _gives_gpus(program):
        for key in [one for one in shim if one.lower() in _PROGRAM]:
            del shim[key]
        table.pop("runtime_engine", None)
        program = ""
    if options.route == "wrapper":
        shim[_option_name(toml_document.table(table, "options"), "BinaryName")] = options.program
        program = options.program
    if options.route != "cdi":
        table["container_annotations"] = _with_cdi(table.get("container_annotations"))
    base_spec = toml_document.text(table.get("base_runtime_spec"))
    if options.route == "hook":
        table["base_runtime_spec"] = BASE_SPEC
    if not toml_document.text(table.get("runtime_type")).startswith(_SHIM):
        table["runtime_type"] = RUNC
    table.pop("options", None)
    if shim:
        table["options"] = shim
    return Handler(table, program, base_spec, tuple(notes))


def is_ours(runtime: Runtime, options: EngineOptions) -> bool:
    """Return whether a handler may be changed: it is gpuhook's, or plain runc or crun."""
    name = runtime.path.rpartition("/")[2]
    is_plain = name in ("", "runc", "crun") and runtime.type.startswith(_SHIM)
    return options.is_own(runtime.path) or (is_plain and options.route != "wrapper")


def _model(read: Containerd, written: Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
    """Return the handler whose options are copied: the default one if it uses runc's shim."""
    legacy = toml_document.table(read.cri, "containerd", _LEGACY)
    if legacy.get("runtime_type"):
        return _LEGACY, legacy
    for name in (read.configuration.default, "runc", "crun"):
        if toml_document.text(written.get(name, {}).get("runtime_type")).startswith(_SHIM):
            return name, written[name]
    return "", {}


def _copied(model: Mapping[str, Any]) -> dict[str, Any]:
    """Return a new handler, with the type as the first key."""
    kind = toml_document.text(model.get("runtime_type"))
    table: dict[str, Any] = {"runtime_type": kind if kind.startswith(_SHIM) else RUNC}
    table |= {name: value for name, value in model.items() if name not in _NOT_COPIED}
    if "container_annotations" in model:
        table["container_annotations"] = model["container_annotations"]
    if _options(model):
        table["options"] = _options(model)
    return table


def _options(table: Mapping[str, Any]) -> dict[str, Any]:
    return dict(toml_document.table(table, "options"))


def _program(options: Mapping[str, Any]) -> str:
    named = {key.lower(): toml_document.text(value) for key, value in options.items()}
    return next((named[key] for key in _PROGRAM if named.get(key)), "")


def _gives_gpus(program: str) -> bool:
    # NVIDIA's runtime has had further names, such as nvidia-container-runtime-experimental.
    return gives_gpus(program) or program.rpartition("/")[2].startswith(NVIDIA_RUNTIME)


def _option_name(options: Mapping[str, Any], name: str) -> str:
    """Return the name of an option as the file has it: containerd ignores the case."""
    return next((one for one in options if one.lower() == name.lower()), name)


def _with_cdi(annotations: object) -> list[str]:
    patterns = list(toml_document.texts(annotations))
    if any(_covers_all(one) for one in patterns):
        return patterns
    return [*patterns, CDI_ANNOTATIONS]


def _covers_all(pattern: str) -> bool:
    """Return whether a pattern covers every CDI annotation; a `*` alone does not match a "/"."""
    is_plain = not {"[", "\\"}.intersection(pattern)
    return is_plain and pattern.endswith("/*") and covers(pattern, _CDI_PREFIX)


def _drop_open_annotations(table: dict[str, Any]) -> bool:
    patterns = toml_document.texts(table.get("pod_annotations"))
    kept = [one for one in patterns if not covers(one, _CDI_PREFIX)]
    if len(kept) == len(patterns):
        return False
    table.pop("pod_annotations")
    if kept:
        table["pod_annotations"] = kept
    return True


def check_result(
    where: str,
    before: Containerd,
    after: Containerd,
    *,
    options: EngineOptions,
    handlers: Mapping[str, Handler],
) -> None:
    """Raise GH2025, for the file `where`, if the changes would break the configuration."""
    for problem in _problems(before, after, options, handlers):
        raise fault("GH2025", where=where, said=problem)


def _problems(
    before: Containerd, after: Containerd, options: EngineOptions, handlers: Mapping[str, Handler]
) -> list[str]:
    problems = [f"{one.where} {one.said}" for one in after.configuration.trouble]
    runtimes = after.configuration.runtimes
    for name, handler in handlers.items():
        runtime = runtimes.get(name)
        if runtime is None or runtime.path != handler.program:
            other = next((one.by for one in after.ignored if one.runtime.name == name), "")
            by = f": {other} replaces it" if other else ""
            problems.append(f"the runtime {name} would have no effect{by}")
    lost = [name for name in before.configuration.runtimes if name not in runtimes]
    if lost:
        problems.append(f"the runtimes {', '.join(lost)} would be lost")
    default = options.name if options.is_default else before.configuration.default
    if after.configuration.default != default:
        problems.append(f"the default runtime would be {after.configuration.default}")
    if not after.has_cri:
        problems.append("the cri plugin would be disabled")
    return problems
