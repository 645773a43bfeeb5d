# SPDX-License-Identifier: Apache-2.0
"""Keys of the device plugin's configuration that have no meaning for claims."""

from __future__ import annotations

from gpuhook.device_plugin.config import configuration
from gpuhook.device_plugin.config.configuration import Configuration
from gpuhook.device_plugin.config.sharing_section import MEMORY_UNITS, STRATEGIES

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

_BY_CDI = "a claim's devices reach the container runtime by a CDI spec"
_BY_SCHEDULER = "the scheduler chooses the device of a claim"
_BY_LABELS = "the driver writes no labels: run `gpuhook labels`"
_NO_EXTRAS = "a claim has the devices of its driver only"
# Paths of keys, and why a value other than the default has no meaning.
_KEYS = {
    "flags.plugin.passDeviceSpecs": _BY_CDI,
    "flags.plugin.deviceListStrategy": _BY_CDI,
    "flags.plugin.deviceIDStrategy": "a claim names its devices by their UUIDs",
    "flags.plugin.cdiAnnotationPrefix": _BY_CDI,
    "flags.plugin.sharedDevicesAllocationPolicy": _BY_SCHEDULER,
    "flags.amd.deviceListStrategy": _BY_CDI,
    "flags.gdrcopyEnabled": _NO_EXTRAS,
    "flags.gdsEnabled": _NO_EXTRAS,
    "flags.mofedEnabled": _NO_EXTRAS,
    "imex.channelIDs": _NO_EXTRAS,
    "gpuhook.hostFilesPath": _BY_CDI,
    "gpuhook.preStartCheck": "the kubelet calls no driver before a container starts",
    "gpuhook.labels": _BY_LABELS,
    "gpuhook.labelNode": _BY_LABELS,
}
_OF_SECTION = {
    "failRequestsGreaterThanOne": "the devices of one request are always different GPUs",
    "policy": _BY_SCHEDULER,
}
_OVERSUBSCRIBE = (
    "claims never get more memory than the device has: fewer than `replicas` of them fit"
)
_UNITS = (
    "a pod would get one device for each unit that it requests: write claims that request the "
    "capacity `memory`"
)


def warnings(chosen: Configuration) -> list[str]:
    """Return a warning for each key without a meaning whose value is not the default."""
    document, usual = configuration.document(chosen), configuration.document(Configuration())
    found = [
        f"{path}: has no effect: {reason}"
        for path, reason in _KEYS.items()
        if _value(document, path) != _value(usual, path)
    ]
    return found + _of_sharing(chosen)


def _of_sharing(chosen: Configuration) -> list[str]:
    sharing, usual = chosen.sharing, Configuration().sharing
    section = next((key for key, name in STRATEGIES.items() if name == sharing.strategy), "")
    # An MPS client has the limits of one replica, so a file cannot choose the first one there.
    values = {
        "failRequestsGreaterThanOne": sharing.refuses_more_than_one and section != "mps",
        "policy": sharing.policy != usual.policy,
    }
    found = [
        f"sharing.{section}.{key}: has no effect: {_OF_SECTION[key]}"
        for key, is_set in values.items()
        if is_set
    ]
    for number, entry in enumerate(sharing.resources):
        where = f"sharing.{section}.resources[{number}]"
        if entry.oversubscribe:
            found.append(f"{where}.oversubscribe: has no effect: {_OVERSUBSCRIBE}")
        if sharing.strategy == MEMORY_UNITS:
            found.append(f"{where}.rename: has no effect: {_UNITS}")
    return found


def _value(document: dict[str, Any], path: str) -> object:
    value: Any = document
    for name in path.split("."):
        value = value.get(name) if isinstance(value, dict) else None
    return value
