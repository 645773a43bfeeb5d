# SPDX-License-Identifier: Apache-2.0
"""What was made in a container by somebody who was killed before noting it in the ledger.

WARM. What is going to be given is in the ledger beforehand; what of it is there, and does not
come from config.json, was made.
"""

from __future__ import annotations

import os
from binascii import crc32

from gpuhook.container import live
from gpuhook.container.made import Made, noted
from gpuhook.container.provided_files import Files
from gpuhook.container.rehearsal import current
from gpuhook.loader import conf

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from gpuhook.cdi.edits import ContainerEdits
    from gpuhook.container.live import Plan, Wanted
    from gpuhook.container.operations import Live


def intended(held: Live, wanted: Wanted, plan: Plan) -> Made:
    """Return what has to be noted before the plan is carried out, or nobody could tell later.

    Whose a directory is, and what a link or file was before. What is intended and was not done is
    told from what is there: only what is as it was to be made is taken away.
    """
    promised = Made()
    promised.directories += _directories(held, wanted)
    for operation in plan.operations:
        if isinstance(operation, Files):
            promised.add(operation.promised(held))
    return promised


def made(held: Live, given: ContainerEdits, by_config: ContainerEdits, noted_made: Made) -> Made:
    """Return what of `given` is there and does not come from config.json.

    Of links and files, `noted_made` has what was intended.
    """
    found = Made()
    _nodes(held, given, by_config, found)
    known = {mount["containerPath"] for mount in by_config.get("mounts") or ()}
    for mount in given.get("mounts") or ():
        if mount["containerPath"] not in known:
            _mount(held, mount["hostPath"], mount["containerPath"], found)
    with held.as_root():
        found.contents += [_as_it_is(held, item) for item in noted_made.contents]
    return found


def _directories(held: Live, wanted: Wanted) -> list[str]:
    """Return the directories that have to be made for what is wanted, outermost first."""
    edits = wanted.edits
    paths = [node["path"] for node in edits.get("deviceNodes") or ()]
    paths += [mount["containerPath"] for mount in edits.get("mounts") or ()]
    paths += [path for provision in wanted.provisions for path in provision.paths()]
    return list(dict.fromkeys(made for path in paths for made in held.root.missing(path)))


def _nodes(held: Live, given: ContainerEdits, by_config: ContainerEdits, found: Made) -> None:
    known = {node["path"] for node in by_config.get("deviceNodes") or ()}
    for node in given.get("deviceNodes") or ():
        rule = live.rule_of(node)
        if node["path"] in known or rule is None:
            continue
        there = held.root.found(node["path"])
        if there is not None and there.st_rdev == os.makedev(*rule.device[1:]):
            if held.root.is_mounted(node["path"]):
                _mount(held, node.get("hostPath") or node["path"], node["path"], found)
            else:
                found.nodes.append(node["path"])
        if held.rules.verdict(*rule.device, rule.access)[0]:
            found.rules.append(noted(rule))


def _mount(held: Live, source: str, target: str, found: Made) -> None:
    there = held.root.found(target)
    try:
        host = os.stat(source)
    except OSError:
        return
    shows_host = there is not None and os.path.samestat(there, host)
    if shows_host and held.root.is_mounted(target):
        found.mounts.append([target, host.st_dev, host.st_ino])
    found.files.append(target)  # goes only where it is empty


def _as_it_is(held: Live, item: list[Any]) -> list[Any]:
    """Return what was noted of a file; of our own drop-in, whatever state it was left in.

    Two jobs write it one after the other, and only what the last one makes of it was noted.
    """
    path, _, *before = item
    data = current(held.root, path).data if path == conf.DROP_IN else None
    return item if data is None else [path, crc32(data), *before]
