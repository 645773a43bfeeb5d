# SPDX-License-Identifier: Apache-2.0
"""Podman gets a runtime or a hook: a drop-in beside containers.conf, which is never edited."""

from __future__ import annotations

import posixpath
from typing import Any

from gpuhook.engines.configure.drop_in import drop_ins, hooks_d
from gpuhook.engines.configure.engine_plan import EnginePlan, ExpectedConfig, Service
from gpuhook.engines.read import podman_config, toml_document
from gpuhook.engines.read.engine_config import GPUHOOK_RUNTIME, ConfigPlace, Runtime
from gpuhook.errors import fault

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from gpuhook.engines.configure.engine_plan import EngineNode, EngineOptions
    from gpuhook.engines.read.config_files import ConfigFiles
    from gpuhook.engines.read.engine_config import EngineConfiguration

# Podman reads its files each time that it is called. Only its API service, where somebody uses
# it, has to be started again.
_SERVICE = Service((), ())
_HOOKS = "/etc/containers/oci/hooks.d"
_HOOKS_OF_A_USER = ".config/containers/oci/hooks.d"  # below a home


def plan(node: EngineNode, wanted: EngineOptions) -> EnginePlan:
    """Return what is to change; raises a fault where it cannot be, and OSError."""
    drop_ins.check("podman", wanted)
    if wanted.route == "cdi":
        return _cdi(node)
    main = f"{node.home}/{podman_config.OF_A_USER}" if node.home else podman_config.PATH
    _check_places(node, main)
    possible = drop_ins.paths(node, f"{main}.d")
    found = podman_config.read(drop_ins.less_ours(node.files, possible), node.home)
    drop_ins.check_read(found.configuration)
    if wanted.route == "hook":
        return _hook(node, wanted, found, possible)
    there = found.configuration.runtimes.get(wanted.name)
    if there is not None and not _is_ours(there, wanted) and not wanted.takes_over:
        raise fault(
            "GH2000",
            where=str(there.where),
            name=wanted.name,
            engine="podman",
            program=there.path or "not named",
        )
    engine: dict[str, Any] = {"runtime": wanted.name} if wanted.is_default else {}
    engine["runtimes"] = {wanted.name: [wanted.program]}
    is_there = there is not None and there.path == wanted.program
    changes = []
    if not is_there or (wanted.is_default and found.configuration.default != wanted.name):
        changes = drop_ins.placed(
            "podman",
            node.files,
            possible,
            {"engine": engine},
            _against(node, wanted),
        )
    default = wanted.name if wanted.is_default else ""
    expected = ExpectedConfig({wanted.name: wanted.program}, default, has_cdi=_has_cdi(node))
    notes = (f"containers ask by --runtime {wanted.name} and NVIDIA_VISIBLE_DEVICES",)
    return EnginePlan("podman", tuple(changes), expected, _SERVICE, notes)


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
    if wanted.route == "hook":
        return drop_ins.without(path, content, [("engine", "hooks_dir")], before)
    keys: list[tuple[str, ...]] = [(*podman_config.RUNTIMES, wanted.name)]
    if wanted.is_default:
        keys.append(("engine", "runtime"))
    return drop_ins.without(path, content, keys, before)


def _cdi(node: EngineNode) -> EnginePlan:
    if not _has_cdi(node):
        version = ".".join(map(str, node.version or ()))
        raise fault("GH2045", engine="podman", version=version, needed="4.1")
    note = (
        "podman applies CDI specs by itself, and nothing has to be written: containers ask by "
        "--device nvidia.com/gpu=all, and the specs are made by `gpuhook refresh`"
    )
    return EnginePlan("podman", (), ExpectedConfig({}, has_cdi=True), _SERVICE, (note,))


def _hook(
    node: EngineNode, wanted: EngineOptions, found: podman_config.Podman, possible: tuple[str, ...]
) -> EnginePlan:
    own = f"{node.home}/{_HOOKS_OF_A_USER}" if node.home else _HOOKS
    known = found.hook_dirs
    directories = known
    changes = []
    if not found.says_hook_dirs:
        # The directories that podman reads unasked hide each other's hooks of a stage, and give a
        # warning each time; and of those that are named, each has to be there.
        there = [one for one in known if one != own and node.files.names(one)]
        directories = (*there, own)
        changes = drop_ins.placed(
            "podman",
            node.files,
            possible,
            {"engine": {"hooks_dir": list(directories)}},
            lambda _: None,
        )
    changes += hooks_d.changes(node.files, directories, wanted)
    hook = hooks_d.file(node.files, directories, wanted)
    expected = ExpectedConfig({}, has_cdi=_has_cdi(node), hooks=(hook,))
    return EnginePlan("podman", tuple(changes), expected, _SERVICE, tuple(_hook_notes(directories)))


def _hook_notes(directories: tuple[str, ...]) -> Iterator[str]:
    yield f"podman reads hooks in {', '.join(directories)}, and in no other directory"
    yield "every container that has NVIDIA_VISIBLE_DEVICES is given GPUs, without --runtime"


def _has_cdi(node: EngineNode) -> bool:
    return podman_config.has_cdi(node.version)


def _check_places(node: EngineNode, main: str) -> None:
    if node.config and node.config != main:
        raise fault("GH2053", where=node.config, engine="podman", read=main)
    directory, name = posixpath.split(node.drop_in)
    if node.drop_in and (directory != f"{main}.d" or not name.endswith(".conf")):
        raise fault("GH2053", where=node.drop_in, engine="podman", read=f"{main}.d/*.conf")


def _is_ours(runtime: Runtime, wanted: EngineOptions) -> bool:
    return runtime.path == wanted.program or posixpath.basename(runtime.path) == GPUHOOK_RUNTIME


def _against(
    node: EngineNode, wanted: EngineOptions
) -> Callable[[ConfigFiles], tuple[ConfigPlace, str] | None]:
    def against(files: ConfigFiles) -> tuple[ConfigPlace, str] | None:
        said = podman_config.read(files, node.home).configuration
        runtime = said.runtimes.get(wanted.name)
        if runtime is not None and runtime.path != wanted.program:
            return runtime.where, f"runtimes.{wanted.name}"
        if wanted.is_default and said.default != wanted.name:
            return _last(files, said), "runtime"
        return None

    return against


def _last(files: ConfigFiles, said: EngineConfiguration) -> ConfigPlace:
    """Return where the default runtime is said last."""
    for path in reversed(said.files):
        line = toml_document.line_of(files.read(path) or b"", ("engine", "runtime"))
        if line:
            return ConfigPlace(path, line)
    return ConfigPlace(podman_config.PATH)
