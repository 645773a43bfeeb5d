# SPDX-License-Identifier: Apache-2.0
"""The GPUs of a look at the node, asked for their policies and told them. All of it blocks."""

from __future__ import annotations

import subprocess
from typing import TypeVar

from gpuhook.device_plugin.gpu_policies.policy_plan import TIME_SLICE
from gpuhook.errors import DriverError
from gpuhook.vendors.nvidia.driver import driver_locations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from gpuhook.device_plugin.gpu_policies.policy_plan import Key
    from gpuhook.device_plugin.node_snapshot import Look
    from gpuhook.errors import GpuhookError
    from gpuhook.vendors.nvidia.gpu.compute_policy import Smi

T = TypeVar("T")


class Gpus:
    """What is asked once is remembered: one nvidia-smi tells of many GPUs.

    One that hangs is not waited for again for the next GPU: nothing is offered meanwhile.
    """

    def __init__(self, look: Look) -> None:
        self._look = look
        self._time_slices: dict[str, str] = {}
        self._hanging: GpuhookError | None = None

    def knows(self, uuid: str) -> bool:
        """Return whether the node has this GPU and has not lost it."""
        return any(gpu.uuid == uuid and gpu.lost is None for gpu in self._look.seen.gpus)

    def ask(self, keys: Iterable[Key]) -> None:
        """Ask for the time slices among `keys` at once, if there are several."""
        uuids = {uuid for uuid, kind in keys if kind == TIME_SLICE}
        if len(uuids) < 2:  # get() asks for one
            return
        from gpuhook.vendors.nvidia.gpu.compute_policy import time_slices

        try:
            by_index = self._said(lambda: time_slices(self._smi()))
        except DriverError:
            return  # one GPU without a time slice fails the list of all: get() asks for each
        known = {gpu.index: gpu.uuid for gpu in self._look.seen.gpus}
        for index, value in by_index.items():
            uuid = known.get(index)
            if uuid in uuids:
                self._time_slices[uuid] = value

    def get(self, key: Key) -> str:
        """Return the value that a GPU has. Raises GpuhookError as the vendor's modules say."""
        uuid, kind = key
        if kind == TIME_SLICE:
            from gpuhook.vendors.nvidia.gpu.compute_policy import time_slice

            known = self._time_slices.get(uuid)
            return known or self._said(lambda: time_slice(self._smi(), uuid))
        from gpuhook.vendors.nvidia.gpu.compute_mode import compute_mode

        return compute_mode(self._look.library, uuid)

    def set(self, key: Key, value: str) -> None:
        """Give a GPU this value. Raises GpuhookError as the vendor's modules say."""
        uuid, kind = key
        if kind == TIME_SLICE:
            from gpuhook.vendors.nvidia.gpu.compute_policy import set_time_slice

            self._time_slices.pop(uuid, None)
            self._said(lambda: set_time_slice(self._smi(), uuid, value))
            return
        from gpuhook.vendors.nvidia.gpu.compute_mode import set_compute_mode

        set_compute_mode(self._look.library, uuid, value)

    def _said(self, ask: Callable[[], T]) -> T:
        """Return what nvidia-smi is asked for, unless it has not answered before."""
        if self._hanging is not None:
            raise self._hanging
        try:
            return ask()
        except DriverError as error:
            if isinstance(error.__cause__, subprocess.TimeoutExpired):
                self._hanging = error
            raise

    def _smi(self) -> Smi:
        from gpuhook.vendors.nvidia.gpu.compute_policy import PROGRAM, Smi

        return Smi(driver_locations.program_path(self._look.seen, PROGRAM), self._look.library[0])
