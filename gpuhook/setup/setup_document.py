# SPDX-License-Identifier: Apache-2.0
"""The plan and the results as a document; gpuhook/schemas/setup.json describes it."""

from __future__ import annotations

from typing import Any

from gpuhook.engines.report import configure_text

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gpuhook.setup.setup_facts import SetupFacts
    from gpuhook.setup.setup_plan import EngineStep, SetupPlan, Undo
    from gpuhook.setup.setup_run import SetupResult, StepResult

SCHEMA = "gpuhook/setup/v1"


def setup_document(plan: SetupPlan, result: SetupResult | None, undo: Undo) -> dict[str, Any]:
    """Return the document; `result` is None if the plan was not carried out."""
    return {
        "schema": SCHEMA,
        "carriedOut": result is not None,
        "node": _node(plan.facts),
        "specs": [
            {"path": one.path, "state": one.state, "reason": one.reason} for one in plan.specs
        ],
        "engines": [_engine(one) for one in plan.engines],
        "results": [_result(one) for one in result.steps] if result else [],
        "undo": list(undo.commands),
        "undoNotes": list(undo.notes),
    }


def _node(facts: SetupFacts) -> dict[str, Any]:
    return {
        "driver": facts.driver,
        "gpus": list(facts.gpus),
        "engines": [
            {
                "engine": one.name,
                "version": ".".join(map(str, one.version or ())),
                "needsRoot": one.needs_root,
            }
            for one in facts.engines
        ],
        "nvidia": list(facts.nvidia),
        "kubelet": facts.kubernetes,
    }


def _engine(step: EngineStep) -> dict[str, Any]:
    planned = configure_text.document(step.planned, "configure", is_dry=True)
    return {
        "engine": step.engine,
        "route": step.options.route,
        "runtimeName": step.options.name,
        "changes": planned["changes"],
        "restarts": step.restarts,
        "endsContainers": step.ends_containers,
        "notes": [*([step.note] if step.note else []), *step.planned.notes],
    }


def _result(one: StepResult) -> dict[str, Any]:
    error = one.error and {
        "code": one.error.code,
        "message": one.error.message,
        "hint": one.error.hint,
    }
    return {
        "step": one.step,
        "engine": one.engine,
        "state": one.state,
        "lines": list(one.lines),
        **({"error": error} if error else {}),
    }
