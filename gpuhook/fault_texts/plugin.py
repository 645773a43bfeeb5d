# SPDX-License-Identifier: Apache-2.0
"""The texts of faults GH18xx: the device plugin.

Loaded only where something is wrong.
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

TEXTS: dict[str, tuple[type[GpuhookError], str, str]] = {
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
        "the device plugin needs the package {package}, which is not installed",
        "install the package gpuhook-device-plugin, or by pip: pip install 'gpuhook[plugin]'",
    ),
    "GH1806": (
        HostError,
        "this process cannot be called {name}: {reason}",
        "choose a name of at most {most} bytes, or start it without --process-name",
    ),
    "GH1807": (
        HostError,
        "{name} of {known} applies: the pod has no token to read the node's label {label}",
        (
            "allow the service account to get and watch nodes, and mount its token; in the chart's "
            "values: apiAccess.nodeConfig: true"
        ),
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
    "GH1836": (
        FileError,
        "{resource} is to have the interposer {name}, which gpuhook.interposers has not got",
        "name one that is there, or add it",
    ),
    "GH1837": (
        HostError,
        "no container of {resource} can start with the interposer {name}: the host has no {path}",
        "install the interposer on the node, or take `interposer` away; it is looked for again",
    ),
    "GH1838": (
        RequestError,
        "{count} devices of {resource} in a container: each has its own {key} of interposer {name}",
        "ask for one device, or leave the placeholder away that is different",
    ),
    "GH1839": (
        FileError,
        "the interposer {name} of {resource} says {placeholder}, and {uuid} has no limit of memory",
        "set `memory` in the entry of the resource, or leave {placeholder} away",
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
    "GH1847": (
        FileError,
        "{entry}: {resource}: {reason}",
        "{hint}",
    ),
    "GH1848": (
        FileError,
        "{entry}: {resource} cannot be offered in memory units: {reason}",
        "set `unit` of its entries in sharing.memoryUnits, GiB for instance",
    ),
    "GH1849": (
        RequestError,
        "{size} units of {resource} ({memory}) are wanted of one GPU, and {most} at most are free",
        "ask for less, or wait until other containers have ended: a request is never split",
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
    "GH1859": (
        RequestError,
        "{count} units of {resource} are of {devices}, and a container's memory is of one GPU",
        "create the pod anew: its init containers had units elsewhere, or the kubelet chose alone",
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
        "{resource} is shared by MPS with unequal {kind}: {told}",
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
        (
            "setting it needs root and CAP_SYS_ADMIN: run the plugin's container privileged; in "
            "the chart's values: features.mps or features.timeSlices"
        ),
    ),
    "GH1878": (
        HostError,
        "{resource} is shared by MPS, and its directory {path} cannot be written: {reason}",
        (
            "mount it from the host into the plugin's container, and run that privileged: the "
            "chart does so with sharing.mps in its values, or with features.mps: true"
        ),
    ),
    # GH1880 to GH1884: time slices, compute modes.
    "GH1880": (
        HostError,
        "no {kind} is set, as what a GPU had before cannot be noted in {path}: {reason}",
        "the state directory must be writable: mount /run/gpuhook into the plugin's container",
    ),
    "GH1881": (
        DriverError,
        "the {kind} of {uuid} stays {ours} and is not {before} again, as before: {reason}",
        "it is tried again at each look at the node; a reboot puts it back, too",
    ),
    "GH1882": (
        FileError,
        "{resource}: {key} is nothing for {uuid}, an instance: a GPU in MIG mode has none to set",
        "name other devices in the entry, or take {key} away",
    ),
    "GH1883": (
        FileError,
        "{resource}: computeMode is nothing for {uuid}: the daemon of MPS sets the mode",
        "take computeMode away from the entries of sharing.mps",
    ),
    # GH1885 to GH1889: the guard.
    "GH1885": (
        HostError,
        "memory limits that no driver holds are not watched: {reason}",
        "run the plugin's pod with hostPID: the driver tells the pids of the host",
    ),
    "GH1886": (
        HostError,
        "process {pid}, which is to end for its container's memory limit, gets no signal: {reason}",
        (
            "give the plugin's container the capability KILL, on Linux 5.3 or later; in the "
            "chart's values: features.guard: true"
        ),
    ),
    "GH1887": (
        HostError,
        "the driver has not told for {seconds} seconds who uses its GPUs: no limit is watched",
        "see with `nvidia-smi` whether it answers; it is not asked again before it does",
    ),
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
