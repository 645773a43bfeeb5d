# SPDX-License-Identifier: Apache-2.0
"""The texts of faults GH12xx: the driver and the inventory of a node.

Loaded only where something is wrong.
"""

from __future__ import annotations

from gpuhook.errors import DriverError, FileError, GpuhookError, HostError, RequestError

TEXTS: dict[str, tuple[type[GpuhookError], str, str]] = {
    "GH1200": (
        DriverError,
        "no libnvidia-ml.so.1 below the driver root {root} (looked in {looked})",
        (
            "install the NVIDIA driver, or name where it is with --driver-root, "
            "--library-search-path or --nvml-library; driver.root of the settings applies to all "
            "commands"
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
            "make it with `gpuhook system create-device-nodes` (nvidia-modprobe -c {minor}, for"
            " nvidia-uvm -c 0 -u), or name where the nodes are with --dev-root"
        ),
    ),
    "GH1211": (
        DriverError,
        "{path} is not a character device",
        (
            "make the node in its place: `gpuhook system create-device-nodes --replace` (by hand:"
            " nvidia-modprobe -c {minor}, for nvidia-uvm -c 0 -u)"
        ),
    ),
    "GH1212": (
        DriverError,
        "{path} has major number {found}, but the kernel module {name} has {major}",
        "the node is older than the module: run `gpuhook system create-device-nodes --replace`",
    ),
    "GH1213": (
        DriverError,
        "mode {mode} finds no device on this node: {reason}",
        "{way}",
    ),
    "GH1214": (
        DriverError,
        "{path}, by which MIG's {name} is opened, cannot be had: {reason}",
        ("make it with `gpuhook system create-device-nodes` (by hand: nvidia-modprobe -f {file})"),
    ),
    "GH1215": (
        DriverError,
        "{path} is not the character device {major}:{minor}",
        "the node is older than the kernel module: remove it, and have it made again",
    ),
    "GH1216": (
        DriverError,
        "the driver knows no MIG {name}: neither {minors} nor {file} has its minor",
        "MIG needs a GPU that has it, and a driver from 450 on that is loaded",
    ),
    # GH1217 to GH1229: WSL and Tegra.
    "GH1217": (
        DriverError,
        "{path}: {reason}; in WSL it is the way to all GPUs",
        (
            "update Windows' driver, run wsl.exe --update and wsl.exe --shutdown; on a machine "
            "that is not WSL, leave --mode wsl out"
        ),
    ),
    "GH1218": (
        DriverError,
        "no NVIDIA driver of Windows: no directory below {packages} has {library}",
        (
            "install NVIDIA's driver in Windows, run wsl.exe --shutdown, or name the directory "
            "with --library-search-path"
        ),
    ),
    "GH1219": (
        RequestError,
        "{what}: in WSL all GPUs are behind one device node, so there is the device `all` alone",
        "leave out --device-id and --no-all-device",
    ),
    "GH1220": (
        DriverError,
        "{directory} has neither devices.csv nor drivers.csv nor l4t.csv",
        (
            "install the package nvidia-l4t-init of JetPack, or name the files with --csv-file; "
            "on a machine that is no Tegra, leave --mode csv out"
        ),
    ),
    "GH1221": (
        HostError,
        "{path}: cannot be read: {reason}",
        "name a file that can be read with --csv-file, or leave the option out",
    ),
    "GH1222": (
        DriverError,
        "none of the device nodes that {files} name can be given to containers{reasons}",
        "see whether the GPU's module is loaded (modprobe nvgpu), or name /dev with --dev-root",
    ),
    "GH1223": (
        RequestError,
        "the directory {path} of --csv-compat-container-root is not absolute",
        "give the directory as it is in the containers, from / on",
    ),
    "GH1230": (
        DriverError,
        "no NVIDIA driver below {root}: no libcuda.so.<version> in {searched}",
        "install the driver there, or name its place with --driver-root or --library-search-path",
    ),
    "GH1231": (
        DriverError,
        "the driver below {root} is of two versions: libcuda is {libcuda}, libnvidia-ml is {ml}",
        "finish or repeat the driver's installation, so that both are of one version",
    ),
    "GH1232": (
        DriverError,
        "the driver is {version}, but the libcuda below {root} is {have} (searched {searched})",
        "install the libraries of {version} there, or reboot into the installed driver",
    ),
    "GH1233": (
        DriverError,
        "several drivers below {root} ({have}), and no libcuda.so.1 says which one counts",
        "remove the old ones, or run ldconfig there to make the link",
    ),
    "GH1234": (
        DriverError,
        "{path} is not a readable 64-bit shared library",
        "repeat the driver's installation",
    ),
    "GH1235": (
        DriverError,
        "the driver root {root} is not a directory",
        "name the directory that the driver is installed in with --driver-root",
    ),
    "GH1236": (
        RequestError,
        "the search path {path} is not absolute",
        "give the directory from / on",
    ),
    "GH1240": (
        DriverError,
        "waiting for events of the GPUs failed ({reason}), as these are lost: {gpus}",
        "dmesg | grep NVRM tells why; a lost GPU comes back by a reset or a reboot",
    ),
    "GH1241": (
        DriverError,
        "waiting for events of the GPUs failed: {reason}",
        "run nvidia-smi on the host: when that fails too, dmesg | grep NVRM tells why",
    ),
    "GH1242": (
        DriverError,
        "{path}: this NVML makes no event set: {reason}",
        "XIDs go unseen then: run nvidia-smi on the host, and update a very old driver",
    ),
    "GH1243": (
        FileError,
        "{file}, line {line}, column {column}: {reason}",
        "correct the YAML there; gpuhook leaves no file of the directory out by itself",
    ),
    "GH1244": (
        FileError,
        "{file}, line {line}: {where}: {reason}",
        (
            "it is a mapping with the lists add (entries with path, containerPath, kind, "
            "capabilities) and drop (globs): see docs/driver-files.md"
        ),
    ),
    "GH1245": (
        FileError,
        "{file}, line {line}: {path} is no place for a file of the driver in a container",
        "give a containerPath outside of /dev, /proc and /sys, without ..",
    ),
    "GH1246": (
        HostError,
        "{path} is missing and cannot be made: {reason}",
        (
            "run nvidia-modprobe -f {file} on the host, or give this container the capability "
            "MKNOD; in the chart's values: features.mig: true"
        ),
    ),
    # GH1250 to GH1259: memory limits.
    "GH1250": (
        DriverError,
        "{path}: this driver has no memory limits for containers; they came with CUDA 13.4",
        (
            "update the driver, or share the GPU without them: the device plugin's guard watches "
            "the memory instead, and limits.onFailure: start lets containers start"
        ),
    ),
    "GH1251": (
        DriverError,
        "the driver refuses a memory limit on {uuid} for the cgroup {cgroup}: {reason}",
        "{remedy}",
    ),
    "GH1252": (
        DriverError,
        (
            "the driver took the memory limit on {uuid} for the cgroup {cgroup} and does not "
            "hold it: set were {asked}, it has {found}"
        ),
        (
            "see whether another program sets limits for this cgroup; if none does, this driver "
            "does not do what it says: report it with the driver's version"
        ),
    ),
    "GH1253": (
        RequestError,
        (
            "{uuid} is a MIG device, or a GPU in MIG mode: the driver limits the memory of whole "
            "GPUs only"
        ),
        "a MIG device has its own memory: pick a profile of the right size and leave the limit out",
    ),
    "GH1254": (
        DriverError,
        "the driver does not tell the memory limit on {uuid} for the cgroup {cgroup}: {reason}",
        "{remedy}",
    ),
    "GH1255": (
        DriverError,
        "no memory limit can be set or read on the GPU {uuid}: {reason}",
        "compare with nvidia-smi -L on the host; dmesg | grep NVRM tells why a GPU is lost",
    ),
    "GH1256": (
        DriverError,
        "the driver has not answered within {seconds} seconds when it was to limit memory",
        "run nvidia-smi on the host: when that hangs too, dmesg | grep NVRM tells why",
    ),
    "GH1257": (
        DriverError,
        "limiting memory through the driver's library failed: {how}",
        "run nvidia-smi on the host: when that fails too, reinstall the driver",
    ),
    "GH1258": (
        HostError,
        "no process can be started to ask the driver for a memory limit: {reason}",
        (
            "see pids.max of the cgroup that this runs in, ulimit -u, and whether the host has "
            "memory left"
        ),
    ),
    # GH1260 to GH1269: compute policy, compute mode.
    "GH1260": (
        HostError,
        "there is no program {program} to set the time slice of a GPU with",
        "install the driver's nvidia-smi: package nvidia-utils, nvidia-smi or nvidia-driver-cuda",
    ),
    "GH1261": (
        DriverError,
        "{program} knows no compute-policy: this driver cannot be told the length of a time slice",
        "update the driver to 455 or newer, or take timeSlice away",
    ),
    "GH1262": (
        DriverError,
        "{uuid} has no time slice that can be set: {reason}",
        "only GPUs with compute preemption have one: take timeSlice away for this GPU",
    ),
    "GH1263": (
        HostError,
        "the time slice of {uuid} may not be set: {reason}",
        "setting it needs root and CAP_SYS_ADMIN; in the chart's values: features.timeSlices: true",
    ),
    "GH1264": (
        DriverError,
        "`{program} compute-policy {arguments}` failed: {reason}",
        "run it on the host: when that fails too, dmesg | grep NVRM tells why",
    ),
    "GH1265": (
        DriverError,
        "the compute mode of {uuid} cannot be read: {reason}",
        "run nvidia-smi -q -d COMPUTE on the host; a GPU without it needs no computeMode",
    ),
}
