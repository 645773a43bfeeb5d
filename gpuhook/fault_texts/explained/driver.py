# SPDX-License-Identifier: Apache-2.0
"""Faults GH12xx at length: cause, cure, example."""

from __future__ import annotations

EXPLANATIONS: dict[str, tuple[str, str, str]] = {
    "GH1200": (
        (
            "NVML, the library by which the driver is asked, is nowhere below the driver root: "
            "no driver is installed, it is installed elsewhere (a driver container, GKE, "
            "NixOS), or only its kernel part is. In a container the host's files are not where "
            "they are on the host. If no driver root is set and / has no driver, the directories "
            "of NVIDIA's driver container (/run/nvidia/driver) and of GKE "
            "(/home/kubernetes/bin/nvidia) are searched, too."
        ),
        (
            "Install the driver's user space, or set its directory: driver.root of the settings, "
            "`gpuhook install --driver-root`, or nvidiaDriverRoot of the Helm chart. A driver "
            "container may still be starting."
        ),
        """
$ gpuhook inventory --driver-root /srv/nvidia/driver              # a driver container
$ gpuhook inventory --library-search-path /run/opengl-driver/lib  # NixOS
""",
    ),
    "GH1201": (
        "--nvml-library names a file that is not there.",
        "Give the path on this host, or leave the option out: the driver root is searched.",
        """
$ ls /usr/lib/x86_64-linux-gnu/libnvidia-ml.so.1
""",
    ),
    "GH1202": (
        (
            "The NVML library is there and the loader refuses it: it is cut short, of another "
            "machine, or needs a library that is missing."
        ),
        "Reinstall the driver's packages; see what the loader says.",
        """
$ ldd /usr/lib/x86_64-linux-gnu/libnvidia-ml.so.1
""",
    ),
    "GH1203": (
        (
            "The library and the loaded kernel module are of two versions: an unattended "
            "upgrade has replaced the files, and the old module is still loaded. nvidia-smi "
            "says `Driver/library version mismatch` then."
        ),
        (
            "Reboot, or stop all GPU programs and load the module anew. Pin the driver's "
            "packages so that it does not come back."
        ),
        """
$ cat /sys/module/nvidia/version
575.57.08
$ ls /usr/lib/x86_64-linux-gnu/libnvidia-ml.so.*
/usr/lib/x86_64-linux-gnu/libnvidia-ml.so.580.95.05
$ apt-mark hold nvidia-driver
""",
    ),
    "GH1204": (
        (
            "The library answers that there is no driver: the kernel module is not loaded. "
            "Typical after a kernel upgrade for which no module was built, with Secure Boot and "
            "an unsigned module, or where nouveau holds the GPU."
        ),
        "Load the module, and read why where that fails. A node without a GPU needs nothing.",
        """
$ modprobe nvidia; dmesg | tail
$ lsmod | grep nouveau
""",
    ),
    "GH1205": (
        "The driver's device nodes may not be opened by this user.",
        (
            "Run as root. For users, the module's parameters say who may: NVreg_DeviceFileMode, "
            "NVreg_DeviceFileGID."
        ),
        """
$ ls -l /dev/nvidiactl
crw-rw---- 1 root video 195, 255 /dev/nvidiactl
$ usermod -aG video USER
""",
    ),
    "GH1206": (
        (
            "The driver is loaded and NVML fails with the reason in the message: a GPU has "
            "fallen off its bus, its firmware does not answer, or a reset is needed."
        ),
        "Compare with nvidia-smi on the host, and read the kernel's lines.",
        """
$ nvidia-smi
Unable to determine the device handle for GPU0000:3B:00.0: Unknown Error
$ dmesg | grep -i -e NVRM -e Xid
""",
    ),
    "GH1207": (
        (
            "NVML answers for another driver than the files below the driver root are of: two "
            "drivers are installed, or --driver-root and --nvml-library are of two."
        ),
        "Name both of one driver, or remove the other.",
        """
$ gpuhook generate-cdi --driver-root /run/nvidia/driver
""",
    ),
    "GH1210": (
        (
            "A node that GPUs need is not there. No program makes /dev/nvidia-uvm until CUDA is "
            "used for the first time, so it is missing after a boot."
        ),
        (
            "Make it: the kernel tells the numbers. A udev rule or nvidia-persistenced makes it at "
            "boot."
        ),
        """
$ gpuhook system create-device-nodes --load-kernel-modules
""",
    ),
    "GH1211": (
        (
            "At the path of a device node there is a file or a directory. A container engine "
            "that was told to mount a node which was not there makes a directory of that name."
        ),
        "Remove it and make the node.",
        """
$ rmdir /dev/nvidia-uvm && gpuhook system create-device-nodes
""",
    ),
    "GH1212": (
        (
            "The node has another major number than the module has now: majors of nvidia-uvm "
            "and nvidia-caps are given anew at each load. Opening such a node fails or opens "
            "another driver's device."
        ),
        "Remove the node and make it anew.",
        """
$ grep nvidia-uvm /proc/devices
510 nvidia-uvm
$ gpuhook system create-device-nodes --replace
""",
    ),
    "GH1213": (
        (
            "generate-cdi was told to describe a kind of device of which this node has none: "
            "their device nodes are made by a kernel module that is not loaded, or lie "
            "elsewhere than below the dev root. A spec without devices would only hide that."
        ),
        (
            "Load the module (`gpuhook system load-kernel-modules --module nvidia-fs`), or make "
            "the nodes of IMEX channels (`gpuhook explain GH1037` tells how); name the right "
            "--dev-root, or do without the spec."
        ),
        """
$ gpuhook generate-cdi --mode gds
error GH1213: mode gds finds no device on this node: there is no device node /dev/nvidia-fs*
$ gpuhook system load-kernel-modules --module nvidia-fs
""",
    ),
    "GH1214": (
        (
            "The driver says which node opens the configuration (or the monitoring) of MIG, "
            "and the node is not there or cannot be looked at. The driver makes none by "
            "itself: gpuhook does where it is told to, and nvidia-modprobe."
        ),
        "Make the node.",
        """
$ gpuhook system create-device-nodes
$ gpuhook generate-cdi --mode mig --create-device-nodes --output /etc/cdi/mig.yaml
""",
    ),
    "GH1215": (
        (
            "What is there in place of MIG's node is no device, or has other numbers than the "
            "driver says now: the major of nvidia-caps is given anew at each load."
        ),
        "Remove it, and have it made again.",
        """
$ rm /dev/nvidia-caps/nvidia-cap1
$ nvidia-modprobe -f /proc/driver/nvidia/capabilities/mig/config
""",
    ),
    "GH1216": (
        (
            "Neither mig-minors nor the capability's own file in /proc tells the minor of the "
            "node: the driver is not loaded, is too old to have MIG, or its /proc is hidden."
        ),
        "Load a driver that has MIG; name the host's /proc with --host-root in a container.",
        """
$ cat /proc/driver/nvidia/capabilities/mig/config
DeviceFileMinor: 1
""",
    ),
    "GH1217": (
        (
            "WSL gives Linux the GPUs of Windows through the device /dev/dxg. It is missing in "
            "WSL 1, with an old kernel of WSL, where Windows has no driver for the GPU, and where "
            "GPU support is switched off in .wslconfig; or --mode wsl was given on another machine."
        ),
        "Update the driver in Windows and WSL itself, and start WSL anew.",
        """
PS> wsl.exe --update; wsl.exe --shutdown
$ ls -l /dev/dxg
crw-rw-rw- 1 root root 10, 127 /dev/dxg
""",
    ),
    "GH1218": (
        (
            "WSL shows the driver packages of Windows below /usr/lib/wsl/drivers. None of them has "
            "CUDA: Windows has no driver of NVIDIA's, one from before WSL 2, or the mount is "
            "missing."
        ),
        "Install NVIDIA's driver in Windows, not in Linux, and start WSL anew.",
        """
$ ls -d /usr/lib/wsl/drivers/nv*
$ gpuhook generate-cdi --library-search-path /usr/lib/wsl/drivers/nv_dispi.inf_amd64_0a1b2c3d
""",
    ),
    "GH1219": (
        (
            "A container that has /dev/dxg has all GPUs of Windows, so a device for one of them "
            "would promise what nobody holds. What was asked for leaves nothing, or one GPU."
        ),
        "Describe the device `all`; CUDA_VISIBLE_DEVICES chooses among the GPUs in a program.",
        """
$ gpuhook generate-cdi --mode wsl --output /etc/cdi/nvidia.yaml
$ podman run --device nvidia.com/gpu=all -e CUDA_VISIBLE_DEVICES=0 ...
""",
    ),
    "GH1220": (
        (
            "On a Tegra (Jetson, IGX) the system's own files say what belongs into containers, and "
            "none of them is there: JetPack's packages are not installed whole, the system is "
            "built without them (Yocto), or the machine is no Tegra."
        ),
        "Install the packages, or write such files and name them.",
        """
$ apt-get install --reinstall nvidia-l4t-init
$ ls /etc/nvidia-container-runtime/host-files-for-container.d
devices.csv  drivers.csv
$ gpuhook generate-cdi --mode csv --csv-file /etc/my-board.csv
""",
    ),
    "GH1221": (
        "A file with what belongs into a Tegra's containers is not there, or may not be read.",
        "Give its path on this host, and run as root.",
        """
$ ls -l /etc/nvidia-container-runtime/host-files-for-container.d
""",
    ),
    "GH1222": (
        (
            "The files of the Tegra name device nodes in lines `dev, /dev/...`, and none of them "
            "is there: the GPU's module is not loaded, or these are another system's files. The "
            "message has what is wrong with each GPU."
        ),
        "Load the module, and compare the files with /dev.",
        """
$ grep ^dev /etc/nvidia-container-runtime/host-files-for-container.d/devices.csv
dev, /dev/nvhost-gpu
$ lsmod | grep nvgpu; ls /dev/nvhost-* /dev/nvidia*
""",
    ),
    "GH1223": (
        "The directory of newer CUDA libraries is looked up in each container, from its root on.",
        "Give an absolute path.",
        """
$ gpuhook generate-cdi --mode csv --csv-compat-container-root /usr/local/cuda/compat_orin
""",
    ),
    "GH1230": (
        (
            "There is no libcuda.so with a version in its name in any directory of the driver: "
            "only part of the driver is installed, or it is elsewhere."
        ),
        ("Install it whole (the package with libcuda is often one of its own), or name its place."),
        """
$ apt-get install libcuda1
$ gpuhook generate-cdi --library-search-path /opt/nvidia/lib64
""",
    ),
    "GH1231": (
        (
            "libcuda and libnvidia-ml are of two versions: an installation that was "
            "interrupted, or two packages of which one was held back."
        ),
        "Finish the installation, so that all of the driver is of one version.",
        """
$ dpkg -l | grep -e libcuda1 -e libnvidia-ml1
""",
    ),
    "GH1232": (
        (
            "The driver that answers has no libcuda of its version below the driver root, only "
            "others: the files were replaced under the running driver."
        ),
        "Reboot into the installed driver, or install the libraries of the running one.",
        """
$ cat /sys/module/nvidia/version && ls /usr/lib/x86_64-linux-gnu/libcuda.so.*
""",
    ),
    "GH1233": (
        "Several versions of libcuda lie side by side, and no link says which one counts.",
        "Remove the old ones, or have ldconfig make the link.",
        """
$ ldconfig && ls -l /usr/lib/x86_64-linux-gnu/libcuda.so.1
""",
    ),
    "GH1234": (
        (
            "A file that is named as a library of the driver is none: empty, cut short, 32 bits "
            "wide, or unreadable."
        ),
        "Repeat the installation; a full disk is the usual cause.",
        """
$ file -L /usr/lib/x86_64-linux-gnu/libcuda.so.1
""",
    ),
    "GH1235": (
        (
            "--driver-root names something that is no directory. A driver container's root is "
            "there only while that container runs."
        ),
        "Name the directory, or wait for the driver container.",
        """
$ ls -ld /run/nvidia/driver
""",
    ),
    "GH1236": (
        (
            "A search path is relative, and would mean another directory wherever the command "
            "is called."
        ),
        "Give it from / on; it is taken below the driver root.",
        """
$ gpuhook inventory --library-search-path /usr/lib/nvidia-580
""",
    ),
    "GH1240": (
        (
            "Waiting for events of the GPUs failed, and some GPUs are lost: the driver forgets "
            "everyone's registration then."
        ),
        "See why they are lost; the plugin registers again by itself.",
        """
$ dmesg | grep NVRM
NVRM: Xid (PCI:0000:3b:00): 79, GPU has fallen off the bus.
""",
    ),
    "GH1241": (
        (
            "Waiting for events of the GPUs failed with the reason in the message. Errors that "
            "the driver tells by an event go unseen meanwhile; the plugin tries again."
        ),
        "Compare with nvidia-smi on the host.",
        """
$ nvidia-smi && dmesg | grep NVRM
""",
    ),
    "GH1242": (
        "This NVML makes no set of events: it is very old, or the driver is not whole.",
        "Update the driver. Health is told by the other signs meanwhile.",
        """
$ nvidia-smi --query-gpu=driver_version --format=csv
""",
    ),
    "GH1243": (
        (
            "A file of /etc/gpuhook/files.d, where a site adds driver files and drops some, is not "
            "YAML. No spec is made without it: a file that was to be dropped would be given."
        ),
        "Correct the line that is named, or move the file away.",
        """
$ gpuhook generate-cdi --files-dir /etc/gpuhook/files.d > /dev/null
""",
    ),
    "GH1244": (
        (
            "A file of /etc/gpuhook/files.d has a key that nobody reads, or a wrong value: a "
            "path that is not absolute, an unknown kind or capability."
        ),
        "Correct the line that is named; add is a list of mappings, drop a list of globs.",
        """
add:
  - path: /usr/lib64/libnvidia-site.so.1
    capabilities: [compute]
drop:
  - "*/libnvidia-gtk3.so.*"
""",
    ),
    "GH1245": (
        (
            "A file of /etc/gpuhook/files.d puts a driver file below /dev, /proc or /sys, which a "
            "container has from the kernel and its runtime, or has .. in a path."
        ),
        "Name another containerPath.",
        """
add:
  - path: /run/site/nvidia.conf
    containerPath: /etc/nvidia/site.conf
""",
    ),
    "GH1246": (
        (
            "A MIG instance needs a device node that the driver does not make. The process that "
            "needs it has no permission to make it. After an edit of the ConfigMap, the plugin's "
            "container has no capability MKNOD: the chart derives it from its values."
        ),
        (
            "Make the node on the host, or set migStrategy in the chart's values or "
            "features.mig: true."
        ),
        """
$ nvidia-modprobe -f /proc/driver/nvidia/capabilities/gpu0/mig/gi1/access
""",
    ),
    "GH1250": (
        (
            "Memory limits of containers are a call that came to the driver with CUDA 13.4; "
            "this NVML does not have it."
        ),
        "Update the driver, or share the GPU without: docs/sharing.md compares what is left.",
        """
$ gpuhook limits show
""",
    ),
    "GH1251": (
        (
            "The driver has the call for memory limits and refused this one, for the reason in "
            "the message: no permission, no such cgroup, a backend that the kernel lacks."
        ),
        "See the remedy beside the reason.",
        """
$ gpuhook limits set trainer --limit 4Gi
Error GH1251: the driver refuses a memory limit on GPU-...: Insufficient Permissions
""",
    ),
    "GH1252": (
        (
            "The limit was set without an error, and read back it is another: somebody else "
            "sets it too, or the driver does not do what it says. A limit that only seems to "
            "hold is worse than none, so this is an error."
        ),
        "Find the other program; else report it with the driver's version.",
        """
$ gpuhook limits show trainer
""",
    ),
    "GH1253": (
        (
            "A limit was asked for a MIG instance, or for a GPU in MIG mode. An instance has "
            "memory of its own, which nobody else can use."
        ),
        "Pick a profile of the right size, and leave the limit out.",
        """
nvidia.com/mig-2g.10gb: 1       # instead of a limit of 10 GiB
""",
    ),
    "GH1254": (
        "The driver does not say which limit a container has, for the reason in the message.",
        "See the remedy beside the reason.",
        """
$ gpuhook inspect trainer
""",
    ),
    "GH1255": (
        "NVML has no handle for this GPU: it is lost, or the UUID is of another node.",
        "Compare the UUID with nvidia-smi -L.",
        """
$ nvidia-smi -L
""",
    ),
    "GH1256": (
        (
            "The driver was asked about a limit in a process of its own and has not answered in "
            "time. A driver in trouble hangs in the kernel, where nothing can end it; gpuhook "
            "went on without."
        ),
        (
            "See whether nvidia-smi hangs too, and what the kernel says; usually only a reset "
            "or a reboot helps."
        ),
        """
$ timeout 20 nvidia-smi; echo $?
124
""",
    ),
    "GH1257": (
        (
            "The process that asked the driver ended by a signal or without an answer: its "
            "library crashed."
        ),
        "Run nvidia-smi; where it crashes too, reinstall the driver.",
        """
$ nvidia-smi; dmesg | tail
""",
    ),
    "GH1258": (
        (
            "The driver is asked in a process of its own, and none could be started: a limit of "
            "processes, or no memory."
        ),
        "Raise the limit that is met.",
        """
$ cat /sys/fs/cgroup/system.slice/containerd.service/pids.max
""",
    ),
    "GH1260": (
        "The length of a time slice is set by nvidia-smi, and there is none in the driver root.",
        "Install the package that has it.",
        """
$ apt-get install nvidia-smi
""",
    ),
    "GH1261": (
        "This nvidia-smi has no compute-policy: the driver is older than 455.",
        "Update the driver, or take timeSlice out of the plugin's configuration.",
        """
$ nvidia-smi compute-policy --list
""",
    ),
    "GH1262": (
        (
            "This GPU's time slice cannot be set: it has no compute preemption (older than "
            "Volta), or the driver says no."
        ),
        "Take timeSlice away for this GPU; it is shared with the driver's own slices.",
        """
$ gpuhook inventory -o json | grep time_slice
""",
    ),
    "GH1263": (
        "Setting a time slice needs root and CAP_SYS_ADMIN, which the caller has not.",
        (
            "Run the plugin's container privileged, or set the slice on the host and take "
            "timeSlice away."
        ),
        """
securityContext: {privileged: true}
""",
    ),
    "GH1264": (
        "nvidia-smi failed with the words in the message.",
        "Run the same command on the host.",
        """
$ nvidia-smi compute-policy --set-timeslice 2
""",
    ),
    "GH1265": (
        "NVML does not tell the compute mode of this GPU.",
        "Compare with nvidia-smi; a GPU without one needs no computeMode in the configuration.",
        """
$ nvidia-smi -q -d COMPUTE
""",
    ),
}
