# SPDX-License-Identifier: Apache-2.0
"""Faults GH14xx at length: cause, cure, example."""

from __future__ import annotations

EXPLANATIONS: dict[str, tuple[str, str, str]] = {
    "GH1401": (
        (
            "gpuhook-runtime edits config.json and leaves the container to runc or crun; "
            "neither is in PATH as the engine passes it, nor in the usual directories. A "
            "program that is gpuhook-runtime itself under another name does not count."
        ),
        "Install one, or name it with its path in runtime.lowLevelRuntimes.",
        """
# /etc/gpuhook/config.yaml
runtime:
  lowLevelRuntimes: [/opt/runc/bin/runc]
""",
    ),
    "GH1402": (
        (
            "A YAML file is read by its compiled form, which only the package's command can "
            "make, and there is no `gpuhook` beside gpuhook-runtime or in the usual "
            "directories: the runtime alone was installed."
        ),
        (
            "Install the whole package, or write the file as JSON, which the runtime reads by "
            "itself."
        ),
        """
$ gpuhook generate-cdi --output /var/run/cdi/nvidia.json    # on a node that has the command
""",
    ),
    "GH1403": (
        (
            "The command that compiles a YAML file failed or ended without a result: its "
            "interpreter lacks a package, or the state directory is not writable."
        ),
        "Read the reason at the end of the message; run the command to see its whole output.",
        """
$ gpuhook cdi compile /etc/cdi/nvidia.yaml
ModuleNotFoundError: No module named 'yaml'
""",
    ),
    "GH1404": (
        (
            "The interpreter that gpuhook-runtime is installed for does not start, or cannot "
            "load the package: Python was removed or replaced by another version, or files of "
            "the installation are gone. The message names the module that is missing, or the exit "
            "status of Python. A container that names no GPU starts all the same."
        ),
        "Install gpuhook-runtime again, for an interpreter that is there.",
        """
$ head -12 /usr/local/bin/gpuhook-runtime | grep python
$ apt-get install --reinstall ./gpuhook-runtime_*.deb
$ make install PYTHON=/usr/bin/python3      # from a checkout
""",
    ),
    "GH1410": (
        (
            "The ledger's entry of a container could not be written. The container runs, with "
            "its GPUs; it is missing from `gpuhook ps`, and a repair knows less of it."
        ),
        "Make the state directory writable for root. A full /run is the usual cause.",
        """
$ df -h /run && ls -ld /run/gpuhook
""",
    ),
    "GH1490": (
        (
            "The system refused something that a create needs; the message has the path and the "
            "system's reason. config.json is as the engine wrote it."
        ),
        "See to that path, and start the container again.",
        """
gpuhook-runtime: error GH1490: /run/gpuhook/compiled: No space left on device
$ df -h /run
""",
    ),
    "GH1491": (
        (
            "gpuhook met something that nobody foresaw. A container that asks for no GPU starts "
            "all the same; one that was given a GPU does not start, since nobody knows what it "
            "would get."
        ),
        (
            "Report the line: it has the kind of the error and its place. `gpuhook "
            "support-bundle` collects the rest."
        ),
        """
gpuhook-runtime: error GH1491: an error of gpuhook's own, KeyError at .../oci_spec.py:120: 'linux'
""",
    ),
}
