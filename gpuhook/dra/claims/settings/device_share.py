# SPDX-License-Identifier: Apache-2.0
"""What a claim has of one device: its share, its memory limit and the settings that apply."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field

from gpuhook.dra.claims.claim import ClaimName
from gpuhook.dra.claims.settings.gpu_config import DeviceSettings, MemorySettings, MpsSettings
from gpuhook.request.memory_request import BY_DRIVER, BY_KERNEL

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any


@dataclass(frozen=True, slots=True)
class DeviceShare:
    """The result of an allocation, with the settings that the driver applies.

    `number` is that of the share among the shares of the device, None for a whole device. `slots`
    and `reserved` bytes of memory are what the scheduler counts. `memory` is the limit in bytes, 0
    for none; `enforcer` what enforces it, and `is_required` means that no container starts without
    it. An `is_admin` share has no limit and no settings.
    """

    claim: ClaimName
    request: str
    device: str  # "gpu-0"
    uuid: str
    share_id: str = ""
    number: int | None = None
    slots: int = 1
    reserved: int = 0
    memory: int = 0
    is_required: bool = False
    enforcer: str = ""
    is_admin: bool = False
    settings: DeviceSettings = field(default_factory=DeviceSettings)

    @property
    def has_modes(self) -> bool:
        """Whether it needs a mode of the device: a time slice, a compute mode, an MPS server."""
        chosen = self.settings
        return (chosen.time_slice, chosen.compute_mode, chosen.mps) != (None, None, None)

    @property
    def must_start_with_limit(self) -> bool:
        """Whether the hook refuses a container without the driver's limit: the guard has none."""
        return self.is_required and self.enforcer in (BY_DRIVER, BY_KERNEL)

    def document(self) -> dict[str, Any]:
        """Return the share as JSON has it; share_of() reads it."""
        return asdict(self)


def share_of(document: Mapping[str, Any]) -> DeviceShare:
    """Return the share of a document; raises KeyError, TypeError or ValueError for another one."""
    values = dict(document["settings"])
    values["memory"] = MemorySettings(**values["memory"])
    if values["mps"] is not None:
        limits = tuple((str(name), int(size)) for name, size in values["mps"]["limits"])
        values["mps"] = MpsSettings(**{**values["mps"], "limits": limits})
    if values["hints"] is not None:
        values["hints"] = tuple(values["hints"])
    claim = ClaimName(**document["claim"])
    return DeviceShare(**{**document, "claim": claim, "settings": DeviceSettings(**values)})
