# SPDX-License-Identifier: Apache-2.0
"""Rootless engines: the ids, programs and cgroup controllers that they need from the node."""

from __future__ import annotations

import re

from gpuhook.node_facts import package_commands
from gpuhook.node_facts.check import (
    FAILED,
    NOT_APPLICABLE,
    WARNING,
    Finding,
    absent,
    check,
    for_each,
    ok,
    unless,
)
from gpuhook.node_facts.engine_facts import dockers
from gpuhook.node_facts.program_facts import program
from gpuhook.node_facts.rootless_users import NO_USER, users
from gpuhook.node_facts.sources.node_tree import text

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gpuhook.node_facts.check import ExaminedNode

# nsswitch.conf: with "subid: sss", a directory service (FreeIPA) assigns subordinate ids.
_SWITCH = "/etc/nsswitch.conf"
_ELSEWHERE = re.compile(r"^subid:[ \t]*(?!files\b)\w", re.MULTILINE)
_FILES = ("/etc/subuid", "/etc/subgid")
_CGROUPS = "/sys/fs/cgroup"
# The controllers that systemd delegates by default: user@.service has Delegate=pids memory, since
# version 252 also cpu.
_DELEGATED = ("memory", "pids")
_DROP_IN = "/etc/systemd/system/user@.service.d/delegate.conf"


def _has_other_source(node: ExaminedNode) -> Finding | None:
    if not _ELSEWHERE.search(text(node.tree, _SWITCH) or ""):
        return None
    return absent(f"{_SWITCH} has a source of subordinate ids other than files", _SWITCH)


@check(
    "host.subordinate-ids",
    "Users of rootless engines have subordinate ids",
    needs=("host.id-mapping",),
)
@unless(_has_other_source)
@for_each(users, absent(NO_USER, "/home"))
def _subordinate(node: ExaminedNode, user: tuple[str, str]) -> Finding:
    name, number = user
    lacking = [path for path in _FILES if not _has_range(node, path, name, number)]
    if not lacking:
        return ok(f"{name} has subordinate ids", *_FILES, subject=name)
    return Finding(
        FAILED,
        f"{name} runs rootless containers, but has no range in {' and '.join(lacking)}",
        subject=name,
        meaning="containers of that user do not start, or only from images whose files have"
        " a single owner: potentially insufficient UIDs or GIDs available in user namespace",
        command=f"usermod --add-subuids {_free(node)} --add-subgids {_free(node)} {name}"
        " # then, as that user: podman system migrate",
        looked_at=_FILES,
    )


def _has_range(node: ExaminedNode, path: str, name: str, number: str) -> bool:
    entries = (text(node.tree, path) or "").splitlines()
    return any(entry.split(":")[0] in {name, number} - {""} for entry in entries if entry.strip())


def _free(node: ExaminedNode) -> str:
    """Return a range of ids that is not assigned."""
    first = 100000
    for path in _FILES:
        for entry in (text(node.tree, path) or "").splitlines():
            _, _, numbers = entry.partition(":")
            start, _, count = numbers.partition(":")
            if start.isdecimal() and count.isdecimal():
                first = max(first, int(start) + int(count))
    return f"{first}-{first + 65535}"


@check("host.id-mapping", "The programs that map user ids are installed")
def _mapping(node: ExaminedNode) -> Finding:
    if not users(node) and not any(one.name == "rootless" for one in dockers(node)):
        return absent(NO_USER, "/home")
    lacking = [name for name in ("newuidmap", "newgidmap") if not program(node.tree, name)]
    if not lacking:
        return ok("newuidmap and newgidmap are installed", "/usr/bin/newuidmap")
    package = "shadow-utils" if program(node.tree, "dnf") else "uidmap"
    return Finding(
        FAILED,
        f"{' and '.join(lacking)} cannot be run, but users run rootless engines",
        subject="newuidmap",
        meaning='rootless containers do not start: exec: "newuidmap": executable file not found in'
        " $PATH",
        command=package_commands.install(node.tree, package),
        looked_at=("/usr/bin/newuidmap", "/usr/bin/newgidmap"),
    )


def _without_delegation(node: ExaminedNode) -> Finding | None:
    if not users(node) or node.tree.status(f"{_CGROUPS}/cgroup.controllers") is not None:
        return None
    return absent("only cgroup v2 is delegated to users", _CGROUPS)


@check("host.delegation", "Users of rootless engines can limit their containers")
@unless(_without_delegation)
@for_each(users, absent(NO_USER, "/home"))
def _delegation(node: ExaminedNode, user: tuple[str, str]) -> Finding:
    """A rootless engine makes its cgroups below those of the user's systemd manager.

    Only the controllers that systemd delegates to that manager are available there.
    """
    name, number = user
    path = f"{_CGROUPS}/user.slice/user-{number}.slice/user@{number}.service/cgroup.controllers"
    has = (text(node.tree, path) or "").split()
    if node.tree.status(path) is None:
        message = f"{name} is not logged in; delegated controllers are visible only in a session"
        return Finding(NOT_APPLICABLE, message, subject=name, looked_at=(path,))
    lacking = [controller for controller in _DELEGATED if controller not in has]
    if not lacking:
        return ok(f"systemd delegates {', '.join(has)} to {name}", path, subject=name)
    return Finding(
        WARNING,
        f"systemd does not delegate {' and '.join(lacking)} to {name}, a user of rootless"
        " containers",
        subject=name,
        meaning="containers of that user start only without limits: podman run with --memory or"
        f" --pids-limit fails: the requested cgroup controller `{lacking[0]}` is not"
        " available",
        command=f"mkdir -p {_DROP_IN.rpartition('/')[0]} && printf '[Service]\\nDelegate=cpu"
        f" cpuset io memory pids\\n' > {_DROP_IN} && systemctl daemon-reload"
        " # then that user must log in again",
        looked_at=(path,),
    )


CHECKS = (_mapping, _subordinate, _delegation)
