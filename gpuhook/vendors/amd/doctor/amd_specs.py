# SPDX-License-Identifier: Apache-2.0
"""The CDI specs of AMD GPUs: valid, current, without conflicts, usable by users other than root."""

from __future__ import annotations

import re
from typing import cast

from gpuhook.cdi import spec_notes
from gpuhook.node_facts import cdi_specs, rootless_users
from gpuhook.node_facts.check import (
    FAILED,
    WARNING,
    Finding,
    absent,
    check,
    first_items,
    for_each,
    ok,
    unless,
)
from gpuhook.node_facts.sources.node_tree import line, text
from gpuhook.vendors.amd.doctor import amd_facts as facts
from gpuhook.vendors.amd.doctor.amd_devices import KFD, NODES, TOPOLOGY
from gpuhook.vendors.amd.doctor.amd_driver import MODULE

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

    from gpuhook.cdi.hot.container_edits import Spec
    from gpuhook.node_facts.cdi_specs import SpecFile
    from gpuhook.node_facts.check import ExaminedNode, Findings

NONE = "the node has no CDI spec for AMD GPUs"
_VALID = "amd.specs"
_UNRESOLVABLE = '"unresolvable CDI devices amd.com/gpu=all"'
_RENDER = re.compile(r"/dev/dri/renderD(\d{1,7})")
_GENERATION = re.compile(r"(?:^|,)generation=(\d+)")
_AGAIN = "amd-ctk cdi generate"
_FILES = ("/etc/group", "/etc/passwd")


def _is_ours(one: SpecFile) -> bool:
    """Return whether gpuhook wrote a spec; AMD's amd-ctk and other programs write no options."""
    return one.document is not None and spec_notes.options(cast("Spec", one.document)) is not None


def _again(one: SpecFile) -> str:
    """Return the command that writes a spec again."""
    if _is_ours(one):
        return "gpuhook refresh --force"
    output = "" if one.path == "/etc/cdi/amd.json" else f" --output={one.path}"
    return f"rm {one.path} && gpuhook refresh  # or: {_AGAIN}{output}"


@check(_VALID, "Engines can read the CDI specs of AMD GPUs")
@for_each(facts.spec_files, absent(NONE))
def _valid(_node: ExaminedNode, one: SpecFile) -> Finding:
    if one.error is None:
        return ok(f"{one.path} is valid", one.path)
    meaning = f"engines skip the whole file: {_UNRESOLVABLE}"
    return Finding(FAILED, one.error.message, one.path, meaning, _again(one), (one.path,))


@check("amd.spec-conflicts", "No AMD GPU is described twice", needs=(_VALID,))
def _conflicts(node: ExaminedNode) -> Findings:
    files = [one for one in facts.spec_files(node) if one.document is not None]
    if not files:
        return absent(NONE)
    authors = {one.path: _is_ours(one) for one in files}
    found = [
        Finding(
            FAILED,
            f"{' and '.join(paths)} both describe {first_items(names)}",
            subject=paths[-1],
            meaning=f"engines use neither: a device in conflict does not exist: {_UNRESOLVABLE}",
            command=f"rm {min(paths, key=lambda path: authors[path])}",
            looked_at=paths,
        )
        for paths, names in cdi_specs.conflicts(files).items()
    ]
    return found or ok("no AMD GPU is described twice in one directory")


@check("amd.spec-numbers", "The device numbers in the specs of AMD GPUs are current",
       needs=(_VALID, MODULE, NODES))  # fmt: skip
@for_each(facts.valid_specs, absent(NONE))
def _numbers(node: ExaminedNode, one: SpecFile) -> Finding:
    wrong = cdi_specs.wrong_numbers(node, one)
    if not wrong:
        return ok(f"the device numbers in {one.path} are current", one.path)
    return Finding(
        FAILED,
        f"{one.path}: {first_items(wrong)}",
        subject=one.path,
        meaning="containers get a node of another driver, and no access to the correct one: "
        'rocminfo prints "Unable to open /dev/kfd read-write"; the major of /dev/kfd may change '
        "at each boot, and AMD's amd-ctk writes it into the spec once, and 0:0 if its program stat "
        "fails",
        command=_again(one),
        looked_at=(one.path, *one.nodes()),
    )


@check("amd.spec-devices", "The specs describe the AMD GPUs and partitions that the node has",
       needs=(_VALID, MODULE, NODES, TOPOLOGY))  # fmt: skip
@for_each(facts.valid_specs, absent(NONE))
def _devices(node: ExaminedNode, one: SpecFile) -> Finding:
    paths = [str(node["path"]) for node in one.items("deviceNodes")]
    described = {int(found[1]) for path in paths if (found := _RENDER.fullmatch(path))}
    known = facts.device_minors(node)
    if facts.topology(node).refused or not facts.gpus(node):
        return absent("the GPUs of the node are unknown, or amdgpu drives none")
    gone, lacking = sorted(described - known), sorted(known - described)
    reason = _changed(node, one)
    if gone:
        shown = first_items([facts.render_path(minor) for minor in gone])
        reason = f"{one.path} describes {shown}, which no AMD GPU or partition has"
    elif lacking:
        shown = first_items([facts.render_path(minor) for minor in lacking])
        reason = f"{one.path} lacks {shown}, which the node has"
    if not reason:
        return ok(f"{one.path} has the {len(known)} devices of the node", one.path)
    return Finding(
        FAILED,
        reason,
        subject=one.path,
        meaning="the partition mode or the GPUs were changed after the spec was generated: "
        'containers do not start ("no such file or directory"), or get a device other than they '
        "requested, or cannot get the new ones",
        command=_again(one),
        looked_at=(one.path, facts.BOUND, facts.NODES),
    )


def _changed(node: ExaminedNode, one: SpecFile) -> str:
    """Return how the token of gpuhook's spec differs from the node, "" if it does not."""
    recorded = _GENERATION.search(facts.annotation(one, spec_notes.TOKEN))
    now = line(node.tree, f"{facts.TOPOLOGY}/generation_id")
    if recorded is None or not now or recorded[1] == now:
        return ""
    return (
        f"{one.path} does not match the current state of this host (KFD's generation: was "
        f"{recorded[1]}, is {now})"
    )


@check("amd.groups", "Users other than root can open the AMD devices of the specs",
       needs=(_VALID, MODULE, NODES))  # fmt: skip
@for_each(facts.valid_specs, absent(NONE))
def _groups(node: ExaminedNode, one: SpecFile) -> Findings:
    found = list(_closed(node, one))
    return found or [ok(f"the containers of {one.path} can open its devices", one.path)]


def _closed(node: ExaminedNode, one: SpecFile) -> Iterator[Finding]:
    added = {gid for edits in one.edits() for gid in edits.get("additionalGids") or ()}
    lacking: dict[int, list[str]] = {}
    for place, edit in one.nodes().items():
        is_needed = edit["path"] == facts.KFD or _RENDER.fullmatch(str(edit["path"]))
        status = node.tree.status(place) if is_needed else None
        if status is None:
            continue
        mode, gid = edit.get("fileMode", status.permissions), edit.get("gid", status.gid)
        if mode & 0o006 != 0o006 and gid not in added:
            lacking.setdefault(gid, []).append(place)
    for gid, paths in lacking.items():
        yield Finding(
            WARNING,
            f"only root and the group {gid} can open {first_items(paths)}, and {one.path} does "
            "not add the group",
            subject=one.path,
            meaning="containers whose processes run as another user find no GPU: rocminfo prints "
            '"Unable to open /dev/kfd read-write: Permission denied"',
            command=f"{_again(one)}; or add the group: docker run --group-add {gid}, podman run "
            f"--group-add keep-groups, securityContext.supplementalGroups: [{gid}]",
            looked_at=(one.path, *paths),
        )


@check("amd.users", "Users of rootless engines can open the AMD devices", needs=(MODULE, KFD))
@unless(facts.no_gpus)
@for_each(rootless_users.users, absent(rootless_users.NO_USER))
def _users(node: ExaminedNode, user: tuple[str, str]) -> Finding:
    name, number = user
    status = node.tree.status(facts.KFD)
    if status is None or status.permissions & 0o006 == 0o006 or number == "0":
        return ok(f"every user can open {facts.KFD}", facts.KFD, subject=name)
    if name in _members(node, status.gid):
        return ok(f"{name} is in the group {status.gid} of {facts.KFD}", *_FILES, subject=name)
    return Finding(
        WARNING,
        f"{name} runs rootless containers, but is not in the group {status.gid} of {facts.KFD}",
        subject=name,
        meaning='its containers find no AMD GPU: rocminfo prints "Unable to open /dev/kfd '
        'read-write: Permission denied"',
        command=f"usermod -aG $(getent group {status.gid} | cut -d: -f1) {name}  # then log in "
        "again, and run podman with --group-add keep-groups",
        looked_at=(facts.KFD, *_FILES),
    )


def _members(node: ExaminedNode, gid: int) -> set[str]:
    """Return the users of a group: by the group's list, or as their own group."""
    groups = [one.split(":") for one in (text(node.tree, _FILES[0]) or "").splitlines()]
    users = [one.split(":") for one in (text(node.tree, _FILES[1]) or "").splitlines()]
    found = {one[0] for one in users if len(one) > 3 and one[3] == str(gid)}
    for one in groups:
        if len(one) > 3 and one[2] == str(gid):
            found.update(one[3].split(","))
    return found


CHECKS = (_valid, _conflicts, _numbers, _devices, _groups, _users)
