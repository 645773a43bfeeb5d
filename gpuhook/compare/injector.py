# SPDX-License-Identifier: Apache-2.0
"""The program that added a container's GPUs, by the traces that it leaves."""

from __future__ import annotations

from gpuhook.apply.spec import change_record
from gpuhook.vendors.nvidia.hot import vocabulary
from gpuhook.vendors.nvidia.hot.rootfs import hook_args
from gpuhook.vendors.nvidia.spec import injection_traces

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Any

OURS, LEGACY, CDI, UNKNOWN, NOBODY = "gpuhook", "nvidia-legacy", "nvidia-cdi", "unknown", "nobody"
GIVERS = (OURS, LEGACY, CDI, UNKNOWN, NOBODY)
_CDI_HOOKS = ("nvidia-cdi-hook", "nvidia-ctk")


def injector_of(
    spec: dict[str, Any], entry: dict[str, Any], nodes: Iterable[str], mounts: Iterable[str]
) -> str:
    """Return the program that added the GPUs of a container, one of GIVERS.

    `spec` is its config.json, `entry` its entry in the ledger; `nodes` are the driver's device
    nodes in it, `mounts` the paths of mounted driver files. NVIDIA's CDI modes, also through an
    engine, leave hooks of nvidia-cdi-hook or nvidia-ctk in config.json. The legacy hook leaves no
    edits there: only the hook itself, if a runtime added it, and mounts that config.json lacks.
    """
    held = set(mounts)
    if change_record.KEY in spec or hook_args.hooks_in(spec):
        return OURS
    if entry.get("nodes") or entry.get("live"):
        return OURS
    is_given = bool(held) or any(vocabulary.is_gpu_node(path) for path in nodes)
    # A runtime in legacy mode adds its hook to all containers, and for graphics other hooks too.
    if is_given and any(
        _name(hook) in vocabulary.FOREIGN_HOOKS for hook in hooks(spec, "prestart")
    ):
        return LEGACY
    if any(_is_cdi_hook(hook) for hook in hooks(spec, "createContainer")):
        return CDI
    if not is_given:
        return NOBODY
    return LEGACY if held and spec and held.isdisjoint(destinations(spec)) else UNKNOWN


def hooks(spec: dict[str, Any], stage: str) -> list[dict[str, Any]]:
    """Return the hooks of a stage of a config.json."""
    section = spec.get("hooks")
    found = section.get(stage) if isinstance(section, dict) else None
    return [hook for hook in found if isinstance(hook, dict)] if isinstance(found, list) else []


def destinations(spec: dict[str, Any]) -> set[str]:
    """Return the destinations of the driver's mounts in config.json."""
    mounts = spec.get("mounts")
    places = [m.get("destination") for m in mounts or () if isinstance(m, dict)]
    return {
        place
        for place in places
        if isinstance(place, str) and injection_traces.is_driver_mount(place)
    }


def _is_cdi_hook(hook: dict[str, Any]) -> bool:
    args = hook.get("args")
    first = args[0] if isinstance(args, list) and args else ""
    return _name(hook) in _CDI_HOOKS or str(first).rpartition("/")[2] in _CDI_HOOKS


def _name(hook: dict[str, Any]) -> str:
    return str(hook.get("path")).rpartition("/")[2]
