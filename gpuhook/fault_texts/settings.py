# SPDX-License-Identifier: Apache-2.0
"""The texts of faults GH15xx: settings and the command line.

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
    "GH1500": (
        FileError,
        "{name}: neither a file nor a known profile",
        (
            "give --inventory a file written by gpuhook inventory -o yaml, or one of the profiles "
            "{profiles}"
        ),
    ),
    "GH1501": (
        FileError,
        "{file}: line {line}, column {column}: {reason}",
        "an inventory is YAML or JSON as gpuhook inventory -o yaml writes it",
    ),
    "GH1502": (
        FileError,
        "{file}: {where}: {reason}",
        "compare with a profile: gpuhook inventory --inventory t4 -o yaml",
    ),
    "GH1510": (
        RequestError,
        "--{option} {value}: not a {option} name of CDI",
        "it starts with a letter, ends with a letter or digit, and holds letters, digits, _ - .",
    ),
    "GH1511": (
        RequestError,
        "--device-id {value}: this node has no such GPU or MIG instance; it has {have}",
        "name a GPU by its index, UUID or PCI bus id, an instance like 0:1 or by UUID, or `all`",
    ),
    "GH1512": (
        RequestError,
        "--device-id {value} cannot be used: {reason}",
        "choose another one, or leave --device-id out: what cannot be used is skipped then",
    ),
    "GH1513": (
        DriverError,
        "this node has no GPU that a CDI spec could describe{reasons}",
        "`gpuhook inventory` shows what was found",
    ),
    "GH1514": (
        RequestError,
        "--output {path}: {reason}",
        "name the file *.yaml or *.json, as its format is: container engines read nothing else",
    ),
    "GH1515": (
        RequestError,
        "--hook-path {path}: not an absolute path",
        "give the path of gpuhook-hook on the host, as container engines see it",
    ),
    "GH1516": (
        RequestError,
        "--ldconfig-path {path}: not an absolute path",
        "give the path of ldconfig on the host, as hooks see it, such as /sbin/ldconfig",
    ),
    "GH1517": (
        FileError,
        "the host's ldconfig {path} cannot be run in a container: {reason}",
        (
            "name a statically linked ldconfig, or generate the spec without --ldconfig-path: "
            "gpuhook merges the loader cache by itself"
        ),
    ),
    "GH1518": (
        HostError,
        "{program} made no loader cache of the container: {reason}",
        "generate the spec without --ldconfig-path: gpuhook merges the loader cache by itself",
    ),
    "GH1519": (
        DriverError,
        "mode management found no device node of the driver in {directory}",
        "load the driver (modprobe nvidia, nvidia-smi), or say with --dev-root where its nodes are",
    ),
    "GH1520": (
        RequestError,
        "{options} contradict each other: {reason}",
        "leave one of them out",
    ),
    "GH1526": (
        HostError,
        "another gpuhook refresh has held {path} for more than {seconds} seconds",
        "find out what it waits for (`fuser {path}`), end it, and call again",
    ),
    "GH1527": (
        RefusedError,
        "{path} is stale, and nobody has noted how it was made: {what}",
        "write it with `gpuhook generate-cdi --output {path}` and the options it shall have",
    ),
    "GH1528": (
        FileError,
        "a spec was made with words that generate-cdi does not take ({words}): {reason}",
        "write it again with `gpuhook generate-cdi` and the options it shall have",
    ),
    "GH1529": (
        FileError,
        "{path} is there and cannot be read as a CDI spec, and gpuhook may not have written it",
        "`gpuhook cdi validate {path}` tells what is wrong; remove it, and call again",
    ),
    "GH1530": (
        FileError,
        "{path}: {reason}",
        "check it with `gpuhook config validate`; no container gets a GPU until it is right",
    ),
    "GH1531": (
        HostError,
        "{path}: its compiled form cannot be kept below the state directory",
        "make /run/gpuhook writable for root; no container gets a GPU until then",
    ),
    "GH1532": (
        FileError,
        "{path}: {reason}",
        "docs/configuration.md has every key and its values, as has `gpuhook config default`",
    ),
    "GH1533": (
        RequestError,
        "{variable}={value}: {reason}",
        (
            "correct or unset the variable, in the environment of the container engine if it says "
            "this; no container gets a GPU until it is right"
        ),
    ),
    "GH1534": (
        FileError,
        "{path}: {reason}",
        "name the toolkit's file, /etc/nvidia-container-runtime/config.toml, or correct the line",
    ),
    "GH1535": (
        HostError,
        "{path}: {reason}",
        "look at it with ls -l; --replace removes what is wrong and is no directory",
    ),
    "GH1536": (
        HostError,
        "{module}: the kernel module cannot be loaded: {reason}",
        "install the driver's modules for the kernel that runs (uname -r), and look at dmesg",
    ),
    "GH1590": (
        HostError,
        "{where}: {reason}",
        "see to that path, and call again",
    ),
    "GH1591": (
        HostError,
        "standard output: {reason}",
        "see to where it goes; a change that was asked for may be done: `gpuhook inspect` shows it",
    ),
    "GH1592": (
        HostError,
        "{path}: {reason}, in the state directory {directory}",
        "make {directory} a directory that you can write in; {variable}",
    ),
    "GH1593": (
        HostError,
        "an error of gpuhook's own, {kind} at {place}: {reason}",
        "report it with this line; `gpuhook --debug` shows where it comes from",
    ),
}
