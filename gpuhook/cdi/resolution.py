# SPDX-License-Identifier: Apache-2.0
"""CDI device names as an engine resolves them: the resulting edits, and the origin of each.

This applies CDI's rules only, no rules of a vendor and no policy.
"""

from __future__ import annotations

from dataclasses import dataclass

from gpuhook.cdi.hot.container_edits import merged

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from gpuhook.cdi.hot.compiled_spec import Compiled
    from gpuhook.cdi.hot.container_edits import ContainerEdits
    from gpuhook.cdi.hot.registry import Registry


@dataclass(frozen=True, slots=True)
class Part:
    """Edits of a spec file: those of one device, or with `device` "" those of all its devices."""

    path: str
    device: str
    edits: ContainerEdits


@dataclass(frozen=True, slots=True)
class Resolved:
    """The qualified names, each once, the parts in the order in which they apply, and their sum."""

    names: tuple[str, ...]
    parts: tuple[Part, ...]
    edits: ContainerEdits


def resolve(
    names: tuple[str, ...], default_kind: str, registry_of: Callable[[str], Registry]
) -> Resolved:
    """Return the edits of `names`; names without a kind are of `default_kind`.

    `registry_of` returns the registry of the specs for a qualified name. The edits of each spec
    come once and first. Raises the registry's faults: GH1101 to GH1104.
    """
    qualified = tuple(dict.fromkeys(_qualified(name, default_kind) for name in names))
    found = [(name, *registry_of(name).device(name)) for name in qualified]
    specs: list[Compiled] = []
    for _, spec, _ in found:
        if spec not in specs:
            specs.append(spec)
    parts = [Part(spec.path, "", spec.edits) for spec in specs if spec.edits]
    parts += [Part(spec.path, name, edits) for name, spec, edits in found]
    return Resolved(qualified, tuple(parts), merged([part.edits for part in parts]))


def _qualified(name: str, default_kind: str) -> str:
    kind, equals, _ = name.partition("=")
    return name if equals and "/" in kind else f"{default_kind}={name}"
