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
from gpuhook.vendors.nvidia.driver import hookless_mounts
from gpuhook.vendors.nvidia.hot import vocabulary
from gpuhook.vendors.nvidia.spec import injection_traces

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Collection, Iterable
    from typing import Any

    from gpuhook.compare.items.node_specs import NodeSpec

OURS, LEGACY, CDI, UNKNOWN, NOBODY = "gpuhook", "nvidia-legacy", "nvidia-cdi", "unknown", "nobody"
ENGINE = "gpuhook-cdi"  # the engine, from a CDI spec of gpuhook


def injector_of(
    spec: dict[str, Any],
    entry: dict[str, Any],
    nodes: Collection[str],
    mounts: Iterable[str],
    specs: Iterable[NodeSpec] = (),
) -> str:
    """Return the program that added the GPUs of a container: a constant of this module or a vendor.

    `spec` is its config.json, `entry` its entry in the ledger; `nodes` are the drivers' device
    nodes in it, `mounts` the paths of mounted driver files; `specs` are the node's CDI specs of
    vendors whose GPUs need device nodes alone. NVIDIA's CDI modes, also through an
    engine, leave hooks of nvidia-cdi-hook or nvidia-ctk in config.json. The legacy hook leaves no
    edits there: only the hook itself, if a runtime added it, and mounts that config.json lacks.
    """
    held = set(mounts)
    is_recorded = change_record.KEY in spec
    if not is_recorded and (hook_args.hooks_in(spec) or (held and _is_hookless(spec))):
        return ENGINE
    if is_recorded or entry.get("nodes") or entry.get("live"):
        return OURS
    is_given = bool(held) or any(map(injection_route.is_device_node, nodes))
    # A runtime in legacy mode adds its hook to all containers, and for graphics other hooks too.
    if is_given and any(
        os.path.basename(path) in vocabulary.FOREIGN_HOOKS
        for path in injection_route.hook_paths(spec, "prestart")
    ):
        return LEGACY
    if any(map(_is_cdi_hook, injection_route.hooks(spec, "createContainer"))):
        return CDI
    if not is_given:
        return NOBODY
    is_legacy = bool(held and spec) and held.isdisjoint(destinations(spec))
    return LEGACY if is_legacy else _by_hook(spec) or _by_spec(spec, nodes, specs) or UNKNOWN


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
    """Return the destinations of the driver's mounts in config.json."""
    return set(filter(injection_traces.is_driver_mount, _destinations(spec)))


def _destinations(spec: dict[str, Any]) -> list[str]:
    mounts = spec.get("mounts")
    places = [m.get("destination") for m in mounts or () if isinstance(m, dict)]
    return [place for place in places if isinstance(place, str)]


def _is_hookless(spec: dict[str, Any]) -> bool:
    """Return whether config.json has the variable and the mounts of a CDI spec without hooks.

    CUDA images have the variable, too.
    """
    directory = hookless_mounts.DIRECTORY + "/"
    has_mounts = any(place.startswith(directory) for place in _destinations(spec))
    return has_mounts and hookless_mounts.ENV in parse.variables(spec)


def _is_cdi_hook(hook: dict[str, Any]) -> bool:
    args = hook.get("args")
    named = [hook.get("path"), *(args[:1] if isinstance(args, list) else ())]
    return any(os.path.basename(str(name)) in injection_route.CDI_HOOKS for name in named)
