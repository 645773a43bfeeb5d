# SPDX-License-Identifier: Apache-2.0
"""The texts of faults GH14xx: low-level runtimes and state.

Loaded only where something is wrong.
"""

from __future__ import annotations

from gpuhook.errors import GpuhookError, HostError

TEXTS: dict[str, tuple[type[GpuhookError], str, str]] = {
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
        "{path} could not be compiled: `{command}` failed: {reason}",
        "run that command to see its whole output",
    ),
    "GH1404": (  # the launcher's, which says it without Python
        HostError,
        (
            "{python} with {library} failed ({reason}), and {config} names GPUs (or there is no "
            "runc or crun)"
        ),
        "reinstall gpuhook-runtime",
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
}
