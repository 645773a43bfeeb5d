# SPDX-License-Identifier: Apache-2.0
"""From requested names to one ContainerEdits, with the reason for each part.

The registry has the devices of a node's CDI specs; the node knows their other names (a PCI bus id,
an index if specs only have UUIDs).
"""

from __future__ import annotations

from gpuhook.cdi.hot.container_edits import merged
from gpuhook.errors import GpuhookError
from gpuhook.request import replicas

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from gpuhook.cdi.hot.compiled_spec import Compiled
    from gpuhook.cdi.hot.container_edits import ContainerEdits
    from gpuhook.cdi.hot.registry import Registry
    from gpuhook.request.parse import Source
    from gpuhook.vendors.interface import VendorNode

NOTHING_BUT_FILES = "none"
_UNKNOWN = ("GH1101", "GH1102")


class Grant:
    """The devices of a container: `edits`, and `reasons` with the origin of each device.

    `devices` are qualified CDI names, `replicas` the replica ids among the requested names, `specs`
    the spec files that were used. `short_forms` maps requested short forms to the full names.
    """

    __slots__ = ("devices", "edits", "reasons", "replicas", "short_forms", "specs")

    def __init__(self) -> None:
        self.devices: list[str] = []
        self.replicas: list[str] = []
        self.short_forms: dict[str, list[str]] = {}
        self.specs: list[Compiled] = []
        self.edits: ContainerEdits = {}
        self.reasons: list[tuple[str, str]] = []

    @classmethod
    def joined(cls, grants: Sequence[Grant]) -> Grant:
        """Return one grant with the devices of all `grants`, in their order."""
        if len(grants) == 1:
            return grants[0]
        whole = cls()
        for grant in grants:
            whole.devices += grant.devices
            whole.replicas += grant.replicas
            whole.short_forms.update(grant.short_forms)
            whole.specs += [spec for spec in grant.specs if spec not in whole.specs]
            whole.reasons += grant.reasons
        whole.edits = merged([grant.edits for grant in grants])
        return whole

    def in_full(self, names: Iterable[str]) -> list[str]:
        """Return `names` with each short form replaced by its full names."""
        return [full for name in names for full in self.short_forms.get(name, (name,))]


def resolve_names(
    names: list[str], capabilities: frozenset[str], node: VendorNode, source: Source | None = None
) -> Grant:
    """Return the grant of the devices `names` on a node, with the parts that `capabilities` need.

    Edits are merged in CDI's order: those of each spec once, before those of its devices. `source`
    is where a container requests the devices: a fault names it. Raises the registry's fault for a
    name that no spec describes, in the vendor's words.
    """
    grant, registry = Grant(), node.registry_for(names)
    parts: list[ContainerEdits] = []
    for name in names:
        try:
            found = _described(name, node, registry, grant)
        except GpuhookError as error:
            raise node.refusal(name, error, source) from error
        for qualified, spec, edits in found:
            if spec not in grant.specs:
                grant.specs.append(spec)
            if qualified and qualified not in grant.devices:
                grant.devices.append(qualified)
                parts.append(node.filter_edits(spec, edits, capabilities))
                grant.reasons.append((name, f"{qualified} of {spec.path}"))
    shared = [node.filter_edits(spec, spec.edits, capabilities) for spec in grant.specs]
    grant.edits = merged(shared + parts)
    return grant


def _described(
    name: str, node: VendorNode, registry: Registry, grant: Grant
) -> list[tuple[str, Compiled, ContainerEdits]]:
    """Return (qualified name, spec, edits) of each device that one requested name means."""
    kind, device = _split_kind(name, node.kind)
    if device == NOTHING_BUT_FILES:
        grant.reasons.append((name, "the driver's files, no device"))
        return [("", spec, {}) for spec in registry.kind(kind)]
    if device == "all":
        return _all(kind, registry, node)
    plain, replica = replicas.split(device)
    try:
        found = [_find(kind, plain, registry, node)]
    except GpuhookError as error:
        is_short = device == name and error.code in _UNKNOWN
        full = node.full_names(plain) if is_short else []
        if not full or (replica is not None and len(full) > 1):
            raise
        found = [_find(kind, one, registry, node) for one in full]
        if replica is not None:
            replica = full[0] + replica[len(plain) :]
        grant.short_forms[name] = full if replica is None else [replica]
    if replica is not None:
        grant.replicas.append(replica)
    return [(qualified, spec, edits) for qualified, (spec, edits) in found]


def _split_kind(name: str, default_kind: str) -> tuple[str, str]:
    kind, equals, device = name.partition("=")
    return (kind, device) if equals and "/" in kind else (default_kind, name)


def _find(
    kind: str, device: str, registry: Registry, node: VendorNode
) -> tuple[str, tuple[Compiled, ContainerEdits]]:
    qualified = f"{kind}={device}"
    try:
        return qualified, registry.device(qualified)
    except GpuhookError as error:
        other = node.alias(device)
        if other is None:
            raise
        try:
            return f"{kind}={other}", registry.device(f"{kind}={other}")
        except GpuhookError:
            raise error from None  # this fault has the requested name


def _all(
    kind: str, registry: Registry, node: VendorNode
) -> list[tuple[str, Compiled, ContainerEdits]]:
    """Return the device `all`, or every device of the kind if no spec has it."""
    if any("all" in spec.names() for spec in registry.kind(kind)):
        spec, edits = registry.device(f"{kind}=all")
        return [(f"{kind}=all", spec, edits)]
    found = []
    for name in registry.names(kind):
        if name in node.apart:
            continue
        spec, edits = registry.device(f"{kind}={name}")
        found.append((f"{kind}={name}", spec, edits))
    if not found:
        registry.device(f"{kind}=all")  # raises the fault with the searched files
    return found
