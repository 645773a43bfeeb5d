# SPDX-License-Identifier: Apache-2.0
"""The CDI specs of this host, for commands: nothing is written or compiled."""

from __future__ import annotations

import os
from dataclasses import dataclass

from gpuhook.cdi import spec_file
from gpuhook.cdi.hot import compile as compiler
from gpuhook.cdi.hot import compiled_spec, registry
from gpuhook.errors import GpuhookError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from gpuhook.cdi.hot.compiled_spec import Compiled


@dataclass(frozen=True)
class Listed:
    """A device of a spec file; `note` is the reason if another description of it wins."""

    name: str
    path: str
    note: str = ""


def devices(dirs: list[str]) -> tuple[list[Listed], list[Compiled]]:
    """Return (the devices that the specs in `dirs` describe, the broken files).

    `dirs` are in the order of priority, lowest first.
    """
    found = layers(dirs)
    known = registry.Registry(dirs, found)
    by_kind = _by_kind(dirs, found)
    names = [(f"{spec.kind}={device}", spec) for spec in known.all() for device in spec.names()]
    listed = [
        Listed(name, spec.path, _note(by_kind[spec.kind], name, spec)) for name, spec in names
    ]
    return listed, known.broken


def _by_kind(dirs: list[str], found: list[list[Compiled]]) -> dict[str, registry.Registry]:
    """Return the specs of each kind alone: a search for a device reads no other spec."""
    kinds: dict[str, list[list[Compiled]]] = {}
    for number, layer in enumerate(found):
        for spec in layer:
            kinds.setdefault(spec.kind, [[] for _ in dirs])[number].append(spec)
    return {kind: registry.Registry(dirs, specs) for kind, specs in kinds.items()}


def _note(known: registry.Registry, name: str, spec: Compiled) -> str:
    """Return why the description of a device in `spec` does not apply, "" if it does.

    `known` has all specs of its kind.
    """
    try:
        winner, _ = known.device(name)
    except GpuhookError as error:
        return error.message
    return "" if winner is spec else f"{winner.path} wins"


def layers(dirs: list[str]) -> list[list[Compiled]]:
    """Return the specs in each of `dirs` by their texts, and the faults of broken ones."""
    return [_layer(directory, _read) for directory in dirs]


def plan_layers(dirs: list[str]) -> list[list[Compiled]]:
    """Return the specs as the wrapper has them: by a stored compiled form, else by the text.

    To parse a thousand texts takes two seconds.
    """
    return [_layer(directory, _stored) for directory in dirs]


def _layer(directory: str, read: Callable[[str], Compiled | None]) -> list[Compiled]:
    found = (read(path) for path in registry.files(directory))
    return [source for source in found if source is not None]


def _stored(path: str) -> Compiled | None:
    try:
        return compiled_spec.load(path, os.stat(path)) or _read(path)
    except OSError:
        return _read(path)


def _read(path: str) -> Compiled | None:
    """Return a spec or its fault; None for a dangling link or a file that was removed."""
    try:
        return compiled_spec.of_spec(path, compiler.checked(spec_file.parser(path), path))
    except FileNotFoundError:
        return None
    except OSError as error:
        return compiled_spec.Compiled.unreadable(path, error)
    except GpuhookError as error:
        return compiled_spec.Compiled.of_fault(path, error)
