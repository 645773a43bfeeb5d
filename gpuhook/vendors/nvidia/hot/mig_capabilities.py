# SPDX-License-Identifier: Apache-2.0
"""MIG's access capabilities: their names, and the device nodes that open them.

A process may use a MIG device if it can open the capability nodes of its GPU instance and of its
compute instance. Source: NVIDIA MIG User Guide, "Device Nodes and Capabilities".
"""

from __future__ import annotations

from gpuhook.errors import GpuhookError
from gpuhook.host.hot import files

MAJOR_NAME = "nvidia-caps"  # in /proc/devices
MINORS = "/proc/driver/nvidia-caps/mig-minors"
CAPABILITIES = "/proc/driver/nvidia/capabilities"
_MAX_MINOR = 1 << 20
_MAX_SIZE = 4 << 20


class Capability:
    """One capability: the minor of its node, and the mode that the driver sets for it, or None."""

    __slots__ = ("minor", "mode")

    def __init__(self, minor: int, mode: int | None = None) -> None:
        self.minor = minor
        self.mode = mode  # permission bits


def proc_text(host_root: str, path: str) -> str:
    """Return the text of a file of the driver or the kernel in /proc, "" if it is not readable."""
    try:
        content = files.read(host_root.rstrip("/") + path, _MAX_SIZE)
    except (OSError, GpuhookError):
        return ""
    return content.decode("utf-8", "replace")


def old_uuid(gpu_uuid: str, gpu_instance: int, compute_instance: int) -> str:
    """Return the UUID of a MIG device before driver 470: MIG-GPU-<uuid>/<gi>/<ci>."""
    return f"MIG-{gpu_uuid}/{gpu_instance}/{compute_instance}"


def name(gpu_minor: int, gpu_instance: int, compute_instance: int | None = None) -> str:
    """Return the name of an access capability in mig-minors: gpu0/gi1/ci0/access."""
    compute = "" if compute_instance is None else f"/ci{compute_instance}"
    return f"gpu{gpu_minor}/gi{gpu_instance}{compute}/access"


def file(capability: str) -> str:
    """Return the path in /proc of the file that describes an access capability."""
    gpu, _, rest = capability.partition("/")
    return f"{CAPABILITIES}/{gpu}/mig/{rest}"


def parse_minors(text: str) -> dict[str, int]:
    """Return the minor of each capability in the content of mig-minors, without malformed lines."""
    found = {}
    for line in text.splitlines():
        words = line.split()
        if len(words) == 2 and _is_minor(words[1]):
            found[words[0]] = int(words[1])
    return found


def parse_file(text: str) -> Capability | None:
    """Return the capability in the content of its file, None without a minor."""
    pairs = (line.partition(":") for line in text.splitlines())
    facts = {key.strip(): value.strip() for key, _, value in pairs}
    minor, mode = facts.get("DeviceFileMinor", ""), facts.get("DeviceFileMode", "")
    if not _is_minor(minor):
        return None
    is_mode = mode.isascii() and mode.isdigit() and int(mode) <= 0o777
    return Capability(int(minor), int(mode) if is_mode else None)


def capability(minor: int | None, text: str) -> Capability | None:
    """Return the capability with the minor in mig-minors, else with that in its file's `text`."""
    described = parse_file(text)
    if minor is None:
        return described
    return Capability(minor, None if described is None else described.mode)


def _is_minor(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) <= 7 and int(text) < _MAX_MINOR
