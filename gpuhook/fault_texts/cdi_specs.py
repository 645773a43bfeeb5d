# SPDX-License-Identifier: Apache-2.0
"""The texts of faults GH11xx: CDI specs.

Loaded only where something is wrong.
"""

from __future__ import annotations

from gpuhook.errors import DriverError, FileError, GpuhookError, HostError, RequestError

TEXTS: dict[str, tuple[type[GpuhookError], str, str]] = {
    "GH1101": (
        RequestError,
        "{name} is not a CDI device name",
        "a CDI device name is vendor/class=device, such as nvidia.com/gpu=0",
    ),
    "GH1102": (
        RequestError,
        "{name}: no such device; {files} has {have}{broken}",
        "ask for one of these; {way}",
    ),
    "GH1103": (
        FileError,
        "{name} is described twice at the same priority: by {first} and by {second}",
        "remove one of the two files, or give one another --vendor or --class",
    ),
    "GH1104": (
        FileError,
        "{name}: no CDI spec of kind {kind} in {dirs}{broken}",
        "{way}",
    ),
    "GH1105": (
        HostError,
        "{path}: its compiled form cannot be kept in {directory}",
        "make that directory writable for root, or write the spec as JSON",
    ),
    "GH1106": (
        FileError,
        "{path}: {pointer}: {reason}",
        "correct the CDI spec; `gpuhook cdi validate {path}` checks it",
    ),
    "GH1107": (
        FileError,
        "{path}: cdiVersion {version} is newer than {newest}, the newest that gpuhook knows",
        "write the spec in an older version of CDI, or install a newer gpuhook",
    ),
    "GH1108": (
        FileError,
        "{path}: cdiVersion is {version}, but {reason} needs {needed}",
        "declare cdiVersion {needed}",
    ),
    "GH1109": (
        FileError,
        "{path}: {place}: {reason}",
        "correct the syntax of the CDI spec, or generate it anew",
    ),
    "GH1110": (
        FileError,
        "{path}: the CDI spec cannot be read: {reason}",
        "make it a readable regular file, or remove it",
    ),
    "GH1111": (
        HostError,
        "{path}: the CDI spec cannot be written: {reason}",
        "name a path on a writable file system with space left; nothing was changed",
    ),
    "GH1112": (
        RequestError,
        "{name} is neither a spec file that is there nor a CDI device name",
        "give the path of a spec, or a device as `gpuhook cdi list` names it: vendor/class=device",
    ),
    "GH1120": (
        FileError,
        "the CDI spec describes another state of this host ({changes})",
        "run `gpuhook refresh`, which writes the specs of this node anew",
    ),
    "GH1121": (
        DriverError,
        "the nvidia kernel module is not loaded: {root} has no /proc/driver/nvidia/version",
        "run modprobe nvidia and look at dmesg; on a node without a GPU this is as it should be",
    ),
    "GH1122": (
        HostError,
        "the CDI specs of this node could not be written anew: {reason}",
        "run `gpuhook refresh`: it tells what is wrong",
    ),
    "GH1123": (
        HostError,
        "{container} was given {nodes}, whose GPU or MIG instance this node has no more",
        "restart the container: it then gets what there is now, or is refused",
    ),
}
