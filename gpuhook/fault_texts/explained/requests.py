# SPDX-License-Identifier: Apache-2.0
"""Faults GH10xx at length: cause, cure, example."""

from __future__ import annotations

EXPLANATIONS: dict[str, tuple[str, str, str]] = {
    "GH1003": (
        (
            "A name in the request ends in `::` and something that is no number, or has nothing "
            "before the `::`. Replica ids come from a device plugin that shares GPUs; written "
            "by hand they are easily misspelt."
        ),
        (
            "Write the device, two colons and a number, or leave the `::` part out: the device "
            "is the same whole GPU either way."
        ),
        """
NVIDIA_VISIBLE_DEVICES=GPU-5f1d63d6-9f0c-4c0b-8d3a-0c6b1f6f2a11::two   # GH1003
NVIDIA_VISIBLE_DEVICES=GPU-5f1d63d6-9f0c-4c0b-8d3a-0c6b1f6f2a11::2     # right
""",
    ),
    "GH1004": (
        (
            "A device name has a line break, an escape sequence or another character that "
            "cannot be printed, or it is longer than 255 characters. No device is called so; "
            "such a value comes from a broken template or from somebody who tries what happens."
        ),
        (
            "Print the value with its escapes, find who sets it, and name devices by index, "
            "UUID, PCI bus id or CDI name."
        ),
        """
$ crictl inspect ID | grep NVIDIA_VISIBLE_DEVICES
"NVIDIA_VISIBLE_DEVICES=0\\n1"        # GH1004: write 0,1
""",
    ),
    "GH1005": (
        (
            "The list of devices is longer than any node has devices. It is refused as a whole, "
            "so that an image cannot make the runtime work for minutes."
        ),
        "Name each device once; `all` means every device that the node's CDI specs describe.",
        """
NVIDIA_VISIBLE_DEVICES=0,0,0,... (5000 times)     # GH1005
NVIDIA_VISIBLE_DEVICES=all
""",
    ),
    "GH1006": (
        (
            "The container names a device of this node (or the setting request.onMissingDriver "
            "is `refuse`), and the kernel module nvidia is not loaded: "
            "/sys/module/nvidia/version and /proc/driver/nvidia/version are not there. After a "
            "kernel upgrade the module is often not built for the new kernel yet."
        ),
        (
            "Load the module (`modprobe nvidia`), and read why where that fails (`dkms status`, "
            "`dmesg`). On a node that is to run CUDA images without a GPU, set "
            "request.onMissingDriver to `start`."
        ),
        """
$ modprobe nvidia
modprobe: FATAL: Module nvidia not found in directory /lib/modules/6.12.9
$ dkms autoinstall -k 6.12.9 && modprobe nvidia
""",
    ),
    "GH1007": (
        (
            "The request was found and not honoured, because the node's settings say so: an "
            "unprivileged container may not choose GPUs by a variable "
            "(request.acceptEnvWhenUnprivileged is off), or mounts below "
            "/var/run/nvidia-container-devices do not count (request.acceptVolumeMounts is "
            "off). The container starts without GPUs of that source."
        ),
        (
            "In Kubernetes, let the pod ask for nvidia.com/gpu: what the device plugin grants "
            "always counts. Where this container is meant to choose by itself, change the "
            "setting."
        ),
        """
# /etc/gpuhook/config.yaml
request:
  acceptEnvWhenUnprivileged: true
""",
    ),
    "GH1008": (
        (
            "The image says NVIDIA_VISIBLE_DEVICES=all, as CUDA images do, and this node has no "
            "NVIDIA driver loaded. Such images run on CPU nodes every day, so the container "
            "starts without."
        ),
        (
            "Nothing is to be done on a CPU node. On a GPU node, load the driver; to have such "
            "containers refused until it is loaded, set request.onMissingDriver."
        ),
        """
# /etc/gpuhook/config.yaml: no CUDA image starts here without a driver
request:
  onMissingDriver: refuse
""",
    ),
    "GH1009": (
        (
            "A variable names a CDI device of another vendor, such as a network card or a "
            "directory of the host. Images choose their variables; with them they may ask for "
            "GPUs and for nothing else that the CDI specs of a host describe."
        ),
        (
            "Ask for devices of other vendors as CDI means it: by an annotation, or by the "
            "engine's --device option."
        ),
        """
NVIDIA_VISIBLE_DEVICES=vendor.example/nic=eth1        # GH1009
podman run --device vendor.example/nic=eth1 ...
""",
    ),
    "GH1020": (
        (
            "NVIDIA_DRIVER_CAPABILITIES has a word that names no part of the driver. It is "
            "refused, not ignored: a container that misses half the driver because of a typing "
            "error fails much later and says much less."
        ),
        (
            "Use the words of the hint; `all` means every part, and without the variable a "
            "container gets compute and utility."
        ),
        """
NVIDIA_DRIVER_CAPABILITIES=compute,utilities     # GH1020
NVIDIA_DRIVER_CAPABILITIES=compute,utility
""",
    ),
    "GH1022": (
        (
            "A variable that limits GPU memory has something else than a whole number of MiB: a "
            "unit, a sign, a fraction, or nothing at all."
        ),
        "Write the number of MiB alone, or leave the variable out.",
        """
NVIDIA_GPU_MEMORY_LIMIT=4Gi      # GH1022
NVIDIA_GPU_MEMORY_LIMIT=4096
""",
    ),
    "GH1023": (
        (
            "What the container is guaranteed of a GPU's memory is more than what it may have "
            "at most."
        ),
        "Raise the limit, lower the guarantee, or leave one of the two out.",
        """
NVIDIA_GPU_MEMORY_REQUEST=8192
NVIDIA_GPU_MEMORY_LIMIT=4096     # GH1023
""",
    ),
    "GH1024": (
        (
            "A limit is for a GPU, by its UUID; the container names its GPU by an index or a "
            "node, and nothing on this node tells which UUID that is: generate-cdi has left no "
            "inventory, or one of another state of the node."
        ),
        "Run `gpuhook generate-cdi`, which notes the UUIDs, or name the GPU by its UUID.",
        """
$ gpuhook generate-cdi --output /var/run/cdi/nvidia.yaml
$ podman run --runtime gpuhook-runtime -e NVIDIA_VISIBLE_DEVICES=0 \\
    -e NVIDIA_GPU_MEMORY_LIMIT=4096 ...
""",
    ),
    "GH1025": (
        (
            "The limit is smaller than what a single CUDA context takes of a GPU's memory "
            "before a program has asked for anything. Usually the number was meant to be GiB "
            "and is MiB."
        ),
        "Give the limit in MiB, and some hundred MiB above what the program itself uses.",
        """
NVIDIA_GPU_MEMORY_LIMIT=4        # GH1025: 4 MiB
NVIDIA_GPU_MEMORY_LIMIT=4096     # 4 GiB
""",
    ),
    "GH1026": (
        (
            "The request was found, the node's settings do not let it count, and "
            "request.onRefusal is `fail`: such a container does not start. With `ignore`, the "
            "default, it would start without these GPUs (GH1007). An image's own "
            "NVIDIA_VISIBLE_DEVICES=all is a request too, and so is an image of old that has "
            "CUDA_VERSION and no NVIDIA_REQUIRE_CUDA."
        ),
        (
            "In Kubernetes, let the pod ask for nvidia.com/gpu. A container that needs no GPU "
            "says so with NVIDIA_VISIBLE_DEVICES=void. Where containers are meant to choose by "
            "themselves, change the setting that the message names; where they are to start "
            "without, request.onRefusal."
        ),
        """
# /etc/gpuhook/config.yaml
request:
  acceptEnvWhenUnprivileged: false
  onRefusal: fail

$ docker run -e NVIDIA_VISIBLE_DEVICES=0 ...       # GH1026
$ docker run -e NVIDIA_VISIBLE_DEVICES=void ...    # starts
""",
    ),
    "GH1027": (
        (
            "The container (or --driver-capabilities of `gpuhook attach`) names a part of the "
            "driver that the setting request.driverCapabilities of this node leaves out. What a "
            "container names it needs, so it is refused; the default (compute and utility) and "
            "`all` mean those parts of them that are allowed."
        ),
        (
            "Leave the word out of NVIDIA_DRIVER_CAPABILITIES, or add it to the setting and run "
            "`gpuhook generate-cdi` anew, whose specs hold what the setting allows."
        ),
        """
# /etc/gpuhook/config.yaml
request:
  driverCapabilities: [compute, utility]

NVIDIA_DRIVER_CAPABILITIES=compute,graphics     # GH1027
NVIDIA_DRIVER_CAPABILITIES=all                  # compute and utility
""",
    ),
    "GH1028": (
        (
            "A mount of /dev/null below /var/run/nvidia-container-devices/cdi is not at a path "
            "that names a CDI device. It is passed over; the devices of other mounts are given."
        ),
        (
            "Mount at cdi/<vendor>/<class>/<name>, or cdi/<vendor>/<class>=<name>; a GPU's index "
            "or UUID needs no cdi/ at all."
        ),
        """
-v /dev/null:/var/run/nvidia-container-devices/cdi/gpu0              # GH1028
-v /dev/null:/var/run/nvidia-container-devices/cdi/nvidia.com/gpu/0  # right
-v /dev/null:/var/run/nvidia-container-devices/0                     # right
""",
    ),
}
