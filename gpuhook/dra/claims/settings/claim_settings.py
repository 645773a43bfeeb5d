# SPDX-License-Identifier: Apache-2.0
"""The settings of each device of a claim: the entries of class and claim, one after the other."""

from __future__ import annotations

from dataclasses import dataclass, field, fields

from gpuhook.device_plugin.config.configuration import Configuration
from gpuhook.device_plugin.config.grammar.grammar import keys_of
from gpuhook.device_plugin.config.sharing_section import COMPUTE_MODES, MPS
from gpuhook.dra.claims.claim import FROM_CLAIM
from gpuhook.dra.claims.settings import opaque_parameters
from gpuhook.dra.claims.settings.gpu_config import (
    DEFAULT_LIMIT,
    OWN_VERSION,
    DeviceSettings,
    MpsSettings,
)
from gpuhook.dra.claims.settings.opaque_parameters import ConfigProblem, ReadParameters
from gpuhook.dra.pool.pool_device import MEMORY
from gpuhook.dra.pool.sharing_form import SharingForm, SharingForms
from gpuhook.errors import fault
from gpuhook.request.memory_request import amount
from gpuhook.vendors.catalogue import vendor_of_resource

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from gpuhook.dra.claims.claim import AllocatedDevice, Claim, OpaqueConfig
    from gpuhook.dra.pool.pool_device import PoolDevice

EXCLUSIVE = COMPUTE_MODES[1]
_MODES = ("time_slice", "compute_mode", "mps")
_MOST_PROBLEMS = 5  # in one message: an event of Kubernetes has 1,024 characters
_NAMES = {key.field: key.name for key in keys_of(DeviceSettings)}


@dataclass(frozen=True, slots=True)
class NodeSharing:
    """How this node shares its devices, and what can enforce memory limits.

    `unenforced` is why a vendor's driver does not enforce them, and the remedy, by the domain of
    the vendor; empty if it does. `missing` are interposers, and the path that the host lacks.
    """

    forms: SharingForms = field(default_factory=SharingForms)
    configuration: Configuration = field(default_factory=Configuration)
    unenforced: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    missing: Mapping[str, str] = field(default_factory=dict)

    def form(self, found: PoolDevice) -> SharingForm:
        """Return the form of a device; a device that the file does not name is not shared."""
        known = self.forms.forms.get(found.device.uuid)
        return known or SharingForm(found.device, f"{found.device.domain}/gpu")


@dataclass(slots=True)
class _Merged:
    """The settings of a device so far, and the entry that has set each of them, by field."""

    settings: DeviceSettings = field(default_factory=DeviceSettings)
    origins: dict[str, OpaqueConfig] = field(default_factory=dict)

    def add(self, config: OpaqueConfig, settings: DeviceSettings) -> None:
        usual = DeviceSettings()
        self.settings = self.settings.with_later(settings)
        names = [one.name for one in fields(settings)]
        changed = [one for one in names if getattr(settings, one) != getattr(usual, one)]
        self.origins |= dict.fromkeys(changed, config)


def claim_settings(
    claim: Claim, devices: Mapping[str, PoolDevice], node: NodeSharing
) -> list[DeviceSettings]:
    """Return the settings of the claim's devices, in their order. Pure.

    `devices` are those of the pool by name. An entry applies to the results of its requests, or to
    all; a later one takes precedence. Raises GH2620 with all problems.
    """
    read = [
        (one, opaque_parameters.read(one.parameters, _owner(claim, one), one.where))
        for one in claim.configs
    ]
    problems = [problem for _, parameters in read for problem in parameters.problems]
    merged = [_Merged() for _ in claim.devices]
    for config, parameters in read:
        for result, into in zip(claim.devices, merged, strict=True):
            if parameters.settings is None or result.is_admin or not _applies(config, result):
                continue
            message = _unfit_kind(parameters, devices[result.device])
            if not message:
                into.add(config, parameters.settings)
            elif config.requests:
                problems.append(ConfigProblem(_owner(claim, config), config.where, message))
    for result, one in zip(claim.devices, merged, strict=True):
        for name, message in _objections(claim, result, devices, one, node):
            origin = one.origins[name]
            path = f"{origin.where}.{_NAMES[name]}" if _is_own(origin) else origin.where
            text = f"{message} ({result.device})"
            problems.append(ConfigProblem(_owner(claim, origin), path, text))
    require_none(claim, problems)
    return [one.settings for one in merged]


def require_none(claim: Claim, problems: list[ConfigProblem]) -> None:
    """Raise GH2620 for the problems of a claim's parameters, if there are any."""
    if problems:
        known = list(dict.fromkeys(map(str, problems)))
        more = len(known) - _MOST_PROBLEMS
        texts = "; ".join([*known[:_MOST_PROBLEMS], *([f"and {more} more"] if more > 0 else [])])
        hints = "; ".join(dict.fromkeys(one.hint for one in problems if one.hint))
        hint = hints or "correct the parameters, and create the claim again"
        raise fault("GH2620", claim=claim.name, problems=texts, hint=hint)


def _owner(claim: Claim, config: OpaqueConfig) -> str:
    if config.owner:
        return config.owner
    if config.source == FROM_CLAIM:
        return f"ResourceClaim {claim.name}"
    return f"the device class of {', '.join(config.requests) or 'all requests'}"


def _is_own(config: OpaqueConfig) -> bool:
    return config.parameters.get("apiVersion") == OWN_VERSION


def _applies(config: OpaqueConfig, result: AllocatedDevice) -> bool:
    names = {result.request}
    if result.subrequest:
        names.add(f"{result.request}/{result.subrequest}")
    return not config.requests or not names.isdisjoint(config.requests)


def _unfit_kind(parameters: ReadParameters, found: PoolDevice) -> str:
    """Return why parameters are not for a device, "" if they are."""
    wanted, is_instance = parameters.kind.is_for_instances, found.device.instance is not None
    if wanted is None or wanted == is_instance:
        return ""
    kinds = {True: "an instance of a GPU", False: "a whole GPU"}
    return f"this kind is for {kinds[wanted]}, and {found.name} is {kinds[is_instance]}"


def _objections(
    claim: Claim,
    result: AllocatedDevice,
    devices: Mapping[str, PoolDevice],
    merged: _Merged,
    node: NodeSharing,
) -> Iterator[tuple[str, str]]:
    """Yield the field and the reason of each setting that a device cannot have."""
    found, chosen = devices[result.device], merged.settings
    form = node.form(found)
    yield from _unserved(found, merged, form)
    if chosen.mps is not None:
        yield from _server_objections(claim, devices, chosen.mps, node)
    if chosen.compute_mode == EXCLUSIVE and form.is_shared:
        yield "compute_mode", f"{EXCLUSIVE} prevents a second claim on a shared device"
    if chosen.compute_mask and (not form.is_shared or len({d.request for d in claim.devices}) > 1):
        yield "compute_mask", "it needs a share of a device, in a claim with one request"
    names = [one.name for one in node.configuration.own.interposers]
    if chosen.interposer is not None and chosen.interposer not in names:
        known = ", ".join(names) or "none"
        yield "interposer", f"gpuhook.interposers has no {chosen.interposer}, only {known}"
    if form.strategy == MPS and chosen.memory.limit is not None:
        yield "memory", f"{form.where} of the plugin's configuration sets the limit of MPS clients"
    yield from _memory_objections(claim, result, merged)


def _unserved(found: PoolDevice, merged: _Merged, form: SharingForm) -> Iterator[tuple[str, str]]:
    """Yield the settings that the device, or its form of sharing, does not have."""
    unshared = vendor_of_resource(found.device.domain).unshared
    for name, key in _NAMES.items():
        if name not in merged.origins or getattr(merged.settings, name) is None:
            continue
        if key in unshared:
            yield name, unshared[key]
        elif name in _MODES and found.device.instance is not None:
            yield name, "only whole GPUs have it, and not instances"
        elif name in _MODES and form.strategy == MPS and merged.settings.mps != MpsSettings():
            yield name, f"{form.where} of the plugin's configuration sets it: MPS shares it"


def _server_objections(
    claim: Claim, devices: Mapping[str, PoolDevice], chosen: MpsSettings, node: NodeSharing
) -> Iterator[tuple[str, str]]:
    if not node.configuration.flags.mps_root:
        yield "mps", "the plugin's configuration has no flags.mpsRoot, the directory of MPS servers"
    own = [devices[one.device].device.uuid for one in claim.devices if not one.is_admin]
    known = {DEFAULT_LIMIT, *own, *map(str, range(len(own)))}
    unknown = [name for name, _ in chosen.limits if name not in known]
    if unknown:
        yield "mps", f"a limit is for the device {unknown[0]}, which {claim.name} does not have"


def _memory_objections(
    claim: Claim, result: AllocatedDevice, merged: _Merged
) -> Iterator[tuple[str, str]]:
    limit, consumed = merged.settings.memory.limit, consumed_memory(result)
    origin = merged.origins.get("memory")
    is_claims = origin is not None and origin.source == FROM_CLAIM
    if is_claims and limit and consumed and limit > consumed:
        text = f"{amount(limit)} are more than the {amount(consumed)} that {claim.name} consumes"
        yield "memory", f"{text}: request the capacity `memory`"
    if merged.settings.hints and not (limit or consumed):
        yield "hints", "hints are computed from a memory limit, and there is none"


def consumed_memory(result: AllocatedDevice) -> int:
    """Return the bytes of memory that a result consumes, 0 for a device that is not shared."""
    return result.consumed.get(MEMORY, 0)
