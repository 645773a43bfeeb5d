# SPDX-License-Identifier: Apache-2.0
"""Where the kernel describes AMD GPUs, below a host root, and bounded reads of these files."""

from __future__ import annotations

import os

from gpuhook.errors import GpuhookError
from gpuhook.host.hot import files

MODULE = "/sys/module/amdgpu"
DRIVER = MODULE + "/drivers/pci:amdgpu"  # has a link to the directory of each GPU
PLATFORM = "/sys/devices/platform"  # has the partitions beyond the first of each GPU
DRM = "/sys/class/drm"  # has a link to each DRM node
TOPOLOGY = "/sys/class/kfd/kfd/topology"
DRM_MAJOR = 226  # Source: Linux, admin-guide/devices.txt
MODES = ("current_compute_partition", "current_memory_partition")
_PARTITION = "amdgpu_xcp"
_LIMIT = 65536
_MOST_DIGITS = 20


def text(path: str) -> str:
    """Return the content of a file. Raises OSError, also for a file that is large or no file."""
    try:
        return files.read(path, _LIMIT).decode("ascii", "replace")
    except GpuhookError as error:
        raise OSError(str(error)) from error


def line(path: str) -> str | None:
    """Return the only line of a file without spaces around it.

    None: it cannot be read, as during a reset of the GPU, it is empty, or it is binary.
    """
    try:
        found = text(path).strip(" \t\n\0")
    except OSError:
        return None
    return found if found and found.isprintable() else None


def number(path: str) -> int | None:
    """Return the unsigned number in a file, None if the kernel does not report it.

    A GPU in a reset refuses reads with EPERM or EBUSY.
    """
    found = line(path) or ""
    return int(found) if is_number(found) else None


def is_number(text: str) -> bool:
    """Return whether a text is an unsigned number of at most 64 bits, as the kernel writes it."""
    is_short = text.isascii() and text.isdigit() and len(text) <= _MOST_DIGITS
    return is_short and int(text) < 1 << 64


def mode(path: str) -> str | None:
    """Return the partition mode in a file, "CPX" or "NPS4"; None without one."""
    found = modes(path)
    return found[0] if len(found) == 1 else None


def modes(path: str) -> list[str]:
    """Return the partition modes in a file, "SPX, DPX, CPX"; [] if it has anything else."""
    found = [word.strip() for word in (line(path) or "").split(",")]
    return found if all(map(_is_mode, found)) else []


def _is_mode(word: str) -> bool:
    is_word = word.isascii() and word.isalnum() and word.isupper() and len(word) <= 8
    return is_word and word != "UNKNOWN"


def names(directory: str) -> list[str]:
    """Return the names in a directory, sorted; [] if it cannot be read."""
    try:
        return sorted(os.listdir(directory))
    except OSError:
        return []


def is_loaded(host_root: str) -> bool:
    """Return whether the driver is loaded, also for the moment before it is ready."""
    return bool(names(host_root.rstrip("/") + MODULE))


def is_ready(host_root: str) -> bool:
    """Return whether the driver is loaded and looks for GPUs, whether or not it serves one."""
    return os.path.isdir(host_root.rstrip("/") + DRIVER)


def directory_of(host_root: str, address: str) -> str:
    """Return the directory with the driver's files of a GPU."""
    return f"{host_root.rstrip('/')}{DRIVER}/{address}"


def is_suspended(directory: str) -> bool:
    """Return whether a GPU sleeps: some reads of its files resume it."""
    return line(directory + "/power/runtime_status") == "suspended"


def device_of(link: str) -> str:
    """Return the PCI address or the partition's id of the DRM device at a link to it, "" for none.

    The links in /sys/class/drm and /sys/dev/char end in <device>/drm/<node>.
    """
    try:
        name = os.readlink(link).rsplit("/", 3)[-3]
    except (OSError, IndexError):
        return ""
    return partition_id(name) or name


def is_served(host_root: str, device: str) -> bool:
    """Return whether a DRM device of device_of() is this driver's."""
    is_partition = partition_id(device) is not None
    return is_partition or (is_address(device) and os.path.isdir(directory_of(host_root, device)))


def is_divided(compute_mode: str | None) -> bool:
    """Return whether a GPU with this compute mode has several partitions; None: it cannot."""
    return compute_mode not in (None, "SPX")


def gpu_addresses(host_root: str) -> list[str]:
    """Return the PCI addresses of the GPUs that the driver serves, in their order."""
    return sorted(filter(is_address, names(host_root.rstrip("/") + DRIVER)), key=address_order)


def is_address(name: str) -> bool:
    """Return whether a name is a PCI address as the kernel writes it, "0000:05:00.0"."""
    domain, _, rest = name.partition(":")
    digits = domain + rest[:2] + rest[3:5] + rest[6:]
    is_hex = all(character in "0123456789abcdef" for character in digits)
    return is_hex and len(domain) >= 4 and len(rest) == 7 and rest[2] + rest[5] == ":."


def address_order(address: str) -> tuple[int, str]:
    """Return the sort key of a PCI address."""
    domain, _, rest = address.partition(":")
    return int(domain, 16), rest


def partition_id(name: str) -> str | None:
    """Return the id "amdgpu_xcp_3" of a partition's platform device, None for another device.

    Some kernels write "amdgpu_xcp.3".
    """
    number = name[len(_PARTITION) + 1 :]
    is_one = name.startswith((_PARTITION + "_", _PARTITION + "."))
    return f"{_PARTITION}_{int(number)}" if is_one and is_number(number) else None


def minor(name: str, prefix: str) -> int | None:
    """Return the minor in the name of a DRM node, "renderD128" with the prefix "renderD"."""
    number = name[len(prefix) :]
    is_one = name.startswith(prefix) and number.isascii() and number.isdigit() and len(number) < 8
    return int(number) if is_one else None


def kfd_major(host_root: str) -> int | None:
    """Return the major of /dev/kfd in /proc/devices: the kernel chooses it at each start."""
    try:
        lines = text(host_root.rstrip("/") + "/proc/devices").splitlines()
    except OSError:
        return None
    for one in lines:
        major, _, name = one.strip().partition(" ")
        if name == "kfd" and major.isascii() and major.isdigit() and len(major) < 8:
            return int(major)
    return None


def has_kfd_gpu(host_root: str) -> bool:
    """Return whether KFD has a GPU, or may have one that this process may not see."""
    nodes = host_root.rstrip("/") + TOPOLOGY + "/nodes"
    for name in names(nodes):
        try:
            if text(f"{nodes}/{name}/gpu_id").strip() != "0":
                return True
        except PermissionError:
            return True
        except OSError:
            continue
    return False
