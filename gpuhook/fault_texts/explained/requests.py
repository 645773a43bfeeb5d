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
            "unprivileged container may not choose GPUs by a variable or by an annotation that is "
            "not a grant (request.acceptEnvWhenUnprivileged is off), mounts below "
            "/var/run/nvidia-container-devices do not count (request.acceptVolumeMounts is "
            "off), or no annotation is accepted (request.acceptAnnotations is none). The "
            "container starts without GPUs of that source."
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
            "A variable, or an annotation that is not a grant, names a CDI device of another "
            "vendor, such as a network card or a directory of the host. Images and pods choose "
            "these; with them they may request GPUs and nothing else that the CDI specs of a host "
            "describe. In a "
            "privileged container they may name devices of the vendor's subdomains as well, such "
            "as management.nvidia.com/gpu=all."
        ),
        (
            "Request devices of other vendors by their device plugin, or by the engine's "
            "--device option. `gpuhook explain` prints who wrote an annotation: with "
            "request.acceptAnnotations: auto, one of the engine's caller is a grant, with any "
            "also one of a pod."
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
            "container gets those of request.defaultDriverCapabilities. To start containers with "
            "such words all the same, set request.onUnknownCapability to ignore."
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
    "GH1036": (
        (
            "NVIDIA_IMEX_CHANNELS, or a mount below "
            "/var/run/nvidia-container-devices/imex, names something that is no channel's "
            "number. Channels are numbered from 0 to 1048575, without leading zeros; neither "
            "`channel0` nor, in a mount, `all` is a number."
        ),
        "Give the numbers of the channels, separated by commas.",
        """
NVIDIA_IMEX_CHANNELS=channel0    # GH1036
NVIDIA_IMEX_CHANNELS=0,1         # right
""",
    ),
    "GH1037": (
        (
            "The container asks for a device that this node has not at this moment: an IMEX "
            "channel whose node is missing (or is left from an earlier load of the driver, "
            "with another major number), or a kind of device whose kernel module is not "
            "loaded. Such devices are looked for when the container is made, where no CDI spec "
            "of the node describes that kind."
        ),
        (
            "Load the module (nvidia-fs, gdrdrv, ib_uverbs, the fabric's driver), or make the "
            "channel: its major is in /proc/devices, its minor is the channel's number."
        ),
        """
$ grep imex /proc/devices
234 nvidia-caps-imex-channels
$ mkdir -p /dev/nvidia-caps-imex-channels
$ mknod /dev/nvidia-caps-imex-channels/channel0 c 234 0
""",
    ),
    "GH1038": (
        (
            "The devices nvidia.com/mig=config and nvidia.com/mig=monitor (and the variables "
            "NVIDIA_MIG_CONFIG_DEVICES and NVIDIA_MIG_MONITOR_DEVICES) let a container divide "
            "the node's GPUs anew, or see all of their instances. Only a container that may "
            "administer the host gets them, whoever asks: its bounding set has CAP_SYS_ADMIN."
        ),
        "Run that container privileged, or with CAP_SYS_ADMIN; others do not need the devices.",
        """
$ docker run --runtime gpuhook --cap-add SYS_ADMIN -e NVIDIA_VISIBLE_DEVICES=all \\
    -e NVIDIA_MIG_CONFIG_DEVICES=all IMAGE nvidia-smi mig -lgi
""",
    ),
    "GH1039": (
        (
            "NVIDIA_MIG_CONFIG_DEVICES and NVIDIA_MIG_MONITOR_DEVICES know one value, `all`: "
            "the capability behind them is one for the whole node, and none for single GPUs."
        ),
        "Set it to all, and choose GPUs with NVIDIA_VISIBLE_DEVICES.",
        """
NVIDIA_MIG_CONFIG_DEVICES=0      # GH1039
NVIDIA_MIG_CONFIG_DEVICES=all    # right
""",
    ),
    "GH1040": (
        (
            "NVIDIA_GDS, NVIDIA_MOFED, NVIDIA_GDRCOPY or NVIDIA_NVSWITCH is `enabled`, and the "
            "node has no device of that kind. Images bake such variables in and run on nodes "
            "without the hardware, so the container starts without it."
        ),
        "Load the kernel module if this node should have it; `gpuhook explain` shows both.",
        """
$ modprobe nvidia-fs && ls /dev/nvidia-fs*
""",
    ),
    "GH1041": (
        (
            "Something that a container asks for beside its GPUs does not count: the node's "
            "policy refuses variables of unprivileged containers or mounts, "
            "NVIDIA_IMEX_CHANNELS is `all` (which names no channel, as in NVIDIA's toolkit), "
            "mounts name other channels, or a switch is not `enabled`. With request.onRefusal "
            "`fail`, what policy refuses keeps the container from starting."
        ),
        (
            "The reason names the setting or the word. Change that, or leave the variable or "
            "mount out; `gpuhook explain` shows all that a container asks for and what counts."
        ),
        """
NVIDIA_GDS=1          # GH1041: ignored
NVIDIA_GDS=enabled    # right
""",
    ),
    "GH1042": (
        (
            "A CDI spec of the node describes this kind of device, and the device is not in "
            "it. Where there is such a spec it counts, and the node itself is not looked at; "
            "one that was written before the device came does not know it."
        ),
        "Write the spec anew, or remove it: then the node is looked at for each container.",
        """
$ gpuhook generate-cdi --mode imex --output /etc/cdi/imex.yaml
""",
    ),
    "GH1043": (
        (
            "The image says by a variable NVIDIA_REQUIRE_* (an older one by CUDA_VERSION) which "
            "driver it needs, and this node's is another: the sentence names each alternative "
            "that could have held, with what the node has. Started all the same, its programs "
            "would end with `CUDA driver version is insufficient for CUDA runtime version`. The "
            "CUDA compatibility libraries of an image do not count, as in NVIDIA's runtime: they "
            "work on data centre GPUs only. NVIDIA's images have alternatives for the drivers on "
            "which they do."
        ),
        (
            "Install a driver that the image accepts, or take an image for this driver. Where "
            "you know better than the image, set NVIDIA_DISABLE_REQUIRE=1 in the container, or "
            "request.disableRequirements for all containers of the node."
        ),
        """
NVIDIA_REQUIRE_CUDA=cuda>=13.0 brand=tesla,driver>=535,driver<536
error GH1043: NVIDIA_REQUIRE_CUDA does not hold for this node's driver: cuda>=13.0 (it is 12.2)
""",
    ),
    "GH1044": (
        (
            "A variable NVIDIA_REQUIRE_* of the image names a brand of GPU or a compute "
            "capability (arch), and a GPU that the container would get has another. All of its "
            "GPUs must fit; of a MIG instance, the GPU that it is a part of."
        ),
        (
            "Ask for another GPU of the node, or schedule the container to a node that has such "
            "GPUs. NVIDIA_DISABLE_REQUIRE=1 in the container waives all that its image requires."
        ),
        """
NVIDIA_REQUIRE_ARCH=arch>=8.0
error GH1044: NVIDIA_REQUIRE_ARCH does not hold for the GPU of /dev/nvidia0: arch>=8.0 (it is 7.5)
""",
    ),
    "GH1045": (
        (
            "A variable NVIDIA_REQUIRE_* has a term that is no comparison, or one of something "
            "that there is not. Properties are cuda, driver, arch and brand, operators = != < <= "
            "> >=, a term has at most 128 characters, and there are no spaces in it: they stand "
            "between alternatives."
        ),
        "Correct the variable; commas join terms that must all hold, spaces alternatives.",
        """
NVIDIA_REQUIRE_CUDA=cuda >= 12.4     # GH1045: three alternatives, none of them a term
NVIDIA_REQUIRE_CUDA=cuda>=12.4
""",
    ),
    "GH1046": (
        (
            "More variables NVIDIA_REQUIRE_* are set than any image has. NVIDIA's runtime takes "
            "no more either."
        ),
        "Join terms that must all hold by commas in one variable.",
        """
NVIDIA_REQUIRE_CUDA=cuda>=12.4
NVIDIA_REQUIRE_DRIVER=driver>=550
NVIDIA_REQUIRE_ALL=cuda>=12.4,driver>=550     # both in one
""",
    ),
    "GH1047": (
        (
            "The image requires something that nothing on this node tells: its CDI spec is of "
            "another program, or from before gpuhook noted the CUDA version, brand and compute "
            "capability there, and generate-cdi has left no inventory of this driver. What is "
            "not known keeps no container from starting."
        ),
        "Run `gpuhook generate-cdi`, whose spec and notes have these facts.",
        """
NVIDIA_REQUIRE_CUDA=cuda>=12.4
warning GH1047: of NVIDIA_REQUIRE_CUDA could not be judged whether it holds: cuda>=12.4; ...
""",
    ),
    "GH1060": (
        (
            "The beginning of a UUID is a name of a GPU or of a MIG instance only if exactly one "
            "device of this node has such a UUID. Here several devices have one, so that the "
            "request does not name one device."
        ),
        "Write the UUID as `gpuhook cdi list` prints it.",
        """
NVIDIA_VISIBLE_DEVICES=GPU-3d2b7a51                                 # GH1060
NVIDIA_VISIBLE_DEVICES=GPU-3d2b7a51-9c0e-4f6d-8b17-52e0c4a6f913
""",
    ),
    "GH1061": (
        (
            "NVIDIA_DRIVER_CAPABILITIES has words that name no capability, and "
            "request.onUnknownCapability is ignore. The container starts with the other words; "
            "without any other, with those of request.defaultDriverCapabilities."
        ),
        "Correct the variable. The capabilities are written in lower case.",
        """
NVIDIA_DRIVER_CAPABILITIES=Compute,utility      # GH1061: Compute is ignored
NVIDIA_DRIVER_CAPABILITIES=compute,utility
""",
    ),
    "GH1062": (
        (
            "The image has CUDA_VERSION and no NVIDIA_REQUIRE_CUDA, and this CUDA version is newer "
            "than that of the driver, with the same major version. Since CUDA 11, most programs "
            "run on every driver of their major version. Programs that compile PTX, and programs "
            "that call newer functions of the driver, do not."
        ),
        (
            "If a program of the container reports an insufficient driver or an unsupported PTX "
            "version, install a newer driver or use an older image. An image that requires a "
            "version sets NVIDIA_REQUIRE_CUDA."
        ),
        """
CUDA_VERSION=13.1.0
warning GH1062: the image is built for CUDA 13.1, and this node's driver has CUDA 13.0; it starts
NVIDIA_REQUIRE_CUDA=cuda>=13.1      # such an image is refused: GH1043
""",
    ),
}
