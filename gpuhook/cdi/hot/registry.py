# SPDX-License-Identifier: Apache-2.0
"""The devices that the CDI specs of this host describe.

Source: CDI SPEC.md and the CDI library's cache: files *.json and *.yaml directly in the spec
directories; a later directory wins over an earlier one; the same name twice in one directory is a
conflict; a broken file hides only its own devices.
"""

from __future__ import annotations

import os

from gpuhook.cdi.hot import compiled_spec, names
from gpuhook.errors import GpuhookError, fault

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Protocol

    from gpuhook.cdi.hot.compiled_spec import Compiled
    from gpuhook.cdi.hot.container_edits import ContainerEdits

    class SpecCompiler(Protocol):
        """Compiles and stores YAML specs."""

        def __call__(self, *paths: str) -> None: ...


class Registry:
    """The compiled specs of each directory, and the unreadable files."""

    def __init__(
        self, dirs: list[str], layers: list[list[Compiled]], vendor: str = "", way: str = ""
    ) -> None:
        """Take the specs in each of `dirs`, lowest priority first.

        generate-cdi writes the specs of `vendor`, of every vendor for "". `way` is the advice about
        a missing device; "" derives it from the specs.
        """
        self.dirs = dirs
        self._way = way
        self._vendor = vendor
        self._layers = [[spec for spec in layer if spec.error is None] for layer in layers]
        self.broken = [spec for layer in layers for spec in layer if spec.error is not None]

    def over(self, specs: list[Compiled]) -> Registry:
        """Return this registry with `specs`, which are not files, below all others."""
        found = Registry(self.dirs, [], self._vendor, self._way)
        found._layers = [specs, *self._layers]
        found.broken = self.broken
        return found

    def device(self, qualified: str) -> tuple[Compiled, ContainerEdits]:
        """Return the spec and the edits of a device.

        Raises GH1101 for an invalid CDI name, GH1103 for a name that two files describe at the same
        priority, GH1102 for one that no file describes.
        """
        parts = names.split(qualified)
        if parts is None:
            raise fault("GH1101", name=qualified)
        kind, device = f"{parts[0]}/{parts[1]}", parts[2]
        for layer in reversed(self._layers):
            hits = _hits(layer, kind, device)
            if len(hits) > 1:
                first, second = hits[0][0].path, hits[1][0].path
                raise fault("GH1103", name=qualified, first=first, second=second)
            if hits:
                return hits[0]
        raise self._unknown(qualified, kind)

    def kind(self, kind: str) -> list[Compiled]:
        """Return the specs of a kind, highest priority first; GH1104 if there is none."""
        found = [spec for layer in reversed(self._layers) for spec in layer if spec.kind == kind]
        if not found:
            raise self._unknown(kind, kind)
        return found

    def all(self) -> list[Compiled]:
        """Return the readable specs, lowest priority first."""
        return [spec for layer in self._layers for spec in layer]

    def names(self, kind: str) -> list[str]:
        """Return the names of all devices of a kind, each once."""
        return list(dict.fromkeys(name for spec in self.kind(kind) for name in spec.names()))

    def _unknown(self, name: str, kind: str) -> GpuhookError:
        from gpuhook.cdi.hot import unknown_device  # most names are known

        return unknown_device.unknown_device(name, kind, self, self._vendor, self._way)


def _hits(layer: list[Compiled], kind: str, device: str) -> list[tuple[Compiled, ContainerEdits]]:
    found = []
    for spec in layer:
        edits = spec.device(device) if spec.kind == kind else None
        if edits is not None:
            found.append((spec, edits))
    return found


def load(dirs: list[str], compile_yaml: SpecCompiler, vendor: str = "", way: str = "") -> Registry:
    """Return the registry of `dirs`, lowest priority first, on a node of `vendor`'s GPUs.

    `compile_yaml(*paths)` runs the cold compiler for YAML files whose compiled forms are missing or
    stale; JSON is compiled here. `way` is the advice about a missing device.
    """
    stale: list[str] = []
    layers = [_layer(directory, stale, None) for directory in dirs]
    if stale:
        if len(stale) > 1:
            _compile_all(stale, compile_yaml)
        layers = [_layer(directory, stale, compile_yaml) for directory in dirs]
    return Registry(dirs, layers, vendor, way)


def _compile_all(stale: list[str], compile_yaml: SpecCompiler) -> None:
    """Compile many files by one process. What it leaves is compiled again, each file alone."""
    try:
        compile_yaml(*stale)
    except GpuhookError:
        return


def _layer(directory: str, stale: list[str], compile_yaml: SpecCompiler | None) -> list[Compiled]:
    found = (_compiled(path, stale, compile_yaml) for path in files(directory))
    return [spec for spec in found if spec is not None]


def reader(dirs: list[str], compile_yaml: SpecCompiler) -> Callable[[str, str], Registry]:
    """Return a function of (vendor, way) that returns load() of `dirs`."""

    def read(vendor: str, way: str) -> Registry:
        return load(dirs, compile_yaml, vendor, way)

    return read


def files(directory: str) -> list[str]:
    """Return the paths of the spec files in a directory, sorted; [] if it is not readable."""
    try:
        entries = sorted(os.listdir(directory))
    except OSError:
        return []
    return [os.path.join(directory, name) for name in entries if name.endswith((".json", ".yaml"))]


def _compiled(  # noqa: PLR0911 # one return for each way in which a file is unusable
    path: str, stale: list[str], compile_yaml: SpecCompiler | None
) -> Compiled | None:
    """Return the compiled form of a spec, None for a dangling link or a removed file.

    Without `compile_yaml`, a YAML file that is not compiled is added to `stale`.
    """
    try:
        found = os.stat(path)
    except FileNotFoundError:
        return None
    except OSError as error:
        return compiled_spec.Compiled.unreadable(path, error)
    stored = compiled_spec.load(path, found)
    if stored is not None:
        return stored
    if path.endswith(".json"):
        from gpuhook.cdi.hot import compile as compiler

        return compiler.compile_json(path, found)
    if compile_yaml is None:
        stale.append(path)
        return None
    try:
        compile_yaml(path)
    except GpuhookError as error:
        return compiled_spec.Compiled.of_fault(path, error)
    stored = compiled_spec.load(path, found)
    if stored is None:
        unstored = fault(
            "GH1105", path=path, directory=os.path.dirname(compiled_spec.compiled_path(path))
        )
        return compiled_spec.Compiled.of_fault(path, unstored)
    return stored
