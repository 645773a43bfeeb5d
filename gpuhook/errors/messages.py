# SPDX-License-Identifier: Apache-2.0
"""Three lines per code: code and kind, sentence, hint. Generated from catalogue/: make generate.

HOT, and loaded with the first error only. A string loads faster than a dict of 700 entries.
"""

TEXTS = """
GH1003 RequestError
{name}: malformed replica id
write <device>::<n> with a decimal n, such as GPU-<uuid>::2
GH1004 RequestError
{where} requests a device whose name contains control characters or more than 255 characters: {name}
use an index, a UUID, a PCI bus id or vendor/class=name
GH1005 RequestError
{where} requests {count} devices; the limit is {limit}
list each device once, or use `all`
GH1006 DriverError
{where} requests {what}, but {reason}
{cure}, or set request.onMissingDriver to start in /etc/gpuhook/config.yaml
GH1007 RefusedError
ignored the request for {names} in {where}: {reason}
if this container needs GPUs, change the setting in /etc/gpuhook/config.yaml
GH1008 DriverError
{where} requests {what}, but {reason}; starting without it
to refuse such containers, set request.onMissingDriver to refuse in /etc/gpuhook/config.yaml
GH1009 RefusedError
{where} requests {name}, a device of a vendor other than {vendor}
request it with a device plugin or the engine's --device; variables, and annotations that are not a grant, may request only devices of {vendor}
GH1020 RequestError
unknown driver capability {word} in NVIDIA_DRIVER_CAPABILITIES
use lower-case names: {known}; to ignore other words, set request.onUnknownCapability to ignore in /etc/gpuhook/config.yaml
GH1022 RequestError
{name}={value} is not a whole number of MiB
use a whole number of at least 1, such as 4096 for 4 GiB, or unset the variable
GH1023 RequestError
{request_env}={request} exceeds {limit_env}={limit}
raise the limit (in MiB), lower the request, or unset one of the variables
GH1024 RequestError
a memory limit is set, but this node has no UUID for GPU {nodes}
run `gpuhook generate-cdi`, which records the UUIDs, or use the GPU's UUID
GH1025 RequestError
a memory limit of {limit} on {device} is too small for a CUDA context, which takes about {least}
the container starts, but its programs run out of memory; the unit is MiB, so 4096 is 4 GiB
GH1026 RefusedError
refused the request for {names} in {where}: {reason}
change that setting in /etc/gpuhook/config.yaml if this container needs GPUs, or set request.onRefusal to ignore to start it without them
GH1027 RefusedError
driver capability {word} is not allowed on this node; allowed: {allowed}
request fewer capabilities, or all, which means the allowed ones; or add it to request.driverCapabilities in /etc/gpuhook/config.yaml
GH1028 RequestError
ignored the mount at {path}: it does not name a device
for a CDI device, use cdi/<vendor>/<class>/<name>; for any other device, use only its id
GH1036 RequestError
{where}: {number} is not an IMEX channel
use channel numbers from 0 to 1048575, as in /dev/nvidia-caps-imex-channels
GH1037 DriverError
{name}: not on this node: no device node {looked}{why}
load the kernel module that creates the node, create the node (see `gpuhook explain GH1037`), or remove the request
GH1038 RefusedError
{where} requests {name}, which only privileged containers may have
run the container privileged (with CAP_SYS_ADMIN), or remove the request
GH1039 RequestError
{variable}={value}: the only value is `all`
set it to all, which means the whole node, or unset it; choose GPUs with NVIDIA_VISIBLE_DEVICES
GH1040 DriverError
{where} is enabled, but the device is missing; starting without it: {reason}
load the kernel module on this node, or unset the variable
GH1041 RefusedError
ignored the request in {where}: {reason}
correct or remove the variable or mount; a setting named in the reason is in /etc/gpuhook/config.yaml
GH1042 RequestError
{name}: no such device in {files}, the CDI spec of this kind on this node
run `gpuhook generate-cdi --mode {mode}` with the same --output-file again, or remove the file
GH1043 DriverError
{variable} is not satisfied by {where}: {terms}
the image needs another driver version: install it, use an image for this driver, or set NVIDIA_DISABLE_REQUIRE=1 in the container to start it anyway
GH1044 RequestError
{variable} is not satisfied by {where}: {terms}
assign the container a GPU that its image supports, or set NVIDIA_DISABLE_REQUIRE=1 in it to start it anyway
GH1045 RequestError
{variable}: invalid requirement {term}: {reason}
write terms such as cuda>=12.4, with a comma for `and` and a space for `or`, or set NVIDIA_DISABLE_REQUIRE=1 in the container
GH1046 RequestError
{count} NVIDIA_REQUIRE_* variables are set; the limit is {limit}
put terms that must all be true into one variable, comma-separated
GH1047 DriverError
cannot check {variables}: {terms}; starting the container
run `gpuhook generate-cdi`, which records the properties of the driver and the GPUs
GH1060 RequestError
{name} is ambiguous: it is a prefix of the UUIDs {uuids}
use more digits of the UUID, or the full UUID
GH1061 RequestError
ignored unknown words in NVIDIA_DRIVER_CAPABILITIES: {words}
use {known} or all in lower case, or unset the variable
GH1062 DriverError
the image is built for CUDA {version}, but this node's driver supports CUDA {cuda}; starting it
programs that need more than CUDA's minor version compatibility will fail: install a newer driver, or use an image for CUDA {cuda}
GH1063 RefusedError
{device} is exclusive on this node, and the container {holder} has it
wait for that container, request another device, or remove the device from request.exclusiveDevices in /etc/gpuhook/config.yaml
GH1064 RequestError
request.exclusiveDevices names {name}, which no CDI spec of this node has
use a name of `gpuhook cdi list`, or remove it
GH1101 RequestError
{name} is not a CDI device name
write vendor/class=device, such as nvidia.com/gpu=0
GH1102 RequestError
{name}: no such device; {files} has {have}{broken}
request one of these; {way}
GH1103 FileError
{name} is defined twice at the same priority: by {first} and by {second}
remove one of the two files, or change the --vendor or --class of one
GH1104 FileError
{name}: no CDI spec of kind {kind} in {dirs}{broken}
{way}
GH1105 HostError
{path}: cannot store the compiled form in {directory}
make that directory writable for root; until then, no container gets a GPU
GH1106 FileError
{path}: {pointer}: {reason}
correct the CDI spec there; `gpuhook cdi validate FILE` checks it
GH1107 FileError
{path}: cdiVersion {version} is newer than {newest}, the newest that gpuhook supports
write the spec for an older version of CDI, or install a newer gpuhook
GH1108 FileError
{path}: cdiVersion is {version}, but {reason} needs {needed}
declare cdiVersion {needed}
GH1109 FileError
{path}: {place}: {reason}
correct the syntax of the CDI spec, or regenerate it
GH1110 FileError
{path}: cannot read the CDI spec: {reason}
make it a readable regular file, or remove it
GH1111 HostError
{path}: cannot write the CDI spec: {reason}
{cure}; nothing was changed
GH1112 RequestError
{name} is neither an existing spec file nor a CDI device name
use the path of a spec, or a device from `gpuhook cdi list`, as vendor/class=device
GH1120 FileError
the CDI spec is stale: it no longer matches this host ({changes})
run `gpuhook refresh` to regenerate the specs of this node
GH1121 DriverError
the nvidia kernel module is not loaded: {root} has no /proc/driver/nvidia/version
run modprobe nvidia and check dmesg; on a node without a GPU, nothing is wrong
GH1122 HostError
cannot regenerate the CDI specs of this node: {reason}
run `gpuhook refresh` to see the error
GH1123 HostError
{container} has {nodes}, whose GPU, MIG instance or partition is no longer on this node
restart the container: it then gets the current devices, or is refused
GH1200 DriverError
no libnvidia-ml.so.1 below the driver root {root} (searched {looked})
install the NVIDIA driver, start the driver container, which uses /run/nvidia/driver, or set the location with --driver-root, --library-search-path or --nvml-library; driver.root in the settings applies to all commands
GH1201 DriverError
{path}: no such NVML library
set --nvml-library to the path of a libnvidia-ml.so.1 on this host, or omit it
GH1202 DriverError
{path}: cannot load the library: {reason}
reinstall the driver package, or set another library with --nvml-library
GH1203 DriverError
{path} belongs to driver {library}, but the loaded kernel module is {module}
reboot, or stop all GPU programs and run rmmod nvidia_uvm nvidia_drm nvidia_modeset nvidia, then modprobe nvidia
GH1204 DriverError
the nvidia kernel module is not loaded (NVML of {path}: {reason})
run modprobe nvidia and check dmesg; on a node without a GPU, nothing is wrong
GH1205 DriverError
{path}: permission denied by the driver
run as root, or grant this user read and write access to /dev/nvidiactl and /dev/nvidia*
GH1206 DriverError
{path}: NVML failed: {reason}
run nvidia-smi on the host; if it also fails, see dmesg | grep NVRM
GH1207 DriverError
NVML belongs to driver {nvml}, but the driver files below {root} belong to {tree}
set --driver-root and --nvml-library to the same driver, or reinstall the driver
GH1210 DriverError
device node {path}: {reason}
{way}
GH1213 DriverError
mode {mode} found no device on this node: {reason}
{way}
GH1216 DriverError
the driver has no MIG {name}: its minor number is in neither {minors} nor {file}
use a GPU with MIG, and load driver version 450 or newer
GH1217 DriverError
{path}: {reason}; all GPUs in WSL need it
update the Windows driver, run wsl.exe --update and wsl.exe --shutdown; on a machine without WSL, omit --mode wsl
GH1218 DriverError
no NVIDIA driver in Windows: no directory below {packages} has {library}
install the NVIDIA driver in Windows, run wsl.exe --shutdown, or set the directory with --library-search-path
GH1219 RequestError
{what}: in WSL all GPUs have one device node, so the only device is `all`
omit --device-id and --no-all-device
GH1220 DriverError
{directory} has neither devices.csv nor drivers.csv nor l4t.csv
install JetPack's nvidia-l4t-init package, or set the files with --csv-file; on a machine other than a Tegra, omit --mode csv
GH1221 HostError
cannot read {path}: {reason}
set --csv-file to a readable file, or omit it
GH1222 DriverError
containers can get none of the device nodes in {files}{reasons}
check that the GPU's module is loaded (modprobe nvgpu), or set the directory of the nodes with --dev-root
GH1230 DriverError
no NVIDIA driver below {root}: no libcuda.so.<version> in {searched}
install the driver there, or set its location with --driver-root or --library-search-path
GH1231 DriverError
the driver below {root} has two versions: libcuda {libcuda}, libnvidia-ml {ml}
complete the driver installation, or reinstall the driver, so that both have the same version
GH1232 DriverError
the driver is {version}, but the libcuda below {root} is {have} (searched {searched})
install the libraries of {version} there, or reboot into the installed driver
GH1233 DriverError
several drivers below {root} ({have}), and no libcuda.so.1 selects one
remove the old ones, or run ldconfig there to create the link
GH1234 DriverError
{path} is not a readable 64-bit shared library
reinstall the driver; a full disk is the usual cause
GH1235 DriverError
the driver root {root} is not a directory
set --driver-root to the directory of the driver
GH1240 DriverError
waiting for GPU events failed: {reason}
run nvidia-smi on the host; if it also fails, see dmesg | grep NVRM; a lost GPU needs a reset or a reboot
GH1242 DriverError
{path}: NVML cannot create an event set: {reason}
the plugin does not receive XIDs: run nvidia-smi on the host, and update an old driver
GH1243 FileError
{file}, line {line}, column {column}: {reason}
correct the YAML there; gpuhook does not skip files in this directory
GH1244 FileError
{file}, line {line}: {where}: {reason}
write a mapping with the lists add (entries with path, containerPath, kind, capabilities) and drop (globs): see https://github.com/gpuhook/gpuhook/blob/main/docs/reference/driver-files.md
GH1245 FileError
{file}, line {line}: a driver file cannot be at {path} in a container
set a containerPath outside /dev, /proc and /sys, without ..
GH1246 HostError
{path} is missing and cannot be created: {reason}
run nvidia-modprobe -f {file} on the host, or add the MKNOD capability to this container; in the chart's values: features.mig: true
GH1250 DriverError
{path}: this driver has no memory limits for containers; CUDA 13.4 added them
update the driver, or share the GPU without limits: the device plugin's guard monitors the memory, and limits.onFailure: start lets containers start
GH1251 DriverError
the driver refused a memory limit on {uuid} for cgroup {cgroup}: {reason}
{remedy}
GH1252 DriverError
the driver accepted the memory limit {asked} on {uuid} for cgroup {cgroup}, but reports {found}
check whether another program sets limits for this cgroup; if not, report this with the driver's version
GH1253 RequestError
{uuid} is a MIG device or a GPU in MIG mode; the driver limits the memory of whole GPUs only
a MIG device has its own memory: choose a profile of the right size and remove the limit
GH1254 DriverError
cannot read the memory limit on {uuid} for cgroup {cgroup}: {reason}
{remedy}
GH1255 DriverError
cannot set or read memory limits on GPU {uuid}: {reason}
compare with nvidia-smi -L on the host; for a lost GPU, see dmesg | grep NVRM
GH1256 DriverError
the driver did not answer within {seconds} seconds
run nvidia-smi on the host, for AMD GPUs `gpuhook inventory`; if it also hangs, see dmesg | grep -e NVRM -e Xid -e amdgpu
GH1257 DriverError
the process that calls the driver failed: {reason}
run nvidia-smi on the host, for AMD GPUs `gpuhook inventory`; if it also fails, reinstall the driver
GH1258 HostError
cannot start a process that calls the driver: {reason}
check pids.max of this process's cgroup, ulimit -u, and the free memory of the host
GH1260 HostError
program {program}, which sets the time slice of a GPU, does not exist
install the driver's nvidia-smi: package nvidia-utils, nvidia-smi or nvidia-driver-cuda
GH1261 DriverError
{program} cannot set the time slice: it has no compute-policy
update the driver to 455 or newer, or remove timeSlice
GH1262 DriverError
cannot set the time slice of {uuid}: {reason}
only GPUs with compute preemption support time slices: remove timeSlice for this GPU
GH1263 HostError
no permission to set the time slice of {uuid}: {reason}
use root and CAP_SYS_ADMIN; in the chart's values: features.timeSlices: true
GH1264 DriverError
`{program} compute-policy {arguments}` failed: {reason}
run it on the host; if it also fails, see dmesg | grep NVRM
GH1265 DriverError
cannot read the compute mode of {uuid}: {reason}
run nvidia-smi -q -d COMPUTE on the host; a GPU without a compute mode needs no computeMode
GH1300 FileError
{path}: no such file
set --bundle to the directory that contains config.json, or --oci to the file for `gpuhook cdi resolve`
GH1301 FileError
{path} is not a usable OCI runtime spec: {reason}
gpuhook did not change it; let the engine rewrite it, or create one with `runc spec`
GH1302 DriverError
device node {node}: {reason}
create the node (`gpuhook system create-device-nodes --load-kernel-modules`), or run `gpuhook generate-cdi` again if the GPU is gone
GH1303 FileError
config.json: {key} is not {kind}
gpuhook did not change it; fix the engine that wrote it
GH1304 RefusedError
{path} is the host's own root file system
gpuhook changes no file on the host: use a separate root file system for the container
GH1305 HostError
the root file system {path} is mounted read-only: no runtime can mount a driver into it
mount it writable (for example an overlay) and set root.readonly in config.json instead
GH1306 FileError
bundle {bundle} has no usable root file system: {reason}
set root.path in config.json
GH1307 FileError
config.json has {what}: runtimes differ on which one applies
fix the program that wrote it: each key must occur once, spelled as in the OCI specification
GH1308 FileError
config.json has a NUL character in {text}: crun ignores the rest of that text
fix the program that wrote it: no key and no value may have a NUL character
GH1310 FileError
{path} is not a regular file{limit}
gpuhook did not read it; check the file at that path
GH1312 HostError
this node has cgroup v1, but the driver only limits the memory of v2 cgroups
boot with the kernel parameter systemd.unified_cgroup_hierarchy=1; to start containers without the limit, set limits.onFailure to start in /etc/gpuhook/config.yaml; `gpuhook limits clear --all` removes limits in the ledger that are not enforced
GH1313 HostError
the container has no separate cgroup: {reason}
let its engine create one (podman: not --cgroups=disabled): limits apply to a cgroup
GH1314 HostError
cgroup {path} of the container contains other processes, {pids}: the limit would also apply to them
give each container a separate cgroup with a unique linux.cgroupsPath
GH1315 HostError
only root on the host can limit a container's GPU memory: {reason}
run the engine as root; for containers with a user namespace, use gpuhook-runtime, whose hook runs outside it
GH1316 FileError
{path} is larger than {limit} MiB, the limit for a document
use only part of it: one container, one pod, one node
GH1401 HostError
no low-level runtime found: searched for {names} in {dirs}
install runc or crun, or set another in runtime.lowLevelRuntimes of /etc/gpuhook/config.yaml
GH1402 HostError
{path} is YAML and not compiled, and no `gpuhook` to compile it was found in {dirs}
install the gpuhook package, or write the file as JSON
GH1403 HostError
cannot compile {path}: `{command}` failed: {reason}
run that command to see its full output
GH1404 HostError
{python} with {library} failed ({reason}), and {config} names GPUs (or there is no runc or crun)
reinstall gpuhook-runtime
GH1405 HostError
{path} --version failed with status {status}
reinstall the low-level runtime, or set another in runtime.lowLevelRuntimes of /etc/gpuhook/config.yaml
GH1410 HostError
{path}: {reason}; container {container} is missing from `gpuhook ps`
make the state directory writable
GH1490 HostError
{where}: {reason}
the container was not started; correct that path and start it again
GH1491 HostError
internal error of gpuhook, {kind} at {place}: {reason}
report it with this line; commands print a traceback with `gpuhook --debug`
GH1492 HostError
there is not enough memory
free memory, or raise the memory limit of the program that starts gpuhook
GH1500 UsageError
{name}: neither a file nor a known profile
set --inventory to a file written by gpuhook inventory -o yaml, or to one of the profiles {profiles}
GH1501 FileError
{file}: line {line}, column {column}: {reason}
write an inventory as YAML or JSON, in the format of gpuhook inventory -o yaml
GH1502 FileError
{file}: {where}: {reason}
compare it with a built-in profile: gpuhook inventory --inventory t4 -o yaml
GH1510 UsageError
--{option} {value}: not a valid CDI {option} name
use letters, digits, _ - and .; start with a letter, and end with a letter or digit
GH1511 RequestError
--device-id {value}: this node has no such GPU, MIG instance or partition; it has {have}
select a GPU by its index, UUID or PCI bus id, a part of it by 0:1 or its own name, or use `all`
GH1512 RequestError
cannot use --device-id {value}: {reason}
choose another device, or omit --device-id: gpuhook then skips unusable devices
GH1513 DriverError
this node has no GPU that a CDI spec can describe{reasons}
run `gpuhook inventory` to see what was found
GH1514 UsageError
--output-file {path}: {reason}
name the file *.yaml or *.json to match its format: container engines read no other files
GH1515 UsageError
{what} {path}: not an absolute path
write an absolute path, which begins with /
GH1517 FileError
cannot run the host's ldconfig {path} in a container: {reason}
set it to a statically linked ldconfig, or omit --ldconfig-path: gpuhook then merges the loader cache itself
GH1518 HostError
{program} did not write the container's loader cache: {reason}
omit --ldconfig-path: gpuhook then merges the loader cache itself
GH1519 DriverError
mode management found no driver device node in {directory}
load the driver (modprobe nvidia, nvidia-smi), or set the directory of its nodes with --dev-root
GH1520 UsageError
{options} cannot be combined: {reason}
omit one of them
GH1521 HostError
{option} needs gpuhook-hook, which is neither next to this program nor in {dirs}
install gpuhook-runtime, name the hook with --hook-path, or omit {option}
GH1522 UsageError
--vendor {value}: gpuhook describes no GPUs of this vendor
choose one of {known}; to set the vendor of the CDI kind, write a domain, such as {value}.example.com, or add --class gpu
GH1526 HostError
another gpuhook refresh has held {path} for more than {seconds} seconds
find out why it does not exit (`fuser {path}`), stop it, and run the command again
GH1527 RefusedError
{path} is stale, and there is no record of how it was generated: {what}
generate it with `gpuhook generate-cdi --output-file {path}` and the desired options
GH1528 FileError
the record of a spec has options that generate-cdi does not accept ({words}): {reason}
regenerate it with `gpuhook generate-cdi` and the desired options
GH1529 FileError
{path} exists but is not a readable CDI spec, and may not be gpuhook's
check it with `gpuhook cdi validate {path}`; remove it, and run the command again
GH1530 FileError
{path}: {reason}
check it with `gpuhook config validate`; until it is correct, no container gets a GPU
GH1532 FileError
{path}: {reason}
correct the file: `gpuhook config default` prints every key with its values, and https://github.com/gpuhook/gpuhook/blob/main/docs/reference/configuration.md describes them
GH1533 RequestError
{variable}={value}: {reason}
fix or unset the variable, if necessary in the environment of the container engine; until then, no container gets a GPU
GH1534 FileError
{path}: {reason}
use the toolkit's file, /etc/nvidia-container-runtime/config.toml, or correct the line
GH1535 HostError
{path}: {reason}
check it with ls -l; --replace removes it, unless it is a directory
GH1536 HostError
cannot load kernel module {module}: {reason}
install the driver's modules for the running kernel (uname -r), and check dmesg
GH1590 HostError
{where}: {reason}
{cure}, and run the command again
GH1591 HostError
standard output: {reason}
check where the output goes; a requested change may have been made: see `gpuhook inspect`
GH1592 HostError
{path}: {reason}, in the state directory {directory}
{cure}
GH1594 HostError
{places} {verb} not mounted in this chroot or container, so the machine cannot be read
run `{commands}` there first, or run gpuhook outside of it; in a container, keep the mounts that its engine makes
GH1600 FileError
cannot read /etc/ld.so.cache of the image: {reason}
run ldconfig in the image, or delete the file there
GH1601 FileError
{file} of the image is {size} bytes long, more than {limit}
replace the file in the image, or delete it there
GH1602 HostError
machine {machine} has no known loader cache flags
supported machines: {known}
GH1604 FileError
cannot write the directory {directory} to {file}
install the driver's libraries below an absolute path without white space, '#', '=' and ':'
GH1640 FileError
gpuhook-hook was called with {argument}, but {reason}
see `gpuhook-hook --help`; its caller must be from the installed release: see `gpuhook explain GH1640`
GH1641 HostError
skipped: {what}
the container starts anyway
GH1642 FileError
cannot use the OCI state on standard input: {reason}
a runtime calls gpuhook-hook as an OCI hook; to see what a container would get, run `runc state ID | gpuhook-hook prestart --dry-run`
GH1643 FileError
the prestart hook was called at an unsupported stage: {reason}
register `gpuhook-hook prestart` for the prestart or createRuntime stage; for a running container, use `gpuhook attach`
GH1646 HostError
no gpuhook-hook in {dirs}; memory limits need it
reinstall gpuhook-runtime, or link gpuhook-hook into one of these directories
GH1647 HostError
GPU {device}: the driver does not enforce the memory limit: {trouble}
the container starts because of limits.onFailure; see `gpuhook ps`
GH1648 HostError
GPU {device}: the driver does not enforce the limit that the container has set: {trouble}
the granted limit applies (see `gpuhook limits show`); set another {variable}, or unset it
GH1649 HostError
{path}: the hook of a CDI spec cannot read it in the container's user namespace
request the GPU with NVIDIA_VISIBLE_DEVICES and the gpuhook-runtime runtime, or generate specs without hooks
GH1701 HostError
cannot read {program} back from the kernel, and its rules are not available elsewhere
set kernel.kptr_restrict or net.core.bpf_jit_harden to 1 temporarily, or restart the container with the device
GH1702 RefusedError
{rule} is still denied after the change: {reason}; the change was undone
a parent cgroup denies it: check the unit or engine that configures that cgroup
GH1703 HostError
{cgroup}: another program keeps replacing the device programs
find that program (a systemctl daemon-reload loop?), and run the command again
GH1704 RefusedError
cannot deny {rule}: {reason}
the container is allowed to open a whole class of devices: restart it with narrower rules
GH1730 RequestError
no such process: {pid}
use the id of a running container or the pid of one of its processes
GH1732 RequestError
process {pid} of the container has exited
start the container again; it loses what was attached while it ran
GH1733 HostError
{path}: {reason}
run as root on the host; a pod needs hostPID, CAP_SYS_PTRACE, and CAP_SYS_ADMIN and CAP_SYS_CHROOT for the container's files
GH1734 HostError
the user namespace of process {pid} has no root ({map} does not map 0)
map 0 in linux.uidMappings and linux.gidMappings of the container
GH1735 RequestError
{name}: no such container; searched {places}{skipped}
{near}; set the state directory of another runtime with --state-root
GH1736 RequestError
{name} matches several containers: {candidates}
use the full id; if the ids are equal, use the pid
GH1737 RequestError
process {pid} is not in a container: it is in the host's mount namespace
use the pid of a process in a container
GH1738 RequestError
container {id} is not running: it is {status}
start it; the command needs a running container
GH1739 FileError
cannot use the runtime's state of a container, {path}: {reason}
use the pid of one of its processes
GH1740 HostError
{container} is missing granted devices or files: {what}
run `gpuhook repair {container}`; its processes continue
GH1741 DriverError
{container} uses the files of driver {mounted}, but the node's driver is {now}
restart the container: libraries cannot be replaced under running programs
GH1742 DriverError
{path} is mounted in {container}, but no longer exists on the node ({count} such files)
the driver was reinstalled: restart the container to get the new files
GH1743 FileError
cannot read the loader files of {container}: {reason}
check /etc/ld.so.cache and /etc/ld.so.conf.d/00-gpuhook.conf in the container
GH1744 HostError
the device cgroup of {container} denies its granted nodes {nodes}: its rules were reset, as `systemctl daemon-reload` does
run `gpuhook repair {container}`; its processes continue
GH1745 RequestError
{container} requests GPUs ({request}), but its runtime assigned none
start it with a GPU runtime (the nvidia or amd handler), or run `gpuhook attach`
GH1746 HostError
permission denied: {places}
run as root: other users' containers are not visible
GH1747 RefusedError
process {pid} has a root directory other than the root of the container's mount namespace
restart the container, and let a child process instead of the first process call chroot(2) or mount over the root
GH1748 RefusedError
process {pid} has created a user namespace that is not in its container's config.json
restart the container, and let a child process instead of the first process create the namespace
GH1749 RefusedError
container {id} cannot be changed outside the user namespace of its engine: {where}: not permitted
run the command under `podman unshare`
GH1750 FileError
{path} in the container is already {what}
remove it from the image or the volume; nothing was changed
GH1751 HostError
{cause}; some changes could not be undone: {left}
undo these manually, or restart the container
GH1752 DriverError
{path} is not on the host: {reason}
if the driver was upgraded, run `gpuhook generate-cdi` again, then repeat the command
GH1753 RefusedError
processes in container {id} use the device: {holders}
stop them first, or use --force: open handles keep working, new opens are denied
GH1754 RefusedError
the mount at {path} would also appear outside the container: it is shared
use private or rslave propagation for the volume or for rootfsPropagation; nothing was changed
GH1755 FileError
{path} is owned by user {user} or writable by others; its grants are ignored
make root the owner, and remove write permission for others
GH1756 RefusedError
container {id} belongs to user {user}
run gpuhook as that user, prefixed with `podman unshare` to change a container
GH1757 HostError
another gpuhook has been changing containers of this node for 30 seconds
wait for it, or find it with `fuser {path}`
GH1759 RequestError
{name}; the container has {nodes}
a GPU that fell off the bus is in no CDI spec: pass its device node, --device {node}
GH1760 HostError
the file systems of {container} did not answer for {seconds} seconds{left}
look for FUSE and NFS in its /proc/PID/mountinfo: a blocked child process exits when the server of that mount answers or stops
GH1761 HostError
the child process for {container} did not answer: {reason}
run the command again; if the process was killed, search dmesg for an OOM kill
GH1762 HostError
{container} was skipped: its {fstype} mount at {path} may never answer
check this container separately: `gpuhook repair {container}` waits for the mount for a limited time
GH1763 DriverError
{container}: its device nodes belong to other devices than at its start: {changes}
start the container again: its GPUs are assigned again then; repair restores nothing in it
GH1770 RequestError
`none` stands for the control nodes and the driver's files, but container {id} has {nodes}
detach these devices: the files that came with them are removed with the last one
GH1771 FileError
{reason}
{hint}; or pass the device node, --device {node}, which needs no CDI spec
GH1772 FileError
{reason}, but a container was started with it
the file contains the container's grants: correct it, or restart the container
GH1780 RequestError
{container} has no GPU whose memory can be limited
add a GPU with `gpuhook attach`; `gpuhook inspect {container}` lists its devices
GH1781 RequestError
{name} is not a GPU of {container}; it has {gpus}
select one by its index or UUID, or omit --gpu to select all
GH1782 RequestError
{limit} exceeds the memory of {gpu}: {whole}
set a smaller limit; `gpuhook limits clear` removes a limit
GH1783 RequestError
{gpu} of {container} is a MIG instance or has MIG instances: it cannot have a limit
an instance has the memory of its profile; select other GPUs of the container with --gpu
GH1784 RefusedError
only root on the host can set and clear memory limits; this is user {user}
run as root on the host; `gpuhook limits show` prints the limits in the ledger
GH1785 DriverError
the memory limit of {container} on {gpu} is {noted} in the ledger, but {held} in the driver
run `gpuhook repair {container}` to restore the ledger's limit; its processes continue
GH1786 DriverError
the driver does not limit the memory of {container} on {gpu} to {limit}: {reason}
fix that and run `gpuhook repair {container}`; without a device plugin's guard, nothing limits its use until then
GH1800 FileError
the configuration has {count}: {first}
run `gpuhook device-plugin --validate {path}` to print all errors of the file
GH1801 FileError
cannot read the configuration from {path}: {reason}
use a readable file; a ConfigMap must be in the namespace of the plugin's pod
GH1802 FileError
cannot choose a configuration from {directory}: {reason}; it has {known}
set --default-config, a node label, or --fallback-strategies named,single,empty
GH1803 UsageError
{source}: {reason}
{hint}
GH1804 UsageError
the configuration has both the file {file} and the directory {directory}
set only one of CONFIG_FILE (--config-file) and CONFIG_FILE_SRCDIR (--config-dir)
GH1805 HostError
the device plugin needs the package {package}, which is not installed
install the package gpuhook-device-plugin; from a checkout: make install DEVICE_PLUGIN=1; with pip: pip install 'gpuhook[plugin]'
GH1806 HostError
cannot set the process name {name}: {reason}
choose a name of at most {most} bytes, or omit --process-name
GH1807 HostError
{name} of {known} applies: the pod has no token to read the node's label {label}
allow the service account to get and watch nodes, and mount its token; in the chart's values: apiAccess.nodeConfig: true
GH1820 RequestError
{method} got {size} bytes that are not a {message}
call it with the messages of the kubelet's API
GH1821 HostError
cannot serve {resource} on {path}: {reason}
check that the kubelet runs on this node; in a pod, mount its plugin directory read-write
GH1822 HostError
path {directory} is too long: a socket in it would have more than {limit} bytes
mount the kubelet's plugin directory at a shorter path in the plugin's container
GH1823 HostError
the kubelet at {socket} did not register {resource}: {reason}
check the kubelet's log; its device plugin API must be v1beta1
GH1824 HostError
another process serves {resource} on {path}
run one plugin per node; this one waits until the socket is free
GH1836 FileError
{resource} names the interposer {name}, which is not in gpuhook.interposers
use the name of an interposer in gpuhook.interposers, or add it
GH1837 HostError
containers of {resource} cannot start with the interposer {name}: the host has no {path}
install the interposer on the node, or remove `interposer`; the plugin checks again later
GH1838 RequestError
{count} devices of {resource} in one container have different values of {key} for the interposer {name}
request one device, or remove the placeholder that differs
GH1839 FileError
interposer {name} of {resource} uses {placeholder}, but {uuid} has no memory limit
set `memory` in the entry of the resource, or remove {placeholder}
GH1840 FileError
migStrategy single cannot offer these GPUs: {reason}
give all GPUs the same MIG mode and MIG profile, set gpuhook.excludeDevices, or set migStrategy to mixed
GH1843 RequestError
{resource} has no device {name}, which must be part of the preferred allocation
the devices have changed since the kubelet read them: recreate the pod
GH1844 RequestError
{resource}: invalid preferred allocation: {reason}
the kubelet does not make such calls; check which program uses the plugin's socket
GH1846 RequestError
{resource}: {size} devices requested, but only {known} of the {named} available devices are known
wait until other containers exit, or request fewer
GH1847 FileError
{entry}: {resource}: {reason}
{hint}
GH1848 FileError
{entry}: cannot offer {resource} in memory units: {reason}
set `unit` of its entries in sharing.memoryUnits, for example to GiB
GH1849 RequestError
{size} units of {resource} ({memory}) requested on one GPU, but at most {most} are free
request fewer units, or wait until other containers exit: gpuhook never splits a request
GH1850 RequestError
{resource} has no device {id}; the nearest are {nearest}
the kubelet's device list is outdated: recreate the pod
GH1851 DriverError
device {id} of {resource} is unhealthy: {reason}
recreate the pod: the scheduler will assign another device
GH1852 RequestError
a container requests {count} of {resource}, but at most one is allowed: the resource is shared
request 1: several replicas of one GPU provide no additional compute or memory
GH1853 DriverError
cannot assign devices of {resource} to containers: {reason}
complete the driver installation, or add envvar to deviceListStrategy
GH1854 HostError
{resource} is shared by MPS, but its control daemon is not running
the plugin's log has the reason; the plugin retries at each check of the node
GH1855 DriverError
no CDI spec describes {name}
the plugin's log has a warning with the reason
GH1856 HostError
IMEX channel {channel} is required, but {path} does not exist
create the channel with nvidia-modprobe, or set imex.required to false
GH1858 HostError
the container cannot start: {uuid} has {free} MiB free, and minFreeMemory is {needed}
find the other users of the GPU with `gpuhook ps`, or lower gpuhook.minFreeMemory
GH1859 RequestError
{count} units of {resource} are on {devices}, but the memory of a container must be on one GPU
recreate the pod: its init containers had units on other GPUs, or the kubelet selected the units without the plugin
GH1860 RequestError
{name} is not the UUID of a GPU
use a UUID from `gpuhook health show`, or `all`
GH1861 RequestError
{name} does not match exactly one GPU that is marked unhealthy
see `gpuhook health show`; use an index, a UUID or its prefix, or `all`
GH1862 HostError
cannot reach the API server at {where}: {reason}
the plugin retries; check the pod's network and its service account
GH1863 RefusedError
this service account may not {verb} {resource}, which is needed for {feature}
add a rule to its ClusterRole: apiGroups ["{group}"], resources ["{resource}"], verbs ["{verb}"]
GH1864 HostError
the API server refused to {verb} {resource} for {feature}: {status} {reason}
the plugin retries later; 401 means that the token is not accepted
GH1865 FileError
cannot read the unhealthy GPUs from {path}: {reason}
run as root; to reset the plugin's marks, run `gpuhook health clear all`
GH1870 FileError
{resource} is shared by MPS with unequal {kind}: {values}
one daemon gives all clients the same share: give the devices different names with `rename`
GH1871 FileError
{resource} is shared by MPS among {replicas}, but {model} serves at most {most} clients
lower sharing.mps.resources[].replicas, or use time slicing
GH1872 FileError
{resource} consists of MIG instances, which gpuhook does not share by MPS
use sharing.timeSlicing for it, or set flags.migStrategy to none
GH1873 HostError
{resource} is shared by MPS, but program {program} does not exist
install its package: nvidia-compute-utils, nvidia-driver-cuda or nvidia-cuda-mps
GH1874 HostError
the MPS control daemon of {resource} failed at `{command}`: {reason}
check the logs in {log}
GH1875 HostError
{path} is not on a tmpfs, and no tmpfs can be mounted there: {reason}
put --mps-root below /run, or mount a tmpfs at {path}
GH1877 HostError
cannot set the compute mode of {uuid} to {mode}: {reason}
run the plugin's container as root with CAP_SYS_ADMIN, or privileged; in the chart's values: features.mps or features.timeSlices
GH1878 HostError
{resource} is shared by MPS, but its directory {path} is not writable: {reason}
mount it from the host into the plugin's container, and run the container privileged: the chart does so with sharing.mps in its values, or with features.mps: true
GH1880 HostError
{kind} not set: cannot record the current value in {path}: {reason}
make the state directory writable: mount /run/gpuhook into the plugin's container
GH1881 DriverError
the {kind} of {uuid} is still {ours}; it could not be restored to {before}: {reason}
the plugin retries at each check of the node; a reboot restores it, too
GH1882 FileError
{resource}: cannot set {key} for {uuid}: {reason}
select other devices in the entry, or remove {key}
GH1885 HostError
the guard cannot monitor memory limits that the driver does not enforce: {reason}
run the plugin's pod with hostPID: the driver reports host pids
GH1886 HostError
cannot stop process {pid}, which exceeds its container's memory limit: {reason}
add the KILL capability to the plugin's container, on Linux 5.3 or later; in the chart's values: features.guard: true
GH1887 HostError
the driver has not reported its processes for {seconds} seconds: memory limits are not monitored
check with `nvidia-smi`, for AMD GPUs with `gpuhook inventory`, whether the driver answers; the plugin waits for its answer
GH1890 HostError
cannot serve metrics at {address}: {reason}
choose another gpuhook.metrics.address, or set it to "" to disable metrics
GH1891 FileError
gpuhook.metrics.address {address} is not a valid address
write host:port, such as 127.0.0.1:9395, [::1]:9395, or :9395 for every interface
GH1900 FileError
{path} does not contain the files of a node: {reason}
set the directory that contains the node's etc, proc and dev, such as /host in a pod
GH1902 HostError
systemd is not running here: {path} does not exist
query the state of services with the service manager of this system
GH1903 UsageError
{path} contains the files of another node: --fix only changes the node that it runs on
run `gpuhook doctor --fix` on the node itself
GH1904 HostError
{container} was skipped: {count} containers before it did not answer in time
find out why they do not answer: often because of a FUSE or NFS mount
GH1905 HostError
cannot query the API server of the cluster: {reason}
run the command where `kubectl get nodes` works, or as root on the node
GH1906 FileError
{path} is not a support bundle: {reason}
use the unchanged file that `gpuhook support-bundle` wrote
GH1907 RefusedError
{path} is refused as a support bundle: {reason}
none of its contents were used; request a new one from the sender
GH1910 FileError
cannot explain {where}: {reason}
use a bundle, a config.json, an image's configuration (docker image inspect, skopeo inspect --config), a Kubernetes manifest, or a container
GH1911 FileError
{path}: no such file, directory or running container
use an existing file or directory, or a running container from `gpuhook ps`; for an image, `docker image inspect IMAGE | gpuhook explain -`
GH1912 FileError
container {id} has no config.json: its engine has removed the bundle
pass its variables with --env NAME=VALUE instead
GH1914 RequestError
there is no error code {name}; {others}
copy the code from the error message, as in `Error GH1102`; https://github.com/gpuhook/gpuhook/blob/main/docs/reference/errors.md lists all codes
GH1915 FileError
{path} is not a bundle: it has no config.json
name the directory that contains config.json, or the id of a running container, as shown by `gpuhook ps`
GH1930 FileError
{place}: not a readable manifest: {reason}
fix the text there; `kubectl apply --dry-run=client -f FILE` also checks it
GH1931 RequestError
{path} has no pod and no workload with a pod template: {kinds}
name a file with a Pod, Deployment or similar, and check its indentation; for a Compose file, name its running container or pass the variables with --env
GH1932 RequestError
{path} has {pods}, but no containers in it
add them as a list under spec.containers; each item starts with `- name:`
GH1942 DriverError
no NVIDIA driver in {root}, so gpuhook's result is unknown
run it on the node that has the GPUs; in a pod with the node's files in /host, add --driver-root /host --host-root /host
GH1953 HostError
cannot match GPU processes to containers: this pid namespace is not the host's, and the driver reports host pids
run it on the host, or in a container with the host's pid namespace (hostPID, --pid=host)
GH1960 HostError
kubectl: {reason}
try `kubectl get pods --all-namespaces`; reading metrics requires the verb get for pods/proxy in the plugin's namespace
GH1961 HostError
{where} has no pod of gpuhook's device plugin with the labels {selector}
install the chart with metrics.enabled=true, or set the labels of the plugin's pods with --selector
GH2000 RefusedError
{where}: the {name} runtime of {engine} is {program}, not gpuhook's
use another name with --runtime-name, or replace it with --take-over: undo restores it
GH2001 HostError
cannot write {path}: {reason}; all files are unchanged
{advice}
GH2002 HostError
could not restore {path}: {reason}
fix that, then run `gpuhook configure undo {engine}` to restore it; the original content is in {place}
GH2003 FileError
{where} {said}: {engine} would not start with it; nothing was changed
fix that line or move the file away, then run `gpuhook configure {engine}` again
GH2004 HostError
with the planned {paths}, {engine} would still not {lack}; nothing was changed
run with --dry-run to see the plan, and find a file that {engine} reads later and that overrides it; choose another file with --drop-in or --config
GH2005 HostError
{engine} rejects the new configuration, which was undone: `{command}`: {said}
run that command to check the old configuration, and fix that first
GH2006 HostError
{engine} stopped after a reload of its configuration ({unit}): {said}
its old files were restored and it was started with them: see `systemctl status` and `journalctl -u`
GH2007 RequestError
cannot restart {engine} with {how}: {reason}; nothing was changed
configure it without --restart, then restart it the way it was started
GH2008 HostError
another process is configuring the engine of {path}
wait for that `gpuhook configure` or `gpuhook node install`, and try again
GH2009 FileError
cannot use the record {path}: {reason}
remove gpuhook's changes from the engine's files manually (`gpuhook configure show`), then remove the directory of that file
GH2010 HostError
the host at {root} has no {name}, which the engine must run
install gpuhook-runtime there, or set the program's path with {option}
GH2011 RequestError
{path} {said} on the host at {root}: every container of the engine would fail
install it there, set its path on the host, or omit {option}: gpuhook then finds it
GH2012 HostError
{path} was changed by another program during the run; everything else is unchanged
check that change, and configure the engine again
GH2013 HostError
only root may read {path}, the record of how gpuhook configured {engine}
run as root; `gpuhook configure show` prints {engine}'s current configuration for any user
GH2014 RequestError
only root may configure the system's Docker, and this user runs no rootless dockerd
run the command with sudo, or pass --user to configure the rootless Docker of this user
GH2020 RefusedError
{where} disables the cri plugin: this containerd serves Docker, not a kubelet
for Docker: gpuhook configure docker. For a kubelet: --enable-cri removes cri from disabled_plugins
GH2022 RequestError
this node has several containerd configurations that a kubelet may use: {files}
choose one with --config
GH2023 RefusedError
{where}: the runtime {name} is already registered by {by}
use another name, such as --runtime-name gpuhook, or remove the other registration
GH2024 HostError
{system} generates containerd's configuration; changes to it do not persist
let the device plugin use CDI names (deviceListStrategy cdi-cri), which need no runtime: see https://github.com/gpuhook/gpuhook/blob/main/docs/how-to/containerd.md
GH2025 FileError
{where}: with the planned files, {said}
remove the conflict, or choose the file to write with --config or --drop-in
GH2026 RefusedError
{where}: cannot set the default runtime here: {said}
{how}; then configure without --set-as-default
GH2027 FileError
{where}: {said}
write it as plain tables ([a.b], then one key per line), or edit it manually
GH2028 HostError
the hook route needs containerd's own default spec, but {where} does not exist
run on the node: ctr oci spec | /usr/share/gpuhook/containerd/base-spec --output {where}; then configure again
GH2029 HostError
{where} {said}: the cdi route cannot work
use the wrapper route, or containerd 1.7 or newer
GH2041 RequestError
a runtime of {engine} cannot have the name {name}
choose another name with --runtime-name, such as nvidia
GH2042 RequestError
the {route} route registers no runtime in {engine} that could be the default
omit --set-as-default, or choose --route wrapper
GH2043 RequestError
{engine} reads a single file and no drop-ins
omit --drop-in; choose the file with --config
GH2044 RefusedError
{where}: dockerd has the flag {flag}, so it rejects {key} in daemon.json
move the flag's value to daemon.json, then configure again
GH2045 RefusedError
{engine} {version} does not support CDI devices; {needed} is the first version that does
choose --route wrapper, or use a newer {engine}
GH2046 RefusedError
{where}: the Docker snap cannot run programs on this host, so --route {route} has no effect
choose --route cdi, or install Docker from a package
GH2047 FileError
{where}: {key} occurs twice, and parsers differ on which one applies
merge both, then configure again
GH2048 RefusedError
{where} exists and adds GPUs to containers, but is not gpuhook's
replace it with --take-over (undo restores it), move it away, or choose --route wrapper
GH2051 HostError
{engine} has no program for its runtime {name}, on which gpuhook's runtime is based
set its runtime_path in {engine}'s configuration, or install crun or runc
GH2052 RefusedError
{where}: it also sets {key}, and is read after gpuhook's file
remove it there, or choose a file that is read later with --drop-in
GH2053 RequestError
{where}: {engine} does not read this file, but {read}
omit the option: gpuhook writes to a file that {engine} reads
GH2100 HostError
{root} is not the root of a host: {reason}
mount the host's root there, such as hostPath / at /host, and set it with --host-root
GH2101 FileError
{path} is not a runtime tree: {reason}
run `gpuhook node install` in gpuhook's image, or set a tree with --tree
GH2102 HostError
cannot install gpuhook in {path}: {reason}
choose another directory with --install-dir, or use --route cdi (https://github.com/gpuhook/gpuhook/blob/main/docs/how-to/image.md)
GH2104 FileError
{path} exists and is not gpuhook's
choose another directory with --install-dir, or move it away
GH2105 HostError
the host cannot run {program}: {reason}
check the host's security policy and mount options, and choose another --install-dir
GH2106 HostError
no container engine found below {root}
start the engine, or set it with --engine; `--engine none` configures nothing
GH2107 RequestError
{where} names configuration {name} for node {node}; {directory} has {known}
add the configuration to the ConfigMap, or change the label of the node
GH2108 RequestError
config-manager: {variable} is {value!r}: {reason}
set the variable in the DaemonSet of the device plugin: https://github.com/gpuhook/gpuhook/blob/main/docs/how-to/image.md lists those of config-manager
GH2109 RequestError
{node} has no label {label}, DEFAULT_CONFIG is not set, and no strategy applies: {strategies}
label the node, or set DEFAULT_CONFIG, or set FALLBACK_STRATEGIES to named,single,empty
GH2110 HostError
config-manager is not in a pod with a service account token
run it in a pod of a service account that may get and watch nodes
GH2111 DriverError
containers cannot get a GPU on this node ({check}): {message}; setup changed nothing
{command}
GH2112 HostError
{what} needs root; setup changed nothing
run `sudo gpuhook setup`; rootless podman then needs no further step
GH2113 HostError
this node has no {wanted}{others}
install podman, Docker, containerd or CRI-O, or name an engine of this node with --engine
GH2114 UsageError
setup cannot ask, because there is no terminal; nothing was changed
use --yes to carry out the plan, or --dry-run to print it only
GH2115 HostError
a container of {engine} does not see exactly its GPU: {reason} (`{command}`)
run `gpuhook doctor`; the commands below Undo restore the node
GH2116 HostError
the node is configured, and a check of doctor has failed ({check}): {message}
{command}
GH2140 RequestError
the hook {hook} of a CDI spec has the unknown argument {argument}
write the spec with `gpuhook generate-cdi`, or with a toolkit that this gpuhook supports
GH2141 RequestError
the CDI spec names the hook {hook}, which gpuhook does not have; it is ignored
write the spec with `gpuhook generate-cdi`; if something is missing in the container, run `gpuhook doctor`
GH2142 RequestError
`{command}` of NVIDIA's toolkit has no equivalent in gpuhook: {reason}
{instead}
GH2143 FileError
the CDI spec needs gpuhook-hook {since} or newer, but this host has {version}
upgrade gpuhook on the host, or write the spec with the host's `gpuhook generate-cdi`
GH2510 RequestError
{where} names `{word}` together with other devices
write {word} alone, or remove it
GH2511 DriverError
{where} requests {name}, but {reason}
{cure}
GH2530 FileError
the resource naming strategy single cannot offer these AMD GPUs: {reason}
give all GPUs the same partition modes, set gpuhook.excludeDevices, or set flags.amd.resourceNamingStrategy to mixed
GH2540 RequestError
{device} is a partition of a GPU: the kernel limits the memory of whole GPUs only
the device plugin's guard can monitor it; or choose a partition mode whose partitions have the required size, and remove the limit
GH2541 DriverError
the kernel's controller dmem has no region {region}: the memory of {device} cannot be limited
compare with /sys/fs/cgroup/dmem.capacity of the host; the amdgpu of Linux 6.15 and newer registers its memory there
GH2542 HostError
the kernel's controller dmem is not enabled for cgroup {cgroup}: dmem is missing in {gap}/cgroup.subtree_control
write +dmem into cgroup.subtree_control of each parent cgroup, from the root downwards
GH2543 DriverError
the kernel refused a memory limit for cgroup {cgroup}: {reason}
run as root outside of any container; `cat dmem.max` in that directory shows the regions that the kernel knows
GH2544 DriverError
cgroup {cgroup} already uses {used} of the memory of {device}, more than the limit {limit}: the kernel does not reclaim it and keeps the earlier limit
stop processes that use the memory (`gpuhook ps` shows them), or set a higher limit
GH2545 HostError
this kernel has no cgroup controller dmem, which limits the memory of GPUs
use Linux 6.15 or newer with CONFIG_CGROUP_DMEM; or share the GPU without limits: the device plugin's guard monitors the memory, and limits.onFailure: start lets containers start
GH2560 DriverError
cannot read the {vendor} GPUs: {reason}
check whether the driver works; the output has the GPUs of other vendors only
GH2561 DriverError
the amdgpu driver did not answer within {seconds} seconds: {path}
look for a reset or a hang of a GPU: dmesg | grep amdgpu
GH2600 RequestError
the claim {claim} with the UID {uid} does not exist
if the claim was deleted, delete its pod; else check that the API server serves resource.k8s.io
GH2601 RequestError
the claim {claim} has the UID {uid} instead of {expected}: it was created again
delete the pod that uses the former claim
GH2602 RequestError
the claim {claim} has no device of the driver {driver} in the pool {pool}
let the scheduler allocate the claim: a pod with nodeName bypasses it
GH2603 RequestError
the claim {claim} has an invalid value at {path}
check which program wrote the allocation; the scheduler writes valid ones
GH2604 HostError
{what} is not ready after {seconds} s: {reason}
the work continues, and the kubelet repeats the call; the log shows what fails
GH2605 RequestError
the claim {claim} has the device {device}, which the pool {pool} does not have
delete the pod, so that the scheduler allocates a device that exists
GH2606 RefusedError
the claim {claim} cannot have the device {device}: the claim {other} has it
wait until the pods of the other claim have ended, or delete them
GH2607 FileError
the checkpoint {path} is damaged: {reason}; it was renamed to {place}
no action is needed: the claims are restored from the CDI specs
GH2608 HostError
the driver {driver} cannot serve claims: {reason}
check the driver of the GPUs with gpuhook doctor
GH2609 UsageError
the DRA driver cannot start: {reason}
{hint}
GH2610 HostError
device {device} cannot be in a ResourceSlice: {reason}
the other devices are published; report the device with `gpuhook support-bundle`
GH2611 HostError
the API server (Kubernetes {version}) does not serve ResourceSlices, resource.k8s.io
use Kubernetes 1.34 or newer; 1.32 and 1.33 need the feature gate DynamicResourceAllocation and --runtime-config=resource.k8s.io/v1beta1=true
GH2612 HostError
another program writes the ResourceSlices of {driver} on {node}: the driver now writes them each 10 minutes only
remove the other driver of this name from the node: `kubectl get pods -A -o wide`
GH2620 FileError
claim {claim}: {problems}
{hint}
GH2621 RefusedError
claim {claim} cannot share {device}: {what} would be {value}, and claim {other} uses {held}
give both claims the same parameters, set them in the device class only, or use another GPU
GH2622 HostError
claim {claim}: nothing on this node enforces the memory limit of {limit} on {device}: {reason}
{hint}
GH2623 HostError
claim {claim}: the {what} of {device} is not set: {reason}
{hint}
GH2624 HostError
the status of claim {claim} is not written: {reason}
grant the driver's service account the permissions of https://github.com/gpuhook/gpuhook/blob/main/docs/dra.md; claims work without them
GH2625 RefusedError
claim {claim} cannot have {device}: its claims would have {used} of {total} {what}: {others}
wait until the pods of the other claims have ended, or delete them
GH2630 FileError
{path} has no DeviceClass
write the classes of the cluster to it: kubectl get deviceclasses -o yaml
GH2631 FileError
{path} has no claim, template, device class or pod; it has {kinds}
pass manifests with ResourceClaim, ResourceClaimTemplate, DeviceClass or pods
GH2640 RefusedError
claim {claim} cannot have {device}: {holder} has it from the device plugin ({unit})
delete that pod, or exclude the GPU from the device plugin or the DRA driver: gpuhook.excludeDevices
GH2641 HostError
cannot read which GPUs a device plugin has assigned: {reason}
mount the kubelet's directories pod-resources and device-plugins into the driver's pod
GH2642 RefusedError
{id} of {resource} cannot be assigned: claim {claim} has the GPU
delete the pod with the claim, or exclude the GPU from the device plugin or the DRA driver: gpuhook.excludeDevices
GH2643 RefusedError
pods still use claims of this node ({claims}): {pods}
drain the node with kubectl, or pass --force to end the claims although the pods run
GH2644 RefusedError
the kubelet still has {claims} after {seconds} seconds
run the command again: the kubelet retries each minute
GH2645 FileError
cannot read the claims of the kubelet in {path}: {reason}
run the command as root, with the kubelet's --root-dir as --kubelet-root
GH2646 RefusedError
claim {claim} is not prepared: the node is being drained of the driver {driver}
start the driver again, or delete the pod
GH2700 HostError
there is no NRI socket at {path}
enable NRI (gpuhook configure containerd --route nri), or name the socket with --socket
GH2701 HostError
cannot connect to the NRI socket {path}: {reason}
run this command as root on the node, and name the runtime's socket with --socket
GH2702 RefusedError
another gpuhook nri uses the socket {path}: it has the lock {lock}
stop the other instance first
GH2703 HostError
{runtime} cannot give GPUs by NRI: {reason}
use the runtime wrapper, the hook or CDI with this engine
GH2705 HostError
NRI cannot set {what}: the container starts without it
use a runtime that applies CDI names (containerd 2.1, CRI-O 1.34), or gpuhook-runtime
GH2706 HostError
the container could not get its GPUs within {seconds} seconds
the kubelet tries again; if the error remains, check the log of gpuhook nri and the driver
GH2707 HostError
container {container} of pod {pod} requests a GPU and has started without one
delete the pod, so that its controller creates another one
GH2708 FileError
cannot read the runtime's description of a container: {reason}
report this with the version of the runtime
GH2710 HostError
cannot read which devices the kubelet assigned, in {path}: {reason}
the NRI plugin needs the kubelet's directory of device plugins; if the file is damaged, restart the kubelet
GH2711 RequestError
{where} requests {name}, which is not a CDI device name
write VENDOR/CLASS=NAME, such as nvidia.com/gpu=0; `gpuhook cdi list` prints the names of this node
GH2712 RequestError
the annotation {key} is unknown
use {prefix}/container.NAME for one container, or {prefix}/pod for all containers of the pod
GH2713 HostError
{engine} {version} has no NRI with plugins that connect: it needs {needed} or later
upgrade {engine}, or use another integration: `gpuhook configure {engine}`
GH2714 RefusedError
{where} is generated by {distribution}, and gpuhook does not enable NRI in it
add this to the template of {distribution}, and restart it: {lines}
"""
