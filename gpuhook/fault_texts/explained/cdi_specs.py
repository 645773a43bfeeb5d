# SPDX-License-Identifier: Apache-2.0
"""Faults GH11xx at length: cause, cure, example."""

from __future__ import annotations

EXPLANATIONS: dict[str, tuple[str, str, str]] = {
    "GH1101": (
        (
            "The name is not a qualified CDI name, which is required here: it lacks the vendor, "
            "the class or the device, or has characters that CDI does not allow. If a container "
            "requests the name, the message begins with the variable, annotation or mount that it "
            "is from, and lists the devices of the node."
        ),
        (
            "Write vendor/class=device, or in a request a name of docs/requests.md, and separate "
            "devices by commas. `gpuhook cdi list` prints every name that works on this node."
        ),
        """
nvidia.com=0                     # GH1101
nvidia.com/gpu=0
NVIDIA_VISIBLE_DEVICES=0;1       # GH1101
NVIDIA_VISIBLE_DEVICES=0,1
""",
    ),
    "GH1102": (
        (
            "There are specs of that kind, and none describes a device of that name. The GPU "
            "was added after the spec was written, it is called otherwise there (by index "
            "alone, or by UUID alone), or the spec that has it is broken: then the message says "
            "so."
        ),
        (
            "Compare with `gpuhook cdi list`. Where the GPU is new, `gpuhook refresh` writes the "
            "spec again as it was written before; a spec that gpuhook did not write stays "
            "to whoever did."
        ),
        """
$ podman run --device nvidia.com/gpu=4 ...
Error GH1102: nvidia.com/gpu=4: no such device; /var/run/cdi/nvidia.yaml has 0, 1, 2, 3, all
$ gpuhook refresh
$ gpuhook explain --env NVIDIA_VISIBLE_DEVICES=0-3     # which devices a request means
""",
    ),
    "GH1103": (
        (
            "Two files of the same directory describe a device of the same name. CDI says that "
            "neither counts then, so engines call the device unresolvable without a reason. "
            "Typical: one spec by nvidia-ctk and one by gpuhook, or an old one that was renamed "
            "for a backup and still ends in .yaml."
        ),
        "Remove one of the two, or give it a name that ends in neither .yaml nor .json.",
        """
$ ls /var/run/cdi
nvidia.yaml  nvidia-old.yaml
$ mv /var/run/cdi/nvidia-old.yaml /root/nvidia-old.yaml.bak
""",
    ),
    "GH1104": (
        (
            "No spec file of that kind is in any directory in which specs are looked for. On "
            "many nodes the spec lies in /var/run/cdi, which is empty after each boot until "
            "somebody writes it."
        ),
        (
            "Write it, now and at each boot: `gpuhook refresh` writes the GPUs' where there is "
            "none, `gpuhook generate-cdi --mode` those of other kinds. Where it was written to "
            "another directory, name that in cdi.specDirs. If the message names a broken file, "
            "restore or remove that file first. If it names the fault of `gpuhook refresh`, see "
            "the page of that code."
        ),
        """
$ gpuhook refresh
$ gpuhook cdi list
""",
    ),
    "GH1105": (
        (
            "The runtime wrapper reads a YAML spec by its compiled form, and that cannot be "
            "written: the state directory is read-only, full, or somebody else's."
        ),
        "Make the directory writable for root. A spec in JSON needs no compiled form.",
        """
$ gpuhook generate-cdi --output /var/run/cdi/nvidia.json
""",
    ),
    "GH1106": (
        (
            "A spec breaks a rule of CDI; the message has the place as a JSON pointer, such as "
            "/devices/3/containerEdits/mounts/0, and the rule."
        ),
        (
            "Correct that place, or have the vendor's tool write the file anew. The other files "
            "of the directory count meanwhile."
        ),
        """
$ gpuhook cdi validate /etc/cdi/vendor.yaml
/etc/cdi/vendor.yaml: GH1106: /devices/0/name: ...
""",
    ),
    "GH1107": (
        (
            "The spec declares a version of CDI that did not exist when this gpuhook was made: "
            "what it means cannot be known."
        ),
        "Have the file written in an older version, or install a newer gpuhook.",
        """
cdiVersion: 2.0.0      # GH1107
cdiVersion: 0.5.0      # what most engines read
""",
    ),
    "GH1108": (
        (
            "The spec uses something that its own cdiVersion does not have yet. Engines that "
            "check this refuse the file, others ignore the part: both end in a container that "
            "lacks something."
        ),
        "Raise cdiVersion to the version that the message names.",
        """
cdiVersion: 0.5.0
containerEdits:
  additionalGids: [44]     # GH1108: needs 0.7.0
""",
    ),
    "GH1109": (
        (
            "The text is no YAML or no JSON: a tab, a cut line, a merge conflict's marks; or it "
            "is too large or too deeply nested to be a spec."
        ),
        "See the line that the message names, or generate the file anew.",
        """
$ gpuhook cdi validate /etc/cdi/nvidia.yaml
/etc/cdi/nvidia.yaml: GH1109: line 12, column 1: ...
""",
    ),
    "GH1110": (
        (
            "The file is there and cannot be read: it is a directory, a socket, larger than 64 "
            "MiB, or on a file system that has gone away."
        ),
        "Make it a regular file that root can read, or remove it.",
        """
$ stat /etc/cdi/nvidia.yaml
$ rm -r /etc/cdi/nvidia.yaml      # a directory, made by a mount whose source was not there
""",
    ),
    "GH1111": (
        (
            "The new spec could not be written. Files are replaced as a whole, so an older spec "
            "of that name is as it was."
        ),
        (
            "Make room, or name a path on a file system that is writable: /var/run/cdi is so on "
            "hosts whose /etc is not."
        ),
        """
$ gpuhook generate-cdi --output /etc/cdi/nvidia.yaml
Error GH1111: /etc/cdi/nvidia.yaml: the CDI spec cannot be written: Read-only file system
$ gpuhook generate-cdi --output /var/run/cdi/nvidia.yaml
""",
    ),
    "GH1112": (
        (
            "A command takes a spec file or a CDI device, and what it was given is neither: there "
            "is no such file, and it has no vendor, class and device."
        ),
        "`gpuhook cdi list` prints the devices of this node, and the files that describe them.",
        """
$ gpuhook cdi show /etc/cdi/nvidia
Error GH1112: /etc/cdi/nvidia is neither a spec file that is there nor a CDI device name
$ gpuhook cdi show nvidia.com/gpu=0
""",
    ),
    "GH1120": (
        (
            "The spec was written for another boot, driver, set of GPUs, MIG layout or driver "
            "tree than this host has now: the message says which, was and is. With such a spec a "
            "container would get libraries that are gone or a device of another number, so it is "
            "refused. The runtime wrapper, the prestart hook and `gpuhook attach` write the spec "
            "again themselves first (cdi.onStale: refresh); where you see this, they may not, or "
            "could not, or the container's engine applies the spec by itself."
        ),
        (
            "Run `gpuhook refresh`, and see to it that this happens after each driver upgrade, "
            "MIG change and boot."
        ),
        """
... the CDI spec describes another state of this host (driver: was 575.57.08, is 580.95.05)
$ gpuhook refresh
/var/run/cdi/nvidia.yaml: written: driver: was 575.57.08, is 580.95.05
""",
    ),
    "GH1121": (
        (
            "`generate-cdi --mode proc` takes the GPUs from the kernel module's files, and the "
            "module is not loaded, or its files are elsewhere."
        ),
        "Load the module; in a container, name where the host's /proc is with --host-root.",
        """
$ gpuhook generate-cdi --mode proc
Error GH1121: the nvidia kernel module is not loaded: / has no /proc/driver/nvidia/version
$ modprobe nvidia
""",
    ),
    "GH1122": (
        (
            "`gpuhook doctor --fix` ran `gpuhook refresh`, which failed or took too long. A "
            "container that needs a new spec is refused with the same reason in its own error."
        ),
        "Run `gpuhook refresh` by hand: it prints what is wrong, and what to do.",
        """
$ gpuhook refresh
/var/run/cdi/nvidia.yaml: failed: driver: was 575.57.08, is 580.95.05
Error GH1203: /usr/lib64/libnvidia-ml.so.575.57.08 is of driver 575.57.08, but ...
""",
    ),
    "GH1123": (
        (
            "The GPU was taken away, or the MIG instance destroyed, while the container ran. It "
            "keeps its device nodes: they open nothing, or, of MIG, the instance that has their "
            "number next. The driver does not let an instance go that a process uses, so its "
            "programs had ended, or had not begun."
        ),
        (
            "Restart the container, or take the nodes away with `gpuhook detach` and give it "
            "another GPU with `gpuhook attach`."
        ),
        """
$ gpuhook inspect trainer
...
GH1123: trainer was given /dev/nvidia3, whose GPU or MIG instance this node has no more
""",
    ),
}
