# SPDX-License-Identifier: Apache-2.0
"""Answers as the document gpuhook/explain/v1, of which text and graph are made too."""

from __future__ import annotations

from typing import Any

from gpuhook.diagnose.explain import answer as answers
from gpuhook.diagnose.explain import ignored, manifests, parts, required, shares
from gpuhook.diagnose.explain import question as kinds
from gpuhook.diagnose.explain.requests import capabilities_of, grant_of
from gpuhook.grant import request
from gpuhook.programs.create import ENGINE, WRAPPER
from gpuhook.vendors.nvidia import words

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

    from gpuhook.diagnose.explain.answer import Answer
    from gpuhook.diagnose.explain.ground import Ground

SCHEMA = "gpuhook/explain/v1"
GETS, STARTS_WITHOUT, REFUSED, NOTHING = "gets", "starts-without", "refused", "nothing"
_ROUTES = {
    WRAPPER: "gpuhook-runtime edits config.json before the low-level runtime starts",
    ENGINE: "the engine has applied a CDI spec of gpuhook's; gpuhook-runtime checks it and keeps"
    " the record",
    "": "gpuhook-runtime leaves config.json as it is",
}


def of(found: Iterable[Answer], ground: Ground) -> dict[str, Any]:
    """Return the document of the answers that were found on one ground."""
    return {
        "schema": SCHEMA,
        "node": _node(ground),
        "containers": [_container(answer, ground) for answer in found],
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
            parts.fault_of(spec.error) for spec in ground.granting.registry().broken if spec.error
        ],
    }


def _container(answer: Answer, ground: Ground) -> dict[str, Any]:
    granting, chosen = ground.granting, answer.verdict.chosen
    environment = request.environment(answer.asked)
    capabilities = capabilities_of(answer.asked)
    names = chosen.names if chosen else []
    grant = grant_of(answer, granting, capabilities)
    devices = parts.of_names(names, granting, capabilities)
    nodes = [path for one in devices for path in one["nodes"]]
    memory = shares.limits(answer.edited)
    gpus = shares.gpus(grant, ground.node)
    is_pod = answer.question.kind == kinds.POD
    return {
        "kind": answer.question.kind,
        "where": answer.question.where,
        "notes": list(answer.question.notes),
        "pod": manifests.document(answer.question),
        "result": _result(answer),
        "sources": list(answers.sources(answer.verdict)),
        "capabilities": {
            "asked": environment.get(words.VOCABULARY.capabilities_env),
            "effective": sorted(capabilities) if names else [],
            "left_out": parts.left_out(grant, granting, capabilities),
        },
        "requirements": required.of(environment, ground.node, nodes),
        "devices": devices,
        "specs": parts.of_specs(grant, capabilities),
        "changes": _changes(answer),
        "replicas": grant.replicas,
        "memory": memory,
        "isolation": shares.isolated(answer.asked, gpus, grant.replicas, memory, is_pod=is_pod),
        "route": _route(answer),
        "ignored": ignored.of(answer.asked, devices),
        "warnings": [parts.fault_of(warning) for warning in answer.warnings],
        "fault": parts.fault_of(answer.fault) if answer.fault else None,
    }


def _result(answer: Answer) -> str:
    if answer.fault is not None:
        return REFUSED
    if answer.edited.route:
        return GETS
    return STARTS_WITHOUT if answer.edited.source is not None else NOTHING


def _route(answer: Answer) -> dict[str, Any]:
    if answer.fault is not None:
        return {
            "name": "none",
            "note": "gpuhook-runtime ends with that fault, and no container is made",
        }
    return {"name": answer.edited.route or "none", "note": _ROUTES[answer.edited.route]}


def _changes(answer: Answer) -> dict[str, Any]:
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
    return [entry for entry in env or () if isinstance(entry, str)] if env else []


def _paths(spec: dict[str, Any], key: str) -> list[str]:
    linux = spec.get("linux")
    held = linux.get(key) if isinstance(linux, dict) else None
    return [str(one.get("path")) for one in held or () if isinstance(one, dict)] if held else []


def _mounts(spec: dict[str, Any]) -> list[str]:
    held = spec.get("mounts")
    found = held if isinstance(held, list) else []
    return [str(mount.get("destination")) for mount in found if isinstance(mount, dict)]


def _hooks(spec: dict[str, Any]) -> list[dict[str, Any]]:
    stages = spec.get("hooks")
    return [
        {**parts.hook(hook), "stage": stage}
        for stage, hooks in (stages.items() if isinstance(stages, dict) else ())
        for hook in (hooks if isinstance(hooks, list) else ())
        if isinstance(hook, dict)
    ]
