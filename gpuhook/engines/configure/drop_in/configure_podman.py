# SPDX-License-Identifier: Apache-2.0
"""Configure podman: a drop-in with the runtime, or a hook. gpuhook never edits containers.conf."""

from __future__ import annotations

import posixpath
from typing import Any

from gpuhook.engines.configure.drop_in import drop_ins, hooks_d
from gpuhook.engines.configure.engine_plan import EnginePlan, ExpectedConfig, Service
from gpuhook.engines.read import podman_config
from gpuhook.errors import fault

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

    from gpuhook.engines.configure.engine_plan import EngineNode, EngineOptions

# Podman reads its files at every call. Only its API service, if it is used, needs a restart.
_SERVICE = Service((), ())
_DEFAULT = ("engine", "runtime")
_HOOKS = "/etc/containers/oci/hooks.d"
_USER_HOOKS = ".config/containers/oci/hooks.d"  # below the home directory


def plan(node: EngineNode, options: EngineOptions) -> EnginePlan:
    """Return the changes. Raises GH2000, GH2003, GH2027, GH2041 to GH2053, and OSError."""
    drop_ins.check_options("podman", options)
    if options.route == "cdi":
        return _cdi_plan(node)
    main = f"{node.home}/{podman_config.OF_A_USER}" if node.home else podman_config.PATH
    _check_places(node, main)
    possible = drop_ins.paths(node, f"{main}.d")
    read = podman_config.read(drop_ins.without_own(node.files, possible), node.home)
    configuration = read.configuration
    drop_ins.check_configuration(configuration)
    if options.route == "hook":
        return _hook_plan(node, options, read, possible)
    runtime = configuration.runtimes.get(options.name)
    drop_ins.check_runtime("podman", runtime, options, "not named")
    engine: dict[str, Any] = {"runtime": options.name} if options.is_default else {}
    engine["runtimes"] = {options.name: [options.program]}
    is_default = not options.is_default or configuration.default == options.name
    changes = []
    if runtime is None or runtime.path != options.program or not is_default:
        conflict = drop_ins.runtime_conflict(
            lambda files: podman_config.read(files, node.home).configuration,
            options,
            options.program,
            _DEFAULT,
            podman_config.PATH,
        )
        document = {"engine": engine}
        changes = drop_ins.changes("podman", node.files, possible, document, conflict)
    default = options.name if options.is_default else ""
    expected = ExpectedConfig({options.name: options.program}, default, has_cdi=_has_cdi(node))
    notes = (f"containers request GPUs with --runtime {options.name} and NVIDIA_VISIBLE_DEVICES",)
    return EnginePlan("podman", tuple(changes), expected, _SERVICE, notes)


def without(
    path: str, content: bytes, options: EngineOptions, before: bytes | None = None
) -> bytes | None:
    """Return an edited file without the settings of gpuhook; None if nothing else is left.

    Raises GH2003 and GH2027.
    """
    if path.endswith(".json"):
        return None if hooks_d.is_ours(path, content) else content
    if options.route == "hook":
        return drop_ins.without(path, content, [("engine", "hooks_dir")], before)
    keys: list[tuple[str, ...]] = [(*podman_config.RUNTIMES, options.name)]
    if options.is_default:
        keys.append(_DEFAULT)
    return drop_ins.without(path, content, keys, before)


def _cdi_plan(node: EngineNode) -> EnginePlan:
    if not _has_cdi(node):
        version = ".".join(map(str, node.version or ()))
        raise fault("GH2045", engine="podman", version=version, needed="4.1")
    note = (
        "podman applies CDI specs by itself, and needs no configuration: containers request GPUs "
        "with --device nvidia.com/gpu=all, and `gpuhook refresh` writes the specs"
    )
    return EnginePlan("podman", (), ExpectedConfig({}, has_cdi=True), _SERVICE, (note,))


def _hook_plan(
    node: EngineNode,
    options: EngineOptions,
    read: podman_config.Podman,
    possible: tuple[str, ...],
) -> EnginePlan:
    own = f"{node.home}/{_USER_HOOKS}" if node.home else _HOOKS
    directories = read.hook_dirs
    changes = []
    if not read.says_hook_dirs:
        # Hooks of podman's default directories hide each other in a stage, and podman prints a
        # warning each time. Each directory in hooks_dir has to exist.
        existing = [one for one in read.hook_dirs if one != own and node.files.names(one)]
        directories = (*existing, own)
        document = {"engine": {"hooks_dir": list(directories)}}
        changes = drop_ins.changes("podman", node.files, possible, document, lambda _: None)
    changes += hooks_d.changes(node.files, directories, options)
    path = hooks_d.hook_path(node.files, directories, options)
    expected = ExpectedConfig({}, has_cdi=_has_cdi(node), hooks=(path,))
    return EnginePlan("podman", tuple(changes), expected, _SERVICE, tuple(_hook_notes(directories)))


def _hook_notes(directories: tuple[str, ...]) -> Iterator[str]:
    yield f"podman reads hooks in {', '.join(directories)}, and in no other directory"
    yield "every container with NVIDIA_VISIBLE_DEVICES gets GPUs, without --runtime"


def _has_cdi(node: EngineNode) -> bool:
    return podman_config.has_cdi(node.version)


def _check_places(node: EngineNode, main: str) -> None:
    if node.config and node.config != main:
        raise fault("GH2053", where=node.config, engine="podman", read=main)
    directory, name = posixpath.split(node.drop_in)
    if node.drop_in and (directory != f"{main}.d" or not name.endswith(".conf")):
        raise fault("GH2053", where=node.drop_in, engine="podman", read=f"{main}.d/*.conf")
