# SPDX-License-Identifier: Apache-2.0
"""Faults GH16xx at length: cause, cure, example."""

from __future__ import annotations

EXPLANATIONS: dict[str, tuple[str, str, str]] = {
    "GH1600": (
        (
            "The loader cache of the image is broken, so that the driver's libraries cannot be "
            "entered beside what is there. The file is from the image: cut short while it was "
            "built, or made by somebody who tries what happens."
        ),
        (
            "Run ldconfig in the image, or delete the file there: without one the driver's "
            "libraries are entered alone."
        ),
        """
RUN ldconfig          # in the Dockerfile, as the last step
""",
    ),
    "GH1601": (
        (
            "The image's loader cache is larger than any that ldconfig writes. Sizes of what is "
            "read from an image are bounded."
        ),
        "Run ldconfig in the image, or delete the file there.",
        """
$ ls -l rootfs/etc/ld.so.cache
""",
    ),
    "GH1602": (
        (
            "Loader caches mark each library with its machine, and this machine's mark is not "
            "known to gpuhook."
        ),
        (
            "Run on one of the machines that the hint names; an image for another machine than "
            "the node's cannot use its driver anyway."
        ),
        """
$ uname -m
""",
    ),
    "GH1603": (
        (
            "An image with musl lists the loader's directories in /etc/ld-musl-*.path, and this "
            "one's is longer than such a list can be."
        ),
        "Shorten the file in the image, or delete it: musl has defaults.",
        """
$ cat rootfs/etc/ld-musl-x86_64.path
/lib:/usr/local/lib:/usr/lib
""",
    ),
    "GH1604": (
        (
            "The directory of the driver's libraries has a character that the loader's files "
            "cannot express: white space, `#`, `=`, a colon, or it is not absolute."
        ),
        "Install the driver below a plain absolute path, and generate the spec anew.",
        """
$ gpuhook generate-cdi --driver-root /run/nvidia/driver --output /var/run/cdi/nvidia.yaml
""",
    ),
    "GH1640": (
        (
            "The arguments of the hook are not what this gpuhook writes into a spec: the spec "
            "is of another release, or was edited."
        ),
        "Generate the spec anew, with the installed release.",
        """
$ gpuhook --version
$ gpuhook generate-cdi --output /var/run/cdi/nvidia.yaml
""",
    ),
    "GH1641": (
        (
            "An optional change could not be made in this container: its image has a directory "
            "at the path of a file, or its forward-compatibility libraries cannot be read. The "
            "container runs without that change."
        ),
        "See to what the message names, where the container misses it.",
        """
gpuhook-runtime: warning GH1641: left out: /usr/lib/libcuda.so: the image has a directory there
""",
    ),
    "GH1642": (
        (
            "A runtime gives a hook the container's state as JSON on standard input; what came "
            "was empty, no JSON, or without a pid."
        ),
        "Register the hook with an engine or runtime; by hand, pipe the state into it.",
        """
$ runc state ID | gpuhook-hook prestart --dry-run
""",
    ),
    "GH1643": (
        (
            "The prestart hook gives GPUs to a container that exists and has not started its "
            "program: it was called earlier or later than that."
        ),
        "Register it for prestart or createRuntime.",
        """
"hooks": {"createRuntime": [{"path": "/usr/bin/gpuhook-hook",
                             "args": ["gpuhook-hook", "prestart"]}]}
""",
    ),
    "GH1644": (
        (
            "The engine's entry for the hook has an argument after `prestart` that it does not "
            "know: a file of another release, or one written for NVIDIA's hook."
        ),
        "Take the argument out of the entry.",
        """
$ cat /usr/share/containers/oci/hooks.d/*.json
"args": ["gpuhook-hook", "prestart"]
""",
    ),
    "GH1645": (
        (
            "The hook that limits memory was called with arguments that gpuhook-runtime does "
            "not write, or of another release than its own."
        ),
        "Reinstall, so that runtime and hook are of one release, and create the container anew.",
        """
$ apt-get install ./gpuhook-runtime_*.deb      # or, from a checkout: make install
""",
    ),
    "GH1646": (
        (
            "A container is to have a memory limit. The hook that sets it is looked for beside "
            "gpuhook-runtime and in the usual directories, and is in none of them."
        ),
        "Reinstall, or link gpuhook-hook into one of the directories.",
        """
$ ln -s /opt/gpuhook/bin/gpuhook-hook /usr/local/bin/gpuhook-hook
""",
    ),
    "GH1647": (
        (
            "The driver does not hold the memory limit of this container, for the reason in the "
            "message, and limits.onFailure lets it start all the same. Nothing but the device "
            "plugin's guard, where it runs, keeps its use down."
        ),
        "See the reason; where no limit may be missing, set limits.onFailure to refuse.",
        """
# /etc/gpuhook/config.yaml
limits:
  onFailure: refuse
""",
    ),
    "GH1648": (
        (
            "The container has narrowed its limit itself, by NVIDIA_GPU_MEMORY_LIMIT, and the "
            "driver does not take that number. What it was granted holds."
        ),
        "Give a number that the driver takes, or leave the variable out.",
        """
$ gpuhook limits show CONTAINER
""",
    ),
    "GH1690": (
        (
            "The system refused something that the hook needs; the message has the path and the "
            "system's reason. The container was given a GPU and cannot have it, so it does not "
            "start."
        ),
        "See to that path, and start the container again.",
        """
gpuhook-hook: error GH1690: /proc/4711/ns/mnt: Permission denied
""",
    ),
    "GH1691": (
        (
            "The hook met something that nobody foresaw. The container was to get GPUs, so it "
            "does not start."
        ),
        "Report the line, with the container's config.json.",
        """
gpuhook-hook: error GH1691: an error of gpuhook's own, KeyError: 'root'
""",
    ),
}
