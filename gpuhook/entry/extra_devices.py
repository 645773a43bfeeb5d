# SPDX-License-Identifier: Apache-2.0
"""What a container gets beside its GPUs: IMEX channels, switches, the administration of MIG.

Loaded only for a container that asks for such a thing. A spec of the kind counts where the node has
one; else the node itself is looked at.
"""

from __future__ import annotations

import os

from gpuhook.errors import GpuhookError, fault
from gpuhook.host.hot import state
from gpuhook.host.hot.settings import FAIL
from gpuhook.request import extra_requests, parse
from gpuhook.vendors.nvidia.hot import live_devices, vocabulary

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from typing import Any

    from gpuhook.cdi.hot.registry import Registry
    from gpuhook.entry.granting import Granting
    from gpuhook.host.hot.settings import Settings
    from gpuhook.request.extra_requests import Extra
    from gpuhook.request.parse import Source
    from gpuhook.vendors.nvidia.hot.live_devices import Roots

_EVERYTHING = frozenset(vocabulary.CAPABILITIES)
_NOTHING_FOUND = "GH1037"


def asked(spec: dict[str, Any], settings: Settings) -> list[Extra]:
    """Return what a container asks for beside its GPUs, and what the node's settings make of it.

    Raises GH1036 for what is no IMEX channel, and what extras.judged raises.
    """
    if not parse.has_extras(spec, vocabulary.VOCABULARY):
        return []
    found = extra_requests.judged(spec, vocabulary.VOCABULARY, settings)
    for one in found:
        for name in one.names if one.is_list and one.result == extra_requests.WON else ():
            live_devices.require_channel(name.partition("=")[2], one.where)
    return found


def names(grants: Granting, spec: dict[str, Any], source: Source) -> list[str]:
    """Return the names of the source that counts, and after them those of what is beside.

    Reports what is left out. Raises GH1038 for an unprivileged container that would administer
    MIG, GH1041 where the settings want a refused request to fail, and what asked() raises.
    """
    extra_requests.require_privilege(source.names, source.where, spec, vocabulary.VOCABULARY)
    found = _counting(grants, source)
    for one in asked(spec, grants.settings):
        if one.result == extra_requests.WON:
            extra_requests.require_privilege(one.names, one.where, spec, vocabulary.VOCABULARY)
            found += _had(grants, one)
        else:
            _leave_out(grants, one)
    return found


def _counting(grants: Granting, source: Source) -> list[str]:
    """Return the names of a source, without the channels that nobody may ask for by it here.

    Whoever writes an image's variables would else have by their CDI names what the node's settings
    keep from them. Annotations are an engine's, or a driver's for dynamic resources.
    """
    if not grants.settings.ignore_imex_channels or source.kind == parse.ANNOTATIONS:
        return list(source.names)
    found = [name for name in source.names if name.partition("=")[0] != vocabulary.IMEX_KIND]
    if len(found) < len(source.names):
        grants.log.warning(fault("GH1041", where=source.where, reason=extra_requests.IMEX_IGNORED))
    return found


def _leave_out(grants: Granting, one: Extra) -> None:
    said = fault("GH1041", where=one.where, reason=one.reason)
    if one.result == extra_requests.REFUSED and grants.settings.on_refusal == FAIL:
        raise said
    if one.is_told:
        grants.log.warning(said)


def _had(grants: Granting, one: Extra) -> list[str]:
    """Return the names of an extra, none of a switch for which there is nothing here."""
    if not grants.is_here:
        return []
    reason = lack(grants, one)
    if reason is None:
        return one.names
    grants.log.warning(fault("GH1040", where=one.where, reason=reason))
    return []


def lack(grants: Granting, one: Extra) -> str | None:
    """Return what the node lacks for a switch that is on, None if it lacks nothing."""
    try:
        if one.is_switch:
            grants.named(one.names, _EVERYTHING)
    except GpuhookError as error:
        if error.code != _NOTHING_FOUND:
            raise
        return error.message
    return None


def registry_for(grants: Granting, names: Sequence[str]) -> Registry:
    """Return the node's registry with what the node shows of the kinds of `names`.

    Raises what on_the_spot.require_device raises for those that it has not.
    """
    found = grants.registry()
    named = [name for name in names if vocabulary.is_extra(name)]
    if grants.is_here:
        kinds = list(dict.fromkeys(name.partition("=")[0] for name in named))
        found = live_devices.beside(found, kinds, roots(grants, found))
        for name in named:
            live_devices.require_device(found, name)
    return found


def roots(grants: Granting, found: Registry) -> Roots:
    """Return where the node's parts are: by its settings, else as its specs have them."""
    driver, dev = grants.settings.driver_root.rstrip("/"), grants.settings.dev_root
    if driver and not dev and os.path.exists(os.path.join(driver, "dev/nvidiactl")):
        dev = driver
    try:
        specs = found.kind(grants.default_kind())
    except GpuhookError:
        specs = []  # none of the GPUs'
    for spec in specs:
        nodes, mounts = spec.edits.get("deviceNodes") or (), spec.edits.get("mounts") or ()
        dev = dev or _root_of((one["path"], one.get("hostPath")) for one in nodes)
        driver = driver or _root_of((one["containerPath"], one["hostPath"]) for one in mounts)
    return live_devices.Roots(dev or "/", driver or "/", state.host_root())


def _root_of(pairs: Iterable[tuple[str, str | None]]) -> str:
    """Return the root in which hosts have what containers find at a path, "" if none is known."""
    for path, source in pairs:
        if source and source != path and source.endswith(path):
            return source[: -len(path)]
    return ""
