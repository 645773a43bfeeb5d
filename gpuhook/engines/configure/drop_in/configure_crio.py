# SPDX-License-Identifier: Apache-2.0
"""CRI-O gets a handler or a hook: a drop-in beside crio.conf, which is never edited."""

from __future__ import annotations

import posixpath
from dataclasses import replace
from typing import Any

from gpuhook.engines.configure.drop_in import drop_ins, hooks_d
from gpuhook.engines.configure.engine_plan import EnginePlan, ExpectedConfig, Service
from gpuhook.engines.read import crio_config, toml_document
from gpuhook.engines.read.config_files import Replaced
from gpuhook.engines.read.engine_config import GPUHOOK_RUNTIME, ConfigPlace, Runtime
from gpuhook.errors import fault
from gpuhook.host.hot.state import PROGRAM_DIRS

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from gpuhook.engines.configure.engine_plan import EngineNode, EngineOptions
    from gpuhook.engines.read.config_files import ConfigFiles
    from gpuhook.engines.read.engine_config import EngineConfiguration

_SERVICE = Service(("crio.service", "cri-o.service"), ("crio",))
# Where CRI-O's own packages have the runtimes that they bring.
_OF_CRIO = "/usr/libexec/crio"
# What says another program than runtime_path (crio.conf(5), crio.runtime.runtimes).
_NOT_COPIED = ("runtime_path", "inherit_default_runtime", "platform_runtime_paths")


def plan(node: EngineNode, wanted: EngineOptions) -> EnginePlan:
    """Return what is to change; raises a fault where it cannot be, and OSError."""
    drop_ins.check("crio", wanted)
    _check_places(node)
    possible = drop_ins.paths(node, crio_config.DROP_INS)
    base = drop_ins.less_ours(node.files, possible)
    found = crio_config.read(base)
    drop_ins.check_read(found.configuration)
    if wanted.route == "hook":
        changes = hooks_d.changes(node.files, found.hook_dirs, wanted)
        hook = hooks_d.file(node.files, found.hook_dirs, wanted)
        expected = ExpectedConfig({}, has_cdi=True, hooks=(hook,))
        return EnginePlan("crio", tuple(changes), expected, _SERVICE)
    there = found.configuration.runtimes.get(wanted.name)
    if there is not None and not _is_ours(there, wanted) and not wanted.takes_over:
        raise fault(
            "GH2000",
            where=str(there.where),
            name=wanted.name,
            engine="crio",
            program=there.path or "the one that CRI-O finds",
        )
    model = _model(found.configuration, wanted.name)
    program = wanted.program if wanted.route == "wrapper" else _program(node.files, model)
    is_there = there is not None and there.path == program
    if is_there and (not wanted.is_default or found.configuration.default == wanted.name):
        changes = []
    else:
        changes = drop_ins.placed(
            "crio",
            node.files,
            possible,
            _document(wanted, model, program),
            _against(wanted, program),
        )
    default = wanted.name if wanted.is_default else ""
    expected = ExpectedConfig({wanted.name: program}, default, has_cdi=True)
    return EnginePlan("crio", tuple(changes), expected, _SERVICE, tuple(_notes(wanted, model)))


def without(
    path: str,
    content: bytes,
    wanted: EngineOptions,
    before: bytes | None = None,
) -> bytes | None:
    """Return a file that was edited since, less what `wanted` had brought into it; None: nothing.

    Raises a fault of one that cannot be read.
    """
    if path.endswith(".json"):
        return None if hooks_d.is_ours(path, content) else content
    keys: list[tuple[str, ...]] = [(*crio_config.RUNTIMES, wanted.name)]
    said = crio_config.read(Replaced(_Nothing(), {f"{crio_config.DROP_INS}/edited": content}))
    if wanted.is_default and said.configuration.default == wanted.name:
        keys.append(("crio", "runtime", "default_runtime"))
    return drop_ins.without(path, content, keys, before)


class _Nothing:
    """A node without files."""

    def read(self, path: str) -> None:
        """Return None."""

    def names(self, path: str) -> list[str]:  # noqa: ARG002 # Files' signature
        """Return no names."""
        return []


def _check_places(node: EngineNode) -> None:
    if node.config and node.config != crio_config.PATH:
        raise fault("GH2053", where=node.config, engine="crio", read=crio_config.PATH)
    if node.drop_in and posixpath.dirname(node.drop_in) != crio_config.DROP_INS:
        raise fault("GH2053", where=node.drop_in, engine="crio", read=f"{crio_config.DROP_INS}/*")


def _is_ours(runtime: Runtime, wanted: EngineOptions) -> bool:
    return runtime.path == wanted.program or posixpath.basename(runtime.path) == GPUHOOK_RUNTIME


def _model(configuration: EngineConfiguration, name: str) -> Runtime:
    """Return the runtime after which ours is made: the default one, if it is an OCI runtime."""
    others = [one for one in configuration.runtimes.values() if one.name != name]
    others.sort(key=lambda one: one.name != configuration.default)
    for one in others:
        if one.type in {"", "oci"} and not one.gives_gpus:
            return one
    return Runtime("crun", "", ConfigPlace(crio_config.PATH), "oci")


def _program(files: ConfigFiles, model: Runtime) -> str:
    if model.path:
        return model.path
    for name in dict.fromkeys((model.name, "crun", "runc")):
        for directory in (_OF_CRIO, *PROGRAM_DIRS):
            if name in files.names(directory):
                return f"{directory}/{name}"
    raise fault("GH2051", engine="crio", name=model.name)


def _document(wanted: EngineOptions, model: Runtime, program: str) -> dict[str, Any]:
    kept = _NOT_COPIED if wanted.route == "wrapper" else _NOT_COPIED[:2]
    options = {key: value for key, value in model.options.items() if key not in kept}
    handler = {"runtime_path": program, "runtime_type": "oci", **options}
    runtime: dict[str, Any] = {"default_runtime": wanted.name} if wanted.is_default else {}
    return {"crio": {"runtime": {**runtime, "runtimes": {wanted.name: handler}}}}


def _against(
    wanted: EngineOptions, program: str
) -> Callable[[ConfigFiles], tuple[ConfigPlace, str] | None]:
    def against(files: ConfigFiles) -> tuple[ConfigPlace, str] | None:
        said = crio_config.read(files).configuration
        runtime = said.runtimes.get(wanted.name)
        if runtime is not None and runtime.path != program:
            return runtime.where, f"runtimes.{wanted.name}"
        if wanted.is_default and said.default != wanted.name:
            return _last(files, said), "default_runtime"
        return None

    return against


def _last(files: ConfigFiles, said: EngineConfiguration) -> ConfigPlace:
    """Return where the default runtime is said last."""
    key = ("crio", "runtime", "default_runtime")
    for path in reversed(said.files):
        line = toml_document.line_of(files.read(path) or b"", key)
        if line:
            return ConfigPlace(path, line)
    return ConfigPlace(crio_config.PATH)


def _notes(wanted: EngineOptions, model: Runtime) -> Iterator[str]:
    if model.options:
        yield f"options are those of the runtime {model.name} ({replace(model.where, line=0)})"
    if wanted.route == "cdi":
        yield "CRI-O applies CDI specs by itself: the handler is its own runtime by another name"
    directory = posixpath.dirname(model.path)
    if wanted.route == "wrapper" and directory and directory not in PROGRAM_DIRS:
        yield (
            f"gpuhook does not look for runtimes in {directory}: say so in /etc/gpuhook/config.yaml"
            f" (runtime: {{lowLevelRuntimes: [{model.path}]}})"
        )
