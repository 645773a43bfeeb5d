# SPDX-License-Identifier: Apache-2.0
"""What of a container's words counts for nothing, and what NVIDIA's runtime makes of it."""

from __future__ import annotations

from typing import Any

from gpuhook.request import mount_requests, parse
from gpuhook.vendors.nvidia.hot import vocabulary as words
from gpuhook.vendors.nvidia.hot.requirements import CUDA_VERSION

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from gpuhook.host.hot.settings import Settings


def ignored_values(
    spec: dict[str, Any], devices: Iterable[dict[str, Any]], settings: Settings
) -> list[str]:
    """Return a sentence for each ignored value; `devices` are resolution_trace.of_names()."""
    environment = parse.environment(spec)
    return [
        *_of_resources(environment, settings),
        *_of_variables(spec, environment),
        *_of_old(environment, settings),
        *_of_mounts(spec, settings),
        *_of_names(devices),
    ]


def _of_resources(environment: Mapping[str, str], settings: Settings) -> Iterator[str]:
    """Yield what variables of request.swarmResources put out of use, and that they are empty."""
    there = [name for name in settings.swarm_resources if name in environment]
    name = words.VOCABULARY.devices_env
    if there and name in environment:
        yield (
            f"{name}={environment[name]} does not count: {', '.join(there)} of"
            " request.swarmResources takes its place"
        )
    if there and not any(environment[one].strip(" ,") for one in there):
        yield f"{', '.join(there)} of request.swarmResources is empty, which asks for nothing"


def _of_old(environment: Mapping[str, str], settings: Settings) -> Iterator[str]:
    """Yield why an image of old gets nothing."""
    name = words.VOCABULARY.devices_env
    if name in environment or not parse.is_legacy(environment, words.VOCABULARY):
        return
    if not settings.legacy_images:
        yield (
            f"{CUDA_VERSION} without {name}: an image of old, which would get all GPUs were"
            " request.legacyImages on"
        )


def _of_mounts(spec: dict[str, Any], settings: Settings) -> Iterator[str]:
    vocabulary = words.VOCABULARY
    mounts, prefix = spec.get("mounts"), vocabulary.mount_prefix
    for path in mount_requests.names(mounts, prefix, vocabulary.extra_mounts)[1]:
        if settings.accept_volume_mounts:
            yield f"the mount at {path} names no device: cdi/VENDOR/CLASS/NAME is how one is named"


def _of_variables(spec: dict[str, Any], environment: Mapping[str, str]) -> Iterator[str]:
    name = words.VOCABULARY.devices_env
    value = environment.get(name)
    held = _entries(spec, name)
    if len(held) > 1:
        yield f"{name} is set {len(held)} times: the last one counts, {held[-1]}"
    parts = [part.strip() for part in (value or "").split(",")]
    if "void" in parts:
        yield f"{name}={value} asks for nothing: void says that GPUs were given already"
    elif value is not None and not any(parts):
        yield f"{name} is empty, which asks for nothing"
    elif value is not None and value.rstrip("/") == words.VOCABULARY.mount_prefix.rstrip("/"):
        yield (
            f"{name}={value} names no device: a device plugin of the list strategy volume-mounts"
            " says so, and its devices are the mounts below that directory"
        )
    elif "all" in parts and len(parts) > 1:
        yield f"of {name}={value}, all is what counts"


def _entries(spec: dict[str, Any], name: str) -> list[str]:
    process = spec.get("process")
    env = process.get("env") if isinstance(process, dict) else None
    entries = env if isinstance(env, list) else []
    return [entry for entry in entries if isinstance(entry, str) and entry.startswith(name + "=")]


def _of_names(devices: Iterable[dict[str, Any]]) -> Iterator[str]:
    for one in devices:
        if one["given_by"] != one["name"]:
            yield f"{one['name']} is {one['device']}, which {one['given_by']} has given already"
