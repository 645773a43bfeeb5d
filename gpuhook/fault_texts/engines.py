# SPDX-License-Identifier: Apache-2.0
"""The texts of faults GH20xx: configuring container engines.

HOT, and loaded only where something is wrong.
"""

from __future__ import annotations

from gpuhook.errors import FileError, GpuhookError, HostError, RefusedError, RequestError

TEXTS: dict[str, tuple[type[GpuhookError], str, str]] = {
    "GH2000": (
        RefusedError,
        "{where}: the runtime {name} of {engine} is {program}, which is not gpuhook's",
        (
            "call ours another name with --runtime-name, or take this one over with --take-over: "
            "undo gives it back"
        ),
    ),
    "GH2040": (
        FileError,
        "{where} {said}, and {engine} cannot read it either: nothing was changed",
        "mend that line, or name another file with --config",
    ),
    "GH2041": (
        RequestError,
        "no runtime of {engine} can be called {name}",
        "choose another name with --runtime-name, such as nvidia",
    ),
    "GH2042": (
        RequestError,
        "the route {route} gives {engine} no runtime that could be its default",
        "leave --set-as-default out, or choose --route wrapper",
    ),
    "GH2043": (
        RequestError,
        "{engine} reads one file and no drop-ins",
        "leave --drop-in out; --config names the file",
    ),
    "GH2044": (
        RefusedError,
        "{where}: dockerd is started with {flag}, and refuses {key} of daemon.json beside it",
        "move what the flag says into daemon.json, then configure again",
    ),
    "GH2045": (
        RefusedError,
        "{engine} {version} gives containers no CDI devices: {needed} is the first that does",
        "choose --route wrapper, or a newer {engine}",
    ),
    "GH2046": (
        RefusedError,
        "{where}: Docker of a snap sees no program of this machine: --route {route} is of no use",
        "choose --route cdi, or install Docker from a package",
    ),
    "GH2047": (
        FileError,
        "{where}: {key} is there twice, and readers differ on which one holds",
        "make one of both, then configure again",
    ),
    "GH2048": (
        RefusedError,
        "{where} is there, and is not gpuhook's: dockerd calls it for --gpus",
        "let gpuhook come before it with --take-over, or choose --route wrapper",
    ),
    "GH2049": (
        FileError,
        "{where} was written anew by somebody since, and nothing in it is gpuhook's",
        "look at it, and remove it by hand if it is not needed",
    ),
    "GH2050": (
        RefusedError,
        "{where} is there, and is not gpuhook's",
        "take it over with --take-over: undo gives it back; or move it away",
    ),
    "GH2051": (
        HostError,
        "no program is found for {engine}'s runtime {name}, which ours is made after",
        "say its runtime_path in {engine}'s configuration, or install crun or runc",
    ),
    "GH2052": (
        RefusedError,
        "{where}: it says {key} too, and is read after any file of ours",
        "remove it there, or name a file that is read later with --drop-in",
    ),
    "GH2053": (
        RequestError,
        "{where}: {engine} reads {read}, and not this",
        "leave the option out: our file is put where {engine} reads it",
    ),
}
