# SPDX-License-Identifier: Apache-2.0
"""How the parts of an installation fit together, and its settings."""

from __future__ import annotations

import json
import os
from posixpath import dirname

from gpuhook.cdi.hot import compiled_spec
from gpuhook.doctor.check import FAILED, GPUHOOK, WARNING, Check, Finding, absent, ok
from gpuhook.doctor.checks.installation import programs
from gpuhook.doctor.package_commands import gpuhook_again
from gpuhook.host.hot import settings
from gpuhook.node import node_readings, node_tree, settings_file

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

    from gpuhook.doctor.check import Node

_HOOKS_DIRS = (
    "/usr/share/containers/oci/hooks.d",
    "/etc/containers/oci/hooks.d",
    "/run/containers/oci/hooks.d",
)
_COMPILED = "/run/gpuhook/compiled"
_NOT_INSTALLED = "gpuhook's runtime wrapper is not installed on this node"
_MAX = 1 << 20


def _compiler(node: Node) -> Iterable[Finding]:
    """Find YAML that the wrapper needs compiled, with no command there that does it."""
    found = programs.installations(node)
    if not found:
        return [absent(_NOT_INSTALLED, programs.RUNTIME)]
    texts = [path for path in programs.spec_files(node) if path.endswith(".yaml")]
    if node.tree.status(settings.DEFAULT_PATH) is not None:
        texts.append(settings.DEFAULT_PATH)
    if not texts:
        return [ok("there is no YAML that would have to be compiled", *programs.SPEC_DIRS)]
    for one in found:
        own = one.launchers.get(programs.CLI)
        path = own.path if own and own.status.is_executable else ""
        path = path or programs.program(node, programs.CLI)
        if path:
            continue
        missing = [text for text in texts if not _is_compiled(node, text)]
        return [
            Finding(
                FAILED if missing else WARNING,
                f"there is no `gpuhook` beside {one.directory}/{programs.RUNTIME}, nor in a"
                f" directory of programs, to compile {(missing or texts)[0]}",
                subject=one.directory,
                meaning="containers with GPUs do not start: error GH1402"
                + ("" if missing else ", as soon as this file changes or the node is booted"),
                command=gpuhook_again(node.tree, one.directory),
                looked_at=(one.directory, *texts),
            )
        ]
    return [ok("`gpuhook` is there to compile YAML for the wrapper", *texts)]


def _is_compiled(node: Node, path: str) -> bool:
    """Return whether the compiled form of a file is there, and made of one of its size and time."""
    source = node.tree.status(path)
    name = os.path.basename(compiled_spec.compiled_path(path))
    if path == settings.DEFAULT_PATH:
        name = os.path.basename(settings.compiled_path(path))
    head = (node.tree.read(f"{_COMPILED}/{name}", 4096) or b"").partition(b"\n")[0].split(b" ")
    if source is None or len(head) < 3:
        return False
    size, _, rest = head[2].partition(b"-")
    changed = rest.partition(b"-")[0]
    return (
        size == str(source.size).encode()
        and changed.isdigit()
        and abs(int(changed) / 1e9 - source.mtime) < 0.001
    )


def _hook_path(node: Node) -> Iterable[Finding]:
    """Find specs that call the hook of another installation than the wrapper's."""
    found = programs.installations(node)
    if not found:
        return [absent(_NOT_INSTALLED, programs.RUNTIME)]
    known = {node.tree.real(one.directory) or one.directory for one in found}
    hooks = {
        hook: spec
        for hook, spec in programs.spec_hooks(node).items()
        if node.tree.status(hook) is not None
    }
    if not hooks:
        return [absent("no CDI spec has a hook of gpuhook's", *programs.SPEC_DIRS)]
    strange = {
        hook: spec
        for hook, spec in hooks.items()
        if (node.tree.real(dirname(hook)) or dirname(hook)) not in known
    }
    return [
        Finding(
            WARNING,
            f"{spec} calls {hook}, and the wrapper is in {found[0].directory}",
            subject=spec,
            meaning="two installations take part in each start: after an upgrade of one of them"
            " their versions differ",
            command=f"gpuhook generate-cdi --hook-path {found[0].directory}/{programs.HOOK}"
            f" --output {spec}",
            looked_at=(spec, hook),
        )
        for hook, spec in strange.items()
    ] or [ok("the hooks of CDI specs are of this installation", *hooks)]


def _hooks_d(node: Node) -> Iterable[Finding]:
    """Find hook files of podman's and CRI-O's that name a gpuhook that cannot be run."""
    found: list[Finding] = []
    for directory in _HOOKS_DIRS:
        for path in node_tree.matching(node.tree, f"{directory}/*.json"):
            hook = _hook_of(node_tree.text(node.tree, path, _MAX) or "")
            if not hook.endswith("/" + programs.PRESTART):
                continue
            status = node.tree.status(hook)
            if status is not None and status.is_executable:
                found.append(ok(f"{path} calls {hook}", path, hook, subject=path))
                continue
            state = "is not there" if status is None else "may not be executed"
            found.append(
                Finding(
                    FAILED,
                    f"{path} calls {hook}, which {state}",
                    subject=path,
                    meaning="no container of podman's or CRI-O's starts, with or without a GPU:"
                    ' "error executing hook"',
                    command=f"rm {path}  # or: {gpuhook_again(node.tree, dirname(hook))}",
                    looked_at=(path, hook),
                )
            )
    return found or [absent("no hook file calls gpuhook-prestart", *_HOOKS_DIRS)]


def _hook_of(text: str) -> str:
    try:
        document = json.loads(text)
    except (ValueError, RecursionError):
        return ""  # its engine says so, of whatever hook it is
    hook = document.get("hook") if isinstance(document, dict) else None
    path = hook.get("path") if isinstance(hook, dict) else None
    return path if isinstance(path, str) else ""


def _versions(node: Node) -> Iterable[Finding]:
    """Find installations of several versions beside each other."""
    found: dict[str, str] = {}
    for one in programs.installations(node):
        for library in one.libraries:
            version = programs.version(node.tree, library)
            if version:
                found[library] = version
    if not found:
        return [absent(_NOT_INSTALLED, programs.RUNTIME)]
    itself = node.readings.document(node_readings.SELF)
    if itself and itself["package"] not in (f"{library}/gpuhook" for library in found):
        found[itself["package"]] = itself["version"]
    if len(set(found.values())) == 1:
        return [ok(f"gpuhook is {next(iter(found.values()))}", *found)]
    told = ", ".join(f"{version} in {place}" for place, version in found.items())
    library = next(iter(found))
    return [
        Finding(
            WARNING,
            f"there are several versions of gpuhook: {told}",
            meaning="what one of them writes the other may not understand, and what one command"
            " tells need not be true of the wrapper",
            command=gpuhook_again(node.tree, programs.installations(node)[0].directory),
            looked_at=tuple(found),
            subject=library,
        )
    ]


def _settings(node: Node) -> Iterable[Finding]:
    """Find a settings file that is broken, or has keys that nobody reads."""
    path = settings.DEFAULT_PATH
    real = node.tree.real(path)
    if real is None:
        return [absent(f"there is no {path}: the defaults count", path)]
    place = node.tree.root.rstrip("/") + real
    wrong = settings_file.problem(place)
    if wrong:
        return [
            Finding(
                FAILED,
                f"{path} is not valid: {wrong.replace(place, path)}",
                subject=path,
                meaning="no container with a GPU starts by gpuhook's wrapper: error GH1530",
                command=f"gpuhook config validate {path}  # after mending that line",
                looked_at=(path,),
            )
        ]
    unknown = settings_file.unknown_keys(place)
    if unknown:
        return [
            Finding(
                WARNING,
                f"{path} says what nobody reads: {unknown.replace(place, path)}",
                subject=path,
                meaning="the setting that was meant has its default",
                command=f"gpuhook config validate {path}  # after mending that line",
                looked_at=(path,),
            )
        ]
    return [ok(f"{path} is valid", path)]


CHECKS = (
    Check(
        "installation.compiler",
        GPUHOOK,
        "The wrapper finds the command that compiles YAML for it",
        _compiler,
    ),
    Check(
        "installation.hook-path",
        GPUHOOK,
        "CDI specs call the hook of the installation that engines call",
        _hook_path,
    ),
    Check(
        "installation.hooks-d",
        GPUHOOK,
        "Hook files of podman and CRI-O name a gpuhook that is there",
        _hooks_d,
    ),
    Check(
        "installation.versions",
        GPUHOOK,
        "There is one version of gpuhook on the node",
        _versions,
        ("installation.library",),
    ),
    Check(
        "installation.settings",
        GPUHOOK,
        "The settings file is valid",
        _settings,
    ),
)
