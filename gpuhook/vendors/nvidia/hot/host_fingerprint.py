# SPDX-License-Identifier: Apache-2.0
"""The fingerprint of a host at the time when a spec of its GPUs was generated.

It is readable text, `boot=..,driver=..,gpus=..,majors=..,mig=..,tree=..`, so that a mismatch can
name what changed. It costs a few small reads and never loads NVML.
"""

from __future__ import annotations

import os
from binascii import crc32

from gpuhook.errors import fault

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Protocol

    class Recorded(Protocol):
        """A description of a GPU set-up that records the host it was made on."""

        @property
        def fingerprint(self) -> str:
            """The fingerprint of that host, "" if it was not recorded."""

        @property
        def host_root(self) -> str:
            """The directory that has the host's /proc and /sys."""

        @property
        def libcuda(self) -> str:
            """The host path of libcuda, "" without one."""


PARTS = ("boot", "driver", "gpus", "majors", "mig", "tree")
NO_DRIVER = "no NVIDIA driver is loaded"
NO_GPU = "the driver has no GPU"
TEGRA_RELEASE = "/etc/nv_tegra_release"
# Bytes of mig-minors that are compared. When it is loaded, the driver numbers all possible
# capabilities of 32 GPUs in order: 100 KB that it writes again at each read.
_MINORS = 2048
_LIMIT = 65536
_MAJOR_NAMES = (b"nvidia", b"nvidia-frontend", b"nvidia-uvm", b"nvidia-caps", b"nvidia-modeset")


def fingerprint(host_root: str, libcuda: str, mig: str | None = None) -> str:
    """Return the fingerprint of the host whose /proc and /sys are below `host_root`.

    `libcuda` is the host path of the driver's libcuda file: its identity represents the driver tree
    (an upgrade in place changes it). `mig` is the result of mig_state() from before the GPUs were
    read, None for the current state. A missing part is empty.
    """
    root = host_root.rstrip("/")
    return ",".join(
        (
            "boot=" + _first_line(root + "/proc/sys/kernel/random/boot_id"),
            "driver=" + (module_version(host_root) or tegra_release(host_root)),
            "gpus=" + gpus_of(_names(root + "/proc/driver/nvidia/gpus")),
            "majors=" + majors(_read(root + "/proc/devices")),
            "mig=" + (mig_state(host_root) if mig is None else mig),
            "tree=" + _identity(libcuda),
        )
    )


def module_version(host_root: str) -> str:
    """Return the version of the loaded nvidia kernel module, "" when none is loaded."""
    root = host_root.rstrip("/")
    version = _first_line(root + "/sys/module/nvidia/version")
    if version:
        return version
    for word in _first_line(root + "/proc/driver/nvidia/version").split():
        if word[:1].isdigit() and "." in word:
            return word
    return ""


def tegra_release(host_root: str) -> str:
    """Return the release of a Tegra system, "R36.4.3", "" for another system."""
    return release_in(_first_line(host_root.rstrip("/") + TEGRA_RELEASE))


def release_in(line: str) -> str:
    """Return the release in the line `# R36 (release), REVISION: 4.3, GCID: ...`."""
    words = line.replace("#", " ").replace(",", " ").split()
    release = words[0] if words else ""
    if "REVISION:" in words[:-1]:
        release += "." + words[words.index("REVISION:") + 1]
    return release


def driver_is_loaded(host_root: str) -> bool:
    """Return whether the host has a driver.

    That is the kernel module, that of a Tegra's own GPU (it has no version), or WSL's /dev/dxg.
    """
    root = host_root.rstrip("/")
    others = (root + "/dev/dxg", root + "/sys/module/nvgpu", root + TEGRA_RELEASE)
    return bool(module_version(host_root)) or any(map(os.path.exists, others))


def absence(host_root: str) -> str:
    """Return why a node has no GPU to describe, "" if it may have one."""
    if not driver_is_loaded(host_root):
        return NO_DRIVER
    try:
        has_gpu = bool(os.listdir(os.path.join(host_root, "proc/driver/nvidia/gpus")))
    except OSError:
        return ""  # drivers of WSL and Tegra have no such directory
    return "" if has_gpu else NO_GPU


def differences(recorded: str, current: str) -> list[str]:
    """Return one phrase per part in which the two fingerprints differ, [] if they are equal.

    A part that an older gpuhook did not record is ignored.
    """
    old, new = _parsed(recorded), _parsed(current)
    return [
        "{}: was {}, is {}".format(part, old.get(part) or "none", new.get(part) or "none")
        for part in PARTS
        if part in old and old[part] != new.get(part, "")
    ]


def changes(made: Recorded) -> list[str]:
    """Return the changes of this host since a spec was written, a phrase each.

    `made` is a hook's job, or a record of a spec; [] if it records no fingerprint.
    """
    if not made.fingerprint:
        return []
    return differences(made.fingerprint, fingerprint(made.host_root, made.libcuda))


def require_fresh(job: Recorded) -> None:
    """Raise GH1120 if the spec of a job does not match the current state of this host."""
    changed = changes(job)
    if changed:
        raise fault("GH1120", changes="; ".join(changed))


def _parsed(text: str) -> dict[str, str]:
    return {name: value for name, _, value in (part.partition("=") for part in text.split(","))}


def _read(path: str, limit: int = _LIMIT) -> bytes:
    """Return the content of a file up to `limit` bytes: /proc has a page for each read."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except OSError:
        return b""
    content = b""
    try:
        while len(content) < limit and (chunk := os.read(fd, limit - len(content))):
            content += chunk
    except OSError:
        return b""
    finally:
        os.close(fd)
    return content


def _first_line(path: str) -> str:
    return _read(path).partition(b"\n")[0].decode("utf-8", "replace").strip().replace(",", " ")


def gpus_of(names: list[str]) -> str:
    """Return the number of GPUs and a checksum of their bus ids, which are in order."""
    return f"{len(names)}-{crc32(os.fsencode(' '.join(names))):08x}" if names else ""


def majors(devices: bytes) -> str:
    """Return the driver's majors in the content of /proc/devices, "nvidia:195+nvidia-uvm:242"."""
    found = []
    for line in devices.split(b"\n"):
        number, _, name = line.strip().partition(b" ")
        if name in _MAJOR_NAMES and number.isdigit():
            found.append(name.decode() + ":" + number.decode())
    return "+".join(sorted(found))


def mig_state(host_root: str) -> str:
    """Return a checksum of the MIG instances of the host, "" if the driver does not support MIG.

    The minors of all capabilities are not enough: the driver lists possible ones, so they remain
    while instances come and go, and a new instance may get those of a destroyed one. The
    directories below capabilities list the existing instances. Both together identify an instance:
    its UUID derives from its GPU and its position in it.
    """
    root = host_root.rstrip("/") + "/proc/driver"
    content = _read(root + "/nvidia-caps/mig-minors", _MINORS)
    return mig_of(content, _instances(root + "/nvidia/capabilities"))


def mig_of(content: bytes, names: list[str]) -> str:
    """Return mig_state() for the content of mig-minors and the instances gpu0/gi1/ci0, in order."""
    if not content:
        return ""
    return format(crc32(os.fsencode("\n".join(names)), crc32(content[:_MINORS])), "08x")


def _instances(directory: str) -> list[str]:
    """Return gpu0/gi1/ci0 and so on, in order.

    A GPU instance without a compute instance is not a device, and a container with MIG devices may
    see its own only.
    """
    found = []
    for gpu in _names(directory):
        if gpu.startswith("gpu"):
            for gi in _names(directory + "/" + gpu + "/mig"):
                below = directory + "/" + gpu + "/mig/" + gi
                names = [name for name in _names(below) if name.startswith("ci")]
                found += [gpu + "/" + gi + "/" + name for name in names]
    return found


def _names(directory: str) -> list[str]:
    try:
        return sorted(os.listdir(directory))
    except OSError:
        return []


def _identity(path: str) -> str:
    try:
        found = os.stat(path)
    except OSError:
        return ""
    return f"{found.st_ino}-{found.st_size}-{found.st_mtime_ns}"
