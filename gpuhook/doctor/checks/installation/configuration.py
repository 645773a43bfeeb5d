# SPDX-License-Identifier: Apache-2.0
"""What `gpuhook configure` has done to engines, and the containers that need gpuhook since."""

from __future__ import annotations

from gpuhook.doctor.check import FAILED, GPUHOOK, WARNING, Check, Finding, absent, ok
from gpuhook.doctor.facts.engine_facts import program
from gpuhook.doctor.package_commands import gpuhook_again
from gpuhook.engines.configure import configure_record, engine_status, engine_verification
from gpuhook.engines.configure.engine_plan import ENGINES, NAME
from gpuhook.engines.configure.engine_plan import EngineNode as Place
from gpuhook.errors import GpuhookError
from gpuhook.node import node_readings

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Any

    from gpuhook.doctor.check import ExaminedNode
    from gpuhook.engines.configure.configure_record import ConfigureRecord

_TOLD = 3  # containers that are named, of many


def recorded(node: ExaminedNode) -> Iterable[Finding]:
    """Say whether engines still have what `gpuhook configure` gave them."""
    seen = False
    for engine in ENGINES:
        path = f"{configure_record.OF_THE_HOST}/{engine}/{configure_record.NAME}"
        content = node.tree.read(path)
        if content is None:
            continue
        seen = True
        try:
            yield _since(node, configure_record.parsed(content, path), path)
        except GpuhookError as error:
            yield Finding(
                WARNING,
                error.message,
                subject=engine,
                meaning=f"`gpuhook configure undo {engine}` cannot give back what was there before",
                command=error.hint,
                looked_at=(path,),
            )
    if not seen:
        yield absent("no engine was configured by gpuhook configure", configure_record.OF_THE_HOST)


def _since(node: ExaminedNode, kept: ConfigureRecord, path: str) -> Finding:
    engine = kept.engine
    files = engine_status.files_since(node.tree, kept)
    looked_at = (path, *(one for one, _ in files))
    changed = [(one, state) for one, state in files if state != engine_status.AS_WRITTEN]
    if not changed:
        said = f"{engine} is as gpuhook configure has left it"
        return ok(said, *looked_at, subject=engine)
    told = ", ".join(f"{one} is {state}" for one, state in changed)
    if all(state == engine_status.EDITED for _, state in changed) and _has_it(node, kept):
        return ok(
            f"{told}, and has what gpuhook wrote: undo takes out no more",
            *looked_at,
            subject=engine,
        )
    words = f"gpuhook configure {engine}{_options(kept)} --restart"
    return Finding(
        WARNING,
        f"{engine} was configured by gpuhook configure, and {told}",
        subject=engine,
        meaning=f'what was meant for it, such as the runtime "{kept.wanted.name}", may not count'
        " any more: containers that ask for it do not start, or without a GPU",
        command=f"{words} # or, if it was meant so: gpuhook configure undo {engine}",
        looked_at=looked_at,
    )


def _has_it(node: ExaminedNode, kept: ConfigureRecord) -> bool:
    """Return whether an engine has what it was to have, by its files of now."""
    said = engine_verification.read_engine(
        kept.engine, Place(node.tree, None, kept.config, kept.drop_in)
    )
    if kept.wanted.route == "hook":
        return True  # which file calls it is the engine's matter: see oci-hooks.program
    if kept.wanted.route == "cdi":
        return said.configuration.cdi_enabled is not False
    runtime = said.configuration.runtimes.get(kept.wanted.name)
    return runtime is not None and runtime.path == kept.wanted.program


def _options(kept: ConfigureRecord) -> str:
    """Return the options by which an engine gets what it had."""
    wanted = kept.wanted
    usual = "hook" if kept.engine == "podman" else "wrapper"
    said = {
        f"--route {wanted.route}": wanted.route != usual,
        f"--runtime-name {wanted.name}": wanted.name != NAME,
        "--set-as-default": wanted.is_default,
        "--take-over": wanted.takes_over,
        "--enable-cri": wanted.enables_cri,
        f"--config {kept.config}": bool(kept.config),
        f"--drop-in {kept.drop_in}": bool(kept.drop_in),
    }
    return "".join(f" {words}" for words, is_said in said.items() if is_said)


def users(node: ExaminedNode) -> Iterable[Finding]:
    """Say whether the programs are there that containers need which engines keep."""
    taken = node.readings.of(node_readings.STORED)
    if taken.document is None:
        yield absent(f"containers that engines keep cannot be told of: {taken.trouble}")
        return
    needed: dict[str, list[dict[str, Any]]] = {}
    for one in taken.document:
        if one["program"]:
            needed.setdefault(one["program"], []).append(one)
    missing = {path: ones for path, ones in needed.items() if program(node.tree, path) is None}
    for path, ones in missing.items():
        again = gpuhook_again(node.tree, path.rpartition("/")[0] or "/usr/bin").partition(" #")
        yield Finding(
            FAILED if any(not one["running"] for one in ones) else WARNING,
            f"{path} is not there, and is needed by {_named(ones)}",
            subject=path,
            meaning="they are not started again: exec: no such file or directory; one that runs"
            " goes on, and may not be stopped by its engine",
            command=f"{again[0]} # or, to go without: gpuhook configure users, and remove these",
            looked_at=(path,),
        )
    if not missing:
        said = f"{len(taken.document)} containers that engines keep need gpuhook, which is there"
        yield ok(said) if taken.document else absent("no container that is kept needs gpuhook")


def _named(ones: list[dict[str, Any]]) -> str:
    told = [f"{one['engine']} {one['name'] or one['id'][:12]} ({one['why']})" for one in ones]
    more = f" and {len(told) - _TOLD} more" if len(told) > _TOLD else ""
    return ", ".join(told[:_TOLD]) + more


CHECKS = (
    Check(
        "installation.configured",
        GPUHOOK,
        "Engines have what `gpuhook configure` gave them",
        recorded,
        ("containerd.config", "docker.config", "crio.config", "podman.config"),
    ),
    Check(
        "installation.users",
        GPUHOOK,
        "The programs are there that containers of engines need",
        users,
        (
            "containerd.binary",
            "crio.binary",
            "docker.binary",
            "podman.binary",
            "oci-hooks.program",
            "installation.launchers",
        ),
    ),
)
