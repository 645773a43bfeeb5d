# SPDX-License-Identifier: Apache-2.0
"""Configure podman: a drop-in with the runtime, or a hook. gpuhook never edits containers.conf."""

from __future__ import annotations

from typing import Any

from gpuhook.engines.configure import plan_checks
from gpuhook.engines.configure.drop_in import drop_ins, hooks_d
from gpuhook.engines.configure.drop_in.drop_ins import DropIn
from gpuhook.engines.configure.engine_plan import EnginePlan, ExpectedConfig, Service
from gpuhook.engines.read import podman_config
from gpuhook.host.hot import state

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
    drop_ins.check_places("podman", node, main, f"{main}.d/*.conf")
    possible = drop_ins.paths(node, f"{main}.d")
    read = podman_config.read(drop_ins.without_own(node.files, possible), node.home)
    plan_checks.require_readable(read.configuration)
    drop_in = DropIn(
        "podman",
        node.files,
        possible,
        lambda files: podman_config.read(files, node.home).configuration,
        podman_config.PATH,
        _DEFAULT,
    )
    if options.route == "hook":
        return _hook_plan(node, options, read, drop_in)
    drop_ins.check_runtimes("podman", read.configuration.runtimes, options, "not named")
    engine: dict[str, Any] = {"runtime": options.name} if options.is_default else {}
    engine["runtimes"] = {name: [options.program] for name in options.names}
    changes = drop_in.runtime_changes(options, options.program, {"engine": engine})
    programs = dict.fromkeys(options.names, options.program)
    expected = ExpectedConfig(programs, options.default, has_cdi=_has_cdi(node))
    notes = (f"containers request GPUs with --runtime {options.name} and NVIDIA_VISIBLE_DEVICES",)
    return EnginePlan("podman", tuple(changes), expected, _SERVICE, notes)


def without(
    path: str, content: bytes, options: EngineOptions, before: bytes | None = None
) -> bytes | None:
    """Do what `Engine.without` says. Raises GH2003 and GH2027."""
    if path.endswith(".json"):
        return None if hooks_d.is_ours(path, content) else content
    if options.route == "hook":
        return drop_ins.without(path, content, [("engine", "hooks_dir")], before)
    keys: list[tuple[str, ...]] = [(*podman_config.RUNTIMES, name) for name in options.names]
    if options.is_default:
        keys.append(_DEFAULT)
    return drop_ins.without(path, content, keys, before)


def _cdi_plan(node: EngineNode) -> EnginePlan:
    plan_checks.require_cdi("podman", node, podman_config.HAS_CDI)
    note = (
        "podman applies CDI specs itself, and needs no configuration: containers request GPUs "
        "with --device nvidia.com/gpu=all, and `gpuhook refresh` writes the specs"
    )
    return EnginePlan("podman", (), ExpectedConfig({}, has_cdi=True), _SERVICE, (note,))


def _hook_plan(
    node: EngineNode, options: EngineOptions, read: podman_config.Podman, drop_in: DropIn
) -> EnginePlan:
    own = f"{node.home}/{_USER_HOOKS}" if node.home else _HOOKS
    directories = read.hook_dirs
    changes = []
    if not read.says_hook_dirs:
        # Hooks of podman's default directories hide each other in a stage, and podman prints a
        # warning each time. Each directory in hooks_dir has to exist.
        existing = [one for one in read.hook_dirs if one != own and node.files.names(one)]
        directories = (*existing, own)
        changes = drop_in.changes({"engine": {"hooks_dir": list(directories)}})
    user = state.user_directory() if node.home else ""
    changes += hooks_d.changes(node.files, directories, options, user)
    path = hooks_d.hook_path(node.files, directories, options)
    expected = ExpectedConfig({}, has_cdi=_has_cdi(node), hooks=(path,))
    return EnginePlan("podman", tuple(changes), expected, _SERVICE, tuple(_hook_notes(directories)))


def _hook_notes(directories: tuple[str, ...]) -> Iterator[str]:
    yield f"podman reads hooks in {', '.join(directories)}, and in no other directory"
    yield "every container with NVIDIA_VISIBLE_DEVICES gets GPUs, without --runtime"


def _has_cdi(node: EngineNode) -> bool:
    return podman_config.has_cdi(node.version)
