# SPDX-License-Identifier: Apache-2.0
"""The requirements of the image on the driver, checked for each GPU of the container."""

from __future__ import annotations

from typing import Any

from gpuhook.vendors.container_requests import JudgedRequirements
from gpuhook.vendors.nvidia.hot import requirement_check, requirements
from gpuhook.vendors.nvidia.hot.requirements import (
    INVALID,
    MET,
    NEWER,
    OF_GPU,
    UNKNOWN,
    UNMET,
    RequirementFacts,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from gpuhook.vendors.nvidia.hot.requirements import Requirement, Term
    from gpuhook.vendors.nvidia.inventory.inventory import Node

_GPUHOOK = {
    MET: "gpuhook starts it",
    UNMET: "gpuhook refuses it",
    NEWER: "gpuhook starts it with a warning: the driver's CUDA version is older, with the same"
    " major version",
    INVALID: "gpuhook refuses it",
    UNKNOWN: "gpuhook starts it, with a warning about the unknown terms",
}
_NVIDIA = {
    MET: "so does NVIDIA's runtime in all modes",
    UNMET: "NVIDIA's runtime refuses it in legacy mode (`unsatisfied condition`), and starts it in"
    " the CDI modes, cdi and jit-cdi (the default since 1.18), which ignore requirements",
    NEWER: "NVIDIA's runtime refuses it in legacy mode, and starts it in the CDI modes",
    INVALID: "NVIDIA's runtime refuses it in legacy mode (`invalid expression`), and starts it in"
    " the CDI modes, cdi and jit-cdi (the default since 1.18), which ignore requirements",
    UNKNOWN: "so does NVIDIA's runtime in all modes, if it knows neither",
}


def judged_requirements(
    environment: Mapping[str, str], node: Node | None, nodes: Collection[str]
) -> JudgedRequirements:
    """Return the requirements, judged by the facts of `node`; `nodes` are paths of device nodes."""
    facts = _facts(node, nodes)
    items = tuple(_requirement(one, facts) for one in requirements.required_terms(environment))
    verdict = _worst([one["verdict"] for one in items])
    is_waived = requirements.disabled(environment)
    waiver = f"{requirements.DISABLE} waives them, including for NVIDIA's runtime"
    effect = f"{_GPUHOOK[verdict]}; {_NVIDIA[verdict]}"
    return JudgedRequirements(items, verdict, effect, waiver if is_waived else "")


def _facts(node: Node | None, gpu_nodes: Collection[str]) -> list[RequirementFacts]:
    """Return the facts of each kind of GPU that the container gets; for none, of the driver.

    As the runtime does, but without reading this machine.
    """
    known = (
        requirement_check.facts_of_inventory(node.driver, node.gpus)
        if node
        else requirement_check.KnownGpu()
    )
    found = requirement_check.requirement_facts(gpu_nodes, known, lambda: known)
    names = {f"/dev/nvidia{gpu.minor}": gpu.uuid for gpu in (node.gpus if node else ())}
    for facts in found:
        facts.gpu = names.get(facts.gpu) or facts.gpu
    return found


def _requirement(one: Requirement, facts: list[RequirementFacts]) -> dict[str, Any]:
    verdicts = [requirements.of_requirement(one, fact) for fact in facts]
    return {
        "variable": one.variable,
        "text": one.text,
        "verdict": _worst(verdicts),
        "alternatives": [
            {
                "verdict": _worst([requirements.of_alternative(terms, fact) for fact in facts]),
                "terms": [_term(term, fact) for term in terms for fact in _distinct(term, facts)],
            }
            for terms in map(tuple, one.alternatives())
        ],
    }


def _distinct(term: Term, facts: list[RequirementFacts]) -> list[RequirementFacts]:
    """Return one of the facts for each value that a term is compared with."""
    if term.trouble:
        return facts[:1]
    return list({requirements.fact_of(term, fact): fact for fact in facts}.values())


def _term(term: Term, fact: RequirementFacts) -> dict[str, Any]:
    is_of_gpu = term.name in OF_GPU and not term.trouble
    trouble = requirements.trouble_of(term, fact)
    return {
        "term": term.text,
        "verdict": requirements.of_term(term, fact),
        "is": None if trouble else requirements.fact_of(term, fact),
        "gpu": fact.gpu if is_of_gpu and fact.gpu else None,
        "trouble": trouble,
    }


def _worst(verdicts: list[str]) -> str:
    return next((one for one in (INVALID, UNMET, UNKNOWN, NEWER) if one in verdicts), MET)
