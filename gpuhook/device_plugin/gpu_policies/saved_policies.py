# SPDX-License-Identifier: Apache-2.0
"""Saves the values of GPUs before the plugin changes them, in a file of the state directory.

A killed plugin leaves its settings behind, and the next one restores the saved values. The driver's
settings do not survive a reboot, so older files are ignored.
"""

from __future__ import annotations

import json
import os
from contextlib import suppress
from dataclasses import asdict, dataclass

from gpuhook.device_plugin.config.sharing_section import TIME_SLICES
from gpuhook.device_plugin.gpu_policies.policy_plan import COMPUTE_MODE, TIME_SLICE
from gpuhook.errors import GpuhookError
from gpuhook.host import documents
from gpuhook.host.hot import files, state
from gpuhook.vendors.nvidia.warm.nvml_constants import COMPUTE_MODES

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from gpuhook.device_plugin.gpu_policies.policy_plan import Key

FORMAT = 1
FILE, CLAIMS_FILE = FILES = ("policies.json", "dra-policies.json")  # of the plugin, for claims
_MAX_SIZE = 1 << 20
_VALUES = {TIME_SLICE: TIME_SLICES, COMPUTE_MODE: tuple(COMPUTE_MODES.values())}


@dataclass(frozen=True, slots=True)
class SavedPolicy:
    """The value `before` the change, and the value that the plugin set: `ours`."""

    before: str
    ours: str


def path(file: str = FILE) -> str:
    return os.path.join(state.directory(), file)


def read(boot: str | None, file: str = FILE) -> dict[Key, SavedPolicy]:
    """Return the saved values of this boot; {} for a missing or faulty file."""
    try:
        if not state.usable(os.lstat(path(file))):
            return {}
        content = documents.parse_json_object(files.read(path(file), _MAX_SIZE))
    except (OSError, ValueError, GpuhookError):
        return {}
    if content.get("format") != FORMAT or content.get("boot") != boot:
        return {}
    gpus = content.get("gpus")
    return {
        (uuid, kind): saved
        for uuid, kinds in (gpus.items() if isinstance(gpus, dict) else ())
        for kind, values in (kinds.items() if isinstance(kinds, dict) else ())
        if (saved := _saved_policy(kind, values)) is not None
    }


def write(policies: Mapping[Key, SavedPolicy], boot: str | None, file: str = FILE) -> None:
    """Save the values; without any the file is removed. Raises OSError."""
    if not policies:
        with suppress(FileNotFoundError):
            os.unlink(path(file))
        return
    gpus: dict[str, dict[str, object]] = {}
    for (uuid, kind), saved in policies.items():
        gpus.setdefault(uuid, {})[kind] = asdict(saved)
    text = json.dumps({"format": FORMAT, "boot": boot, "gpus": gpus}, indent=2) + "\n"
    os.makedirs(state.directory(), 0o755, exist_ok=True)
    files.replace(path(file), text.encode(), mode=0o644)


def _saved_policy(kind: str, content: Any) -> SavedPolicy | None:
    if not isinstance(content, dict):
        return None
    before, ours = content.get("before"), content.get("ours")
    known = _VALUES.get(kind, ())
    return SavedPolicy(before, ours) if before in known and ours in known else None
