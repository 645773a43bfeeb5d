# SPDX-License-Identifier: Apache-2.0
"""What GPUs had before the plugin set something of them, in a file below the state directory.

A plugin that is killed leaves its settings; the next one reads here what was there before. Nothing
of that outlives a boot.
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
_MAX_SIZE = 1 << 20
_VALUES = {TIME_SLICE: TIME_SLICES, COMPUTE_MODE: tuple(COMPUTE_MODES.values())}


@dataclass(frozen=True, slots=True)
class Note:
    """What was there `before`, and what we set: `ours`."""

    before: str
    ours: str


def path() -> str:
    """Return the path of the file."""
    return os.path.join(state.directory(), "policies.json")


def read(boot: str | None) -> dict[Key, Note]:
    """Return the notes of this boot; {} where no file can be believed."""
    try:
        if not state.usable(os.lstat(path())):
            return {}
        found = documents.parse_json_object(files.read(path(), _MAX_SIZE))
    except (OSError, ValueError, GpuhookError):
        return {}
    if found.get("format") != FORMAT or found.get("boot") != boot:
        return {}
    gpus = found.get("gpus")
    return {
        (uuid, kind): note
        for uuid, kinds in (gpus.items() if isinstance(gpus, dict) else ())
        for kind, content in (kinds.items() if isinstance(kinds, dict) else ())
        if (note := _note(kind, content)) is not None
    }


def write(notes: Mapping[Key, Note], boot: str | None) -> None:
    """Write the notes; without any the file goes. Raises OSError."""
    if not notes:
        with suppress(FileNotFoundError):
            os.unlink(path())
        return
    gpus: dict[str, dict[str, object]] = {}
    for (uuid, kind), note in notes.items():
        gpus.setdefault(uuid, {})[kind] = asdict(note)
    text = json.dumps({"format": FORMAT, "boot": boot, "gpus": gpus}, indent=2) + "\n"
    os.makedirs(state.directory(), 0o755, exist_ok=True)
    files.replace(path(), text.encode(), mode=0o644)


def _note(kind: str, content: Any) -> Note | None:
    if not isinstance(content, dict):
        return None
    before, ours = content.get("before"), content.get("ours")
    known = _VALUES.get(kind, ())
    return Note(before, ours) if before in known and ours in known else None
