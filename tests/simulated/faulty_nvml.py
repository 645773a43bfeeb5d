# SPDX-License-Identifier: Apache-2.0
"""A simulated node whose NVML has a fault in one function: see faulty_nvml.c."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path

from tests.simulated import build
from tests.simulated.node import SimulatedNode


@dataclass(frozen=True)
class FaultyNvml:
    """The library of a node, which it replaces."""

    library: Path

    @classmethod
    def install(cls, node: SimulatedNode) -> FaultyNvml:
        """Put the library with faults before the stub of a node."""
        library = Path(node.nvml_library)
        library.rename(library.with_name("nvml-real.so"))
        shutil.copy(build.faulty_nvml(library.with_name("nvml-real.so")), library)
        return cls(library)

    def fail(self, function: str, fault: str) -> None:
        """Give a function a fault: "hang", "crash", "error 999", "garbage"."""
        self.library.with_name("nvml-fault").write_text(f"{function} {fault}\n", "utf-8")

    def end(self) -> None:
        """End the fault."""
        self.library.with_name("nvml-fault").unlink(missing_ok=True)

    def watch(self) -> None:
        """Forget the calls until now, and record those from now on."""
        self.library.with_name("nvml-calls").write_text("", "utf-8")

    def calls(self) -> list[str]:
        """Return the functions that were called since watch(), each once."""
        return list(dict.fromkeys(self.library.with_name("nvml-calls").read_text().split()))
