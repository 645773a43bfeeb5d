# SPDX-License-Identifier: Apache-2.0
"""Reads and sets the policies of the GPUs in a snapshot of the node. All calls block."""

from __future__ import annotations

import subprocess
from typing import TypeVar

from gpuhook.device_plugin.gpu_policies.policy_plan import TIME_SLICE
from gpuhook.errors import DriverError
from gpuhook.vendors.nvidia.driver import driver_locations
from gpuhook.vendors.nvidia.gpu import compute_mode, compute_policy
from gpuhook.vendors.nvidia.plugin import nvidia_part

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from gpuhook.device_plugin.gpu_policies.policy_plan import Key
    from gpuhook.device_plugin.node_snapshot import NodeSnapshot
    from gpuhook.errors import GpuhookError

T = TypeVar("T")


class GpuPolicies:
    """Reads and sets policies. One nvidia-smi call reads the time slices of many GPUs.

    After one call that hangs, nvidia-smi is not called again: nothing is offered meanwhile.
    """

    def __init__(self, snapshot: NodeSnapshot) -> None:
        self._part = nvidia_part.own_part(snapshot.parts)
        self._time_slices: dict[str, str] = {}
        self._timeout: GpuhookError | None = None

    def knows(self, uuid: str) -> bool:
        """Return whether the node has this GPU and has not lost it."""
        return any(gpu.uuid == uuid and gpu.lost is None for gpu in self._part.seen.gpus)

    def prefetch(self, keys: Iterable[Key]) -> None:
        """Read the time slices among `keys` with one call, if there are several."""
        uuids = {uuid for uuid, kind in keys if kind == TIME_SLICE}
        if len(uuids) < 2:  # get() reads a single one
            return
        try:
            by_index = self._call(compute_policy.time_slices)
        except DriverError:
            return  # one GPU without a time slice fails the whole list: get() reads each
        known = {gpu.index: gpu.uuid for gpu in self._part.seen.gpus}
        for index, value in by_index.items():
            uuid = known.get(index)
            if uuid in uuids:
                self._time_slices[uuid] = value

    def get(self, key: Key) -> str:
        """Return a GPU's current value. Raises GpuhookError as the vendor's modules."""
        uuid, kind = key
        if kind == TIME_SLICE:
            known = self._time_slices.get(uuid)
            return known or self._call(compute_policy.time_slice, uuid)
        return compute_mode.compute_mode(self._part.library_and_module, uuid)

    def set(self, key: Key, value: str) -> None:
        """Set a GPU's value. Raises GpuhookError as the vendor's modules."""
        uuid, kind = key
        if kind == TIME_SLICE:
            self._time_slices.pop(uuid, None)
            self._call(compute_policy.set_time_slice, uuid, value)
            return
        compute_mode.set_compute_mode(self._part.library_and_module, uuid, value)

    def _call(self, call: Callable[..., T], *arguments: str) -> T:
        """Return the result of a call of nvidia-smi, unless an earlier call has timed out."""
        if self._timeout is not None:
            raise self._timeout
        seen, (library, _) = self._part.seen, self._part.library_and_module
        program = driver_locations.program_path(seen, compute_policy.PROGRAM)
        try:
            return call(compute_policy.Smi(program, library), *arguments)
        except DriverError as error:
            if isinstance(error.__cause__, subprocess.TimeoutExpired):
                self._timeout = error
            raise
