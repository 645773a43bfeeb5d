# SPDX-License-Identifier: Apache-2.0
"""The time slice of a GPU, read and set through the driver's own nvidia-smi.

The time that a process has the GPU before the next one is a compute policy of the driver. NVML has
no public function for it, only `nvidia-smi compute-policy` of driver 455 (CUDA 11.1) and newer. A
reboot, a reset, and closing the last handle of the GPU reset the policy.

Source: nvidia-smi 535.261, `compute-policy -h`, and the texts in it; its output:

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
_UNKNOWN = "nvidia-smi -h"  # in its message about an unknown command


@dataclass(frozen=True, slots=True)
class Smi:
    """An nvidia-smi: its path, and that of the NVML that it uses, as this process opens it."""

    program: str = PROGRAM
    library: str = ""  # "": the loader's


def time_slice(smi: Smi, uuid: str) -> str:
    """Return the time slice of a GPU, one of TIME_SLICES.

    Raises GH1260 without the program, GH1261 if it is too old, GH1262 for a GPU without time
    slices, GH1263 without the rights, GH1264 for any other error.
    """
    output = _run(smi, uuid, "--list")
    found = list(_listed(output).values())
    if len(found) != 1:
        raise fault("GH1264", program=smi.program, arguments=f"-i {uuid} --list", reason=output)
    return found[0]


def time_slices(smi: Smi) -> dict[int, str]:
    """Return the time slice of each GPU that has one, by index. Raises as time_slice()."""
    return _listed(_run(smi, "", "--list"))


def set_time_slice(smi: Smi, uuid: str, value: str) -> None:
    """Set the time slice of a GPU, one of TIME_SLICES; it needs root. Raises as time_slice()."""
    _run(smi, uuid, "--set-timeslice", str(TIME_SLICES.index(value)))


def _listed(table: str) -> dict[int, str]:
    found = {}
    for line in table.splitlines():
        words = line.strip().strip("|").split()
        if len(words) != _COLUMNS or not words[0].isdecimal():
            continue
        index, name, value = words
        if "timeslice" in name.lower() and value.lower() in TIME_SLICES:
            found[int(index)] = value.lower()
    return found


def _run(smi: Smi, uuid: str, *arguments: str) -> str:
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

    A plugin's container has the driver below /driver-root, which no loader searches; the directory
    of the library may have another C library, so the library itself is preloaded.
    """
    env = {**os.environ, "LC_ALL": "C"}
    if smi.library:
        env["LD_PRELOAD"] = " ".join(filter(None, (smi.library, env.get("LD_PRELOAD"))))
    return env


def _refused(smi: Smi, uuid: str, arguments: str, output: str) -> GpuhookError:
    lower = output.lower()
    reason = output.splitlines()[0]
    if _UNKNOWN in lower:
        return fault("GH1261", program=smi.program)
    if any(word in lower for word in _UNSUPPORTED):
        return fault("GH1262", uuid=uuid or "this node", reason=reason)
    if _FORBIDDEN in lower:
        return fault("GH1263", uuid=uuid or "this node", reason=reason)
    return fault("GH1264", program=smi.program, arguments=arguments, reason=reason)
