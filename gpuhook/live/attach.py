# SPDX-License-Identifier: Apache-2.0
"""A GPU for a container that runs: nodes, driver files, loader set-up, device rules."""

from __future__ import annotations

from typing import Any

from gpuhook.apply.live import hotplug_plan, interrupted_attach
from gpuhook.apply.spec import oci_spec
from gpuhook.memory_limits import attach_limits
from gpuhook.request import extra_requests, replicas
from gpuhook.target.report import Report
from gpuhook.target.running_container import Note
from gpuhook.vendors.nvidia.hot import vocabulary
from gpuhook.vendors.nvidia.warm import live_jobs as nvidia_live

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from gpuhook.cdi.hot.container_edits import ContainerEdits
    from gpuhook.entry import granting
    from gpuhook.memory_limits.limit_changes import Wish
    from gpuhook.request.resolve import Grant
    from gpuhook.target.running_container import Target
    from gpuhook.vendors.nvidia.hot.rootfs.hook_args import Jobs

_RESTART = "a restart of the container does not bring it back: its config.json does not have it"
_ENV = "the container's processes keep the variables that they have"


def attach(
    target: Target,
    grants: granting.Granting,
    names: Sequence[str],
    capabilities: frozenset[str],
    *,
    wish: Wish | None = None,
    is_dry: bool,
) -> Report:
    """Give the container the devices `names`; whatever it has already is left as it is.

    Its memory of them is limited to `wish`, or as the container was granted when it was made. All
    or nothing. Raises the faults of resolving, of requirements and of memory limits, and OSError
    or GH17xx of the container.
    """
    extra_requests.require_privilege(names, "attach", target.spec, vocabulary.VOCABULARY)

    def judged() -> tuple[Grant, list[Jobs]]:
        found = grants.named(list(names), capabilities)
        return found, grants.jobs(found, capabilities)

    grant, todo = grants.by_fresh_specs(judged)
    given = [node["path"] for node in grant.edits.get("deviceNodes") or ()]
    grants.require(target.spec, todo, given)
    held = target.held
    wanted, reasons = nvidia_live.wanted(held.root, grant.edits, todo, is_running=True)
    nvidia_live.add_profile(wanted, held.root, todo, target.withdrawn)
    wanted.owner = oci_spec.owner(target.spec)
    wanted.denied = target.denied
    plan = hotplug_plan.plan(held, wanted)
    plan.skipped += reasons
    intended = target.record(wanted.edits, todo, interrupted_attach.intended(held, wanted, plan))
    whole = _whole(grants, names, capabilities)
    with attach_limits.coming(target, grants, grant, names, wish) as limits:
        # First the limits: the device is not without them for a moment.
        plan.operations = [*limits.operations, *plan.operations]
        report = Report(target, plan, is_dry=is_dry)
        has_steps = bool(plan.operations)
        if not is_dry:

            def intend(entry: dict[str, Any]) -> None:
                _intend(entry, grant, whole, intended)
                limits.enter(entry)

            def enter(entry: dict[str, Any]) -> None:
                _enter(entry, target, wanted.edits, todo)
                limits.enter(entry)

            plan.operations = [Note(target, intend), *plan.operations, Note(target, enter)]
            plan.execute(held)
            report.notes += held.rules.notes
        report.notes += limits.notes
    if is_dry:
        return report
    if grant.replicas:
        report.notes.append(f"noted as held: {', '.join(grant.replicas)}")
    if has_steps:
        report.notes.append(_ENV)
        known = {node["path"] for node in target.by_config.get("deviceNodes") or ()}
        if not known.issuperset(node["path"] for node in wanted.edits.get("deviceNodes") or ()):
            report.notes.append(_RESTART)
    return report


def _whole(
    grants: granting.Granting, names: Sequence[str], capabilities: frozenset[str]
) -> list[str]:
    """Return the devices that are named as such: they do not go with a replica of them."""
    own = [name for name in names if not replicas.device_of(name)]
    return grants.named(own, capabilities).devices if own else []


def _intend(entry: dict[str, Any], grant: Grant, whole: list[str], record: dict[str, Any]) -> None:
    """Note in the ledger what the container is going to be given: it may have it from now on."""
    nodes = [node["path"] for node in grant.edits.get("deviceNodes") or ()]
    for key, new in (
        ("devices", grant.devices),
        ("nodes", nodes),
        ("replicas", grant.replicas),
        ("whole", whole),
    ):
        entry[key] = list(dict.fromkeys([*entry.get(key, ()), *new]))
    entry["withdrawn"] = [path for path in entry.get("withdrawn") or () if path not in nodes]
    entry["live"] = record


def _enter(entry: dict[str, Any], target: Target, edits: ContainerEdits, todo: list[Jobs]) -> None:
    """Note in the ledger that it has been given."""
    target.made.add(target.held.made)
    entry["live"] = target.record(edits, todo)
