# SPDX-License-Identifier: Apache-2.0
"""MIG's access capabilities and the driver's numbers, by the kernel's files.

A process may use a MIG device if it can open the capability nodes of its GPU instance and of its
compute instance. Source: NVIDIA MIG User Guide, "Device Nodes and Capabilities".
"""

from __future__ import annotations

from gpuhook.errors import GpuhookError
from gpuhook.host.hot import files

MAJOR_NAME = "nvidia-caps"  # in /proc/devices
MINORS = "/proc/driver/nvidia-caps/mig-minors"
CAPABILITIES = "/proc/driver/nvidia/capabilities"
_MAX_MAJOR, MAX_MINOR = (1 << 12) - 1, (1 << 20) - 1  # linux/kdev_t.h
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
        minor = parse_number(words[1], MAX_MINOR) if len(words) == 2 else None
        if minor is not None:
            found[words[0]] = minor
    return found


def minors(host_root: str) -> dict[str, int]:
    """Return the minor of each capability by mig-minors."""
    return parse_minors(proc_text(host_root, MINORS))


def parse_file(text: str) -> Capability | None:
    """Return the capability in the content of its file, None without a minor."""
    pairs = (line.partition(":") for line in text.splitlines())
    facts = {key.strip(): value.strip() for key, _, value in pairs}
    minor = parse_number(facts.get("DeviceFileMinor", ""), MAX_MINOR)
    mode = parse_number(facts.get("DeviceFileMode", ""), 0o777)
    return None if minor is None else Capability(minor, mode)


def capability(host_root: str, path: str, minor: int | None) -> Capability | None:
    """Return the capability with the minor in mig-minors, else with that in its file `path`."""
    described = parse_file(proc_text(host_root, path))
    if minor is None:
        return described
    return Capability(minor, None if described is None else described.mode)


def device_major(name: str, host_root: str) -> int | None:
    """Return the major of a character device in /proc/devices, None if it is not there."""
    return parse_majors(proc_text(host_root, "/proc/devices")).get(name)


def parse_majors(text: str) -> dict[str, int]:
    """Return name -> major of NVIDIA's character devices in the text of /proc/devices."""
    numbers: dict[str, int] = {}
    for line in text.splitlines():
        if line.startswith("Block devices"):
            break
        number, _, name = line.strip().partition(" ")
        major = parse_number(number, _MAX_MAJOR)
        if name.startswith("nvidia") and major is not None:
            numbers[name] = major
    return numbers


def parse_number(text: str, most: int) -> int | None:
    """Return the number in `text`, None if it is not one or above `most`."""
    is_short = text.isascii() and text.isdigit() and len(text) <= len(str(most))
    return int(text) if is_short and int(text) <= most else None
