# SPDX-License-Identifier: Apache-2.0
"""The handler that containerd is to have: what the default one has, with gpuhook in it.

What an administrator said of the default runtime (SystemdCgroup, a base spec, ...) counts for
containers with GPUs, too; NVIDIA's tool loses it where the default is not written down.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from gpuhook.engines.read import containerd_config as reader
from gpuhook.engines.read import toml_document
from gpuhook.engines.read.config_files import Replaced
from gpuhook.engines.read.containerd_config import RUNC, covers
from gpuhook.engines.read.engine_config import GPUHOOK_RUNTIME, NVIDIA_RUNTIME
from gpuhook.errors import fault

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

    from gpuhook.engines.configure.containerd.containerd_handler import Handler
    from gpuhook.engines.configure.containerd.containerd_locations import ContainerdLocation
    from gpuhook.engines.configure.engine_plan import ConfigChange, EngineNode, EngineOptions
    from gpuhook.engines.read.containerd_config import Containerd
    from gpuhook.engines.read.engine_config import Runtime


BASE_SPEC = "/etc/containerd/gpuhook-base.json"
_CDI_PREFIX = "cdi.k8s.io/"
CDI_ANNOTATIONS = f"{_CDI_PREFIX}*"
_PROGRAM = ("binaryname", "runtime")  # options of runc's shims, of v2 and of the one before
_LEGACY = "default_runtime"  # the table of containerd 1.x's old configurations
_SHIM = "io.containerd.runc."
_NOT_COPIED = frozenset({"options", "runtime_engine", "runtime_type", "container_annotations"})


@dataclass(frozen=True, slots=True)
class Handler:
    """A handler's table, and the program that it calls, "" where containerd chooses.

    `base_spec` is the default's base_runtime_spec, "" where it has none.
    """

    table: dict[str, Any]
    program: str
    base_spec: str = ""
    notes: tuple[str, ...] = ()


def runtimes_of(read: Containerd) -> dict[str, Any]:
    """Return the tables of the handlers as they are written."""
    return {
        name: one
        for name, one in toml_document.table(read.cri, "containerd", "runtimes").items()
        if isinstance(one, dict)
    }


def wanted_handler(read: Containerd, wanted: EngineOptions) -> Handler:
    """Return the handler that containerd is to have; one that is there already is kept else."""
    written = runtimes_of(read)
    there = written.get(wanted.name)
    name, model = _model(read, written)
    table = dict(there) if there is not None else _copied(model)
    notes: list[str] = []
    if there is None and name:
        is_default = name in (read.configuration.default, _LEGACY)
        said = f"the runtime {wanted.name} has what the {'default ' * is_default}runtime {name} has"
        notes.append(said if is_default else f"{said}: the default is not of runc's shim")
    if there is None and _drop_open_annotations(table):
        notes.append(
            f"pod_annotations of {name} that cover {CDI_ANNOTATIONS} are not copied: a pod could "
            "ask for any GPU by an annotation of its own"
        )
    options = _options(table)
    program = _program(options)
    if wanted.route == "wrapper" or _gives_gpus(program):
        for key in [one for one in options if one.lower() in _PROGRAM]:
            del options[key]
        table.pop("runtime_engine", None)
        program = ""
    if wanted.route == "wrapper":
        options[_spelt(toml_document.table(table, "options"), "BinaryName")] = wanted.program
        program = wanted.program
    if wanted.route != "cdi":
        table["container_annotations"] = _with_cdi(table.get("container_annotations"))
    base_spec = toml_document.text(table.get("base_runtime_spec"))
    if wanted.route == "hook":
        table["base_runtime_spec"] = BASE_SPEC
    if not toml_document.text(table.get("runtime_type")).startswith(_SHIM):
        table["runtime_type"] = RUNC
    table.pop("options", None)
    if options:
        table["options"] = options
    return Handler(table, program, base_spec, tuple(notes))


def is_ours(runtime: Runtime, wanted: EngineOptions) -> bool:
    """Return whether the handler of that name may be changed: it is gpuhook's, or plain."""
    if runtime.path == wanted.program:
        return True
    program = runtime.path.rpartition("/")[2]
    if program == GPUHOOK_RUNTIME:
        return True
    is_plain = program in ("", "runc", "crun") and runtime.type.startswith(_SHIM)
    return is_plain and wanted.route != "wrapper"


def _model(read: Containerd, written: Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
    """Return the handler whose options count for ours: the default one if it is of runc's shim."""
    legacy = toml_document.table(read.cri, "containerd", _LEGACY)
    if legacy.get("runtime_type"):
        return _LEGACY, legacy
    for name in (read.configuration.default, "runc", "crun"):
        if toml_document.text(written.get(name, {}).get("runtime_type")).startswith(_SHIM):
            return name, written[name]
    return "", {}


def _copied(model: Mapping[str, Any]) -> dict[str, Any]:
    """Return a new handler: its type first, as people write it."""
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
    name = program.rpartition("/")[2]
    return name == GPUHOOK_RUNTIME or name.startswith(NVIDIA_RUNTIME)


def _spelt(options: Mapping[str, Any], name: str) -> str:
    """Return an option's name as it is written there: containerd takes all spellings."""
    return next((one for one in options if one.lower() == name.lower()), name)


def _with_cdi(said: object) -> list[str]:
    patterns = list(toml_document.texts(said))
    if any(_covers_all(one) for one in patterns):
        return patterns
    return [*patterns, CDI_ANNOTATIONS]


def _covers_all(pattern: str) -> bool:
    """Return whether a pattern covers every CDI annotation. A `*` does not: it stops at a "/"."""
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


def checked(
    node: EngineNode,
    place: ContainerdLocation,
    *,
    before: Containerd,
    changes: tuple[ConfigChange, ...],
    wanted: EngineOptions,
    handler: Handler,
) -> Containerd:
    """Return the configuration with the changes; raises GH2025 where something is wrong."""
    files = Replaced(node.files, {one.path: one.after for one in changes})
    after = reader.read(files, place.root, place.daemon)
    for said in _wrong(before, after, wanted, handler):
        where = changes[-1].path if changes else place.root
        raise fault("GH2025", where=where, said=said)
    return after


def _wrong(
    before: Containerd, after: Containerd, wanted: EngineOptions, handler: Handler
) -> list[str]:
    found = [f"{one.where} {one.said}" for one in after.configuration.fatal]
    runtimes = after.configuration.runtimes
    ours = runtimes.get(wanted.name)
    if ours is None or ours.path != handler.program:
        other = next((one.by for one in after.ignored if one.runtime.name == wanted.name), "")
        by = f": {other} replaces it" if other else ""
        found.append(f"the runtime {wanted.name} would not count{by}")
    lost = [name for name in before.configuration.runtimes if name not in runtimes]
    if lost:
        found.append(f"the runtimes {', '.join(lost)} would be lost")
    default = wanted.name if wanted.is_default else before.configuration.default
    if after.configuration.default != default:
        found.append(f"the default runtime would be {after.configuration.default}")
    if not after.has_cri:
        found.append("the plugin cri would be disabled")
    return found
