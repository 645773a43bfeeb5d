# SPDX-License-Identifier: Apache-2.0
"""The texts of faults GH17xx: live containers.

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
        (
            "run as root on the host; a pod needs hostPID, CAP_SYS_PTRACE, and for the container's"
            " files CAP_SYS_ADMIN and CAP_SYS_CHROOT"
        ),
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
    "GH1747": (
        RefusedError,
        "the root directory of process {pid} is not the root of the container's mount namespace",
        (
            "restart the container, and let a child process, not its first one, call chroot(2) or"
            " mount something over the root"
        ),
    ),
    "GH1748": (
        RefusedError,
        "process {pid} has made a user namespace that its container's config.json does not have",
        "restart the container, and let a child process, not its first one, make the namespace",
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
        "the file systems of {container} did not answer for {seconds} seconds{left}",
        (
            "look for FUSE and NFS in its /proc/PID/mountinfo: a process that is left behind ends"
            " when the server of that mount answers or ends"
        ),
    ),
    "GH1761": (
        HostError,
        "the process that worked on {container} gave no answer: {reason}",
        "run the command again; if it was killed, look for an OOM kill in dmesg",
    ),
    "GH1762": (
        HostError,
        "{container} was not looked at: its {fstype} mount at {path} may never answer",
        "look at it alone: `gpuhook repair {container}` waits for the mount, for a limited time",
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
    "GH1780": (
        RequestError,
        "{container} has no GPU whose memory could be limited",
        "`gpuhook attach` gives it one; `gpuhook inspect {container}` shows what it has",
    ),
    "GH1781": (
        RequestError,
        "{name} is no GPU of {container}; it has {gpus}",
        "name one of these by its index or UUID, or leave --gpu out for all of them",
    ),
    "GH1782": (
        RequestError,
        "{limit} is more than {gpu} has: {whole}",
        "give less; `gpuhook limits clear` takes a limit away",
    ),
    "GH1783": (
        RequestError,
        "{gpu} of {container} is a MIG instance, or divided into some: no limit can be set on it",
        "an instance has the memory of its profile; name other GPUs of the container with --gpu",
    ),
    "GH1784": (
        RefusedError,
        "memory limits are the host's root's: user {user} can set and clear none",
        "run it as root on the host; `gpuhook limits show` shows what the ledger has",
    ),
    "GH1785": (
        DriverError,
        "the memory of {container} on {gpu}: the ledger has {noted}, and the driver holds {held}",
        "run `gpuhook repair {container}`: the ledger's holds again; the processes go on",
    ),
    "GH1786": (
        DriverError,
        "the memory of {container} on {gpu} is not bounded by the driver, with {limit}: {reason}",
        (
            "mend that and run `gpuhook repair {container}`; where no device plugin's guard runs, "
            "nobody watches it until then"
        ),
    ),
    "GH1787": (
        HostError,
        "this node has cgroup v1, and the driver limits the memory of v2's cgroups only",
        (
            "boot with the kernel parameter systemd.unified_cgroup_hierarchy=1;"
            " `gpuhook limits clear --all` lifts in the ledger what nobody holds"
        ),
    ),
}
