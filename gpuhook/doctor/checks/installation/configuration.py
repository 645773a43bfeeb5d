# SPDX-License-Identifier: Apache-2.0
"""The engines that `gpuhook configure` changed, and the containers that need gpuhook."""

from __future__ import annotations

from gpuhook.engines.configure import configure_record, engine_status, engine_verification
from gpuhook.engines.configure.engine_plan import ENGINES, NAME
from gpuhook.engines.configure.engine_plan import EngineNode as Place
from gpuhook.errors import GpuhookError
from gpuhook.node_facts.check import (
    FAILED,
    WARNING,
    Finding,
    absent,
    check,
    first_items,
    for_each,
    ok,
)
from gpuhook.node_facts.package_commands import gpuhook_again
from gpuhook.node_facts.program_facts import program
from gpuhook.node_facts.sources import node_readings

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from gpuhook.engines.configure.configure_record import ConfigureRecord
    from gpuhook.node_facts.check import ExaminedNode, Findings


def _records(node: ExaminedNode) -> list[tuple[str, str, bytes]]:
    """Return the engine, path and content of each record of `gpuhook configure`."""
    paths = {
        engine: f"{configure_record.OF_THE_HOST}/{engine}/{configure_record.NAME}"
        for engine in ENGINES
    }
    return [
        (engine, path, content)
        for engine, path in paths.items()
        if (content := node.tree.read(path)) is not None
    ]


@check(
    "installation.configured",
    "Engines have the configuration that `gpuhook configure` wrote",
    needs=("containerd.config", "docker.config", "crio.config", "podman.config"),
)
@for_each(_records, absent("gpuhook configure has changed no engine", configure_record.OF_THE_HOST))
def _recorded(node: ExaminedNode, record: tuple[str, str, bytes]) -> Finding:
    engine, path, content = record
    try:
        return _since(node, configure_record.parsed(content, path), path)
    except GpuhookError as error:
        meaning = f"`gpuhook configure undo {engine}` cannot restore the original files"
        return Finding(WARNING, error.message, engine, meaning, error.hint, (path,))


def _since(node: ExaminedNode, kept: ConfigureRecord, path: str) -> Finding:
    engine = kept.engine
    files = engine_status.files_since(node.tree, kept)
    looked_at = (path, *(one for one, _ in files))
    changed = [(one, state) for one, state in files if state != engine_status.AS_WRITTEN]
    if not changed:
        message = f"the configuration of {engine} is as gpuhook configure wrote it"
        return ok(message, *looked_at, subject=engine)
    states = ", ".join(f"{one} is {state}" for one, state in changed)
    if all(state == engine_status.EDITED for _, state in changed) and _has_it(node, kept):
        return ok(
            f"{states} and still contains gpuhook's part, which undo removes",
            *looked_at,
            subject=engine,
        )
    words = f"gpuhook configure {engine}{_options(kept)} --restart"
    return Finding(
        WARNING,
        f"gpuhook configure changed {engine}, and {states}",
        subject=engine,
        meaning=f'its settings, such as the runtime "{kept.wanted.name}", may no longer apply:'
        " containers that use them do not start, or start without a GPU",
        command=f"{words} # or, if it is intended: gpuhook configure undo {engine}",
        looked_at=looked_at,
    )


def _has_it(node: ExaminedNode, kept: ConfigureRecord) -> bool:
    """Return whether the present files of an engine still have what gpuhook wrote."""
    state = engine_verification.read_engine(
        kept.engine, Place(node.tree, None, kept.config, kept.drop_in)
    )
    if kept.wanted.route == "hook":
        return True  # oci-hooks.program checks the hook
    if kept.wanted.route == "nri":
        return state.has_nri
    if kept.wanted.route == "cdi":
        return state.configuration.cdi_enabled is not False
    runtimes = [state.configuration.runtimes.get(name) for name in kept.wanted.names]
    return all(one is not None and one.path == kept.wanted.program for one in runtimes)


def _options(kept: ConfigureRecord) -> str:
    """Return the options of the command that configured an engine."""
    wanted = kept.wanted
    usual = "hook" if kept.engine == "podman" else "wrapper"
    options = {
        f"--route {wanted.route}": wanted.route != usual,
        " ".join(f"--runtime-name {name}" for name in wanted.names): wanted.names != (NAME,),
        "--set-as-default": wanted.is_default,
        "--take-over": wanted.takes_over,
        "--enable-cri": wanted.enables_cri,
        f"--config {kept.config}": bool(kept.config),
        f"--drop-in {kept.drop_in}": bool(kept.drop_in),
    }
    return "".join(f" {words}" for words, is_set in options.items() if is_set)


@check(
    "installation.users",
    "The programs that existing containers need exist",
    needs=(
        "containerd.binary",
        "crio.binary",
        "docker.binary",
        "podman.binary",
        "oci-hooks.program",
        "installation.launchers",
    ),
)
def _users(node: ExaminedNode) -> Findings:
    reading = node.readings.of(node_readings.STORED)
    if reading.document is None:
        return absent(f"the engines' existing containers are unknown: {reading.trouble}")
    if not reading.document:
        return absent("no existing container of an engine needs gpuhook")
    needed: dict[str, list[dict[str, Any]]] = {}
    for one in reading.document:
        if one["program"]:
            needed.setdefault(one["program"], []).append(one)
    missing = {path: ones for path, ones in needed.items() if program(node.tree, path) is None}
    message = f"{len(reading.document)} existing containers need gpuhook"
    return [_unusable(node, path, ones) for path, ones in missing.items()] or ok(
        f"{message}, which is installed"
    )


def _unusable(node: ExaminedNode, path: str, ones: list[dict[str, Any]]) -> Finding:
    again = gpuhook_again(node.tree, path.rpartition("/")[0] or "/usr/bin").partition(" #")
    return Finding(
        FAILED if any(not one["running"] for one in ones) else WARNING,
        f"{path} does not exist, but {_named(ones)} needs it",
        subject=path,
        meaning="they cannot be restarted: exec: no such file or directory; running ones"
        " continue, but their engine may be unable to stop them",
        command=f"{again[0]} # or remove the containers that gpuhook configure users lists",
        looked_at=(path,),
    )


def _named(ones: list[dict[str, Any]]) -> str:
    names = [f"{one['engine']} {one['name'] or one['id'][:12]} ({one['why']})" for one in ones]
    return first_items(names)


CHECKS = (_recorded, _users)
