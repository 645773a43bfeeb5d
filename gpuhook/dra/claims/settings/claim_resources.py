# SPDX-License-Identifier: Apache-2.0
"""The shares of claims as resources of the device plugin, whose code serves them. Pure."""

from __future__ import annotations

from binascii import crc32
from dataclasses import replace

from gpuhook.device_plugin.config.sharing_section import MPS, SharedResource
from gpuhook.device_plugin.offer.offered_devices import Resource, UnitMemory

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Any

    from gpuhook.dra.claims.settings.device_share import DeviceShare
    from gpuhook.dra.pool.sharing_form import SharingForm, SharingForms


def share_resource(share: DeviceShare, form: SharingForm) -> Resource:
    """Return a resource with the device of a share, as the plugin allocates it.

    It has a unit for each slot, and the settings of the claim in the place of the file's.
    """
    return Resource(
        name=form.offered_name,
        units=form.units(),
        sharing=MPS if share.settings.mps is not None else form.strategy,
        memory=_memory([share]),
        entries={share.uuid: _entry(share, form)},
    )


def mode_resources(shares: Iterable[DeviceShare], forms: SharingForms) -> list[Resource]:
    """Return the resources whose modes the claims with these shares need.

    The devices of a claim that need MPS are one resource, since a container has one server. Claims
    with the same devices share it.
    """
    found: dict[str, Resource] = {}
    servers: dict[str, list[DeviceShare]] = {}
    for share in shares:
        form = forms.forms.get(share.uuid)
        if form is None or not share.has_modes:
            continue  # the node has lost the device
        if share.settings.mps is not None:
            servers.setdefault(share.claim.uid, []).append(share)
        else:
            found[f"{share.claim.uid}/{share.uuid}"] = share_resource(share, form)
    for own in servers.values():
        name = server_name(own, forms)
        found[name] = Resource(
            name=name,
            units=tuple(unit for uuid in _uuids(own) for unit in forms.forms[uuid].units()),
            sharing=MPS,
            is_mig=any(forms.forms[uuid].device.instance is not None for uuid in _uuids(own)),
            memory=_memory(own),
            entries={one.uuid: _entry(one, forms.forms[one.uuid]) for one in own},
        )
    return list(found.values())


def server_name(shares: Iterable[DeviceShare], forms: SharingForms) -> str:
    """Return the name of the MPS server for the shares of a claim: the same for other claims."""
    uuids = _uuids(one for one in shares if one.settings.mps is not None)
    domain = forms.forms[uuids[0]].device.domain
    return f"{domain}/claims-{crc32(','.join(uuids).encode()):08x}"


def _uuids(shares: Iterable[DeviceShare]) -> list[str]:
    return sorted({one.uuid for one in shares})


def _entry(share: DeviceShare, form: SharingForm) -> SharedResource:
    entry, chosen = form.entry or SharedResource(form.offered_name, form.slots), share.settings
    values: dict[str, Any] = {
        "time_slice": chosen.time_slice,
        "compute_mode": chosen.compute_mode,
        "compute_mask": chosen.compute_mask,
        "hints": chosen.hints,
        "interposer": chosen.interposer,
        "active_thread_percentage": chosen.mps.active_thread_percentage if chosen.mps else None,
    }
    return replace(entry, **{name: one for name, one in values.items() if one is not None})


def _memory(shares: Iterable[DeviceShare]) -> dict[str, UnitMemory]:
    """Return the limits: one that the guard enforces must not be required of the driver."""
    return {
        one.uuid: UnitMemory(one.memory, one.memory, is_asked=one.must_start_with_limit)
        for one in shares
        if one.memory
    }
