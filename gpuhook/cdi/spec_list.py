# SPDX-License-Identifier: Apache-2.0
"""What the CDI specs of this host describe, read here and now: for people, not for the wrapper."""

from __future__ import annotations

from dataclasses import dataclass

from gpuhook.cdi import spec_reader
from gpuhook.cdi.hot import registry
from gpuhook.errors import GpuhookError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gpuhook.cdi.hot.compiled_spec import Compiled


@dataclass(frozen=True)
class Listed:
    """A device of a spec file; `note` says why another description of it counts instead."""

    name: str
    path: str
    note: str = ""


def devices(dirs: list[str]) -> tuple[list[Listed], list[Compiled]]:
    """Return (the devices that the specs in `dirs` describe, the files that are broken).

    `dirs` are in the order of priority, lowest first.
    """
    layers = spec_reader.layers(dirs)
    known = registry.Registry(dirs, layers)
    owners: dict[str, list[tuple[int, Compiled]]] = {}
    found = []
    for level, layer in enumerate(layers):
        for source in layer:
            for device in source.names() if source.error is None else ():
                name = f"{source.kind}={device}"
                owners.setdefault(name, []).append((level, source))
                found.append((name, source))
    notes = {name: _note(known, name, held) for name, held in owners.items() if len(held) > 1}
    listed = [
        Listed(name, source.path, notes[name][source.path] if name in notes else "")
        for name, source in found
    ]
    return listed, known.broken


def _note(known: registry.Registry, name: str, held: list[tuple[int, Compiled]]) -> dict[str, str]:
    """Return, for each file that describes a device, why another one counts instead."""
    highest = max(level for level, _ in held)
    winners = [source for level, source in held if level == highest]
    if len(winners) == 1:
        note = f"{winners[0].path} wins"
        return {source.path: "" if source is winners[0] else note for _, source in held}
    try:
        known.device(name)
    except GpuhookError as error:
        return {source.path: error.message for _, source in held}
    return {source.path: "" for _, source in held}
