# SPDX-License-Identifier: Apache-2.0
"""The CDI specs of this node: gpuhook's own, and those of NVIDIA's tools.

A spec of NVIDIA's says what NVIDIA gives; what gpuhook would give is what it would write itself.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from gpuhook.cdi import spec_file as cdi_spec
from gpuhook.cdi.hot import registry
from gpuhook.errors import GpuhookError
from gpuhook.host.hot import files
from gpuhook.vendors.nvidia.driver import hookless_mounts
from gpuhook.vendors.nvidia.hot import vocabulary
from gpuhook.vendors.nvidia.hot.rootfs import hook_args

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gpuhook.host.hot.settings import Settings

_MAX_SPEC = 64 << 20


@dataclass(frozen=True, slots=True)
class ForeignSpec:
    """What the specs of NVIDIA's tools on this node give: (source, destination), and variables."""

    mounts: frozenset[tuple[str, str]] = frozenset()
    variables: frozenset[str] = frozenset()


def own_spec(settings: Settings, kind: str) -> str:
    """Return the path of a spec of `kind` that generate-cdi has written, "" if there is none.

    Nothing is compiled and kept for that. A file that cannot be read is passed over.
    """
    for directory in reversed(settings.spec_dirs):
        for path in registry.files(directory):
            spec = _read(path)
            if spec.get("kind") == kind and _is_ours(spec):
                return path
    return ""


def foreign(settings: Settings) -> ForeignSpec:
    """Return what the specs of NVIDIA's GPUs give that gpuhook has not written."""
    paths = [path for directory in settings.spec_dirs for path in registry.files(directory)]
    found = [spec for path in paths if (spec := _read(path)) and not _is_ours(spec)]
    mounts: set[tuple[str, str]] = set()
    variables: set[str] = set()
    for spec in found:
        if str(spec.get("kind")).partition("/")[0] != vocabulary.VENDOR:
            continue
        for part in (spec, *_objects(spec.get("devices"))):
            edits = part.get("containerEdits")
            edits = edits if isinstance(edits, dict) else {}
            for mount in _objects(edits.get("mounts")):
                source, place = mount.get("hostPath"), mount.get("containerPath")
                if isinstance(source, str) and isinstance(place, str):
                    mounts.add((source, place))
            env = edits.get("env")
            variables.update(
                e for e in (env if isinstance(env, list) else ()) if isinstance(e, str)
            )
    return ForeignSpec(frozenset(mounts), frozenset(variables))


def _objects(found: object) -> list[dict[str, Any]]:
    return [one for one in found if isinstance(one, dict)] if isinstance(found, list) else []


def _read(path: str) -> dict[str, Any]:
    """Return a spec, {} for a file that is not one."""
    try:
        spec = cdi_spec.parser(path)(files.read(path, _MAX_SPEC), path)
    except (GpuhookError, OSError):
        return {}
    return spec if isinstance(spec, dict) else {}


def _is_ours(spec: dict[str, Any]) -> bool:
    edits = spec.get("containerEdits")
    if not isinstance(edits, dict):
        return False
    hooks, env = edits.get("hooks"), edits.get("env")
    is_hooked = isinstance(hooks, list) and any(hook_args.is_ours(hook) for hook in hooks)
    return is_hooked or (isinstance(env, list) and hookless_mounts.ENV in env)
