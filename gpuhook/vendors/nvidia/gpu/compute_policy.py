# SPDX-License-Identifier: Apache-2.0
"""The time slice of a GPU, read and set through the driver's own nvidia-smi.

How long a process has the GPU before the next one's turn is a compute policy of the driver. NVML
has no public call for it, only `nvidia-smi compute-policy`, from driver 455 (CUDA 11.1) on. The
policy ends with the driver's hold of the GPU: a reboot, a reset, a GPU that nobody keeps open.

Source: nvidia-smi 535.261, `compute-policy -h`, and the texts in it; as seen there:

    +-------------------------------------+
    | GPU compute policies:               |
    | GPU     Name           Value        |
    |=====================================|
    |   0     Timeslice      Default      |
    +-------------------------------------+
    Failed to set timeslice policy with value Short for GPU 0 : Not Supported
"""

from __future__ import annotations

import os
import subprocess
from dataclasses import dataclass

from gpuhook.errors import fault
from gpuhook.vendors.nvidia.warm.nvml_constants import TIME_SLICES

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gpuhook.errors import GpuhookError

PROGRAM = "nvidia-smi"
_SECONDS = 10.0
_COLUMNS = 3
_UNSUPPORTED = ("not supported", "function not found")
_FORBIDDEN = "insufficient permissions"
_UNKNOWN = "nvidia-smi -h"  # which it says to run for what it does not know


@dataclass(frozen=True, slots=True)
class Smi:
    """An nvidia-smi: its path, and that of the NVML that it is to use, as this process opens it."""

    program: str = PROGRAM
    library: str = ""  # "": the one that the loader finds


def time_slice(smi: Smi, uuid: str) -> str:
    """Return the time slice of a GPU, of TIME_SLICES.

    Raises GH1260 where there is no such program, GH1261 where it is too old, GH1262 for a GPU that
    has no time slice to set, GH1263 where the driver wants more rights, GH1264 for anything else.
    """
    said = _said(smi, uuid, "--list")
    found = list(_listed(said).values())
    if len(found) != 1:
        raise fault("GH1264", program=smi.program, arguments=f"-i {uuid} --list", reason=said)
    return found[0]


def time_slices(smi: Smi) -> dict[int, str]:
    """Return the time slice of each GPU that has one, by index. Raises what time_slice() raises."""
    return _listed(_said(smi, "", "--list"))


def set_time_slice(smi: Smi, uuid: str, value: str) -> None:
    """Set the time slice of a GPU, of TIME_SLICES; it needs root. Raises as time_slice()."""
    _said(smi, uuid, "--set-timeslice", str(TIME_SLICES.index(value)))


def _listed(table: str) -> dict[int, str]:
    """Return the time slices in what --list prints, by the index of the GPU."""
    found = {}
    for line in table.splitlines():
        words = line.strip().strip("|").split()
        if len(words) != _COLUMNS or not words[0].isdecimal():
            continue
        index, name, value = words
        if "timeslice" in name.lower() and value.lower() in TIME_SLICES:
            found[int(index)] = value.lower()
    return found


def _said(smi: Smi, uuid: str, *arguments: str) -> str:
    which = ("-i", uuid) if uuid else ()
    shown = " ".join((*which, *arguments))
    try:
        done = subprocess.run(
            [smi.program, "compute-policy", *which, *arguments],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            env=_environment(smi),
            timeout=_SECONDS,
            check=False,
        )
    except FileNotFoundError as error:
        raise fault("GH1260", program=smi.program) from error
    except (OSError, subprocess.TimeoutExpired) as error:
        raise fault("GH1264", program=smi.program, arguments=shown, reason=error) from error
    if done.returncode != 0:
        raise _refused(smi, uuid, shown, done.stdout.strip() or f"exit status {done.returncode}")
    return done.stdout


def _environment(smi: Smi) -> dict[str, str]:
    """Return the environment in which it uses our NVML.

    A plugin's container has the driver below /driver-root, where no loader looks; the directory
    of the library may have another C library, so it is loaded before, by name.
    """
    env = {**os.environ, "LC_ALL": "C"}
    if smi.library:
        env["LD_PRELOAD"] = " ".join(filter(None, (smi.library, env.get("LD_PRELOAD"))))
    return env


def _refused(smi: Smi, uuid: str, arguments: str, said: str) -> GpuhookError:
    lower = said.lower()
    reason = said.splitlines()[0]
    if _UNKNOWN in lower:
        return fault("GH1261", program=smi.program)
    if any(word in lower for word in _UNSUPPORTED):
        return fault("GH1262", uuid=uuid or "this node", reason=reason)
    if _FORBIDDEN in lower:
        return fault("GH1263", uuid=uuid or "this node", reason=reason)
    return fault("GH1264", program=smi.program, arguments=arguments, reason=reason)
