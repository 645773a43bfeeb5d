# SPDX-License-Identifier: Apache-2.0
"""NVIDIA's answers about memory limits at a container's start (memory_interface.py)."""

from __future__ import annotations

import os

from gpuhook.errors import fault
from gpuhook.request import memory_request, replicas
from gpuhook.vendors.nvidia.hot import node_json, vocabulary

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable
    from typing import Any

FIRST_BRANCH = 615  # the driver branch of CUDA 13.4, the first with memory limits


class NvidiaMemory:
    """NVIDIA: GPUs and MIG instances have UUIDs; the driver sets limits through NVML."""

    domain = vocabulary.VENDOR
    vocabulary = vocabulary.VOCABULARY
    limited_by = memory_request.BY_DRIVER
    context = 256 << 20  # bytes: a CUDA context with its libraries takes about as much

    def has_device(self, device: str) -> bool:
        """Return whether a device id is NVIDIA's: a UUID."""
        return vocabulary.is_uuid(device)

    def devices(
        self,
        spec: dict[str, Any],
        nodes: Collection[str],
        names: Iterable[str],
        covered: Callable[[], Collection[str]],
    ) -> list[str]:
        """Return the UUIDs of the GPUs and instances of a container with the device nodes `nodes`.

        `names` are those of its devices, qualified or as requested. Without an inventory of this
        node, its grants in `spec` name some, and `covered` returns the names of the devices whose
        nodes are among `nodes`. Raises GH1024 if a GPU cannot be identified.
        """
        known = node_json.uuids()
        nodes = list(dict.fromkeys(nodes))
        found = [known[path] for path in nodes if path in known]
        found += map(_plain, names)
        uuids = [name for name in dict.fromkeys(found) if vocabulary.is_uuid(name)]
        unknown = [path for path in nodes if vocabulary.is_whole_gpu(path) and path not in known]
        if known and uuids:
            return uuids  # the node of a GPU with instances has no UUID: these were found
        if len(unknown) > len(uuids):
            grants = memory_request.granted(spec, vocabulary.VOCABULARY.memory_prefix)
            uuids = list(dict.fromkeys([*uuids, *filter(vocabulary.is_uuid, grants)]))
        if len(unknown) > len(uuids):
            uuids = list(dict.fromkeys([*uuids, *filter(vocabulary.is_uuid, covered())]))
        if any(name.startswith("MIG-") for name in uuids) or len(unknown) <= len(uuids):
            return uuids
        raise fault("GH1024", nodes=", ".join(unknown))

    def totals(self, devices: Collection[str]) -> dict[str, int]:
        """Return the bytes of the GPUs among `devices`, without unknown ones."""
        return {gpu: size for gpu, size in node_json.memory().items() if gpu in devices}

    def reports_limit(self, devices: Collection[str], library: str) -> bool:
        """Return whether the driver reports a limit to programs as the total of their card.

        It does so from FIRST_BRANCH on, by the version in the library's name, and not for MIG
        instances.
        """
        is_new = (driver_branch(library) or 0) >= FIRST_BRANCH
        return is_new and not any(device.startswith("MIG-") for device in devices)


def driver_branch(library: str) -> int | None:
    """Return the driver's branch by its library's name, None for another name.

    >>> driver_branch("/usr/lib/libnvidia-ml.so.580.65.06")
    580
    """
    first = os.path.realpath(library).rpartition(".so.")[2].partition(".")[0]
    # libnvidia-ml.so.1 alone, without its target, has no branch
    return int(first) if first.isdecimal() and int(first) > 1 else None


def _plain(name: str) -> str:
    """Return the device of a name: without a kind, without a replica's number.

    A UUID is returned in NVML's spelling: a request may have it in any case.
    """
    plain = name.rpartition("=")[2]
    plain = replicas.device_of(plain) or plain
    is_written_so = not vocabulary.is_uuid(plain) or plain.startswith(vocabulary.OLD_MIG)
    return plain if is_written_so else plain[:4] + plain[4:].lower()
