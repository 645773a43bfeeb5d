# SPDX-License-Identifier: Apache-2.0
"""What the CDI specs of this host describe, read here and now: for people, not for the wrapper."""

from __future__ import annotations

from dataclasses import dataclass

from gpuhook.cdi import reading, registry
from gpuhook.errors import GpuhookError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gpuhook.cdi.cache import Compiled


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
    layers = reading.layers(dirs)
    known = registry.Registry(dirs, layers)
    listed = [
        Listed(name, source.path, _note(known, name, source))
        for layer in layers
        for source in layer
        if source.error is None
        for name in (f"{source.kind}={device}" for device in source.names())
    ]
    return listed, known.broken


def _note(known: registry.Registry, name: str, source: Compiled) -> str:
    try:
        winner, _ = known.device(name)
    except GpuhookError as error:
        return error.message
    return "" if winner is source else f"{winner.path} wins"
