# SPDX-License-Identifier: Apache-2.0
"""The text of every fault a person can meet, by its code: kind, sentence, way out.

HOT, and loaded only where something is wrong.
"""

from __future__ import annotations

from gpuhook.errors import (
    DriverError,
    FileError,
    GpuhookError,
    HostError,
    RefusedError,
    RequestError,
)

# Code blocks: GH10 request, GH11 CDI specs, GH12 driver and inventory, GH13 container and
# config.json, GH14 runtime and state, GH15 settings and command line, GH16 hook and loader files,
# GH17 live containers, GH18 the device plugin.
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
        "{where} asks for GPUs, but this node has no NVIDIA driver loaded",
        "load the driver, or set request.onMissingDriver to start in /etc/gpuhook/config.yaml",
    ),
    "GH1007": (
        RefusedError,
        "ignored the request for {names} of {where}: {reason}",
        "change the setting in /etc/gpuhook/config.yaml if this container should have GPUs",
    ),
    "GH1008": (
        DriverError,
        "{where} asks for GPUs, but this node has no NVIDIA driver loaded; it starts without",
        "set request.onMissingDriver to refuse in /etc/gpuhook/config.yaml to refuse it instead",
    ),
    "GH1009": (
        RefusedError,
        "{where} names {name}, a device of another vendor than {vendor}",
        "variables may name devices of {vendor} only; ask with an annotation cdi.k8s.io/*",
    ),
    "GH1020": (
        RequestError,
        "unknown driver capability {word} in NVIDIA_DRIVER_CAPABILITIES",
        "known are {known}",
    ),
    "GH1101": (
        RequestError,
        "{name} is no CDI device name",
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
    "GH1120": (
        FileError,
        "the CDI spec describes another state of this host ({changes})",
        "run `gpuhook generate-cdi --output DIR/nvidia.yaml`, DIR being {dirs}",
    ),
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
            "make it with nvidia-modprobe (-c {minor}, for nvidia-uvm -c 0 -u), or name where the"
            " nodes are with --dev-root"
        ),
    ),
    "GH1211": (
        DriverError,
        "{path} is not a character device",
        "remove it and make it again with nvidia-modprobe (-c {minor}, for nvidia-uvm -c 0 -u)",
    ),
    "GH1212": (
        DriverError,
        "{path} has major number {found}, but the kernel module {name} has {major}",
        "the node is older than the module: remove it and run nvidia-modprobe -c 0 -u",
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
    "GH1300": (
        FileError,
        "{path}: there is no such file",
        "name the bundle that holds config.json with --bundle",
    ),
    "GH1301": (
        FileError,
        "{path} is not a usable OCI runtime spec: {reason}",
        "it was left as it is; have the engine write it anew, or make one with `runc spec`",
    ),
    "GH1302": (
        DriverError,
        "device node {node}: {reason}",
        (
            "load the driver's modules so that the node exists (`nvidia-modprobe -u -c=0`), or run"
            " `gpuhook generate-cdi` again if the GPU is gone"
        ),
    ),
    "GH1303": (
        FileError,
        "config.json: {key} is not {kind}",
        "it was left as it is; the engine that wrote it is at fault",
    ),
    "GH1304": (
        RefusedError,
        "{path} is the host's own root file system",
        "gpuhook changes no file of the host: give the container a root file system of its own",
    ),
    "GH1305": (
        HostError,
        "the root file system {path} is mounted read-only: no runtime can mount a driver into it",
        "mount it writable (an overlay will do) and set root.readonly in config.json instead",
    ),
    "GH1306": (
        FileError,
        "bundle {bundle} has no usable root file system: {reason}",
        "config.json must say where it is in root.path",
    ),
    "GH1310": (
        FileError,
        "{path} is not a regular file of at most {limit} bytes",
        "it was not read; see what is at that path",
    ),
    "GH1401": (
        HostError,
        "no low-level runtime found: looked for {names} in {dirs}",
        (
            "install runc or crun, or name another in runtime.lowLevelRuntimes of"
            " /etc/gpuhook/config.yaml"
        ),
    ),
    "GH1402": (
        HostError,
        "{path} is YAML and has not been compiled, and there is no `gpuhook` to do it in {dirs}",
        "install the gpuhook package, or write the file as JSON",
    ),
    "GH1403": (
        HostError,
        "{path} could not be compiled: `{command}` failed",
        "run that command by hand to see why",
    ),
    "GH1410": (
        HostError,
        "{path}: {reason}; container {container} is missing from `gpuhook ps`",
        "make the state directory writable",
    ),
    "GH1490": (
        HostError,
        "{where}: {reason}",
        "nothing was changed; see to that path and start the container again",
    ),
    "GH1491": (
        HostError,
        "an error of gpuhook's own, {kind} at {place}: {reason}",
        "report it with this line; a container that asks for no GPU starts all the same",
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
    "GH1510": (
        RequestError,
        "--{option} {value}: not a {option} name of CDI",
        "it starts with a letter, ends with a letter or digit, and holds letters, digits, _ - .",
    ),
    "GH1511": (
        RequestError,
        "--device-id {value}: this node has no such GPU or MIG instance; it has {have}",
        "name a GPU by its index, UUID or PCI bus id, an instance like 0:1 or by UUID, or `all`",
    ),
    "GH1512": (
        RequestError,
        "--device-id {value} cannot be used: {reason}",
        "choose another one, or leave --device-id out: what cannot be used is skipped then",
    ),
    "GH1513": (
        DriverError,
        "this node has no GPU that a CDI spec could describe{reasons}",
        "`gpuhook inventory` shows what was found",
    ),
    "GH1514": (
        RequestError,
        "--output {path}: {reason}",
        "name the file *.yaml or *.json, as its format is: container engines read nothing else",
    ),
    "GH1515": (
        RequestError,
        "--hook-path {path}: not an absolute path",
        "give the path of gpuhook-hook on the host, as container engines see it",
    ),
    "GH1530": (
        FileError,
        "{path}: {reason}",
        "check it with `gpuhook config validate`; no container gets a GPU until it is right",
    ),
    "GH1531": (
        HostError,
        "{path}: its compiled form cannot be kept below the state directory",
        "make /run/gpuhook writable for root; no container gets a GPU until then",
    ),
    "GH1532": (
        FileError,
        "{path}: {reason}",
        "the README has every key and its values",
    ),
    "GH1590": (
        HostError,
        "{where}: {reason}",
        "see to that path, and call again",
    ),
    "GH1591": (
        HostError,
        "standard output: {reason}",
        "see to where it goes; a change that was asked for may be done: `gpuhook inspect` shows it",
    ),
    "GH1592": (
        HostError,
        "{path}: {reason}, in the state directory {directory}",
        "make {directory} a directory that you can write in; {variable}",
    ),
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
    "GH1701": (
        HostError,
        "{program} cannot be read back from the kernel, and its rules are not known otherwise",
        (
            "set kernel.kptr_restrict or net.core.bpf_jit_harden to 1 for the moment, or restart"
            " the container with the device"
        ),
    ),
    "GH1702": (
        RefusedError,
        "{rule} is still not allowed after the change: {reason}; it was undone",
        "a cgroup above the container decides that: see to the unit or the engine that set it up",
    ),
    "GH1703": (
        HostError,
        "{cgroup}: its device programs are replaced by somebody else all the time",
        "see who does (a systemctl daemon-reload loop?), and call again",
    ),
    "GH1704": (
        RefusedError,
        "{rule} cannot be denied: {reason}",
        "the container was given a whole class of devices: start it anew with narrower rules",
    ),
    "GH1730": (
        RequestError,
        "there is no process {pid}",
        "name a container that runs, by its id or by the pid of one of its processes",
    ),
    "GH1731": (
        RequestError,
        "process {pid} is another one than the container's: its pid has been used again",
        "the container has ended; nothing was changed",
    ),
    "GH1732": (
        RequestError,
        "process {pid} has ended meanwhile, and the container with it",
        "start the container again; what was given to it in between went with it",
    ),
    "GH1733": (
        HostError,
        "{path}: {reason}",
        "run as root on the host; a container needs the host's pids and CAP_SYS_PTRACE for this",
    ),
    "GH1734": (
        HostError,
        "the user namespace of process {pid} has no root (its {map} does not map 0)",
        "map 0 in linux.uidMappings and linux.gidMappings of the container",
    ),
    "GH1735": (
        RequestError,
        "{name}: no such container; looked in {places}{skipped}",
        "{near}; --state-root names another directory in which a runtime keeps its state",
    ),
    "GH1736": (
        RequestError,
        "{name} is not one container: {candidates}",
        "name the whole id of the one that is meant; where ids are alike, its pid",
    ),
    "GH1737": (
        RequestError,
        "process {pid} is in no container: it sees the mounts of the host",
        "name a process of a container",
    ),
    "GH1738": (
        RequestError,
        "container {id} does not run: it is {status}",
        "start it; this needs a container that has processes",
    ),
    "GH1739": (
        FileError,
        "the runtime's state of a container, {path}, cannot be used: {reason}",
        "name the container by the pid of one of its processes; its runtime may know more",
    ),
    "GH1740": (
        HostError,
        "{container} lacks, of what it was granted: {what}",
        "run `gpuhook repair {container}`; the processes go on",
    ),
    "GH1741": (
        DriverError,
        "{container} has the files of driver {mounted}, but the node's driver is {now}",
        "restart the container: libraries cannot be exchanged under programs that use them",
    ),
    "GH1742": (
        DriverError,
        "{path} is mounted in {container}, but was removed from the node ({count} such files)",
        "the driver was reinstalled meanwhile; restart the container for the new files",
    ),
    "GH1743": (
        FileError,
        "the loader's files of {container} cannot be read: {reason}",
        "look at /etc/ld.so.cache and /etc/ld.so.conf.d/00-gpuhook.conf in the container",
    ),
    "GH1744": (
        HostError,
        (
            "the device cgroup of {container} denies {nodes}, which it was granted: its rules were"
            " set anew, as `systemctl daemon-reload` does"
        ),
        "run `gpuhook repair {container}`; the processes go on",
    ),
    "GH1745": (
        RequestError,
        "{container} asks for GPUs ({request}), and its runtime has given it none",
        "start it with a runtime that gives GPUs (the handler nvidia), or `gpuhook attach` it one",
    ),
    "GH1746": (
        HostError,
        "not allowed to look into {places}",
        "run as root: containers of others cannot be seen",
    ),
    "GH1750": (
        FileError,
        "{path} in the container is {what}, which is in the way",
        "remove it from the image or the volume; nothing was changed",
    ),
    "GH1751": (
        HostError,
        "{cause}; and what had been done before could not all be undone: {left}",
        "see to these by hand, or start the container again",
    ),
    "GH1752": (
        DriverError,
        "the host has no {path}: {reason}",
        "run `gpuhook generate-cdi` again if the driver was upgraded, then do this again",
    ),
    "GH1753": (
        RefusedError,
        "container {id} uses the device: {holders}",
        "end these processes first; --force refuses new opens and leaves them what they have",
    ),
    "GH1754": (
        RefusedError,
        "what is mounted at {path} in the container would appear outside it too: it is shared",
        "mount the volume, or set rootfsPropagation, private or rslave; nothing was changed",
    ),
    "GH1755": (
        FileError,
        "{path} is user {user}'s, or others can write it: what it grants is not believed",
        "make the file root's, and writable by nobody else",
    ),
    "GH1756": (
        RefusedError,
        "container {id} is user {user}'s own",
        "run gpuhook as that user, in the user namespace of the container's engine",
    ),
    "GH1757": (
        HostError,
        "another gpuhook has been changing containers of this node for half a minute",
        "wait for it, or see with `fuser {path}` who it is",
    ),
    "GH1758": (
        HostError,
        "an error of gpuhook's own, {kind}: {reason}",
        "report it with this line, and with what `gpuhook inspect` says of the container",
    ),
    "GH1759": (
        RequestError,
        "{name}; the container has {nodes}",
        "a GPU that fell off the bus is in no CDI spec any more: name its node, as --device {node}",
    ),
    "GH1760": (
        HostError,
        "the file systems of {container} did not answer for {seconds} seconds",
        "repair it by itself: `gpuhook repair {container}`; see whether it mounts FUSE or NFS",
    ),
    "GH1770": (
        RequestError,
        "`none` means the control nodes and the driver's files, and container {id} has {nodes}",
        "detach these devices: the rest goes with the last one, if it came with one",
    ),
    "GH1771": (
        FileError,
        "{reason}",
        "{hint}; or name the device's node, as --device {node}: that needs no CDI spec",
    ),
    "GH1772": (
        FileError,
        "{reason}, though a container was started with it",
        "it says what the container was granted: put it right, or start the container anew",
    ),
    # GH1800 to GH1819: its configuration.
    "GH1800": (
        FileError,
        "the configuration has {count}: {first}",
        "`gpuhook device-plugin --validate {path}` shows all that is wrong with the file",
    ),
    "GH1801": (
        FileError,
        "the configuration cannot be read from {path}: {reason}",
        "name one that can be read; a ConfigMap is mounted from the namespace of the plugin's pod",
    ),
    "GH1802": (
        FileError,
        "no configuration of {directory} can be chosen: {reason}; it has {known}",
        "set --default-config, a node label, or --fallback-strategies named,single,empty",
    ),
    "GH1803": (RequestError, "{source}: {reason}", "{hint}"),
    "GH1804": (
        RequestError,
        "the file {file} and the directory {directory} are both given for the configuration",
        "give one of CONFIG_FILE (--config-file) and CONFIG_FILE_SRCDIR (--config-dir)",
    ),
    "GH1805": (
        HostError,
        "the device plugin needs the Python package {package}, which is not installed",
        "install gpuhook with what the plugin needs: pip install 'gpuhook[plugin]'",
    ),
    "GH1806": (
        HostError,
        "this process cannot be called {name}: {reason}",
        "choose a name of at most {most} bytes, or start it without --process-name",
    ),
    # GH1820 to GH1839: registration, serving, the kubelet.
    "GH1820": (
        RequestError,
        "{method} got {size} bytes that are no {message}",
        "call it as the device plugin API v1beta1 of the kubelet has it",
    ),
    "GH1821": (
        HostError,
        "cannot serve {resource} on {path}: {reason}",
        "the plugin directory must be the kubelet's own, mounted writable",
    ),
    "GH1822": (
        HostError,
        "{directory} is too long a path: a socket in it would have more than {limit} bytes",
        "mount the kubelet's plugin directory at a shorter path in the plugin's container",
    ),
    "GH1823": (
        HostError,
        "the kubelet at {socket} did not register {resource}: {reason}",
        "see the kubelet's log; its device plugin API must be v1beta1",
    ),
    "GH1824": (
        HostError,
        "another process serves {resource} on {path}",
        "run one device plugin for each node: this one waits until the socket is free",
    ),
    # GH1840 to GH1849: resources and preferred allocation.
    "GH1840": (
        FileError,
        "migStrategy single needs GPUs that are alike: MIG mode is on at {divided}, off at {whole}",
        "switch MIG mode to the same on all, set gpuhook.excludeDevices, or migStrategy to mixed",
    ),
    "GH1841": (
        FileError,
        "migStrategy single needs instances on every GPU in MIG mode: {gpus} has none",
        "make some by nvidia-smi mig -cgi, set gpuhook.excludeDevices, or migStrategy to mixed",
    ),
    "GH1842": (
        FileError,
        "migStrategy single needs instances of one profile: {profiles}",
        "make all instances alike, set gpuhook.excludeDevices, or migStrategy to mixed",
    ),
    "GH1843": (
        RequestError,
        "{resource} has no device {name}, which the preferred allocation must include",
        "the list of devices has changed since the kubelet read it: let the pod be made anew",
    ),
    "GH1844": (
        RequestError,
        "{resource}: the kubelet names device {name} twice in {where}",
        "each device id may be there once",
    ),
    "GH1845": (
        RequestError,
        "{resource}: a preferred allocation of {size} devices must include {required}",
        "the size is that of the whole allocation, the devices it must include among them",
    ),
    "GH1846": (
        RequestError,
        "{resource}: {size} devices are wanted, and {known} of the {named} available are its own",
        "wait until other containers have ended, or ask for less",
    ),
    # GH1850 to GH1859: allocation, CDI specs.
    "GH1850": (
        RequestError,
        "{resource} has no device {id}; the nearest are {nearest}",
        "the kubelet's list is older than this one: create the pod anew",
    ),
    "GH1851": (
        DriverError,
        "device {id} of {resource} is unhealthy: {reason}",
        "create the pod anew, and the scheduler looks for another device",
    ),
    "GH1852": (
        RequestError,
        "a container asks for {count} of {resource}, and may have one: it is shared",
        "replicas of one GPU don't add up to more of it: ask for 1",
    ),
    "GH1853": (
        DriverError,
        "no device of {resource} can be handed to a container: {reason}",
        "complete the driver's installation, or add envvar to deviceListStrategy",
    ),
    "GH1854": (
        HostError,
        "{resource} is shared by MPS, and no control daemon of it runs",
        "the plugin's log says why it did not start; it is tried again at each look at the node",
    ),
    "GH1855": (
        DriverError,
        "no CDI spec describes {name}",
        "the plugin's log has a warning that says why it was left out",
    ),
    "GH1856": (
        HostError,
        "the IMEX channel {channel} is required and {path} is not there",
        "make the channel with nvidia-modprobe, or set imex.required to false",
    ),
    "GH1857": (
        DriverError,
        "the container may not start: its device {id} is unhealthy: {reason}",
        "delete the pod; what creates it anew gets another device",
    ),
    "GH1858": (
        HostError,
        "the container may not start: {uuid} has {free} MiB free, and minFreeMemory is {needed}",
        "see with `gpuhook ps` who shares the GPU, or lower gpuhook.minFreeMemory",
    ),
    # GH1860 to GH1869: health, the API server.
    "GH1860": (
        RequestError,
        "{name} is not the UUID of a GPU",
        "name the GPU as `gpuhook health show` does, or `all`",
    ),
    "GH1861": (
        RequestError,
        "{name} names no GPU that is marked as unhealthy, or more than one",
        "see `gpuhook health show`; give an index, a UUID or its beginning, or `all`",
    ),
    "GH1862": (
        HostError,
        "the API server at {where} cannot be spoken to: {reason}",
        "it is tried again; see whether the pod's network and its service account are in order",
    ),
    "GH1863": (
        RefusedError,
        "this service account may not {verb} {resource}, which is needed for {feature}",
        'give its ClusterRole a rule: apiGroups [""], resources ["{resource}"], verbs ["{verb}"]',
    ),
    "GH1864": (
        HostError,
        "the API server would not {verb} {resource} for {feature}: {status} {reason}",
        "it is tried again at the next occasion; 401 means that the token is not accepted",
    ),
    "GH1865": (
        FileError,
        "the marks of unhealthy GPUs cannot be read from {path}: {reason}",
        "read them as root; `gpuhook health clear all` has the device plugin begin anew",
    ),
    # GH1870 to GH1879: MPS.
    "GH1870": (
        FileError,
        "{resource} is shared by MPS with unequal replicas: {counts}",
        "a daemon gives all of its clients one share: give the devices other names with `rename`",
    ),
    "GH1871": (
        FileError,
        "{resource} is shared by MPS among {replicas}, but {model} serves {most} clients at most",
        "lower sharing.mps.resources[].replicas, or share it by time slicing",
    ),
    "GH1872": (
        FileError,
        "{resource} is made of MIG instances, which gpuhook does not share by MPS",
        "use sharing.timeSlicing for it, or set flags.migStrategy to none",
    ),
    "GH1873": (
        HostError,
        "{resource} is shared by MPS, but there is no program {program}",
        "install its package: nvidia-compute-utils, nvidia-driver-cuda or nvidia-cuda-mps",
    ),
    "GH1874": (
        HostError,
        "the MPS control daemon of {resource} failed at `{command}`: {reason}",
        "read its logs in {log}",
    ),
    "GH1875": (
        HostError,
        "{path} is not in memory, and no tmpfs can be mounted there: {reason}",
        "put --mps-root below /run, or mount a tmpfs at {path}",
    ),
    "GH1877": (
        HostError,
        "the compute mode of {uuid} cannot be set to {mode}: {reason}",
        "sharing by MPS needs root and CAP_SYS_ADMIN: run the plugin's container privileged",
    ),
    # GH1880 to GH1889: labels.
    # GH1890 to GH1899: metrics.
    "GH1890": (
        HostError,
        "metrics cannot be served at {address}: {reason}",
        'choose another gpuhook.metrics.address, or set it to "" to serve none',
    ),
    "GH1891": (
        FileError,
        "gpuhook.metrics.address is {address}, which is no address",
        "it is host:port, such as 127.0.0.1:9395, [::1]:9395, or :9395 for every interface",
    ),
}
