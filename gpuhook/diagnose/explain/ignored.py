# SPDX-License-Identifier: Apache-2.0
"""What of a container's words counts for nothing, and what NVIDIA's runtime makes of it."""

from __future__ import annotations

from typing import Any

from gpuhook.grant import request
from gpuhook.vendors.nvidia import words
from gpuhook.vendors.nvidia.requirements import CUDA_VERSION

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator


def of(spec: dict[str, Any], devices: Iterable[dict[str, Any]]) -> list[str]:
    """Return a sentence for each thing that is ignored; `devices` are parts.of_names()."""
    return [*_of_variables(spec), *_of_names(devices)]


def _of_variables(spec: dict[str, Any]) -> Iterator[str]:
    environment = request.environment(spec)
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
    if value is None and CUDA_VERSION in environment and "NVIDIA_REQUIRE_CUDA" not in environment:
        yield (
            f"{CUDA_VERSION} without {name}: NVIDIA's runtime takes such an image of old to ask for"
            " all GPUs, gpuhook takes it to ask for none"
        )


def _entries(spec: dict[str, Any], name: str) -> list[str]:
    process = spec.get("process")
    env = process.get("env") if isinstance(process, dict) else None
    entries = env if isinstance(env, list) else []
    return [entry for entry in entries if isinstance(entry, str) and entry.startswith(name + "=")]


def _of_names(devices: Iterable[dict[str, Any]]) -> Iterator[str]:
    for one in devices:
        if one["given_by"] != one["name"]:
            yield f"{one['name']} is {one['device']}, which {one['given_by']} has given already"
