# SPDX-License-Identifier: Apache-2.0
"""Faults GH15xx at length: cause, cure, example."""

from __future__ import annotations

EXPLANATIONS: dict[str, tuple[str, str, str]] = {
    "GH1500": (
        "--inventory names a file that is not there, and no profile that ships with gpuhook.",
        "Dump a node with `gpuhook inventory -o yaml`, or take one of the profiles.",
        """
$ ssh gpu-node gpuhook inventory -o yaml > gpu-node.yaml
$ gpuhook generate-cdi --inventory gpu-node.yaml
""",
    ),
    "GH1501": (
        "The inventory is no YAML or JSON at the line that the message names.",
        "Correct that line, or dump the node again.",
        """
$ gpuhook inventory --inventory gpu-node.yaml
Error GH1501: gpu-node.yaml: line 7, column 3: ...
""",
    ),
    "GH1502": (
        (
            "The inventory is readable and says something that no node has: an unknown key, a "
            "number where a text stands, two GPUs of one index."
        ),
        "Compare it with a profile that ships.",
        """
$ gpuhook inventory --inventory t4 -o yaml > t4.yaml && diff t4.yaml gpu-node.yaml
""",
    ),
    "GH1510": (
        "--vendor or --class has a value that cannot be part of a CDI kind.",
        "Use letters, digits, `_`, `-` and `.`, a letter first, a letter or digit last.",
        """
$ gpuhook generate-cdi --vendor nvidia_com_      # GH1510
$ gpuhook generate-cdi --vendor nvidia.com
""",
    ),
    "GH1511": (
        "--device-id names something that this node has not.",
        "`gpuhook inventory` lists GPUs and MIG instances with all their names.",
        """
$ gpuhook generate-cdi --device-id 8       # GH1511 on a node with the GPUs 0 to 7
""",
    ),
    "GH1512": (
        (
            "--device-id names a GPU or an instance that is there and cannot be given to a "
            "container: it is lost, or lacks its capability nodes."
        ),
        ("Mend it (the message says what is wrong), or leave --device-id out: then it is skipped."),
        """
$ gpuhook generate-cdi --device-id 0:1
Error GH1512: --device-id 0:1 cannot be used: ...
$ gpuhook generate-cdi --create-device-nodes --output /var/run/cdi/nvidia.yaml
""",
    ),
    "GH1513": (
        (
            "The driver answers, and has no GPU that could be described: none is there, all are "
            "lost, or all are in MIG mode without an instance."
        ),
        "Look at what was found; make MIG instances, or reset the GPU.",
        """
$ gpuhook inventory
$ nvidia-smi mig -cgi 19,19 -C
""",
    ),
    "GH1514": (
        (
            "The file would be read by no engine: its name ends in neither .yaml nor .json, or "
            "not as its --format is, or it is a directory."
        ),
        "Name a file such as /var/run/cdi/nvidia.yaml.",
        """
$ gpuhook generate-cdi --output /var/run/cdi/nvidia.yml     # GH1514: engines read *.yaml
""",
    ),
    "GH1515": (
        (
            "The path of the hook goes into the spec, where an engine reads it in a working "
            "directory of its own."
        ),
        "Give the absolute path on the host.",
        """
$ gpuhook generate-cdi --hook-path /usr/local/bin/gpuhook-hook
""",
    ),
    "GH1516": (
        (
            "The path of ldconfig goes into the spec, where a hook reads it in a working "
            "directory of its own."
        ),
        "Give the absolute path on the host.",
        """
$ gpuhook generate-cdi --ldconfig-path /sbin/ldconfig
""",
    ),
    "GH1517": (
        (
            "The program that --ldconfig-path names is not there, is not executable, or is "
            "linked dynamically. The last would run the image's own loader, with the host's rights."
        ),
        (
            "Name the ldconfig of the C library (on Ubuntu, /sbin/ldconfig.real is meant by "
            "/sbin/ldconfig), or leave the option out."
        ),
        """
$ file -L /sbin/ldconfig          # "statically linked", or "static-pie linked"
""",
    ),
    "GH1518": (
        (
            "ldconfig ran in the container's root file system, shut in, and failed, was ended "
            "after 30 seconds, or could not be shut in; the message has its words. The container "
            "does not start: its loader would not find the driver."
        ),
        "Leave --ldconfig-path out and generate the spec anew.",
        """
$ gpuhook generate-cdi --output /var/run/cdi/nvidia.yaml
""",
    ),
    "GH1519": (
        (
            "Mode management describes the device nodes that are there; below this directory "
            "there is none of the driver's."
        ),
        "Load the driver, so that its nodes are made, or name the root whose /dev has them.",
        """
$ nvidia-smi
$ gpuhook generate-cdi --mode management --dev-root /
""",
    ),
    "GH1520": (
        "Two options of generate-cdi cannot be meant together; the message says why.",
        "Leave one of them out. Variables (GPUHOOK_*, NVIDIA_CTK_CDI_*) count as options.",
        """
$ gpuhook generate-cdi --hooks none --ldconfig-path /sbin/ldconfig     # GH1520
$ gpuhook generate-cdi --ldconfig-path /sbin/ldconfig
""",
    ),
    "GH1526": (
        (
            "One `gpuhook refresh` writes a node's specs at a time; the others wait for it, and "
            "find its work done. The one that is at work does not end: most often it waits for a "
            "driver that hangs."
        ),
        "Look what it waits for, and why the driver does not answer; end it, and call again.",
        """
$ fuser /run/gpuhook/refresh.lock
/run/gpuhook/refresh.lock:  4711
$ dmesg | grep NVRM
""",
    ),
    "GH1527": (
        (
            "`gpuhook refresh` writes a spec again as generate-cdi was called for it. That is "
            "noted below /run/gpuhook, and the note is gone, after a boot for example. The spec "
            "itself does not show whether it was limited to some GPUs or files on purpose, and "
            "what would be written now has others, so it is left as it is."
        ),
        (
            "Call generate-cdi with the options that the spec shall have, or `gpuhook refresh "
            "--force` for all GPUs and files. Specs in /var/run/cdi go with their notes."
        ),
        """
$ gpuhook refresh
/etc/cdi/nvidia.yaml: failed: boot: was 6f1c..., is 90ab...
Error GH1527: /etc/cdi/nvidia.yaml is stale, and nobody has noted how it was made: ...
$ gpuhook generate-cdi --device-id 0,1 --output /etc/cdi/nvidia.yaml
""",
    ),
    "GH1528": (
        (
            "The note of how a spec was made has an option that this version of generate-cdi "
            "does not know, or a value that it does not take: the note is of another version."
        ),
        "Call generate-cdi with the options of this version; that replaces the note too.",
        """
$ gpuhook generate-cdi --help
$ gpuhook generate-cdi --output /var/run/cdi/nvidia.yaml
""",
    ),
    "GH1529": (
        (
            "The node has no CDI spec, and `gpuhook refresh` would write its first one. In its "
            "place is a file that is none: half of one, or somebody's draft. It is left as it is."
        ),
        "Look at the file, remove or rename it, and call `gpuhook refresh` again.",
        """
$ gpuhook refresh
Error GH1529: /var/run/cdi/nvidia.yaml is there and cannot be read as a CDI spec, ...
$ rm /var/run/cdi/nvidia.yaml
$ gpuhook refresh
""",
    ),
    "GH1530": (
        (
            "The settings file is broken: an unknown key, a value of another type, no YAML. No "
            "container gets a GPU under settings that nobody can read; those without GPUs "
            "start."
        ),
        "Let `gpuhook config validate` name every mistake, with its line.",
        """
$ gpuhook config validate
/etc/gpuhook/config.yaml: line 3: request.onMissingDriver: ...
""",
    ),
    "GH1531": (
        (
            "The settings are read by their compiled form, which cannot be written: the state "
            "directory is read-only, full, or somebody else's."
        ),
        "Make the directory writable for root.",
        """
$ ls -ld /run/gpuhook /run/gpuhook/compiled
$ chown root:root /run/gpuhook && chmod 0755 /run/gpuhook
""",
    ),
    "GH1532": (
        "`gpuhook config validate` found a mistake in the file that it was given.",
        "Correct it; the message has the key or the line.",
        """
$ gpuhook config validate /tmp/config.yaml
""",
    ),
    "GH1533": (
        (
            "A setting in the environment, GPUHOOK_<SECTION>_<KEY>, has a value that the setting "
            "cannot have. What an environment says wins over the file, so that no policy is known."
        ),
        (
            "Correct or unset the variable. The wrapper sees the environment of the container "
            "engine: look at its unit (`systemctl show containerd -p Environment`)."
        ),
        """
$ GPUHOOK_REQUEST_ON_REFUSAL=never gpuhook config show
Error GH1533: GPUHOOK_REQUEST_ON_REFUSAL=never: it must be ignore or fail
""",
    ),
    "GH1534": (
        (
            "`gpuhook config import` was given a file that is not there, or is no TOML; the "
            "message has the line."
        ),
        "Name the file of NVIDIA's toolkit, or correct the line.",
        """
$ gpuhook config import /etc/nvidia-container-runtime/config.toml > /tmp/config.yaml
""",
    ),
    "GH1535": (
        (
            "Something else is where a device node or a link of the driver should be: a node of "
            "other numbers, a file, a directory, a link that leads elsewhere. Nothing was removed."
        ),
        (
            "Look at what it is. `--replace` puts the right one in its place; a directory is "
            "never removed."
        ),
        """
$ gpuhook system create-device-nodes
Error GH1535: /dev/nvidia-uvm: it is the character device 510:0, and should be 508:0
$ gpuhook system create-device-nodes --replace
""",
    ),
    "GH1536": (
        (
            "modprobe is not installed, or did not load a kernel module of the driver; the message "
            "has what it said."
        ),
        (
            "Install the driver's modules for the kernel that runs, or have DKMS build them; where "
            "Secure Boot is on they need a signature that the machine trusts."
        ),
        """
$ gpuhook system load-kernel-modules
Error GH1536: nvidia: the kernel module cannot be loaded: modprobe: FATAL: Module nvidia not found
$ dkms autoinstall && gpuhook system load-kernel-modules
""",
    ),
    "GH1590": (
        (
            "The system refused something that the command needs; the message has the path and "
            "the system's reason."
        ),
        "See to that path, and call again. Most commands that look at containers need root.",
        """
Error GH1590: /proc/1/root: Permission denied
""",
    ),
    "GH1591": (
        (
            "What the command printed could not be written: the disk behind the redirection is "
            "full, or the terminal is gone. What was to be changed may be done."
        ),
        "See to where the output goes; `gpuhook inspect` shows the container as it is now.",
        """
$ gpuhook attach trainer --device 1 > /full/out
Error GH1591: standard output: No space left on device
""",
    ),
    "GH1592": (
        (
            "The state directory cannot be used: it is no directory, or you may not write in "
            "it. A user who is not root has one of their own below XDG_RUNTIME_DIR."
        ),
        "Run as root, or name a directory of yours.",
        """
$ GPUHOOK_STATE_DIR=$HOME/gpuhook-state gpuhook generate-cdi --output nvidia.yaml
""",
    ),
    "GH1593": (
        (
            "A command met something that nobody foresaw. What it had begun may be half done "
            "where it changes something; `gpuhook inspect` shows a container as it is."
        ),
        "Report the line. `gpuhook support-bundle` collects what is needed to find the cause.",
        """
$ gpuhook --debug inventory
""",
    ),
}
