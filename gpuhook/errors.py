# SPDX-License-Identifier: Apache-2.0
"""Every fault a person can meet: its code, its sentence and the way out, in one table.

HOT. Code raises with ``raise fault("GH1001", name=..., have=...)``; only a program turns the
exception into words. System calls raise plain OSError with the file name.

The kinds are named by who must act: the request is wrong, a file is wrong, the driver is missing
or mismatched, policy refused it, this host cannot do it.
"""

from __future__ import annotations


class GpuhookError(Exception):
    """A fault with a stable code, one sentence and one hint."""

    def __init__(self, code: str, message: str, hint: str) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.hint = hint


class RequestError(GpuhookError):
    """The container asked for what is not there, or asked in words nobody understands."""


class FileError(GpuhookError):
    """A file (CDI spec, config.json, loader cache, dump) is missing, broken or contradictory."""


class DriverError(GpuhookError):
    """The NVIDIA driver is missing, incomplete, or of another version than expected."""


class RefusedError(GpuhookError):
    """A policy, or the safety of the host, forbids what was asked."""


class HostError(GpuhookError):
    """The host lacks something gpuhook needs: a runtime, a writable directory, a program."""


# Code blocks: GH10 request, GH11 CDI specs, GH12 driver and inventory, GH13 container and
# config.json, GH14 runtime and state, GH15 settings and command line, GH16 hook and loader files.
TEXTS: dict[str, tuple[type[GpuhookError], str, str]] = {
    "GH1200": (
        DriverError,
        "no libnvidia-ml.so.1 below the driver root {root} (looked in {looked})",
        (
            "install the NVIDIA driver, or name where it is with --driver-root, "
            "--library-search-path or --nvml-library"
        ),
    ),
    "GH1201": (
        DriverError,
        "{path}: no such NVML library",
        "give --nvml-library the path of a libnvidia-ml.so.1 on this host, or leave it out",
    ),
    "GH1202": (
        DriverError,
        "{path}: cannot be loaded: {reason}",
        "reinstall the driver package, or name another library with --nvml-library",
    ),
    "GH1203": (
        DriverError,
        "{path} is of driver {library}, but the loaded kernel module is {module}",
        (
            "the driver was changed while its module was loaded: reboot, or stop all GPU programs "
            "and run rmmod nvidia_uvm nvidia_drm nvidia_modeset nvidia, then modprobe nvidia"
        ),
    ),
    "GH1204": (
        DriverError,
        "the nvidia kernel module is not loaded (NVML of {path}: {reason})",
        "run modprobe nvidia and look at dmesg; on a node without a GPU this is as it should be",
    ),
    "GH1205": (
        DriverError,
        "{path}: no permission to use the driver",
        "run as root, or give this user read and write access to /dev/nvidiactl and /dev/nvidia*",
    ),
    "GH1206": (
        DriverError,
        "{path}: NVML failed: {reason}",
        "run nvidia-smi on the host: when that fails too, dmesg | grep NVRM tells why",
    ),
    "GH1207": (
        DriverError,
        "NVML answers for driver {nvml}, but the driver files below {root} are of {tree}",
        "give --driver-root and --nvml-library of the same driver, or reinstall the driver",
    ),
    "GH1210": (
        DriverError,
        "{path}: no such device node",
        (
            "make it with nvidia-modprobe -c {minor} (or nvidia-smi), or name where the nodes are "
            "with --dev-root"
        ),
    ),
    "GH1211": (
        DriverError,
        "{path} is not a character device",
        "remove it and make the node again with nvidia-modprobe -c {minor} (or nvidia-smi)",
    ),
    "GH1212": (
        DriverError,
        "{path} has major number {found}, but the kernel module {name} has {major}",
        "the node is older than the module: remove it and run nvidia-modprobe -c 0 -u",
    ),
    "GH1500": (
        FileError,
        "{name}: neither a file nor a known profile",
        (
            "give --inventory a file written by gpuhook inventory -o yaml, or one of the profiles "
            "{profiles}"
        ),
    ),
    "GH1501": (
        FileError,
        "{file}: line {line}, column {column}: {reason}",
        "an inventory is YAML or JSON as gpuhook inventory -o yaml writes it",
    ),
    "GH1502": (
        FileError,
        "{file}: {where}: {reason}",
        "compare with a profile: gpuhook inventory --inventory t4 -o yaml",
    ),
}


def fault(code: str, **facts: object) -> GpuhookError:
    """Return the exception for `code`, its sentence and hint filled in with `facts`.

    Facts that come from a container or a file are printed with control characters escaped, so
    that a log line stays one line.
    """
    kind, message, hint = TEXTS[code]
    shown = {name: printable(value) for name, value in facts.items()}
    return kind(code, message.format_map(shown), hint.format_map(shown))


def printable(value: object, limit: int = 400) -> str:
    """Return `value` as text on one line: control characters escaped, long text cut."""
    text = value if isinstance(value, str) else str(value)
    if not text.isprintable():
        text = "".join(c if c.isprintable() else repr(c)[1:-1] for c in text[: limit + 1])
    return text if len(text) <= limit else text[:limit] + "..."
