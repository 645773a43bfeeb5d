# SPDX-License-Identifier: Apache-2.0
"""Items in a container whose creator was killed before it recorded them in the ledger.

The ledger records the planned items, and what is in their place, before an attach starts; those
that exist were created by it.
"""

from __future__ import annotations

import os

from gpuhook.apply.live import hotplug_plan
from gpuhook.apply.live.bind_mounts import BindMounts
from gpuhook.apply.live.live_files import LiveFiles, current
from gpuhook.apply.live.live_injection import InjectedItems, rule_record

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gpuhook.apply.live.hotplug_plan import DesiredState, HotplugPlan
    from gpuhook.apply.live.hotplug_steps import Live
    from gpuhook.cdi.hot.container_edits import ContainerEdits


def planned_items(held: Live, wanted: DesiredState, plan: HotplugPlan) -> InjectedItems:
    """Return what must be recorded before the plan is executed, as it cannot be found out later.

    These are the missing directories and targets of mounts, and the earlier links and files.
    """
    promised = InjectedItems()
    promised.directories += _directories(held, wanted)
    for operation in plan.operations:
        if isinstance(operation, LiveFiles):
            promised.changes += operation.promised(held)
        elif isinstance(operation, BindMounts):
            targets = [bind.target for bind in operation.binds]
            promised.files += [held.root.real(t) for t in targets if held.root.status(t) is None]
    return promised


def made_by_attach(
    held: Live, given: ContainerEdits, before: InjectedItems, coming: InjectedItems
) -> InjectedItems:
    """Return the items of `given` and of `coming` that exist; `before` has the earlier ones."""
    found = InjectedItems()
    _nodes(held, given, found)
    for mount in given.get("mounts") or ():
        _mount(held, mount["hostPath"], mount["containerPath"], found)
    found.directories += coming.directories
    found.files += coming.files  # these are removed only if they are empty
    known = {path for path, *_ in before.changes}
    with held.as_root():
        there = [one for one in coming.changes if current(held.root, one[0]).summary() == one[1]]
    # A change of another content is recognised as such when it is removed.
    found.changes += [one for one in coming.changes if one[0] not in known] + there
    return found


def _directories(held: Live, wanted: DesiredState) -> list[str]:
    """Return the directories to create for what is wanted, outermost first."""
    edits = wanted.edits
    paths = [node["path"] for node in edits.get("deviceNodes") or ()]
    paths += [mount["containerPath"] for mount in edits.get("mounts") or ()]
    paths += [path for provision in wanted.provisions for path in provision.paths()]
    return list(dict.fromkeys(made for path in paths for made in held.root.missing(path)))


def _nodes(held: Live, given: ContainerEdits, found: InjectedItems) -> None:
    for node in given.get("deviceNodes") or ():
        rule = hotplug_plan.rule_of(node)
        if rule is None:
            continue
        if held.root.is_mounted(node["path"]):
            _mount(held, node.get("hostPath") or node["path"], node["path"], found)
        if held.rules.verdict(*rule.device, rule.access)[0]:
            found.rules.append(rule_record(rule))


def _mount(held: Live, source: str, target: str, found: InjectedItems) -> None:
    there = held.root.status(target)
    try:
        host = os.stat(source)
    except OSError:
        return
    if there is not None and os.path.samestat(there, host) and held.root.is_mounted(target):
        found.mounts.append([target, host.st_dev, host.st_ino])
