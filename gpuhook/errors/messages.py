# SPDX-License-Identifier: Apache-2.0
"""Code and kind, sentence, hint: three lines per code. `make generate` makes it of catalogue/.

HOT, and loaded with the first error only. One string is loaded faster than a dict of 700.
"""

TEXTS = """
GH1003 RequestError
{name}: malformed replica id
a replica id is <device>::<n>, n a decimal number, such as GPU-<uuid>::2
GH1004 RequestError
{where} names a device with control characters, or one longer than 255: {name}
device names are printable: an index, a UUID, a PCI bus id or vendor/class=name
GH1005 RequestError
{where} names {count} devices; at most {limit} are taken
name each device once, or use `all`
GH1006 DriverError
{where} requests {what}, but this node has no NVIDIA driver loaded
load the driver, or set request.onMissingDriver to start in /etc/gpuhook/config.yaml
GH1007 RefusedError
ignored the request for {names} of {where}: {reason}
change the setting in /etc/gpuhook/config.yaml if this container should have GPUs
GH1008 DriverError
{where} requests {what}, but this node has no NVIDIA driver loaded; it starts without
set request.onMissingDriver to refuse in /etc/gpuhook/config.yaml to refuse it instead
GH1009 RefusedError
{where} names {name}, a device of another vendor than {vendor}
request it by a device plugin or the engine's --device; variables, and annotations that are not a grant, may name devices of {vendor} only
GH1020 RequestError
unknown driver capability {word} in NVIDIA_DRIVER_CAPABILITIES
known are {known}, in lower case; to ignore other words, set request.onUnknownCapability to ignore in /etc/gpuhook/config.yaml
GH1022 RequestError
{name}={value} is no number of MiB
give a whole number from 1 on, such as 4096 for 4 GiB, or leave the variable out
GH1023 RequestError
{request_env}={request} is more than {limit_env}={limit}
what is guaranteed cannot be more than what is allowed: raise the limit, in MiB
GH1024 RequestError
a memory limit is set, but which GPU {nodes} is cannot be told on this node
run `gpuhook generate-cdi`, which notes that, or name the GPU by its UUID
GH1025 RequestError
a memory limit of {limit} on {device} holds no CUDA context: that takes about {least}
the container starts, and its programs run out of memory at once; the number is in MiB, so 4096 is 4 GiB
GH1026 RefusedError
refused the request for {names} of {where}: {reason}
change that setting in /etc/gpuhook/config.yaml if this container should have GPUs, or set request.onRefusal to ignore if it should start without
GH1027 RefusedError
the driver capability {word} is not one of those that containers may have here: {allowed}
ask for fewer, or for all, which means those; or add it to request.driverCapabilities in /etc/gpuhook/config.yaml
GH1028 RequestError
ignored the mount at {path}: it names no device
a CDI device is named by cdi/<vendor>/<class>/<name>, any other by its id alone
GH1036 RequestError
{where} asks for the IMEX channel {number}, which is none
give the numbers of channels, from 0 to 1048575: those of /dev/nvidia-caps-imex-channels
GH1037 DriverError
{name}: this node has none: there is no device node {looked}{why}
load the kernel module that makes the node, or make it (`gpuhook explain GH1037` tells how), or leave the request out
GH1038 RefusedError
{where} asks for {name}, which is for privileged containers alone
run the container privileged (with CAP_SYS_ADMIN), or leave the request out
GH1039 RequestError
{variable}={value}: only `all` can be asked for
set it to all, which is the whole node, or leave it out; GPUs are chosen by other words
GH1040 DriverError
{where} is on and finds nothing, the container starts without: {reason}
load the kernel module on this node, or leave the variable out
GH1041 RefusedError
ignored the request of {where}: {reason}
correct the variable or mount, or leave it out; where the reason names a setting, that is in /etc/gpuhook/config.yaml
GH1042 RequestError
{name}: no such device in {files}, which describes this kind on this node
run `gpuhook generate-cdi --mode {mode}` with that --output again, or remove the file
GH1043 DriverError
{variable} does not hold for {where}: {terms}
the image needs another driver version: install that one, take an image for this driver, or set NVIDIA_DISABLE_REQUIRE=1 in the container to start it all the same
GH1044 RequestError
{variable} does not hold for {where}: {terms}
give the container a GPU that its image is made for, or set NVIDIA_DISABLE_REQUIRE=1 in it to start it all the same
GH1045 RequestError
{variable} requires {term}, which cannot be judged: {reason}
write terms such as cuda>=12.4, with commas for `and` and spaces for `or`, or set NVIDIA_DISABLE_REQUIRE=1 in the container
GH1046 RequestError
{count} variables require something of the driver; at most {limit} are taken
put terms that must all hold into one variable, with commas between them
GH1047 DriverError
of {variables} could not be judged whether it holds: {terms}; the container starts
run `gpuhook generate-cdi`, which notes what the driver and the GPUs are
GH1060 RequestError
{name} is the beginning of more than one UUID: {uuids}
write more digits of the UUID, or all of them
GH1061 RequestError
ignored the unknown words {words} of NVIDIA_DRIVER_CAPABILITIES
known are {known}, all, in lower case: correct the variable, or leave it out
GH1062 DriverError
the image is built for CUDA {version}, and this node's driver has CUDA {cuda}; it starts
programs that need more than minor version compatibility of CUDA fail: install a newer driver, or use an image for CUDA {cuda}
GH1101 RequestError
{name} is not a CDI device name
a CDI device name is vendor/class=device, such as nvidia.com/gpu=0
GH1102 RequestError
{name}: no such device; {files} has {have}{broken}
ask for one of these; {way}
GH1103 FileError
{name} is described twice at the same priority: by {first} and by {second}
remove one of the two files, or give one another --vendor or --class
GH1104 FileError
{name}: no CDI spec of kind {kind} in {dirs}{broken}
{way}
GH1105 HostError
{path}: its compiled form cannot be kept in {directory}
make that directory writable for root, or write the spec as JSON
GH1106 FileError
{path}: {pointer}: {reason}
correct the CDI spec; `gpuhook cdi validate {path}` checks it
GH1107 FileError
{path}: cdiVersion {version} is newer than {newest}, the newest that gpuhook knows
write the spec in an older version of CDI, or install a newer gpuhook
GH1108 FileError
{path}: cdiVersion is {version}, but {reason} needs {needed}
declare cdiVersion {needed}
GH1109 FileError
{path}: {place}: {reason}
correct the syntax of the CDI spec, or generate it anew
GH1110 FileError
{path}: the CDI spec cannot be read: {reason}
make it a readable regular file, or remove it
GH1111 HostError
{path}: the CDI spec cannot be written: {reason}
name a path on a writable file system with space left; nothing was changed
GH1112 RequestError
{name} is neither a spec file that is there nor a CDI device name
give the path of a spec, or a device as `gpuhook cdi list` names it: vendor/class=device
GH1120 FileError
the CDI spec describes another state of this host ({changes})
run `gpuhook refresh`, which writes the specs of this node anew
GH1121 DriverError
the nvidia kernel module is not loaded: {root} has no /proc/driver/nvidia/version
run modprobe nvidia and look at dmesg; on a node without a GPU this is as it should be
GH1122 HostError
the CDI specs of this node could not be written anew: {reason}
run `gpuhook refresh`: it tells what is wrong
GH1123 HostError
{container} was given {nodes}, whose GPU or MIG instance this node has no more
restart the container: it then gets what there is now, or is refused
GH1200 DriverError
no libnvidia-ml.so.1 below the driver root {root} (looked in {looked})
install the NVIDIA driver, or name where it is with --driver-root, --library-search-path or --nvml-library; driver.root of the settings applies to all commands
GH1201 DriverError
{path}: no such NVML library
give --nvml-library the path of a libnvidia-ml.so.1 on this host, or leave it out
GH1202 DriverError
{path}: cannot be loaded: {reason}
reinstall the driver package, or name another library with --nvml-library
GH1203 DriverError
{path} is of driver {library}, but the loaded kernel module is {module}
the driver was changed while its module was loaded: reboot, or stop all GPU programs and run rmmod nvidia_uvm nvidia_drm nvidia_modeset nvidia, then modprobe nvidia
GH1204 DriverError
the nvidia kernel module is not loaded (NVML of {path}: {reason})
run modprobe nvidia and look at dmesg; on a node without a GPU this is as it should be
GH1205 DriverError
{path}: no permission to use the driver
run as root, or give this user read and write access to /dev/nvidiactl and /dev/nvidia*
GH1206 DriverError
{path}: NVML failed: {reason}
run nvidia-smi on the host: when that fails too, dmesg | grep NVRM tells why
GH1207 DriverError
NVML answers for driver {nvml}, but the driver files below {root} are of {tree}
give --driver-root and --nvml-library of the same driver, or reinstall the driver
GH1210 DriverError
{path}: no such device node
make it with `gpuhook system create-device-nodes` (nvidia-modprobe -c {minor}, for nvidia-uvm -c 0 -u), or name where the nodes are with --dev-root
GH1211 DriverError
{path} is not a character device
make the node in its place: `gpuhook system create-device-nodes --replace` (by hand: nvidia-modprobe -c {minor}, for nvidia-uvm -c 0 -u)
GH1212 DriverError
{path} has major number {found}, but the kernel module {name} has {major}
the node is older than the module: run `gpuhook system create-device-nodes --replace`
GH1213 DriverError
mode {mode} finds no device on this node: {reason}
{way}
GH1214 DriverError
{path}, by which MIG's {name} is opened, cannot be had: {reason}
make it with `gpuhook system create-device-nodes` (by hand: nvidia-modprobe -f {file})
GH1215 DriverError
{path} is not the character device {major}:{minor}
the node is older than the kernel module: remove it, and have it made again
GH1216 DriverError
the driver knows no MIG {name}: neither {minors} nor {file} has its minor
MIG needs a GPU that has it, and a driver from 450 on that is loaded
GH1217 DriverError
{path}: {reason}; in WSL it is the way to all GPUs
update Windows' driver, run wsl.exe --update and wsl.exe --shutdown; on a machine that is not WSL, leave --mode wsl out
GH1218 DriverError
no NVIDIA driver of Windows: no directory below {packages} has {library}
install NVIDIA's driver in Windows, run wsl.exe --shutdown, or name the directory with --library-search-path
GH1219 RequestError
{what}: in WSL all GPUs are behind one device node, so there is the device `all` alone
leave out --device-id and --no-all-device
GH1220 DriverError
{directory} has neither devices.csv nor drivers.csv nor l4t.csv
install the package nvidia-l4t-init of JetPack, or name the files with --csv-file; on a machine that is no Tegra, leave --mode csv out
GH1221 HostError
{path}: cannot be read: {reason}
name a file that can be read with --csv-file, or leave the option out
GH1222 DriverError
none of the device nodes that {files} name can be given to containers{reasons}
see whether the GPU's module is loaded (modprobe nvgpu), or name /dev with --dev-root
GH1223 RequestError
the directory {path} of --csv-compat-container-root is not absolute
give the directory as it is in the containers, from / on
GH1230 DriverError
no NVIDIA driver below {root}: no libcuda.so.<version> in {searched}
install the driver there, or name its place with --driver-root or --library-search-path
GH1231 DriverError
the driver below {root} is of two versions: libcuda is {libcuda}, libnvidia-ml is {ml}
finish or repeat the driver's installation, so that both are of one version
GH1232 DriverError
the driver is {version}, but the libcuda below {root} is {have} (searched {searched})
install the libraries of {version} there, or reboot into the installed driver
GH1233 DriverError
several drivers below {root} ({have}), and no libcuda.so.1 says which one counts
remove the old ones, or run ldconfig there to make the link
GH1234 DriverError
{path} is not a readable 64-bit shared library
repeat the driver's installation
GH1235 DriverError
the driver root {root} is not a directory
name the directory that the driver is installed in with --driver-root
GH1236 RequestError
the search path {path} is not absolute
give the directory from / on
GH1240 DriverError
waiting for events of the GPUs failed ({reason}), as these are lost: {gpus}
dmesg | grep NVRM tells why; a lost GPU comes back by a reset or a reboot
GH1241 DriverError
waiting for events of the GPUs failed: {reason}
run nvidia-smi on the host: when that fails too, dmesg | grep NVRM tells why
GH1242 DriverError
{path}: this NVML makes no event set: {reason}
XIDs go unseen then: run nvidia-smi on the host, and update a very old driver
GH1243 FileError
{file}, line {line}, column {column}: {reason}
correct the YAML there; gpuhook leaves no file of the directory out by itself
GH1244 FileError
{file}, line {line}: {where}: {reason}
it is a mapping with the lists add (entries with path, containerPath, kind, capabilities) and drop (globs): see docs/driver-files.md
GH1245 FileError
{file}, line {line}: {path} is no place for a file of the driver in a container
give a containerPath outside of /dev, /proc and /sys, without ..
GH1246 HostError
{path} is missing and cannot be made: {reason}
run nvidia-modprobe -f {file} on the host, or give this container the capability MKNOD; in the chart's values: features.mig: true
GH1250 DriverError
{path}: this driver has no memory limits for containers; they came with CUDA 13.4
update the driver, or share the GPU without them: the device plugin's guard watches the memory instead, and limits.onFailure: start lets containers start
GH1251 DriverError
the driver refuses a memory limit on {uuid} for the cgroup {cgroup}: {reason}
{remedy}
GH1252 DriverError
the driver took the memory limit on {uuid} for the cgroup {cgroup} and does not hold it: set were {asked}, it has {found}
see whether another program sets limits for this cgroup; if none does, this driver does not do what it says: report it with the driver's version
GH1253 RequestError
{uuid} is a MIG device, or a GPU in MIG mode: the driver limits the memory of whole GPUs only
a MIG device has its own memory: pick a profile of the right size and leave the limit out
GH1254 DriverError
the driver does not tell the memory limit on {uuid} for the cgroup {cgroup}: {reason}
{remedy}
GH1255 DriverError
no memory limit can be set or read on the GPU {uuid}: {reason}
compare with nvidia-smi -L on the host; dmesg | grep NVRM tells why a GPU is lost
GH1256 DriverError
the driver has not answered within {seconds} seconds when it was to limit memory
run nvidia-smi on the host: when that hangs too, dmesg | grep NVRM tells why
GH1257 DriverError
limiting memory through the driver's library failed: {how}
run nvidia-smi on the host: when that fails too, reinstall the driver
GH1258 HostError
no process can be started to ask the driver for a memory limit: {reason}
see pids.max of the cgroup that this runs in, ulimit -u, and whether the host has memory left
GH1260 HostError
there is no program {program} to set the time slice of a GPU with
install the driver's nvidia-smi: package nvidia-utils, nvidia-smi or nvidia-driver-cuda
GH1261 DriverError
{program} knows no compute-policy: this driver cannot be told the length of a time slice
update the driver to 455 or newer, or take timeSlice away
GH1262 DriverError
{uuid} has no time slice that can be set: {reason}
only GPUs with compute preemption have one: take timeSlice away for this GPU
GH1263 HostError
the time slice of {uuid} may not be set: {reason}
setting it needs root and CAP_SYS_ADMIN; in the chart's values: features.timeSlices: true
GH1264 DriverError
`{program} compute-policy {arguments}` failed: {reason}
run it on the host: when that fails too, dmesg | grep NVRM tells why
GH1265 DriverError
the compute mode of {uuid} cannot be read: {reason}
run nvidia-smi -q -d COMPUTE on the host; a GPU without it needs no computeMode
GH1300 FileError
{path}: there is no such file
name the bundle that holds config.json with --bundle
GH1301 FileError
{path} is not a usable OCI runtime spec: {reason}
it was left as it is; have the engine write it anew, or make one with `runc spec`
GH1302 DriverError
device node {node}: {reason}
make the node (`gpuhook system create-device-nodes --load-kernel-modules`), or run `gpuhook generate-cdi` again if the GPU is gone
GH1303 FileError
config.json: {key} is not {kind}
it was left as it is; the engine that wrote it is at fault
GH1304 RefusedError
{path} is the host's own root file system
gpuhook changes no file of the host: give the container a root file system of its own
GH1305 HostError
the root file system {path} is mounted read-only: no runtime can mount a driver into it
mount it writable (an overlay will do) and set root.readonly in config.json instead
GH1306 FileError
bundle {bundle} has no usable root file system: {reason}
config.json must say where it is in root.path
GH1307 FileError
config.json has {what}: runtimes do not agree on which one counts
correct the program that wrote it: a key occurs once, as the OCI specification spells it
GH1310 FileError
{path} is not a regular file of at most {limit} bytes
it was not read; see what is at that path
GH1312 HostError
this node has cgroup v1, and the driver limits the memory of v2's cgroups only
boot with the kernel parameter systemd.unified_cgroup_hierarchy=1, or set limits.onFailure to start in /etc/gpuhook/config.yaml: then only a device plugin's guard can watch the limit
GH1313 HostError
the container has no cgroup of its own: {reason}
have its engine give it one (podman: not --cgroups=disabled): limits are a cgroup's
GH1314 HostError
the container's cgroup {path} holds processes of others, {pids}: it would limit them too
give each container a cgroup of its own, another linux.cgroupsPath
GH1315 HostError
only the host's root can limit a container's memory of a GPU: {reason}
run the engine as root; for containers with a user namespace use gpuhook-runtime, whose hook runs outside of it
GH1316 FileError
{path} is larger than {limit} MiB, the limit of a document that a command reads
give a part of it: one container, one pod, one node
GH1401 HostError
no low-level runtime found: looked for {names} in {dirs}
install runc or crun, or name another in runtime.lowLevelRuntimes of /etc/gpuhook/config.yaml
GH1402 HostError
{path} is YAML and has not been compiled, and there is no `gpuhook` to do it in {dirs}
install the gpuhook package, or write the file as JSON
GH1403 HostError
{path} could not be compiled: `{command}` failed: {reason}
run that command to see its whole output
GH1404 HostError
{python} with {library} failed ({reason}), and {config} names GPUs (or there is no runc or crun)
reinstall gpuhook-runtime
GH1410 HostError
{path}: {reason}; container {container} is missing from `gpuhook ps`
make the state directory writable
GH1490 HostError
{where}: {reason}
nothing was changed; see to that path and start the container again
GH1491 HostError
an error of gpuhook's own, {kind} at {place}: {reason}
report it with this line; a container that asks for no GPU starts all the same
GH1500 FileError
{name}: neither a file nor a known profile
give --inventory a file written by gpuhook inventory -o yaml, or one of the profiles {profiles}
GH1501 FileError
{file}: line {line}, column {column}: {reason}
an inventory is YAML or JSON as gpuhook inventory -o yaml writes it
GH1502 FileError
{file}: {where}: {reason}
compare with a profile: gpuhook inventory --inventory t4 -o yaml
GH1510 RequestError
--{option} {value}: not a {option} name of CDI
it starts with a letter, ends with a letter or digit, and holds letters, digits, _ - .
GH1511 RequestError
--device-id {value}: this node has no such GPU or MIG instance; it has {have}
name a GPU by its index, UUID or PCI bus id, an instance like 0:1 or by UUID, or `all`
GH1512 RequestError
--device-id {value} cannot be used: {reason}
choose another one, or leave --device-id out: what cannot be used is skipped then
GH1513 DriverError
this node has no GPU that a CDI spec could describe{reasons}
`gpuhook inventory` shows what was found
GH1514 RequestError
--output {path}: {reason}
name the file *.yaml or *.json, as its format is: container engines read nothing else
GH1515 RequestError
--hook-path {path}: not an absolute path
give the path of gpuhook-hook on the host, as container engines see it
GH1516 RequestError
--ldconfig-path {path}: not an absolute path
give the path of ldconfig on the host, as hooks see it, such as /sbin/ldconfig
GH1517 FileError
the host's ldconfig {path} cannot be run in a container: {reason}
name a statically linked ldconfig, or generate the spec without --ldconfig-path: gpuhook merges the loader cache by itself
GH1518 HostError
{program} made no loader cache of the container: {reason}
generate the spec without --ldconfig-path: gpuhook merges the loader cache by itself
GH1519 DriverError
mode management found no device node of the driver in {directory}
load the driver (modprobe nvidia, nvidia-smi), or say with --dev-root where its nodes are
GH1520 RequestError
{options} contradict each other: {reason}
leave one of them out
GH1526 HostError
another gpuhook refresh has held {path} for more than {seconds} seconds
find out what it waits for (`fuser {path}`), end it, and call again
GH1527 RefusedError
{path} is stale, and nobody has noted how it was made: {what}
write it with `gpuhook generate-cdi --output {path}` and the options it shall have
GH1528 FileError
a spec was made with words that generate-cdi does not take ({words}): {reason}
write it again with `gpuhook generate-cdi` and the options it shall have
GH1529 FileError
{path} is there and cannot be read as a CDI spec, and gpuhook may not have written it
`gpuhook cdi validate {path}` tells what is wrong; remove it, and call again
GH1530 FileError
{path}: {reason}
check it with `gpuhook config validate`; no container gets a GPU until it is right
GH1531 HostError
{path}: its compiled form cannot be kept below the state directory
make /run/gpuhook writable for root; no container gets a GPU until then
GH1532 FileError
{path}: {reason}
docs/configuration.md has every key and its values, as has `gpuhook config default`
GH1533 RequestError
{variable}={value}: {reason}
correct or unset the variable, in the environment of the container engine if it says this; no container gets a GPU until it is right
GH1534 FileError
{path}: {reason}
name the toolkit's file, /etc/nvidia-container-runtime/config.toml, or correct the line
GH1535 HostError
{path}: {reason}
look at it with ls -l; --replace removes what is wrong and is no directory
GH1536 HostError
{module}: the kernel module cannot be loaded: {reason}
install the driver's modules for the kernel that runs (uname -r), and look at dmesg
GH1590 HostError
{where}: {reason}
see to that path, and call again
GH1591 HostError
standard output: {reason}
see to where it goes; a change that was asked for may be done: `gpuhook inspect` shows it
GH1592 HostError
{path}: {reason}, in the state directory {directory}
make {directory} a directory that you can write in; {variable}
GH1593 HostError
an error of gpuhook's own, {kind} at {place}: {reason}
report it with this line; `gpuhook --debug` shows where it comes from
GH1600 FileError
the image's /etc/ld.so.cache cannot be read: {reason}
run ldconfig in the image, or delete the file there
GH1601 FileError
the image's /etc/ld.so.cache is {size} bytes long, more than {limit}
run ldconfig in the image, or delete the file there
GH1602 HostError
machine {machine} has no loader cache flags here
known machines: {known}
GH1603 FileError
the image's musl path file is {size} bytes long, more than {limit}
shorten /etc/ld-musl-*.path in the image
GH1604 FileError
the directory {directory} cannot be written in {file}
keep the driver's libraries in an absolute path without white space, '#', '=' and ':'
GH1640 FileError
gpuhook-hook was called with {argument}, but {reason}
see `gpuhook-hook --help`; after an upgrade, run `gpuhook generate-cdi` again
GH1641 HostError
left out: {what}
the container starts all the same
GH1642 FileError
the OCI state on standard input cannot be used: {reason}
gpuhook-hook is called by a runtime, as an OCI hook; by hand, `runc state ID | gpuhook-hook prestart --dry-run` says what a container would get
GH1643 FileError
the prestart hook was called in a stage that it does not serve: {reason}
register `gpuhook-hook prestart` for the stage prestart or createRuntime; to a running container `gpuhook attach` gives a GPU
GH1644 FileError
gpuhook-hook prestart was called with {argument}, but knows no option besides --dry-run
see `gpuhook-hook --help`, and what args the engine's hook entry has after prestart
GH1645 FileError
gpuhook-hook limit was called with {argument}, but {reason}
gpuhook-runtime writes that hook: reinstall it, and create the container anew
GH1646 HostError
no gpuhook-hook in {dirs}: it is what sets a container's memory limits
reinstall gpuhook-runtime, or link gpuhook-hook to one of these directories
GH1647 HostError
GPU {device}: its memory limit does not hold: {trouble}
the container starts all the same, as limits.onFailure says; `gpuhook ps` shows it
GH1648 HostError
GPU {device}: the limit that the container has set itself does not hold: {trouble}
what it was granted holds instead, as `gpuhook limits show` has it; give another NVIDIA_GPU_MEMORY_LIMIT, or leave it out
GH1690 HostError
{where}: {reason}
the container was not started; see to that path and start it again
GH1691 HostError
an error of gpuhook's own, {kind}: {reason}
the container was not started; report it with this line
GH1701 HostError
{program} cannot be read back from the kernel, and its rules are not known otherwise
set kernel.kptr_restrict or net.core.bpf_jit_harden to 1 for the moment, or restart the container with the device
GH1702 RefusedError
{rule} is still not allowed after the change: {reason}; it was undone
a cgroup above the container decides that: see to the unit or the engine that set it up
GH1703 HostError
{cgroup}: its device programs are replaced by somebody else all the time
see who does (a systemctl daemon-reload loop?), and call again
GH1704 RefusedError
{rule} cannot be denied: {reason}
the container was given a whole class of devices: start it anew with narrower rules
GH1730 RequestError
there is no process {pid}
name a container that runs, by its id or by the pid of one of its processes
GH1731 RequestError
process {pid} is another one than the container's: its pid has been used again
the container has ended; nothing was changed
GH1732 RequestError
process {pid} has ended meanwhile, and the container with it
start the container again; what was given to it in between went with it
GH1733 HostError
{path}: {reason}
run as root on the host; a pod needs hostPID, CAP_SYS_PTRACE, and for the container's files CAP_SYS_ADMIN and CAP_SYS_CHROOT
GH1734 HostError
the user namespace of process {pid} has no root (its {map} does not map 0)
map 0 in linux.uidMappings and linux.gidMappings of the container
GH1735 RequestError
{name}: no such container; looked in {places}{skipped}
{near}; --state-root names another directory in which a runtime keeps its state
GH1736 RequestError
{name} is not one container: {candidates}
name the whole id of the one that is meant; where ids are alike, its pid
GH1737 RequestError
process {pid} is in no container: it sees the mounts of the host
name a process of a container
GH1738 RequestError
container {id} does not run: it is {status}
start it; this needs a container that has processes
GH1739 FileError
the runtime's state of a container, {path}, cannot be used: {reason}
name the container by the pid of one of its processes; its runtime may know more
GH1740 HostError
{container} lacks, of what it was granted: {what}
run `gpuhook repair {container}`; the processes go on
GH1741 DriverError
{container} has the files of driver {mounted}, but the node's driver is {now}
restart the container: libraries cannot be exchanged under programs that use them
GH1742 DriverError
{path} is mounted in {container}, but was removed from the node ({count} such files)
the driver was reinstalled meanwhile; restart the container for the new files
GH1743 FileError
the loader's files of {container} cannot be read: {reason}
look at /etc/ld.so.cache and /etc/ld.so.conf.d/00-gpuhook.conf in the container
GH1744 HostError
the device cgroup of {container} denies {nodes}, which it was granted: its rules were set anew, as `systemctl daemon-reload` does
run `gpuhook repair {container}`; the processes go on
GH1745 RequestError
{container} asks for GPUs ({request}), and its runtime has given it none
start it with a runtime that gives GPUs (the handler nvidia), or `gpuhook attach` it one
GH1746 HostError
not allowed to look into {places}
run as root: containers of others cannot be seen
GH1747 RefusedError
the root directory of process {pid} is not the root of the container's mount namespace
restart the container, and let a child process, not its first one, call chroot(2) or mount something over the root
GH1748 RefusedError
process {pid} has made a user namespace that its container's config.json does not have
restart the container, and let a child process, not its first one, make the namespace
GH1750 FileError
{path} in the container is {what}, which is in the way
remove it from the image or the volume; nothing was changed
GH1751 HostError
{cause}; and what had been done before could not all be undone: {left}
see to these by hand, or start the container again
GH1752 DriverError
the host has no {path}: {reason}
run `gpuhook generate-cdi` again if the driver was upgraded, then do this again
GH1753 RefusedError
container {id} uses the device: {holders}
end these processes first; --force refuses new opens and leaves them what they have
GH1754 RefusedError
what is mounted at {path} in the container would appear outside it too: it is shared
mount the volume, or set rootfsPropagation, private or rslave; nothing was changed
GH1755 FileError
{path} is user {user}'s, or others can write it: what it grants is not believed
make the file root's, and writable by nobody else
GH1756 RefusedError
container {id} is user {user}'s own
run gpuhook as that user, in the user namespace of the container's engine
GH1757 HostError
another gpuhook has been changing containers of this node for half a minute
wait for it, or see with `fuser {path}` who it is
GH1758 HostError
an error of gpuhook's own, {kind}: {reason}
report it with this line, and with what `gpuhook inspect` says of the container
GH1759 RequestError
{name}; the container has {nodes}
a GPU that fell off the bus is in no CDI spec any more: name its node, as --device {node}
GH1760 HostError
the file systems of {container} did not answer for {seconds} seconds{left}
look for FUSE and NFS in its /proc/PID/mountinfo: a process that is left behind ends when the server of that mount answers or ends
GH1761 HostError
the process that worked on {container} gave no answer: {reason}
run the command again; if it was killed, look for an OOM kill in dmesg
GH1762 HostError
{container} was not looked at: its {fstype} mount at {path} may never answer
look at it alone: `gpuhook repair {container}` waits for the mount, for a limited time
GH1770 RequestError
`none` means the control nodes and the driver's files, and container {id} has {nodes}
detach these devices: the rest goes with the last one, if it came with one
GH1771 FileError
{reason}
{hint}; or name the device's node, as --device {node}: that needs no CDI spec
GH1772 FileError
{reason}, though a container was started with it
it says what the container was granted: put it right, or start the container anew
GH1780 RequestError
{container} has no GPU whose memory could be limited
`gpuhook attach` gives it one; `gpuhook inspect {container}` shows what it has
GH1781 RequestError
{name} is no GPU of {container}; it has {gpus}
name one of these by its index or UUID, or leave --gpu out for all of them
GH1782 RequestError
{limit} is more than {gpu} has: {whole}
give less; `gpuhook limits clear` takes a limit away
GH1783 RequestError
{gpu} of {container} is a MIG instance, or divided into some: no limit can be set on it
an instance has the memory of its profile; name other GPUs of the container with --gpu
GH1784 RefusedError
memory limits are the host's root's: user {user} can set and clear none
run it as root on the host; `gpuhook limits show` shows what the ledger has
GH1785 DriverError
the memory of {container} on {gpu}: the ledger has {noted}, and the driver holds {held}
run `gpuhook repair {container}`: the ledger's holds again; the processes go on
GH1786 DriverError
the memory of {container} on {gpu} is not bounded by the driver, with {limit}: {reason}
mend that and run `gpuhook repair {container}`; where no device plugin's guard runs, nobody watches it until then
GH1787 HostError
this node has cgroup v1, and the driver limits the memory of v2's cgroups only
boot with the kernel parameter systemd.unified_cgroup_hierarchy=1; `gpuhook limits clear --all` lifts in the ledger what nobody holds
GH1800 FileError
the configuration has {count}: {first}
`gpuhook device-plugin --validate {path}` shows all that is wrong with the file
GH1801 FileError
the configuration cannot be read from {path}: {reason}
name one that can be read; a ConfigMap is mounted from the namespace of the plugin's pod
GH1802 FileError
no configuration of {directory} can be chosen: {reason}; it has {known}
set --default-config, a node label, or --fallback-strategies named,single,empty
GH1803 RequestError
{source}: {reason}
{hint}
GH1804 RequestError
the file {file} and the directory {directory} are both given for the configuration
give one of CONFIG_FILE (--config-file) and CONFIG_FILE_SRCDIR (--config-dir)
GH1805 HostError
the device plugin needs the package {package}, which is not installed
install the package gpuhook-device-plugin, or by pip: pip install 'gpuhook[plugin]'
GH1806 HostError
this process cannot be called {name}: {reason}
choose a name of at most {most} bytes, or start it without --process-name
GH1807 HostError
{name} of {known} applies: the pod has no token to read the node's label {label}
allow the service account to get and watch nodes, and mount its token; in the chart's values: apiAccess.nodeConfig: true
GH1820 RequestError
{method} got {size} bytes that are no {message}
call it as the device plugin API v1beta1 of the kubelet has it
GH1821 HostError
cannot serve {resource} on {path}: {reason}
the plugin directory must be the kubelet's own, mounted writable
GH1822 HostError
{directory} is too long a path: a socket in it would have more than {limit} bytes
mount the kubelet's plugin directory at a shorter path in the plugin's container
GH1823 HostError
the kubelet at {socket} did not register {resource}: {reason}
see the kubelet's log; its device plugin API must be v1beta1
GH1824 HostError
another process serves {resource} on {path}
run one device plugin for each node: this one waits until the socket is free
GH1836 FileError
{resource} is to have the interposer {name}, which gpuhook.interposers has not got
name one that is there, or add it
GH1837 HostError
no container of {resource} can start with the interposer {name}: the host has no {path}
install the interposer on the node, or take `interposer` away; it is looked for again
GH1838 RequestError
{count} devices of {resource} in a container: each has its own {key} of interposer {name}
ask for one device, or leave the placeholder away that is different
GH1839 FileError
the interposer {name} of {resource} says {placeholder}, and {uuid} has no limit of memory
set `memory` in the entry of the resource, or leave {placeholder} away
GH1840 FileError
migStrategy single needs GPUs that are alike: MIG mode is on at {divided}, off at {whole}
switch MIG mode to the same on all, set gpuhook.excludeDevices, or migStrategy to mixed
GH1841 FileError
migStrategy single needs instances on every GPU in MIG mode: {gpus} has none
make some by nvidia-smi mig -cgi, set gpuhook.excludeDevices, or migStrategy to mixed
GH1842 FileError
migStrategy single needs instances of one profile: {profiles}
make all instances alike, set gpuhook.excludeDevices, or migStrategy to mixed
GH1843 RequestError
{resource} has no device {name}, which the preferred allocation must include
the list of devices has changed since the kubelet read it: let the pod be made anew
GH1844 RequestError
{resource}: the kubelet names device {name} twice in {where}
each device id may be there once
GH1845 RequestError
{resource}: a preferred allocation of {size} devices must include {required}
the size is that of the whole allocation, the devices it must include among them
GH1846 RequestError
{resource}: {size} devices are wanted, and {known} of the {named} available are its own
wait until other containers have ended, or ask for less
GH1847 FileError
{entry}: {resource}: {reason}
{hint}
GH1848 FileError
{entry}: {resource} cannot be offered in memory units: {reason}
set `unit` of its entries in sharing.memoryUnits, GiB for instance
GH1849 RequestError
{size} units of {resource} ({memory}) are wanted of one GPU, and {most} at most are free
ask for less, or wait until other containers have ended: a request is never split
GH1850 RequestError
{resource} has no device {id}; the nearest are {nearest}
the kubelet's list is older than this one: create the pod anew
GH1851 DriverError
device {id} of {resource} is unhealthy: {reason}
create the pod anew, and the scheduler looks for another device
GH1852 RequestError
a container asks for {count} of {resource}, and may have one: it is shared
replicas of one GPU don't add up to more of it: ask for 1
GH1853 DriverError
no device of {resource} can be handed to a container: {reason}
complete the driver's installation, or add envvar to deviceListStrategy
GH1854 HostError
{resource} is shared by MPS, and no control daemon of it runs
the plugin's log says why it did not start; it is tried again at each look at the node
GH1855 DriverError
no CDI spec describes {name}
the plugin's log has a warning that says why it was left out
GH1856 HostError
the IMEX channel {channel} is required and {path} is not there
make the channel with nvidia-modprobe, or set imex.required to false
GH1857 DriverError
the container may not start: its device {id} is unhealthy: {reason}
delete the pod; what creates it anew gets another device
GH1858 HostError
the container may not start: {uuid} has {free} MiB free, and minFreeMemory is {needed}
see with `gpuhook ps` who shares the GPU, or lower gpuhook.minFreeMemory
GH1859 RequestError
{count} units of {resource} are of {devices}, and a container's memory is of one GPU
create the pod anew: its init containers had units elsewhere, or the kubelet chose alone
GH1860 RequestError
{name} is not the UUID of a GPU
name the GPU as `gpuhook health show` does, or `all`
GH1861 RequestError
{name} names no GPU that is marked as unhealthy, or more than one
see `gpuhook health show`; give an index, a UUID or its beginning, or `all`
GH1862 HostError
the API server at {where} cannot be spoken to: {reason}
it is tried again; see whether the pod's network and its service account are in order
GH1863 RefusedError
this service account may not {verb} {resource}, which is needed for {feature}
give its ClusterRole a rule: apiGroups [""], resources ["{resource}"], verbs ["{verb}"]
GH1864 HostError
the API server would not {verb} {resource} for {feature}: {status} {reason}
it is tried again at the next occasion; 401 means that the token is not accepted
GH1865 FileError
the marks of unhealthy GPUs cannot be read from {path}: {reason}
read them as root; `gpuhook health clear all` has the device plugin begin anew
GH1870 FileError
{resource} is shared by MPS with unequal {kind}: {told}
a daemon gives all of its clients one share: give the devices other names with `rename`
GH1871 FileError
{resource} is shared by MPS among {replicas}, but {model} serves {most} clients at most
lower sharing.mps.resources[].replicas, or share it by time slicing
GH1872 FileError
{resource} is made of MIG instances, which gpuhook does not share by MPS
use sharing.timeSlicing for it, or set flags.migStrategy to none
GH1873 HostError
{resource} is shared by MPS, but there is no program {program}
install its package: nvidia-compute-utils, nvidia-driver-cuda or nvidia-cuda-mps
GH1874 HostError
the MPS control daemon of {resource} failed at `{command}`: {reason}
read its logs in {log}
GH1875 HostError
{path} is not in memory, and no tmpfs can be mounted there: {reason}
put --mps-root below /run, or mount a tmpfs at {path}
GH1877 HostError
the compute mode of {uuid} cannot be set to {mode}: {reason}
setting it needs root and CAP_SYS_ADMIN: run the plugin's container privileged; in the chart's values: features.mps or features.timeSlices
GH1878 HostError
{resource} is shared by MPS, and its directory {path} cannot be written: {reason}
mount it from the host into the plugin's container, and run that privileged: the chart does so with sharing.mps in its values, or with features.mps: true
GH1880 HostError
no {kind} is set, as what a GPU had before cannot be noted in {path}: {reason}
the state directory must be writable: mount /run/gpuhook into the plugin's container
GH1881 DriverError
the {kind} of {uuid} stays {ours} and is not {before} again, as before: {reason}
it is tried again at each look at the node; a reboot puts it back, too
GH1882 FileError
{resource}: {key} is nothing for {uuid}, an instance: a GPU in MIG mode has none to set
name other devices in the entry, or take {key} away
GH1883 FileError
{resource}: computeMode is nothing for {uuid}: the daemon of MPS sets the mode
take computeMode away from the entries of sharing.mps
GH1885 HostError
memory limits that no driver holds are not watched: {reason}
run the plugin's pod with hostPID: the driver tells the pids of the host
GH1886 HostError
process {pid}, which is to end for its container's memory limit, gets no signal: {reason}
give the plugin's container the capability KILL, on Linux 5.3 or later; in the chart's values: features.guard: true
GH1887 HostError
the driver has not told for {seconds} seconds who uses its GPUs: no limit is watched
see with `nvidia-smi` whether it answers; it is not asked again before it does
GH1890 HostError
metrics cannot be served at {address}: {reason}
choose another gpuhook.metrics.address, or set it to "" to serve none
GH1891 FileError
gpuhook.metrics.address is {address}, which is no address
it is host:port, such as 127.0.0.1:9395, [::1]:9395, or :9395 for every interface
GH1900 FileError
{path} is no tree of a node's files: {reason}
name the directory that has the node's etc, proc and dev, such as /host in a pod
GH1901 DriverError
NVML has not answered within {seconds} seconds when it was asked for the GPUs
run nvidia-smi on the host: when that hangs too, dmesg | grep NVRM tells why
GH1902 HostError
systemd does not run here: {path} is not there
ask the service manager that runs here for the states of its services
GH1903 RefusedError
{path} is a tree of files: --fix mends the node that it runs on, and no other
run `gpuhook doctor --fix` on the node itself
GH1904 HostError
{container} was not looked at: {count} containers before it have not answered in time
see what they wait for: FUSE or NFS that is mounted in them, most often
GH1905 HostError
the API server of the cluster cannot be asked: {reason}
run it where `kubectl get nodes` works, or as root on the node
GH1906 FileError
{path} is no support bundle: {reason}
give the file that `gpuhook support-bundle` wrote, as it was written
GH1907 RefusedError
{path} is refused as a support bundle: {reason}
nothing of it was used; ask who sent it for a new one
GH1910 FileError
{where} is nothing that can be explained: {reason}
name a bundle, a config.json, an image's configuration (docker image inspect, skopeo inspect --config), a manifest of Kubernetes, or a container
GH1911 FileError
{path} is not there, and no container is called so
name a file or directory that exists, or a running container as `gpuhook ps` shows it
GH1912 FileError
container {id} has no config.json: its engine has removed the bundle
explain what it was started with: --env NAME=VALUE for each of its variables
GH1913 DriverError
the NVIDIA driver has not answered within {seconds} seconds
look for processes in state D and XID errors; nvidia-smi will hang too, then reboot
GH1914 RequestError
there is no fault {name}; the nearest codes are {nearest}
copy the code from the error itself, as in `Error GH1102`; docs/errors.md lists them all
GH1915 FileError
{path} is no bundle: it has no config.json
name the directory in which config.json is; what runs can be named by its id instead, as `gpuhook ps` shows it
GH1930 FileError
{place}: this is no manifest that can be read: {reason}
mend the text at that place; `kubectl apply --dry-run=client -f FILE` reads it too
GH1931 RequestError
{path} has no pod and no workload with a pod template in it: {kinds}
name a file with a Pod, Deployment or the like; a copy without its indentation has none
GH1932 RequestError
{path} has {pods}, and no containers in it
write them below spec.containers, as a list: each begins with `- name:`
GH1941 DriverError
asking the driver's library for the GPUs failed: {reason}
run nvidia-smi on the host: when that fails too, reinstall the driver
GH1942 DriverError
there is no NVIDIA driver in {root}, so that nothing tells what gpuhook would give
run it on the node that has the GPUs; in a pod that sees the node's files in /host add --driver-root /host --host-root /host
GH1950 DriverError
the driver has not answered within {seconds} seconds who uses the GPUs
run nvidia-smi on the host: when that hangs too, dmesg | grep NVRM tells why; --no-nvml does without the driver
GH1951 DriverError
asking the driver's library who uses the GPUs failed: {reason}
run nvidia-smi on the host: when that fails too, reinstall the driver; --no-nvml does without the driver
GH1952 HostError
no process can be started to ask the driver who uses the GPUs: {reason}
see pids.max of the cgroup that this runs in, ulimit -u, and the memory of the host
GH1953 HostError
whose the processes on the GPUs are cannot be told: this runs in a pid namespace of its own, and the driver tells the pids of the host
run it on the host, or in a container that has the host's pids (hostPID, --pid=host)
GH2000 RefusedError
{where}: the runtime {name} of {engine} is {program}, which is not gpuhook's
call ours another name with --runtime-name, or take this one over with --take-over: undo gives it back
GH2001 HostError
{path} cannot be written: {reason}; everything is as it was before
{advice}
GH2002 HostError
{path} could not be put back as it was: {reason}
mend that, then `gpuhook configure undo {engine}` puts it back; its content from before is in {place}
GH2003 FileError
{where} {said}: {engine} does not start with it, and nothing is changed
mend the file, or move it away, and configure {engine} again
GH2004 HostError
{engine} would not {lack} with what would be written to {paths}; nothing is changed
look with --dry-run at what would be written, and for a file that {engine} reads later and that says otherwise; name another file with --drop-in or --config
GH2005 HostError
{engine} refuses the new configuration, which is taken back: `{command}`: {said}
run that command to see what it says of the old one, and mend it first
GH2006 HostError
{engine} does not run after it was told to read its configuration ({unit}): {said}
its files are as they were before, and it was started with them again: look with `systemctl status` and `journalctl -u` at why it stopped
GH2007 RequestError
{engine} cannot be restarted by {how}: {reason}; nothing is changed
configure it without --restart, and restart it as it was started
GH2008 HostError
somebody else configures the engine of {path} at this moment
wait for that `gpuhook configure` or `gpuhook install`, and try again
GH2009 FileError
{path} cannot be understood: {reason}
take out of the engine's files by hand what gpuhook has written (`gpuhook configure show`), then remove the directory of that file
GH2010 HostError
there is no {name} on the host at {root}, which the engine would have to run
install gpuhook-runtime there, or name the program with {option}
GH2011 RequestError
{path} {said} on the host at {root}: each container of the engine would fail
install it there, give its path as the host has it, or leave {option} out: it is found
GH2012 HostError
somebody else has changed {path} meanwhile; everything else is as it was before
see what they have done, and configure the engine again
GH2013 HostError
{path} may be read by root alone: it says how gpuhook has configured {engine}
run this as root; `gpuhook configure show` tells anybody what {engine} does now
GH2020 RefusedError
{where} disables the plugin cri: this containerd serves Docker, and no kubelet
for Docker: gpuhook configure docker. For a kubelet: --enable-cri takes cri out of disabled_plugins
GH2021 FileError
{where} {said}: containerd does not start with it
correct it; `containerd --config FILE config dump` says whether containerd can read it
GH2022 RequestError
this node has several containerds that a kubelet may use: {files}
name the one with --config
GH2023 RefusedError
{where}: the runtime {name} is registered by {by}, and may not be written twice
take another name, such as --runtime-name gpuhook, or remove what registers it
GH2024 HostError
{system} makes containerd's configuration itself, and what is written there does not stay
have the device plugin say CDI names (deviceListStrategy cdi-cri), for which no runtime is needed; docs/containerd.md says how
GH2025 FileError
{where}: with what is to be written there, {said}
take out what is in the way, or say which file to write with --config or --drop-in
GH2026 RefusedError
{where}: the default runtime cannot be set here: {said}
{how}; then configure without --set-as-default
GH2027 FileError
{where}: {said}
write it in plain tables ([a.b] and then one key on each line), or edit it by hand
GH2028 HostError
the route hook needs containerd's own default spec, and {where} is not there yet
on the node: ctr oci spec | /usr/share/gpuhook/containerd/base-spec --output {where}; then configure again
GH2029 HostError
{where} {said}: the route cdi cannot work
take the route wrapper, or a containerd from 1.7 on
GH2040 FileError
{where} {said}, and {engine} cannot read it either: nothing was changed
mend that line, or name another file with --config
GH2041 RequestError
no runtime of {engine} can be called {name}
choose another name with --runtime-name, such as nvidia
GH2042 RequestError
the route {route} gives {engine} no runtime that could be its default
leave --set-as-default out, or choose --route wrapper
GH2043 RequestError
{engine} reads one file and no drop-ins
leave --drop-in out; --config names the file
GH2044 RefusedError
{where}: dockerd is started with {flag}, and refuses {key} of daemon.json beside it
move what the flag says into daemon.json, then configure again
GH2045 RefusedError
{engine} {version} gives containers no CDI devices: {needed} is the first that does
choose --route wrapper, or a newer {engine}
GH2046 RefusedError
{where}: Docker of a snap sees no program of this machine: --route {route} is of no use
choose --route cdi, or install Docker from a package
GH2047 FileError
{where}: {key} is there twice, and readers differ on which one holds
make one of both, then configure again
GH2048 RefusedError
{where} is there, and is not gpuhook's: dockerd calls it for --gpus
let gpuhook come before it with --take-over, or choose --route wrapper
GH2050 RefusedError
{where} is there, and is not gpuhook's
take it over with --take-over: undo gives it back; or move it away
GH2051 HostError
no program is found for {engine}'s runtime {name}, which ours is made after
say its runtime_path in {engine}'s configuration, or install crun or runc
GH2052 RefusedError
{where}: it says {key} too, and is read after any file of ours
remove it there, or name a file that is read later with --drop-in
GH2053 RequestError
{where}: {engine} reads {read}, and not this
leave the option out: our file is put where {engine} reads it
GH2100 HostError
{root} is no root of a host: {reason}
mount the host's root there, such as hostPath / at /host, and name it with --host-root
GH2101 FileError
{path} is no runtime tree: {reason}
run `gpuhook install` in gpuhook's image, or name a tree with --tree
GH2102 HostError
gpuhook cannot be installed in {path}: {reason}
choose another directory with --install-dir, or use --route cdi (docs/image.md)
GH2103 RequestError
gpuhook cannot be installed in {path}: {reason}
choose another directory with --install-dir, such as /opt/gpuhook
GH2104 FileError
{path} is there and is not gpuhook's
choose another directory with --install-dir, or move it away
GH2105 HostError
the host cannot run {program}: {reason}
look at the host's security policy and mount options, and choose another --install-dir
GH2106 HostError
no engine was found below {root}
start the engine, or name it with --engine; `--engine none` configures nothing
GH2107 RequestError
{where} names configuration {name} for node {node}; {directory} has {known}
add the configuration to the ConfigMap, or change the label of the node
GH2108 RequestError
config-manager: {variable} is {value!r}: {reason}
docs/image.md lists the variables of config-manager
GH2109 RequestError
no label {label} on {node}, no DEFAULT_CONFIG, no strategy that fits: {strategies}
label the node, or set DEFAULT_CONFIG, or FALLBACK_STRATEGIES to named,single,empty
GH2110 HostError
config-manager is in no pod, or in one without a service account's token
run it in a pod of a service account that may get and watch nodes
GH2140 RequestError
the hook {hook} of a CDI spec has the argument {argument}, which is not known here
write the spec with `gpuhook generate-cdi`, or with a toolkit that this gpuhook knows
GH2141 RequestError
the CDI spec names a hook {hook} that gpuhook does not have; it is passed over
write the spec with `gpuhook generate-cdi`, and run `gpuhook doctor` if something lacks
GH2142 RequestError
`{command}` of NVIDIA's toolkit has no counterpart here: {reason}
{instead}
GH2143 FileError
the CDI spec needs gpuhook-hook {since} or newer, and this host's is {version}
upgrade gpuhook on the host, or write the spec with its own `gpuhook generate-cdi`
"""
