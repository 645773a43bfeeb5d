# SPDX-License-Identifier: Apache-2.0
"""Engines that users run without root: what the node has to give them."""

from __future__ import annotations

import re

from gpuhook.doctor.check import FAILED, HOST, NOT_APPLICABLE, WARNING, Check, Finding, absent, ok
from gpuhook.doctor.engine_findings import installing
from gpuhook.doctor.facts.engine_facts import dockers, homes, program
from gpuhook.node.node_tree import text

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

    from gpuhook.doctor.check import ExaminedNode

_STORAGE = (".local/share/containers", ".local/share/docker", ".config/docker/daemon.json")
# nsswitch.conf: subid: sss has a directory service (FreeIPA) say who has which.
_SWITCH = "/etc/nsswitch.conf"
_ELSEWHERE = re.compile(r"^subid:[ \t]*(?!files\b)\w", re.MULTILINE)
_FILES = ("/etc/subuid", "/etc/subgid")
_CGROUPS = "/sys/fs/cgroup"
# What systemd lets its users' managers have by itself: user@.service has Delegate=pids memory, and
# cpu since version 252.
_DELEGATED = ("memory", "pids")
_DROP_IN = "/etc/systemd/system/user@.service.d/delegate.conf"


def _users(node: ExaminedNode) -> dict[str, str]:
    """Return the users who have an engine of their own, each with their number."""
    numbers = {}
    for entry in (text(node.tree, "/etc/passwd") or "").splitlines():
        fields = entry.split(":")
        if len(fields) > 5:
            numbers[fields[5]] = (fields[0], fields[2])
    found = {}
    for home in homes(node.tree):
        if any(node.tree.status(f"{home}/{place}") for place in _STORAGE):
            name, number = numbers.get(home, (home.rpartition("/")[2], ""))
            found[name] = number
    return found


def subordinate(node: ExaminedNode) -> Iterable[Finding]:
    """Say whether users with engines of their own have ids to give to containers."""
    users = _users(node)
    if _ELSEWHERE.search(text(node.tree, _SWITCH) or ""):
        yield absent(f"{_SWITCH} has subordinate ids come from elsewhere than files", _SWITCH)
        return
    for name, number in users.items():
        lacking = [path for path in _FILES if not _has_range(node, path, name, number)]
        if not lacking:
            yield ok(f"{name} has subordinate ids", *_FILES, subject=name)
            continue
        yield Finding(
            FAILED,
            f"{name} has containers of their own, and no range in {' and '.join(lacking)}",
            subject=name,
            meaning="containers of that user do not start, or not from images with files of more"
            " than one user: potentially insufficient UIDs or GIDs available in user namespace",
            command=f"usermod --add-subuids {_free(node)} --add-subgids {_free(node)} {name}"
            " # then, as that user: podman system migrate",
            looked_at=_FILES,
        )
    if not users:
        yield absent("no user of this node has an engine of their own", "/home")


def _has_range(node: ExaminedNode, path: str, name: str, number: str) -> bool:
    entries = (text(node.tree, path) or "").splitlines()
    return any(entry.split(":")[0] in {name, number} - {""} for entry in entries if entry.strip())


def _free(node: ExaminedNode) -> str:
    """Return a range of ids that nobody has."""
    first = 100000
    for path in _FILES:
        for entry in (text(node.tree, path) or "").splitlines():
            _, _, numbers = entry.partition(":")
            start, _, count = numbers.partition(":")
            if start.isdecimal() and count.isdecimal():
                first = max(first, int(start) + int(count))
    return f"{first}-{first + 65535}"


def mapping(node: ExaminedNode) -> Iterable[Finding]:
    """Say whether the programs are there that map those ids."""
    if not _users(node) and not any(one.kind == "rootless" for one in dockers(node)):
        yield absent("no user of this node has an engine of their own", "/home")
        return
    lacking = [name for name in ("newuidmap", "newgidmap") if not program(node.tree, name)]
    if not lacking:
        yield ok("newuidmap and newgidmap are there", "/usr/bin/newuidmap")
        return
    yield Finding(
        FAILED,
        f"{' and '.join(lacking)} cannot be run, and users have engines of their own",
        subject="newuidmap",
        meaning='containers of users do not start: exec: "newuidmap": executable file not found in'
        " $PATH",
        command=installing(node.tree, "shadow-utils" if program(node.tree, "dnf") else "uidmap"),
        looked_at=("/usr/bin/newuidmap", "/usr/bin/newgidmap"),
    )


def delegation(node: ExaminedNode) -> Iterable[Finding]:
    """Say whether users' engines may limit what their containers use.

    A user's engine makes control groups below those of the user's manager, which has the
    controllers that systemd delegates to it.
    """
    users = _users(node)
    if not users:
        yield absent("no user of this node has an engine of their own", "/home")
    elif node.tree.status(f"{_CGROUPS}/cgroup.controllers") is None:
        yield absent("control groups of version 2 alone are delegated to users", _CGROUPS)
    else:
        for name, number in users.items():
            yield _delegated(node, name, number)


def _delegated(node: ExaminedNode, name: str, number: str) -> Finding:
    path = f"{_CGROUPS}/user.slice/user-{number}.slice/user@{number}.service/cgroup.controllers"
    has = (text(node.tree, path) or "").split()
    if node.tree.status(path) is None:
        said = f"{name} has no session now: what systemd delegates shows in one"
        return Finding(NOT_APPLICABLE, said, subject=name, looked_at=(path,))
    lacking = [controller for controller in _DELEGATED if controller not in has]
    if not lacking:
        return ok(f"systemd delegates {', '.join(has)} to {name}", path, subject=name)
    return Finding(
        WARNING,
        f"systemd does not delegate {' and '.join(lacking)} to {name}, who has containers of"
        " their own",
        subject=name,
        meaning="containers of that user start without limits alone: podman run --memory, or"
        f" --pids-limit, ends with: the requested cgroup controller `{lacking[0]}` is not"
        " available",
        command=f"mkdir -p {_DROP_IN.rpartition('/')[0]} && printf '[Service]\\nDelegate=cpu"
        f" cpuset io memory pids\\n' > {_DROP_IN} && systemctl daemon-reload"
        " # then have that user log in anew",
        looked_at=(path,),
    )


CHECKS = (
    Check("host.id-mapping", HOST, "The programs that map users' ids are there", mapping),
    Check(
        "host.subordinate-ids",
        HOST,
        "Users with engines of their own have ids for containers",
        subordinate,
        ("host.id-mapping",),
    ),
    Check(
        "host.delegation",
        HOST,
        "Users with engines of their own may limit their containers",
        delegation,
    ),
)
