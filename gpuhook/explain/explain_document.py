# SPDX-License-Identifier: Apache-2.0
"""The document gpuhook/explain/v1, from which text and graph are made too."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from gpuhook.apply.spec import oci_spec
from gpuhook.explain import simulate
from gpuhook.explain.pods import pod_requests
from gpuhook.explain.trace import (
    contention,
    extras_trace,
    outcome,
    request_trace,
    requirement_trace,
    resolution_trace,
    sharing_trace,
)
from gpuhook.host.error_text import fault_document
from gpuhook.node import spec_node
from gpuhook.request import parse
from gpuhook.request.replicas import device_of, replicas_of
from gpuhook.vendors.catalogue import vendor_of_node
from gpuhook.vendors.inventory.vendor_inventory import DriverVersion

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

    from gpuhook.entry.plan_context import PlanContext
    from gpuhook.explain.node_context import ExplainedNode
    from gpuhook.explain.simulate import SimulatedAnswer
    from gpuhook.request.resolve import Grant

SCHEMA = "gpuhook/explain/v1"
_CLAIM_FAILS = ("error", "pending", "refused")  # results of claims


def explain_document(
    found: Iterable[SimulatedAnswer],
    target: ExplainedNode,
    claims: list[dict[str, Any]] | None = None,
) -> dict[str, Any]:
    """Return the document of the answers for one node; `claims` are None without claims."""
    answers = list(found)
    ends = outcome.outcomes(answers)
    return {
        "schema": SCHEMA,
        "node": _node(target),
        "contention": contention.contention(answers, ends),
        "containers": [
            _container(answer, end, target) for answer, end in zip(answers, ends, strict=True)
        ],
        **({} if claims is None else {"claims": claims}),
    }


def _node(target: ExplainedNode) -> dict[str, Any]:
    facts = target.facts
    driver = DriverVersion() if facts is None else target.vendor.driver_version(facts)
    return {
        "by": target.source,
        "where": target.where,
        "driver": driver.version,
        "cuda": driver.api,
        "gpus": sharing_trace.gpu_count(target),
        "notes": list(target.notes),
        "broken": [
            fault_document(spec.error)
            for spec in target.context.node.registry().broken
            if spec.error
        ],
    }


def is_well(document: dict[str, Any]) -> bool:
    """Return whether all containers of a document start, also together, and its claims fit."""
    waits = any(one["pending"] for one in document["contention"])
    fails = any(one["result"] in _CLAIM_FAILS for one in document.get("claims", ()))
    starts = all(one["result"] not in outcome.NOT_STARTED for one in document["containers"])
    return starts and not waits and not fails


def _container(
    answer: SimulatedAnswer, end: dict[str, Any], target: ExplainedNode
) -> dict[str, Any]:
    found = _resolution(answer, target.context)
    question, sharing = answer.question, _sharing(answer, found, target)
    asked = question.asked
    return {
        "kind": question.kind,
        "where": question.where,
        "notes": _notes(answer, found, target),
        "pod": asked
        and pod_requests.document(
            asked, question.allocated, question.placement, question.by_claims.objections
        ),
        **end,
        "gpus": sharing_trace.described(sharing.gpus, target),
        "sources": [
            source
            for _, verdict in answer.judged
            for source in simulate.sources(verdict, answer.fault)
        ],
        "extras": found.extras,
        "capabilities": _capabilities(answer, found, target.context),
        "requirements": _requirements(answer, found, target),
        "devices": found.devices,
        "specs": resolution_trace.spec_trace(found.grant, target.context.node, found.capabilities),
        "changes": _changes(answer),
        "replicas": sharing.replicas,
        "memory": sharing.memory,
        "isolation": sharing_trace.isolated(
            answer.asked,
            sharing.gpus,
            sharing.replicas,
            sharing.memory,
            {
                *question.plugin.devices,
                *question.by_claims.exclusive,
                *sharing_trace.exclusive(found.devices, target),
            },
            domains=sharing.domains | question.plugin.domains,
            devices=target.devices,
        ),
        "route": outcome.route(answer),
        "ignored": request_trace.ignored_values(answer.asked, found.devices, target.context),
        "warnings": [fault_document(warning) for warning in answer.warnings],
        "start_warnings": list(question.start_warnings),
        "fault": fault_document(answer.fault) if answer.fault else None,
    }


@dataclass(frozen=True, slots=True)
class _Resolution:
    """The requested names of a container, and what they resolve to."""

    names: list[str]
    capabilities: frozenset[str]
    extras: list[dict[str, Any]]
    grant: Grant
    devices: list[dict[str, Any]]

    @property
    def nodes(self) -> list[str]:
        """The paths of the device nodes."""
        return [path for one in self.devices for path in one["nodes"]]


def _resolution(answer: SimulatedAnswer, context: PlanContext) -> _Resolution:
    node = context.node
    capabilities = spec_node.known_capabilities(answer.asked, context)
    extras = extras_trace.extras_trace(answer, context)
    names = [
        *request_trace.requested_names(answer.asked, answer.verdict, node),
        *extras_trace.granted_names(extras, node),
    ]
    devices = resolution_trace.device_trace(names, node, capabilities, answer.verdict.chosen)
    for one, verdict in answer.judged[1:]:
        further = request_trace.requested_names(answer.asked, verdict, one.node)
        devices += resolution_trace.device_trace(
            further, one.node, spec_node.known_capabilities(answer.asked, one), verdict.chosen
        )
    grant = request_trace.grant_of(answer, names, node, capabilities)
    return _Resolution(names, capabilities, extras, grant, devices)


@dataclass(frozen=True, slots=True)
class _Sharing:
    """The GPUs of a container by UUID, its replicas and its memory limits.

    `domains` are those of the vendors of the GPUs that its request names.
    """

    gpus: list[str]
    domains: dict[str, str]
    replicas: list[str]
    memory: list[dict[str, Any]]


def _sharing(answer: SimulatedAnswer, found: _Resolution, target: ExplainedNode) -> _Sharing:
    grant, question = found.grant, answer.question
    direct = question.plugin.direct_devices
    domains = sharing_trace.device_ids(found.devices, target)
    gpus = [*domains, *direct, *question.by_claims.uuids] or sharing_trace.held_devices(
        answer, target
    )
    replicas = grant.replicas or replicas_of(
        answer.asked,
        grant.devices,
        lambda: {*target.context.covered(found.nodes), *gpus},
    )
    own = [one for one in question.plugin.replicas if device_of(one) in direct or not replicas]
    return _Sharing(
        list(dict.fromkeys(gpus)),
        domains,
        list(dict.fromkeys([*replicas, *own])),
        _memory(answer, target),
    )


def _memory(answer: SimulatedAnswer, target: ExplainedNode) -> list[dict[str, Any]]:
    """Return the memory limits; the vendor may read this node's files for those of the wrapper.

    On another node, the device plugin's limits apply to the devices that it passes itself.
    """
    found = sharing_trace.limits(answer.edited)
    known = {one["gpu"] for one in found}
    answers = () if target.is_here or answer.fault else answer.question.plugin.answers
    limits = (one for of in answers if of.is_complete for one in of.limits)
    every = (*limits, *answer.question.by_claims.limits)
    return [*found, *sharing_trace.granted(one for one in every if one.device not in known)]


def _notes(answer: SimulatedAnswer, found: _Resolution, target: ExplainedNode) -> list[str]:
    refused = [str(one["name"]) for one in found.devices if one["fault"]]
    of_vendors = (
        vendor_of_node(context.node).requests.notes(
            answer.asked,
            context.node,
            target.facts if context is target.context else None,
            refused,
            has_devices=verdict.chosen is not None,
        )
        for context, verdict in answer.judged
    )
    return [
        *answer.question.notes,
        *(note for notes in of_vendors for note in notes),
        *(f"{name} means {', '.join(full)}" for name, full in found.grant.short_forms.items()),
    ]


def _capabilities(
    answer: SimulatedAnswer, found: _Resolution, context: PlanContext
) -> dict[str, Any]:
    environment = parse.environment(answer.asked)
    return {
        "asked": environment.get(context.node.vocabulary.capabilities_env),
        "rule": request_trace.rule_of(answer.asked, context),
        "effective": sorted(found.capabilities) if found.names else [],
        "left_out": resolution_trace.left_out(found.grant, context.node, found.capabilities),
    }


def _requirements(
    answer: SimulatedAnswer, found: _Resolution, target: ExplainedNode
) -> dict[str, Any]:
    """Return the requirements, judged for the GPUs of the grant, the plugin and the engine."""
    plugin = answer.question.plugin.direct_devices
    nodes = found.nodes or requirement_trace.gpu_nodes(plugin, target.devices)
    if answer.has_engines_edits:
        nodes += oci_spec.device_paths(answer.before)
    engines = answer.question.plugin.cdi_devices or answer.has_engines_edits
    judged = target.vendor.requests.judged_requirements(
        parse.environment(answer.asked), target.facts, nodes
    )
    return requirement_trace.requirement_trace(
        judged,
        target.context.settings,
        is_given=bool(found.names or engines or answer.held),
    )


def _changes(answer: SimulatedAnswer) -> dict[str, Any]:
    before, after = answer.before, answer.after
    old, new = parse.variables(before), parse.variables(after)
    return {
        "env": [entry for entry in new if entry not in old],
        "env_replaced": [entry for entry in old if entry not in new],
        "nodes": [
            path
            for path in oci_spec.device_paths(after)
            if path not in oci_spec.device_paths(before)
        ],
        "mounts": [path for path in _mounts(after) if path not in _mounts(before)],
        "hooks": [one for one in _hooks(after) if one not in _hooks(before)],
        "hooks_removed": [one for one in _hooks(before) if one not in _hooks(after)],
        "root": [change.describe() for change in answer.changes] if not answer.fault else [],
        "root_is_known": answer.question.has_root,
    }


def _mounts(spec: dict[str, Any]) -> list[str]:
    held = spec.get("mounts")
    found = held if isinstance(held, list) else []
    return [str(mount.get("destination")) for mount in found if isinstance(mount, dict)]


def _hooks(spec: dict[str, Any]) -> list[dict[str, Any]]:
    stages = spec.get("hooks")
    return [
        {**resolution_trace.hook(hook), "stage": stage}
        for stage, hooks in (stages.items() if isinstance(stages, dict) else ())
        for hook in (hooks if isinstance(hooks, list) else ())
        if isinstance(hook, dict)
    ]
