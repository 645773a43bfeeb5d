# SPDX-License-Identifier: Apache-2.0
"""The texts of faults GH16xx: hooks and the files of the loader.

Loaded only where something is wrong.
"""

from __future__ import annotations

from gpuhook.errors import FileError, GpuhookError, HostError

TEXTS: dict[str, tuple[type[GpuhookError], str, str]] = {
    "GH1600": (
        FileError,
        "the image's /etc/ld.so.cache cannot be read: {reason}",
        "run ldconfig in the image, or delete the file there",
    ),
    "GH1601": (
        FileError,
        "the image's /etc/ld.so.cache is {size} bytes long, more than {limit}",
        "run ldconfig in the image, or delete the file there",
    ),
    "GH1602": (
        HostError,
        "machine {machine} has no loader cache flags here",
        "known machines: {known}",
    ),
    "GH1603": (
        FileError,
        "the image's musl path file is {size} bytes long, more than {limit}",
        "shorten /etc/ld-musl-*.path in the image",
    ),
    "GH1604": (
        FileError,
        "the directory {directory} cannot be written in {file}",
        "keep the driver's libraries in an absolute path without white space, '#', '=' and ':'",
    ),
    "GH1640": (
        FileError,
        "gpuhook-hook was called with {argument}, but {reason}",
        "see `gpuhook-hook --help`; after an upgrade, run `gpuhook generate-cdi` again",
    ),
    "GH1641": (
        HostError,
        "left out: {what}",
        "the container starts all the same",
    ),
    "GH1642": (
        FileError,
        "the OCI state on standard input cannot be used: {reason}",
        (
            "gpuhook-hook is called by a runtime, as an OCI hook; by hand,"
            " `runc state ID | gpuhook-hook prestart --dry-run` says what a container would get"
        ),
    ),
    "GH1643": (
        FileError,
        "the prestart hook was called in a stage that it does not serve: {reason}",
        (
            "register `gpuhook-hook prestart` for the stage prestart or createRuntime; to a running"
            " container `gpuhook attach` gives a GPU"
        ),
    ),
    "GH1644": (
        FileError,
        "gpuhook-hook prestart was called with {argument}, but knows no option besides --dry-run",
        "see `gpuhook-hook --help`, and what args the engine's hook entry has after prestart",
    ),
    "GH1645": (
        FileError,
        "gpuhook-hook limit was called with {argument}, but {reason}",
        "gpuhook-runtime writes that hook: reinstall it, and create the container anew",
    ),
    "GH1646": (
        HostError,
        "no gpuhook-hook in {dirs}: it is what sets a container's memory limits",
        "reinstall gpuhook-runtime, or link gpuhook-hook to one of these directories",
    ),
    "GH1647": (
        HostError,
        "GPU {device}: its memory limit does not hold: {trouble}",
        "the container starts all the same, as limits.onFailure says; `gpuhook ps` shows it",
    ),
    "GH1648": (
        HostError,
        "GPU {device}: the limit that the container has set itself does not hold: {trouble}",
        (
            "what it was granted holds instead, as `gpuhook limits show` has it; give another"
            " NVIDIA_GPU_MEMORY_LIMIT, or leave it out"
        ),
    ),
    "GH1690": (
        HostError,
        "{where}: {reason}",
        "the container was not started; see to that path and start it again",
    ),
    "GH1691": (
        HostError,
        "an error of gpuhook's own, {kind}: {reason}",
        "the container was not started; report it with this line",
    ),
}
