# SPDX-License-Identifier: Apache-2.0
"""Configure CRI-O: a drop-in with the runtime, or a hook. gpuhook never edits crio.conf."""

from __future__ import annotations

import posixpath
from dataclasses import replace
from typing import Any

from gpuhook.engines.configure import plan_checks
from gpuhook.engines.configure.drop_in import drop_ins, hooks_d
from gpuhook.engines.configure.drop_in.drop_ins import DropIn
from gpuhook.engines.configure.engine_plan import EnginePlan, ExpectedConfig, Service
from gpuhook.engines.read import crio_config
from gpuhook.engines.read.config_files import ReplacedFiles
from gpuhook.engines.read.engine_config import ConfigPlace, Runtime
from gpuhook.engines.read.nri_config import CRIO_KEY, RELEASES
from gpuhook.errors import fault
from gpuhook.host.hot.state import PROGRAM_DIRS

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence

    from gpuhook.engines.configure.engine_plan import EngineNode, EngineOptions
    from gpuhook.engines.read.config_files import ConfigFiles
    from gpuhook.engines.read.engine_config import EngineConfiguration

_SERVICE = Service(("crio.service", "cri-o.service"), ("crio",))
_DEFAULT = ("crio", "runtime", "default_runtime")
_NRI = (*CRIO_KEY, "enable_nri")
# The directory in which CRI-O's own packages install the runtimes.
_CRIO_PROGRAMS = "/usr/libexec/crio"
# Options that name a program other than runtime_path (crio.conf(5), crio.runtime.runtimes).
_NOT_COPIED = ("runtime_path", "inherit_default_runtime", "platform_runtime_paths")


def plan(node: EngineNode, options: EngineOptions) -> EnginePlan:
    """Return the changes. Raises GH2000, GH2003, GH2027, GH2041 to GH2053, and OSError."""
    drop_ins.check_options("crio", options)
    drop_ins.check_places("crio", node, crio_config.PATH, f"{crio_config.DROP_INS}/*")
    possible = drop_ins.paths(node, crio_config.DROP_INS)
    read = crio_config.read(drop_ins.without_own(node.files, possible))
    configuration = read.configuration
    plan_checks.require_readable(configuration)
    if options.route == "nri":
        return _nri_plan(node, read, possible)
    if options.route == "hook":
        hooks = hooks_d.changes(node.files, read.hook_dirs, options)
        path = hooks_d.hook_path(node.files, read.hook_dirs, options)
        expected = ExpectedConfig({}, has_cdi=True, hooks=(path,))
        return EnginePlan("crio", tuple(hooks), expected, _SERVICE)
    drop_ins.check_runtimes("crio", configuration.runtimes, options, "the one that CRI-O finds")
    model = _model(configuration, options.names)
    program = options.program if options.route == "wrapper" else _program(node.files, model)
    drop_in = DropIn("crio", node.files, possible, _read, crio_config.PATH, _DEFAULT)
    changes = drop_in.runtime_changes(options, program, _document(options, model, program))
    programs = dict.fromkeys(options.names, program)
    expected = ExpectedConfig(programs, options.default, has_cdi=True)
    return EnginePlan("crio", tuple(changes), expected, _SERVICE, tuple(_notes(options, model)))


def _nri_plan(node: EngineNode, read: crio_config.Crio, possible: Sequence[str]) -> EnginePlan:
    """Return the plan that enables NRI; raises GH2052, and GH2713 for a CRI-O without it."""
    nri, expected = read.nri(node.version), ExpectedConfig({}, has_nri=True)
    if not nri.has_nri:
        version, needed = map(plan_checks.dotted, (node.version or (), RELEASES["crio"][0]))
        raise fault("GH2713", engine="crio", version=version, needed=needed)

    def conflict(files: ConfigFiles) -> tuple[ConfigPlace, str] | None:
        found = crio_config.read(files)
        if found.nri(node.version).is_enabled:
            return None
        return ConfigPlace(found.configuration.files[-1]), ".".join(_NRI)

    drop_in = DropIn("crio", node.files, possible, _read, crio_config.PATH, _DEFAULT)
    document = {"crio": {"nri": {"enable_nri": True}}}
    changes = [] if nri.is_enabled else drop_in.changes(document, conflict)
    return EnginePlan("crio", tuple(changes), expected, _SERVICE)


def _read(files: ConfigFiles) -> EngineConfiguration:
    return crio_config.read(files).configuration


def without(
    path: str, content: bytes, options: EngineOptions, before: bytes | None = None
) -> bytes | None:
    """Do what `Engine.without` says. Raises GH2003 and GH2027."""
    if path.endswith(".json"):
        return None if hooks_d.is_ours(path, content) else content
    keys: list[tuple[str, ...]] = [(*crio_config.RUNTIMES, name) for name in options.names]
    keys += [_NRI] if options.route == "nri" else []
    edited = crio_config.read(ReplacedFiles({f"{crio_config.DROP_INS}/edited": content}))
    if options.is_default and edited.configuration.default == options.name:
        keys.append(_DEFAULT)
    return drop_ins.without(path, content, keys, before)


def _model(configuration: EngineConfiguration, names: Collection[str]) -> Runtime:
    """Return the runtime whose options are copied: the default one if it is an OCI runtime."""
    others = [one for one in configuration.runtimes.values() if one.name not in names]
    others.sort(key=lambda one: one.name != configuration.default)
    for one in others:
        if one.type in {"", "oci"} and not one.gives_gpus:
            return one
    return Runtime("crun", "", ConfigPlace(crio_config.PATH), "oci")


def _program(files: ConfigFiles, model: Runtime) -> str:
    if model.path:
        return model.path
    for name in dict.fromkeys((model.name, "crun", "runc")):
        for directory in (_CRIO_PROGRAMS, *PROGRAM_DIRS):
            if name in files.names(directory):
                return f"{directory}/{name}"
    raise fault("GH2051", engine="crio", name=model.name)


def _document(options: EngineOptions, model: Runtime, program: str) -> dict[str, Any]:
    left_out = _NOT_COPIED if options.route == "wrapper" else _NOT_COPIED[:2]
    copied = {key: value for key, value in model.options.items() if key not in left_out}
    handler = {"runtime_path": program, "runtime_type": "oci", **copied}
    handlers = {name: dict(handler) for name in options.names}
    runtime: dict[str, Any] = {"default_runtime": options.name} if options.is_default else {}
    return {"crio": {"runtime": {**runtime, "runtimes": handlers}}}


def _notes(options: EngineOptions, model: Runtime) -> Iterator[str]:
    if model.options:
        yield f"options are those of the runtime {model.name} ({replace(model.where, line=0)})"
    if options.route == "cdi":
        yield "CRI-O applies CDI specs itself: the handler is its own runtime under another name"
    directory = posixpath.dirname(model.path)
    if options.route == "wrapper" and directory and directory not in PROGRAM_DIRS:
        yield (
            f"gpuhook does not search {directory} for runtimes: add the path in"
            f" /etc/gpuhook/config.yaml (runtime: {{lowLevelRuntimes: [{model.path}]}})"
        )
