# SPDX-License-Identifier: Apache-2.0
"""The shares of a claim: numbers, memory limits, and conflicts with the claims before it. Pure."""

from __future__ import annotations

from dataclasses import replace

from gpuhook.device_plugin.config.sharing_section import MPS
from gpuhook.device_plugin.offer.sharing_notes import enforcer_of
from gpuhook.dra.claims.settings.claim_settings import claim_settings, consumed_memory
from gpuhook.dra.claims.settings.device_share import DeviceShare
from gpuhook.dra.pool.pool_device import MEMORY, SLOTS
from gpuhook.errors import fault
from gpuhook.host.hot.settings import AUTO, REFUSE
from gpuhook.request.memory_request import MIB, amount
from gpuhook.vendors.usage.device_isolation import BY_NOBODY

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from gpuhook.dra.claims.claim import AllocatedDevice, Claim
    from gpuhook.dra.claims.settings.claim_settings import NodeSharing
    from gpuhook.dra.pool.pool_device import PoolDevice

_GUARD = "set gpuhook.guard.action to terminate or kill in the plugin's configuration"


def claim_shares(
    claim: Claim,
    devices: Mapping[str, PoolDevice],
    node: NodeSharing,
    held: Collection[DeviceShare],
) -> tuple[DeviceShare, ...]:
    """Return the shares of a claim's devices, in their order.

    `devices` are those of the pool by name, `held` the shares of all prepared claims: those of this
    claim are ignored. Raises GH2620 for its parameters, GH2621 for a conflict with another claim,
    GH2622 for a required limit that nothing enforces, GH2625 for more than the device has.
    """
    others = [one for one in held if one.claim.uid != claim.name.uid and not one.is_admin]
    found: list[DeviceShare] = []
    chosen = claim_settings(claim, devices, node)
    used = [one for one in claim.devices if not one.is_admin]
    for result, settings in zip(claim.devices, chosen, strict=True):
        device = devices[result.device]
        share = DeviceShare(
            claim.name, result.request, result.device, device.device.uuid, result.share_id
        )
        if result.is_admin:
            found.append(replace(share, is_admin=True))
            continue
        number = _number(share, device, [*others, *found])
        # A server of the configuration file serves the device with or without `mps`.
        server = None if node.form(device).strategy == MPS else settings.mps
        slots = result.consumed.get(SLOTS, 1)
        settings = replace(settings, mps=server)
        share = replace(share, settings=settings, number=number, slots=slots)
        client = server.limit(used.index(result), share.uuid) if server is not None else None
        found.append(_with_memory(share, result, device, node, client))
    by_claim: dict[str, list[DeviceShare]] = {}
    for one in others:
        by_claim.setdefault(one.claim.uid, []).append(one)
    for share in found:
        _require_same_modes(share, found, by_claim.values())
        _require_room(share, [*others, *found], node)
    return tuple(found)


def _number(share: DeviceShare, found: PoolDevice, others: Collection[DeviceShare]) -> int | None:
    """Return the lowest number that no other share of the device has."""
    if not found.is_shared:
        return found.replica
    taken = {one.number for one in others if one.uuid == share.uuid}
    return next(number for number in range(len(taken) + 1) if number not in taken)


def _with_memory(
    share: DeviceShare,
    result: AllocatedDevice,
    found: PoolDevice,
    node: NodeSharing,
    client: int | None,
) -> DeviceShare:
    """Return the share with its limit, `client` that of an MPS client. Raises GH2622."""
    form, settings = node.form(found), share.settings
    consumed = consumed_memory(result)
    if found.replica is not None:  # a part of a GPU for API servers without shared devices
        consumed = form.default_memory
    share = replace(share, reserved=consumed)
    amounts = [one for one in (consumed, settings.memory.limit, client) if one]
    if not amounts:
        return share
    memory = max(min(amounts) // MIB, 1) * MIB  # 0 would be no limit
    strategy = MPS if settings.mps is not None else form.strategy
    reason, remedy = node.unenforced.get(found.device.domain, ("", ""))
    guard = node.configuration.own.guard.ends_processes
    by = enforcer_of(found.device, strategy, driver=not reason, guard=guard)
    policy = settings.memory.on_failure or AUTO
    is_required = policy == REFUSE or (policy == AUTO and result.requests_memory)
    if is_required and by == BY_NOBODY:
        reason = reason or "the driver limits the memory of whole GPUs only"
        facts = {"claim": share.claim, "device": share.device, "limit": amount(memory)}
        hint = "; or ".join(filter(None, (remedy, _GUARD)))
        raise fault("GH2622", **facts, reason=reason, hint=hint)
    return replace(share, memory=memory, is_required=is_required, enforcer=by)


def _require_room(share: DeviceShare, held: Collection[DeviceShare], node: NodeSharing) -> None:
    """Raise GH2625 if all claims together have more of the device than there is.

    The scheduler does not know what claims have that it allocated for another form of the pool.
    """
    form = node.forms.forms.get(share.uuid)
    if form is None or share.is_admin:
        return
    own = [one for one in held if one.uuid == share.uuid and not one.is_admin]
    facts = {"claim": share.claim, "device": share.device}
    facts["others"] = ", ".join(dict.fromkeys(str(one.claim) for one in own))
    slots, memory = sum(one.slots for one in own), sum(one.reserved for one in own)
    if slots > form.slots:
        raise fault("GH2625", **facts, what="slots", used=slots, total=form.slots)
    room = form.capacity.get(MEMORY)
    if room is not None and memory > room.value:
        raise fault("GH2625", **facts, what="memory", used=amount(memory), total=amount(room.value))


def _require_same_modes(
    share: DeviceShare, own: Collection[DeviceShare], others: Collection[Collection[DeviceShare]]
) -> None:
    """Raise GH2621 if another claim uses the device with other modes.

    `others` are the shares of each other claim.
    """
    if share.is_admin:
        return
    same = ((one, theirs) for theirs in others for one in theirs if one.uuid == share.uuid)
    for other, theirs in same:
        pairs = {
            "the time slice": (share.settings.time_slice, other.settings.time_slice),
            "the compute mode": (share.settings.compute_mode, other.settings.compute_mode),
        }
        pairs = {what: pair for what, pair in pairs.items() if None not in pair}
        pairs["MPS"] = (_server(share, own), _server(other, theirs))
        for what, (value, held) in pairs.items():
            if value != held:
                facts = {"claim": share.claim, "device": share.device, "what": what}
                raise fault("GH2621", **facts, value=value, other=other.claim, held=held)


def _server(share: DeviceShare, own: Collection[DeviceShare]) -> str:
    """Return the MPS server of a share, with its devices and limits, as a sentence names it."""
    if share.settings.mps is None:
        return "none"
    together = [one for one in own if one.settings.mps is not None]
    percentage = share.settings.mps.active_thread_percentage
    threads = f"{percentage} % of the threads" if percentage else "the default share of threads"
    limits = dict.fromkeys(f"{one.device} {amount(one.memory)}" for one in together)
    return f"a server with {threads} for {', '.join(limits)}"
