# SPDX-License-Identifier: Apache-2.0
"""The texts of faults GH10xx: what containers ask for.

Loaded only where something is wrong.
"""

from __future__ import annotations

from gpuhook.errors import DriverError, GpuhookError, RefusedError, RequestError

TEXTS: dict[str, tuple[type[GpuhookError], str, str]] = {
    "GH1003": (
        RequestError,
        "{name}: malformed replica id",
        "a replica id is <device>::<n>, n a decimal number, such as GPU-<uuid>::2",
    ),
    "GH1004": (
        RequestError,
        "{where} names a device with control characters, or one longer than 255: {name}",
        "device names are printable: an index, a UUID, a PCI bus id or vendor/class=name",
    ),
    "GH1005": (
        RequestError,
        "{where} names {count} devices; at most {limit} are taken",
        "name each device once, or use `all`",
    ),
    "GH1006": (
        DriverError,
        "{where} requests {what}, but this node has no NVIDIA driver loaded",
        "load the driver, or set request.onMissingDriver to start in /etc/gpuhook/config.yaml",
    ),
    "GH1007": (
        RefusedError,
        "ignored the request for {names} of {where}: {reason}",
        "change the setting in /etc/gpuhook/config.yaml if this container should have GPUs",
    ),
    "GH1008": (
        DriverError,
        "{where} requests {what}, but this node has no NVIDIA driver loaded; it starts without",
        "set request.onMissingDriver to refuse in /etc/gpuhook/config.yaml to refuse it instead",
    ),
    "GH1009": (
        RefusedError,
        "{where} names {name}, a device of another vendor than {vendor}",
        (
            "request it by a device plugin or the engine's --device; variables, and annotations"
            " that are not a grant, may name devices of {vendor} only"
        ),
    ),
    "GH1020": (
        RequestError,
        "unknown driver capability {word} in NVIDIA_DRIVER_CAPABILITIES",
        (
            "known are {known}, in lower case; to ignore other words, set"
            " request.onUnknownCapability to ignore in /etc/gpuhook/config.yaml"
        ),
    ),
    "GH1022": (
        RequestError,
        "{name}={value} is no number of MiB",
        "give a whole number from 1 on, such as 4096 for 4 GiB, or leave the variable out",
    ),
    "GH1023": (
        RequestError,
        "{request_env}={request} is more than {limit_env}={limit}",
        "what is guaranteed cannot be more than what is allowed: raise the limit, in MiB",
    ),
    "GH1024": (
        RequestError,
        "a memory limit is set, but which GPU {nodes} is cannot be told on this node",
        "run `gpuhook generate-cdi`, which notes that, or name the GPU by its UUID",
    ),
    "GH1025": (
        RequestError,
        "a memory limit of {limit} on {device} holds no CUDA context: that takes about {least}",
        (
            "the container starts, and its programs run out of memory at once; the number is in"
            " MiB, so 4096 is 4 GiB"
        ),
    ),
    "GH1026": (
        RefusedError,
        "refused the request for {names} of {where}: {reason}",
        (
            "change that setting in /etc/gpuhook/config.yaml if this container should have GPUs,"
            " or set request.onRefusal to ignore if it should start without"
        ),
    ),
    "GH1027": (
        RefusedError,
        "the driver capability {word} is not one of those that containers may have here: {allowed}",
        (
            "ask for fewer, or for all, which means those; or add it to request.driverCapabilities"
            " in /etc/gpuhook/config.yaml"
        ),
    ),
    "GH1028": (
        RequestError,
        "ignored the mount at {path}: it names no device",
        "a CDI device is named by cdi/<vendor>/<class>/<name>, any other by its id alone",
    ),
    "GH1036": (
        RequestError,
        "{where} asks for the IMEX channel {number}, which is none",
        "give the numbers of channels, from 0 to 1048575: those of /dev/nvidia-caps-imex-channels",
    ),
    "GH1037": (
        DriverError,
        "{name}: this node has none: there is no device node {looked}{why}",
        (
            "load the kernel module that makes the node, or make it (`gpuhook explain GH1037` "
            "tells how), or leave the request out"
        ),
    ),
    "GH1038": (
        RefusedError,
        "{where} asks for {name}, which is for privileged containers alone",
        "run the container privileged (with CAP_SYS_ADMIN), or leave the request out",
    ),
    "GH1039": (
        RequestError,
        "{variable}={value}: only `all` can be asked for",
        "set it to all, which is the whole node, or leave it out; GPUs are chosen by other words",
    ),
    "GH1040": (
        DriverError,
        "{where} is on and finds nothing, the container starts without: {reason}",
        "load the kernel module on this node, or leave the variable out",
    ),
    "GH1041": (
        RefusedError,
        "ignored the request of {where}: {reason}",
        (
            "correct the variable or mount, or leave it out; where the reason names a setting, "
            "that is in /etc/gpuhook/config.yaml"
        ),
    ),
    "GH1042": (
        RequestError,
        "{name}: no such device in {files}, which describes this kind on this node",
        "run `gpuhook generate-cdi --mode {mode}` with that --output again, or remove the file",
    ),
    "GH1043": (
        DriverError,
        "{variable} does not hold for {where}: {terms}",
        (
            "the image needs another driver version: install that one, take an image for this"
            " driver, or set NVIDIA_DISABLE_REQUIRE=1 in the container to start it all the same"
        ),
    ),
    "GH1044": (
        RequestError,
        "{variable} does not hold for {where}: {terms}",
        (
            "give the container a GPU that its image is made for, or set NVIDIA_DISABLE_REQUIRE=1"
            " in it to start it all the same"
        ),
    ),
    "GH1045": (
        RequestError,
        "{variable} requires {term}, which cannot be judged: {reason}",
        (
            "write terms such as cuda>=12.4, with commas for `and` and spaces for `or`, or set"
            " NVIDIA_DISABLE_REQUIRE=1 in the container"
        ),
    ),
    "GH1046": (
        RequestError,
        "{count} variables require something of the driver; at most {limit} are taken",
        "put terms that must all hold into one variable, with commas between them",
    ),
    "GH1047": (
        DriverError,
        "of {variables} could not be judged whether it holds: {terms}; the container starts",
        "run `gpuhook generate-cdi`, which notes what the driver and the GPUs are",
    ),
    "GH1060": (
        RequestError,
        "{name} is the beginning of more than one UUID: {uuids}",
        "write more digits of the UUID, or all of them",
    ),
    "GH1061": (
        RequestError,
        "ignored the unknown words {words} of NVIDIA_DRIVER_CAPABILITIES",
        "known are {known}, all, in lower case: correct the variable, or leave it out",
    ),
    "GH1062": (
        DriverError,
        "the image is built for CUDA {version}, and this node's driver has CUDA {cuda}; it starts",
        (
            "programs that need more than minor version compatibility of CUDA fail: install a newer"
            " driver, or use an image for CUDA {cuda}"
        ),
    ),
}
