# SPDX-License-Identifier: Apache-2.0
"""Answers as the document gpuhook/explain/v1, of which text and graph are made too."""

from __future__ import annotations

from typing import Any

from gpuhook.apply.spec import oci_spec
from gpuhook.entry import replica_env
from gpuhook.explain import manifest_questions
from gpuhook.explain import simulate as answers
from gpuhook.explain.trace import (
    extras_trace,
    ignored_values,
    jetpack,
    outcome,
    requirement_trace,
    resolution_trace,
    sharing_trace,
)
from gpuhook.explain.trace.request_trace import capabilities_of, grant_of, rule_of
from gpuhook.request import parse
from gpuhook.vendors.nvidia.hot import vocabulary

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

    from gpuhook.explain.node_context import Ground
    from gpuhook.explain.simulate import SimulatedAnswer
    from gpuhook.explain.trace.outcome import Outcome

SCHEMA = "gpuhook/explain/v1"


def explain_document(found: Iterable[SimulatedAnswer], ground: Ground) -> dict[str, Any]:
    """Return the document of the answers that were found on one ground."""
    answers = list(found)
    ends = zip(answers, outcome.of_all(answers), strict=True)
    return {
        "schema": SCHEMA,
        "node": _node(ground),
        "containers": [_container(answer, end, ground) for answer, end in ends],
    }


def _node(ground: Ground) -> dict[str, Any]:
    node = ground.node
    return {
        "by": ground.source,
        "where": ground.where,
        "driver": node.driver.version if node else None,
        "cuda": node.driver.cuda if node else None,
        "gpus": len(node.gpus) if node else None,
        "notes": list(ground.notes),
        "broken": [
            resolution_trace.fault_of(spec.error)
            for spec in ground.context.node.registry().broken
            if spec.error
        ],
    }


def is_well(told: dict[str, Any]) -> bool:
    """Return whether every container of a document starts."""
    return all(outcome.is_well(container["result"]) for container in told["containers"])


def _container(answer: SimulatedAnswer, end: Outcome, ground: Ground) -> dict[str, Any]:
    context, node = ground.context, ground.context.node
    environment = parse.environment(answer.asked)
    capabilities = capabilities_of(answer.asked, context)
    extras = extras_trace.extras_trace(answer, context)
    names = [*jetpack.names(answer, node), *extras_trace.names(extras, node)]
    grant = grant_of(answer, names, node, capabilities)
    devices = resolution_trace.of_names(names, node, capabilities, answer.verdict.chosen)
    nodes = [path for one in devices for path in one["nodes"]]
    engines = manifest_questions.engines_devices(answer.question) or answer.has_engines_edits
    given = [
        *(
            nodes
            or requirement_trace.nodes_of(manifest_questions.beside(answer.question), ground.node)
        ),
        *(oci_spec.device_paths(answer.before) if answer.has_engines_edits else ()),
    ]
    memory = sharing_trace.limits(answer.edited)
    gpus = (
        sharing_trace.gpus(grant, ground.node)
        or manifest_questions.beside(answer.question)
        or sharing_trace.held_devices(answer, ground.node)
    )
    reserved = manifest_questions.reserved(answer.question)
    replicas = (
        grant.replicas
        or replica_env.replicas_of(
            answer.asked, grant.devices, lambda: {*node.covered(nodes), *gpus}
        )
        or manifest_questions.replicas(answer.question)
    )
    return {
        "kind": answer.question.kind,
        "where": answer.question.where,
        "notes": [
            *answer.question.notes,
            *sharing_trace.in_mig_mode(devices, ground.node),
            *(f"{name} means {', '.join(full)}" for name, full in grant.short_forms.items()),
            *jetpack.notes(answer, node),
        ],
        "pod": manifest_questions.document(answer.question),
        **outcome.document(end),
        "gpus": sharing_trace.described(gpus, ground.node),
        "sources": list(answers.sources(answer.verdict, answer.fault)),
        "extras": extras,
        "capabilities": {
            "asked": environment.get(vocabulary.VOCABULARY.capabilities_env),
            "rule": rule_of(answer.asked, context),
            "effective": sorted(capabilities) if names else [],
            "left_out": resolution_trace.left_out(grant, node, capabilities),
        },
        "requirements": requirement_trace.requirement_trace(
            environment,
            ground.node,
            given,
            context.settings,
            is_given=bool(names or engines or answer.held),
        ),
        "devices": devices,
        "specs": resolution_trace.of_specs(grant, capabilities),
        "changes": _changes(answer),
        "replicas": replicas,
        "memory": memory,
        "isolation": sharing_trace.isolated(answer.asked, gpus, replicas, memory, reserved),
        "route": outcome.route(answer),
        "ignored": ignored_values.ignored_values(answer.asked, devices, context.settings),
        "warnings": [resolution_trace.fault_of(warning) for warning in answer.warnings],
        "start_warnings": list(answer.question.start_warnings),
        "fault": resolution_trace.fault_of(answer.fault) if answer.fault else None,
    }


def _changes(answer: SimulatedAnswer) -> dict[str, Any]:
    """Return what changes of config.json and of the root file system."""
    before, after = answer.before, answer.after
    old, new = _env(before), _env(after)
    return {
        "env": [entry for entry in new if entry not in old],
        "env_replaced": [entry for entry in old if entry not in new],
        "nodes": [
            path for path in _paths(after, "devices") if path not in _paths(before, "devices")
        ],
        "mounts": [path for path in _mounts(after) if path not in _mounts(before)],
        "hooks": [one for one in _hooks(after) if one not in _hooks(before)],
        "hooks_removed": [one for one in _hooks(before) if one not in _hooks(after)],
        "root": [change.describe() for change in answer.changes] if not answer.fault else [],
        "root_is_known": answer.question.has_root,
    }


def _env(spec: dict[str, Any]) -> list[str]:
    process = spec.get("process")
    env = process.get("env") if isinstance(process, dict) else None
    return [one for one in env if isinstance(one, str)] if isinstance(env, list) else []


def _paths(spec: dict[str, Any], key: str) -> list[str]:
    linux = spec.get("linux")
    held = linux.get(key) if isinstance(linux, dict) else None
    found = held if isinstance(held, list) else []
    return [str(one.get("path")) for one in found if isinstance(one, dict)]


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
