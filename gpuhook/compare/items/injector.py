# SPDX-License-Identifier: Apache-2.0
"""The program that added a container's GPUs, by the traces that it leaves."""

from __future__ import annotations

import os

from gpuhook.apply.rootfs import hook_args
from gpuhook.apply.spec import change_record
from gpuhook.compare.items import node_specs
from gpuhook.request import parse
from gpuhook.usage import injection_route
from gpuhook.vendors.catalogue import vendors
from gpuhook.vendors.known_difference import ENGINE, OURS

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Collection, Iterable
    from typing import Any

    from gpuhook.compare.items.node_specs import NodeSpec

UNKNOWN, NOBODY = "unknown", "nobody"


def injector_of(
    spec: dict[str, Any],
    entry: dict[str, Any],
    nodes: Collection[str],
    mounts: Iterable[str],
    specs: Iterable[NodeSpec] = (),
) -> str:
    """Return the program that added the GPUs of a container, by its name in comparisons.

    It is gpuhook, a vendor's, UNKNOWN or NOBODY. `spec` is its config.json, `entry` its entry in
    the ledger; `nodes` are the drivers' device nodes in it, `mounts` the paths of mounted driver
    files; `specs` are the node's CDI specs of vendors whose GPUs need device nodes alone. A
    vendor's specs of driver files, also through an engine, leave hooks in config.json. A prestart
    hook leaves no edits there: only the hook itself, if a runtime added it, and mounts that
    config.json lacks.
    """
    held = set(mounts)
    is_recorded = change_record.KEY in spec
    if not is_recorded and (hook_args.hooks_in(spec) or (held and _is_hookless(spec))):
        return ENGINE
    if is_recorded or entry.get("nodes") or entry.get("live"):
        return OURS
    is_given = bool(held) or any(map(injection_route.is_device_node, nodes))
    # A runtime adds its prestart hook to all containers, and for graphics other hooks too.
    by = (_by_prestart(spec) if is_given else "") or _by_spec_hook(spec)
    if by or not is_given:
        return by or NOBODY
    return _by_mounts(spec, held) or _by_hook(spec) or _by_spec(spec, nodes, specs) or UNKNOWN


def _by_prestart(spec: dict[str, Any]) -> str:
    """Return the vendor's prestart hook in config.json, "" for none."""
    programs = {os.path.basename(path) for path in injection_route.hook_paths(spec, "prestart")}
    known = (one for one in vendors() if not programs.isdisjoint(one.vocabulary.foreign_hooks))
    return next((one.traces.HOOK_INJECTOR for one in known), "")


def _by_spec_hook(spec: dict[str, Any]) -> str:
    """Return the vendor's tool whose CDI spec has added one of its hooks, "" for none."""
    hooks = injection_route.hooks(spec, "createContainer")
    programs = [os.path.basename(name) for hook in hooks for name in _programs(hook)]
    known = {name: by for one in vendors() for name, by in one.traces.SPEC_HOOKS.items()}
    return next((known[name] for name in programs if name in known), "")


def _by_mounts(spec: dict[str, Any], held: Collection[str]) -> str:
    """Return the vendor's hook that has mounted driver files which config.json lacks, else ""."""
    if not spec or not held or not destinations(spec).isdisjoint(held):
        return ""
    known = (one.traces for one in vendors() if any(map(one.traces.is_driver_mount, held)))
    return next((traces.HOOK_INJECTOR for traces in known), "")


def _by_spec(spec: dict[str, Any], nodes: Collection[str], specs: Iterable[NodeSpec]) -> str:
    """Return who wrote the CDI spec that an engine has applied, "" for none."""
    found = node_specs.applied(spec, nodes, specs)
    if found is None:
        return ""
    return ENGINE if found.is_own else found.by


def _by_hook(spec: dict[str, Any]) -> str:
    """Return the runtime of a vendor that has added one of its hooks, "" for none."""
    programs = map(os.path.basename, injection_route.hook_paths(spec, "poststop"))
    known = {name: by for one in vendors() for name, by in one.traces.TOOLKIT_HOOKS.items()}
    return next((known[name] for name in programs if name in known), "")


def destinations(spec: dict[str, Any]) -> set[str]:
    """Return the destinations of the drivers' mounts in config.json."""
    traces = [vendor.traces for vendor in vendors()]
    places = _destinations(spec)
    return {place for place in places if any(one.is_driver_mount(place) for one in traces)}


def _destinations(spec: dict[str, Any]) -> list[str]:
    mounts = spec.get("mounts")
    places = [m.get("destination") for m in mounts or () if isinstance(m, dict)]
    return [place for place in places if isinstance(place, str)]


def _is_hookless(spec: dict[str, Any]) -> bool:
    """Return whether config.json has the variable and the mounts of a CDI spec without hooks.

    Images have such a variable, too.
    """
    places, env = _destinations(spec), parse.variables(spec)
    return any(
        traces.HOOKLESS_VARIABLE in env
        and any(place.startswith(f"{traces.HOOKLESS_DIRECTORY}/") for place in places)
        for traces in (vendor.traces for vendor in vendors())
        if traces.HOOKLESS_VARIABLE
    )


def _programs(hook: dict[str, Any]) -> list[str]:
    """Return the path of a hook, and its name in its arguments."""
    args = hook.get("args")
    return [str(name) for name in (hook.get("path"), *(args[:1] if isinstance(args, list) else ()))]
