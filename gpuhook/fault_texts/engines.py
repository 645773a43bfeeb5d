# SPDX-License-Identifier: Apache-2.0
"""The texts of faults GH20xx: configuring container engines.

Loaded only where something is wrong.
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
    "GH2001": (
        HostError,
        "{path} cannot be written: {reason}; everything is as it was before",
        "{advice}",
    ),
    "GH2002": (
        HostError,
        "{path} could not be put back as it was: {reason}",
        (
            "mend that, then `gpuhook configure undo {engine}` puts it back; its content from "
            "before is in {place}"
        ),
    ),
    "GH2003": (
        FileError,
        "{where} {said}: {engine} does not start with it, and nothing is changed",
        "mend the file, or move it away, and configure {engine} again",
    ),
    "GH2004": (
        HostError,
        "{engine} would not {lack} with what would be written to {paths}; nothing is changed",
        (
            "look with --dry-run at what would be written, and for a file that {engine} reads "
            "later and that says otherwise; name another file with --drop-in or --config"
        ),
    ),
    "GH2005": (
        HostError,
        "{engine} refuses the new configuration, which is taken back: `{command}`: {said}",
        "run that command to see what it says of the old one, and mend it first",
    ),
    "GH2006": (
        HostError,
        "{engine} does not run after it was told to read its configuration ({unit}): {said}",
        (
            "its files are as they were before, and it was started with them again: look with "
            "`systemctl status` and `journalctl -u` at why it stopped"
        ),
    ),
    "GH2007": (
        RequestError,
        "{engine} cannot be restarted by {how}: {reason}; nothing is changed",
        "configure it without --restart, and restart it as it was started",
    ),
    "GH2008": (
        HostError,
        "somebody else configures the engine of {path} at this moment",
        "wait for that `gpuhook configure` or `gpuhook install`, and try again",
    ),
    "GH2009": (
        FileError,
        "{path} cannot be understood: {reason}",
        (
            "take out of the engine's files by hand what gpuhook has written (`gpuhook configure "
            "show`), then remove the directory of that file"
        ),
    ),
    "GH2010": (
        HostError,
        "there is no {name} on the host at {root}, which the engine would have to run",
        "install gpuhook-runtime there, or name the program with {option}",
    ),
    "GH2011": (
        RequestError,
        "{path} {said} on the host at {root}: each container of the engine would fail",
        "install it there, give its path as the host has it, or leave {option} out: it is found",
    ),
    "GH2012": (
        HostError,
        "somebody else has changed {path} meanwhile; everything else is as it was before",
        "see what they have done, and configure the engine again",
    ),
    "GH2013": (
        HostError,
        "{path} may be read by root alone: it says how gpuhook has configured {engine}",
        "run this as root; `gpuhook configure show` tells anybody what {engine} does now",
    ),
    "GH2020": (
        RefusedError,
        "{where} disables the plugin cri: this containerd serves Docker, and no kubelet",
        (
            "for Docker: gpuhook configure docker. For a kubelet: --enable-cri takes cri out of "
            "disabled_plugins"
        ),
    ),
    "GH2021": (
        FileError,
        "{where} {said}: containerd does not start with it",
        "correct it; `containerd --config FILE config dump` says whether containerd can read it",
    ),
    "GH2022": (
        RequestError,
        "this node has several containerds that a kubelet may use: {files}",
        "name the one with --config",
    ),
    "GH2023": (
        RefusedError,
        "{where}: the runtime {name} is registered by {by}, and may not be written twice",
        "take another name, such as --runtime-name gpuhook, or remove what registers it",
    ),
    "GH2024": (
        HostError,
        "{system} makes containerd's configuration itself, and what is written there does not stay",
        (
            "have the device plugin say CDI names (deviceListStrategy cdi-cri), for which no "
            "runtime is needed; docs/containerd.md says how"
        ),
    ),
    "GH2025": (
        FileError,
        "{where}: with what is to be written there, {said}",
        "take out what is in the way, or say which file to write with --config or --drop-in",
    ),
    "GH2026": (
        RefusedError,
        "{where}: the default runtime cannot be set here: {said}",
        "{how}; then configure without --set-as-default",
    ),
    "GH2027": (
        FileError,
        "{where}: {said}",
        "write it in plain tables ([a.b] and then one key on each line), or edit it by hand",
    ),
    "GH2028": (
        HostError,
        "the route hook needs containerd's own default spec, and {where} is not there yet",
        (
            "on the node: ctr oci spec | /usr/share/gpuhook/containerd/base-spec --output {where}; "
            "then configure again"
        ),
    ),
    "GH2029": (
        HostError,
        "{where} {said}: the route cdi cannot work",
        "take the route wrapper, or a containerd from 1.7 on",
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
