# SPDX-License-Identifier: Apache-2.0
"""The time slices of a simulated node's GPUs, set and printed by a replaced nvidia-smi."""

from __future__ import annotations

import os
import shutil
from dataclasses import dataclass
from pathlib import Path

from tests.simulated.node import SimulatedNode

_STAND_IN = Path(__file__).parent / "smi_policy.py"


@dataclass(frozen=True)
class TimeSlices:
    """The program that replaces nvidia-smi, and its files."""

    program: Path

    def now(self) -> list[str]:
        """Return the time slice of each GPU, by index."""
        return [line.split()[1].lower() for line in self._beside("gpus").splitlines()]

    def put(self, index: int, value: str) -> None:
        """Set the time slice of a GPU, or "-" for none, as another program may do."""
        lines = [line.split() for line in self._beside("gpus").splitlines()]
        lines[index][1] = value.capitalize()
        self._write("gpus", "".join(f"{uuid} {current}\n" for uuid, current in lines))

    def calls(self, word: str = "") -> list[str]:
        """Return the calls that have this word in their arguments or LD_PRELOAD."""
        return [line for line in self._beside("calls").splitlines() if word in line]

    def mood(self, word: str) -> None:
        """Set the program's state: "old", "forbidden", "broken", "hanging", or "" for working."""
        self._write("mood", word)

    def _beside(self, name: str) -> str:
        path = Path(f"{self.program}.{name}")
        return path.read_text() if path.exists() else ""

    def _write(self, name: str, text: str) -> None:
        new = Path(f"{self.program}.{name}.test")
        new.write_text(text)
        new.rename(f"{self.program}.{name}")


def install(node: SimulatedNode) -> TimeSlices:
    """Install the program for the node's driver; all GPUs have the default time slice."""
    for file in node.node.files:
        if os.path.basename(file.container_path) == "nvidia-smi":
            program = Path(file.host_path)
            shutil.copy(_STAND_IN, program)
            program.chmod(0o755)
            gpus = "".join(f"{gpu.uuid} Default\n" for gpu in node.node.gpus)
            Path(f"{program}.gpus").write_text(gpus)
            return TimeSlices(program)
    raise AssertionError("this node's driver has no nvidia-smi")
