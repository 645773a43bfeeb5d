# SPDX-License-Identifier: Apache-2.0
"""Faults GH17xx at length: cause, cure, example."""

from __future__ import annotations

EXPLANATIONS: dict[str, tuple[str, str, str]] = {
    "GH1701": (
        (
            "On cgroup v2 a program in the kernel decides which devices a container may open. "
            "To change it, gpuhook reads it back, and this kernel hides its instructions "
            "(kernel.kptr_restrict or net.core.bpf_jit_harden is 2), while nothing else tells "
            "its rules."
        ),
        "Loosen the sysctl for the moment, or start the container anew with the device.",
        """
$ sysctl -w net.core.bpf_jit_harden=1
$ gpuhook attach trainer --device 1
$ sysctl -w net.core.bpf_jit_harden=2
""",
    ),
    "GH1702": (
        (
            "The container's own cgroup was changed, and the device still cannot be opened: a "
            "cgroup above it, such as a slice with DeviceAllow=, denies it. What was done is "
            "undone."
        ),
        "See to the unit that the message leads to.",
        """
$ systemctl show machine.slice -p DeviceAllow -p DevicePolicy
""",
    ),
    "GH1703": (
        (
            "While the device program of a container was being replaced, somebody else replaced "
            "it, again and again."
        ),
        "Find who: a loop of daemon-reload, or another tool that hands out devices.",
        """
$ journalctl -f | grep -i reloading
""",
    ),
    "GH1704": (
        (
            "The device cannot be denied alone, since the container's rules allow a whole class "
            "of devices (privileged containers may open all)."
        ),
        "Start the container anew with narrower rules.",
        """
$ podman inspect --format '{{.HostConfig.Privileged}}' trainer
true
""",
    ),
    "GH1730": (
        (
            "No process has that pid: the container has ended, or the pid is one inside of a "
            "container, not the host's."
        ),
        "Name the container by its id, or by a pid as the host sees it.",
        """
$ crictl inspect --output go-template --template '{{.info.pid}}' ID
""",
    ),
    "GH1731": (
        (
            "The container ended, and its pid belongs to another process by now. Nothing was "
            "changed in that one."
        ),
        "See whether the container runs again.",
        """
$ gpuhook ps
""",
    ),
    "GH1732": (
        "The container ended while it was being looked at or changed.",
        "Start it again: what it is granted comes with it, what was attached later does not.",
        """
$ crictl ps -a | head
""",
    ),
    "GH1733": (
        "The system does not let this user look at the container's process.",
        (
            "Run as root on the host; a debug pod needs hostPID, SYS_PTRACE, SYS_ADMIN and "
            "SYS_CHROOT."
        ),
        """
$ kubectl debug node/gpu-1 -it --image=gpuhook --profile=sysadmin -- gpuhook inspect trainer
""",
    ),
    "GH1734": (
        (
            "The container has a user namespace in which no id is 0, so nobody in it can own "
            "what is made there."
        ),
        "Map 0 in both mappings of the container.",
        """
"uidMappings": [{"containerID": 0, "hostID": 100000, "size": 65536}]
""",
    ),
    "GH1735": (
        (
            "No container of that name or id is in any place where runtimes keep their state, "
            "and no process has that pid."
        ),
        "Take a name that the hint offers, or say where the runtime keeps its state.",
        """
$ gpuhook inspect trainer --state-root /run/user/1000/crun
""",
    ),
    "GH1736": (
        "The name is the beginning of several ids, or of a pod with several containers.",
        "Name the one that is meant: its whole id, or namespace/pod/container.",
        """
$ gpuhook inspect ml/train-0/main
""",
    ),
    "GH1737": (
        "The pid is of a process of the host itself.",
        "Name a process that runs in a container.",
        """
$ readlink /proc/1/ns/mnt /proc/PID/ns/mnt      # alike: the host's
""",
    ),
    "GH1738": (
        "The container is there and has no process: it was stopped, or has ended.",
        "Start it.",
        """
$ podman start trainer && gpuhook inspect trainer
""",
    ),
    "GH1739": (
        (
            "The runtime's file on this container is cut short, empty, or of a form that is not "
            "known."
        ),
        "Name the container by the pid of one of its processes.",
        """
$ gpuhook inspect $(pgrep -f train.py)
""",
    ),
    "GH1740": (
        (
            "A running container lacks nodes, mounts or loader entries that it was granted: "
            "somebody removed them, or a start was interrupted."
        ),
        "Have them put back; nothing is restarted.",
        """
$ gpuhook repair trainer --dry-run
$ gpuhook repair trainer
""",
    ),
    "GH1741": (
        (
            "The driver was exchanged while this container ran: it has the files of the old "
            "one, with which no new CUDA program starts (`Driver/library version mismatch`)."
        ),
        "Restart the container.",
        """
$ gpuhook inspect trainer
Driver  580.95.05 on this node, 575.57.08 in the container
""",
    ),
    "GH1742": (
        (
            "Files of the driver that are mounted in the container were removed from the node: "
            "what runs goes on, what starts anew in it may fail."
        ),
        "Restart the container.",
        """
$ grep deleted /proc/PID/mountinfo
""",
    ),
    "GH1743": (
        (
            "The loader's cache or gpuhook's file beside it cannot be read in the container, so "
            "that nobody can tell whether its programs find the driver."
        ),
        "Look at these files in the container.",
        """
$ nsenter -t PID -m -r ldconfig -p | grep libcuda
""",
    ),
    "GH1744": (
        (
            "The nodes are in the container and its device cgroup denies them. `systemctl "
            "daemon-reload` does this to containers whose devices systemd was not told of: it "
            "sets each unit's rules anew. Programs that hold the device go on, new ones get "
            "`Failed to initialize NVML: Unknown Error`."
        ),
        (
            "Have the rules put back, and use a route on which the runtime knows the devices "
            "(gpuhook-runtime, or CDI)."
        ),
        """
$ gpuhook repair --all
""",
    ),
    "GH1745": (
        (
            "The container's variables ask for GPUs and it has none: its runtime was plain "
            "runc, since nobody chose the handler `nvidia` (runtimeClassName, --runtime, the "
            "default runtime)."
        ),
        "Start it with a runtime that gives GPUs, or give it one while it runs.",
        """
spec:
  runtimeClassName: nvidia
""",
    ),
    "GH1746": (
        (
            "A directory with containers' state may not be looked into by this user, and what "
            "is there would be missing from the answer."
        ),
        "Run as root.",
        """
$ sudo gpuhook repair --all
""",
    ),
    "GH1747": (
        (
            "gpuhook writes below the root directory of the container's mount namespace. The first "
            "process of this container has another root directory: it called chroot(2), or "
            "something was mounted over the root. Its files could be those of a volume that the "
            "container may only read, so gpuhook reads none of them and changes neither files nor "
            "device rules."
        ),
        (
            "Restart the container: it gets its GPUs before its first process runs. A main program "
            "that calls chroot(2) by itself can do so in a child process, with an init such as "
            "tini as the first process."
        ),
        """
$ gpuhook inspect trainer
Error GH1747: the root directory of process 5460 is not the root of the container's mount namespace
$ podman restart trainer
""",
    ),
    "GH1748": (
        (
            "The first process of this container called unshare(2) for a user namespace. In that "
            "namespace it can make a mount namespace whose root directory is a volume of the host. "
            "gpuhook would write there with the rights of the host's root, so it changes nothing."
        ),
        (
            "Restart the container: it gets its GPUs before its first process runs. A main program "
            "that makes a user namespace (a sandbox, a build tool) can do so in a child process, "
            "with an init such as tini as the first process. Or give the container a user "
            "namespace by its engine."
        ),
        """
$ gpuhook attach builder --device 0
Error GH1748: process 5460 has made a user namespace that its container's config.json does not have
$ podman restart builder
""",
    ),
    "GH1750": (
        (
            "Where a node or a file has to go in the container, there is something else, of the "
            "image or of a volume."
        ),
        "Remove it there.",
        """
$ ls -l /proc/PID/root/dev/nvidia0
""",
    ),
    "GH1751": (
        (
            "A change failed half-way, and not all that had been done before could be undone: "
            "the message has what is left."
        ),
        "Undo that by hand, or start the container again.",
        """
$ gpuhook inspect trainer
""",
    ),
    "GH1752": (
        "A node or a file that the container is to get is not on the host (any more).",
        "Generate the spec anew if the driver was upgraded, and repeat the command.",
        """
$ gpuhook generate-cdi --output /var/run/cdi/nvidia.yaml
""",
    ),
    "GH1753": (
        "Processes of the container hold the device that is to be taken away.",
        "End them, or let them keep what they have and refuse new ones with --force.",
        """
$ gpuhook detach trainer --device 1 --force
""",
    ),
    "GH1754": (
        (
            "Mounts below that path travel to the host or to other containers (shared "
            "propagation), so a driver file mounted there would appear in them too."
        ),
        "Mount the volume private or rslave.",
        """
$ podman run -v /data:/data:rslave ...
""",
    ),
    "GH1755": (
        (
            "A file that says what a container was granted belongs to another user, or may be "
            "written by others. Root acts on no such file."
        ),
        "Make it root's, writable by nobody else.",
        """
$ chown root:root config.json && chmod 0644 config.json
""",
    ),
    "GH1756": (
        "The container is of a rootless engine of another user.",
        "Run gpuhook as that user, in that engine's user namespace.",
        """
$ podman unshare gpuhook inspect trainer
""",
    ),
    "GH1757": (
        (
            "Only one gpuhook changes containers of a node at a time, and another one has not "
            "ended for half a minute."
        ),
        "Wait, or see who it is.",
        """
$ fuser -v /run/gpuhook/locks/*
""",
    ),
    "GH1758": (
        (
            "gpuhook met something that nobody foresaw while it changed a running container; "
            "what it had done was undone."
        ),
        "Report the line, with what `gpuhook inspect` says.",
        """
$ gpuhook --debug repair trainer
""",
    ),
    "GH1759": (
        (
            "The name means no device that this node's specs have any more; a GPU that fell off "
            "the bus is in none."
        ),
        "Name the node that the container has.",
        """
$ gpuhook detach trainer --device /dev/nvidia1
""",
    ),
    "GH1760": (
        (
            "gpuhook looks into a container in a child process, and the child hung in a file system"
            " of the container: FUSE or NFS whose server does not answer. SIGKILL does not end such"
            " a wait, so gpuhook leaves the child behind and names its pid. The child holds no lock"
            " and no open file of the caller."
        ),
        "Make the server of that mount answer, or end it: the child ends then.",
        """
$ grep -e fuse -e nfs /proc/PID/mountinfo
""",
    ),
    "GH1761": (
        (
            "The child process in which gpuhook works on a container ended without an answer: it"
            " was killed, most often for lack of memory. What it had begun is in the ledger."
        ),
        "Run the command again: it completes what was begun.",
        """
$ dmesg | grep -i "killed process"
""",
    ),
    "GH1762": (
        (
            "`gpuhook repair --all` and `gpuhook doctor` do not enter FUSE and NFS mounts of a"
            " container: a server that does not answer would cost each run a process. This one is"
            " over the driver's files, device nodes or loader files of the container."
        ),
        "Repair this container alone, or unmount what is over the driver's files.",
        """
$ gpuhook repair trainer
""",
    ),
    "GH1770": (
        (
            "`none` stands for the driver's files without a GPU, and this container has GPUs "
            "that need them."
        ),
        "Detach the GPUs; the files go with the last one.",
        """
$ gpuhook detach trainer --device all
""",
    ),
    "GH1771": (
        (
            "What is to be taken away can be told by the node's CDI specs alone, and these are "
            "broken or gone."
        ),
        "Mend the spec, or name the node.",
        """
$ gpuhook detach trainer --device /dev/nvidia1
""",
    ),
    "GH1772": (
        (
            "The config.json of a running container cannot be read as one, though it was "
            "started with it: somebody has changed it since."
        ),
        "Put it right, or start the container anew.",
        """
$ python3 -m json.tool config.json > /dev/null
""",
    ),
    "GH1780": (
        "A memory limit was asked for a container that has no GPU.",
        "Attach one first.",
        """
$ gpuhook attach trainer --device 0 && gpuhook limits set trainer --limit 4Gi
""",
    ),
    "GH1781": (
        "--gpu names a GPU that the container has not.",
        "Name one that it has, or leave --gpu out.",
        """
$ gpuhook limits show trainer
""",
    ),
    "GH1782": (
        "The limit is larger than the card: it would bound nothing.",
        "Give less, or clear the limit.",
        """
$ gpuhook limits set trainer --limit 8Gi
""",
    ),
    "GH1783": (
        "No limit can be set on a MIG instance, nor on a GPU that is divided into some.",
        "Choose the instance's profile by its memory.",
        """
$ nvidia-smi mig -lgip
""",
    ),
    "GH1784": (
        "Only the host's root may set and clear memory limits.",
        "Run it as root.",
        """
$ sudo gpuhook limits set trainer --limit 4Gi
""",
    ),
    "GH1785": (
        (
            "The driver holds another limit than the ledger has: the driver was loaded anew, or "
            "another program has set it."
        ),
        "Have the ledger's put back, and find who else sets limits.",
        """
$ gpuhook repair trainer
""",
    ),
    "GH1786": (
        "A container has a limit that the driver does not hold, for the reason in the message.",
        "Mend the reason, then repair the container.",
        """
$ gpuhook limits show
""",
    ),
    "GH1787": (
        "On cgroup v1 the driver can limit no container's memory.",
        "Boot with cgroup v2.",
        """
GRUB_CMDLINE_LINUX="systemd.unified_cgroup_hierarchy=1"
""",
    ),
}
