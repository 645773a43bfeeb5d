# SPDX-License-Identifier: Apache-2.0
"""The XIDs, the driver's error numbers, and the remedy for each.

Newer drivers also report the GPU's recovery action.

Source of the classes: NVIDIA's Xid catalog, the column of the immediate action, as of October 2025,
https://docs.nvidia.com/deploy/xid-errors/analyzing-xid-catalog.html: RESTART_APP is APPLICATION,
RESET_GPU is RESET, RESTART_BM and RESTART_VM are REBOOT, IGNORE and actions that need a person's
decision are REPORT. 48 and 74 have a procedure there instead of an action; both can end in a reset.
"""

from __future__ import annotations

from dataclasses import dataclass

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

APPLICATION, RESET, REBOOT, REPORT = "application", "reset", "reboot", "report"
NO_ACTION = "none"

# The remedy by a GPU's recovery action. Source: nvml.h, nvmlDeviceGpuRecoveryAction_t.
REMEDIES = {
    "reset": "reset the GPU",
    "reboot": "reboot the node",
    "drain-p2p": "stop the work on the GPUs that it is linked to",
    "drain-and-reset": "stop the work on this GPU and the GPUs linked to it, then reset it",
    "recover-imex": "recover the IMEX domain",
    "bus-reset": "reset the GPU's PCIe bus",
    "system-reboot": "reboot the node, including its firmware",
}


@dataclass(frozen=True, slots=True)
class Xid:
    """One row of the table. `is_contained`: the GPU's other MIG instances are not affected."""

    meaning: str
    kind: str
    is_contained: bool = False


def remedy(known: Xid | None) -> str:
    """Return the remedy for an XID of the table, "" if there is none."""
    if known is None or known.kind == REPORT:
        return ""
    if known.kind == APPLICATION:
        return "restart the program"
    return REMEDIES["reboot" if known.kind == REBOOT else "reset"]


def _numbers(text: str) -> Iterator[int]:
    """Yield the numbers of "1 3-5": 1, 3, 4, 5."""
    for word in text.split():
        first, _, last = word.partition("-")
        yield from range(int(first), int(last or first) + 1)


# Numbers, meaning, class, contained in a MIG instance.
_ROWS: tuple[tuple[str, str, str, bool], ...] = (
    ("8", "a channel stopped making progress", APPLICATION, True),
    ("11 25 32 80", "a program's command stream is invalid", APPLICATION, True),
    ("13", "a program caused an exception of the graphics engine", APPLICATION, True),
    ("31", "a program accessed invalid memory", APPLICATION, True),
    ("37 38", "the driver's firmware encountered an error", REPORT, False),
    ("39-41 70-72 75-77 85 126-135", "a copy engine encountered an error", APPLICATION, True),
    ("43", "a program's channel was stopped", APPLICATION, True),
    ("44", "a fault during a context switch", REPORT, True),
    ("45", "a program's channels were removed after another error", APPLICATION, True),
    ("46", "the GPU stopped processing", RESET, False),
    ("48", "an uncorrectable memory error", RESET, True),
    ("54", "a power cable of the board is missing", REPORT, False),
    ("60", "a video processor encountered an error", APPLICATION, True),
    ("62", "the GPU's micro-controller halted", RESET, False),
    ("63", "a memory row or page will be replaced at the next reset", REPORT, False),
    ("64", "a memory row or page could not be replaced", RESET, False),
    ("66 67", "the driver made a forbidden access", REPORT, False),
    ("68 83 84 88 89 96-98", "a video decoder encountered an error", APPLICATION, True),
    ("69", "a program used an invalid graphics engine class", APPLICATION, True),
    ("74", "an NVLink failed", RESET, False),
    ("78", "a virtual GPU could not start", REPORT, False),
    ("79", "the GPU has fallen off the bus", REBOOT, False),
    ("82 99-105", "a JPEG engine encountered an error", APPLICATION, True),
    ("86 139", "an optical flow engine encountered an error", APPLICATION, True),
    ("92", "many corrected memory errors", REPORT, True),
    ("93", "the InfoROM is written too often", REPORT, False),
    ("94", "a memory error that affects only the program that encountered it", APPLICATION, True),
    ("95", "a memory error that was not contained", RESET, True),
    ("106 107", "a test message of the management controller", REPORT, False),
    ("108 137", "an NVLink access was refused", REPORT, True),
    ("109", "a context switch timed out", RESET, True),
    ("110", "a security fault", RESET, False),
    ("119", "the GPU's system processor did not answer in time", RESET, False),
    ("120", "the GPU's system processor encountered an error", RESET, False),
    ("121", "the link to the CPU had an error", REPORT, False),
    ("136", "training an NVLink failed", RESET, False),
    ("140", "a memory error escaped correction", RESET, True),
    ("141", "CUDA's fast path encountered an error", REPORT, True),
    ("142", "a video encoder encountered an error", REPORT, True),
    ("143", "the GPU could not be initialized", RESET, False),
    ("144-150", "NVLink hardware reported an error", REPORT, False),
    ("151", "rotating encryption keys failed", REBOOT, False),
    ("152 153", "a deep learning accelerator encountered an error", REPORT, False),
    ("154", "the recovery action of the GPU has changed", REPORT, False),
    ("155", "NVLink software reported an error", RESET, False),
    ("156", "a part of the GPU was retired and needs a reset", RESET, False),
    ("157", "a part of the GPU could not be retired", REPORT, False),
    ("158", "the GPU met a fatal timeout", RESET, False),
    ("160 161", "a memory channel was retired, or could not be retired", REPORT, False),
)
TABLE: dict[int, Xid] = {
    number: Xid(meaning, kind, contained)
    for numbers, meaning, kind, contained in _ROWS
    for number in _numbers(numbers)
}
