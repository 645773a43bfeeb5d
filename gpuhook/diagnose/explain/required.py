# SPDX-License-Identifier: Apache-2.0
"""What the image requires of the driver, judged for each GPU that the container would get."""

from __future__ import annotations

from typing import Any

from gpuhook.vendors.nvidia import requirements
from gpuhook.vendors.nvidia.requirements import INVALID, MET, UNKNOWN, UNMET, Facts

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from gpuhook.vendors.nvidia.inventory import Gpu, Node
    from gpuhook.vendors.nvidia.requirements import Requirement, Term

_NOT_ENFORCED = "gpuhook-runtime does not enforce requirements: the container starts whatever holds"
_NVIDIA = {
    MET: "NVIDIA's runtime starts it, in every mode",
    UNMET: "NVIDIA's runtime refuses it in legacy mode (`unsatisfied condition`), and starts it in"
    " its modes of CDI, cdi and jit-cdi (the default since 1.18), which read no requirements",
    INVALID: "NVIDIA's runtime refuses it in legacy mode (`invalid expression`), and starts it in"
    " its modes of CDI, cdi and jit-cdi (the default since 1.18), which read no requirements",
    UNKNOWN: "whether NVIDIA's runtime starts it in legacy mode cannot be told without those facts;"
    " its modes of CDI, cdi and jit-cdi (the default since 1.18), read no requirements",
}


def of(
    environment: Mapping[str, str], node: Node | None, gpu_nodes: Collection[str]
) -> dict[str, Any]:
    """Return the requirements in the document's shape, judged by what is known of `node`.

    `gpu_nodes` are the paths of the device nodes that the container gets.
    """
    asked = requirements.asked(environment)
    facts = facts_of(node, gpu_nodes)
    disabled = requirements.disabled(environment)
    items = [_requirement(one, facts) for one in asked]
    verdict = _worst([one["verdict"] for one in items])
    if not items:
        note = "the image requires nothing"
    elif disabled:
        note = f"{requirements.DISABLE} waives them, to NVIDIA's runtime too"
    else:
        note = f"{_NOT_ENFORCED}; {_NVIDIA[verdict]}"
    return {
        "enforced": False,
        "disabled": disabled,
        "verdict": verdict,
        "note": note,
        "items": items,
    }


def facts_of(node: Node | None, gpu_nodes: Collection[str]) -> list[Facts]:
    """Return the facts of each GPU of which a device node is given; the driver's alone for none."""
    if node is None:
        return [Facts("")]
    cuda, version = node.driver.cuda, node.driver.version
    given = [gpu for gpu in node.gpus if _is_given(gpu, gpu_nodes)]
    if not given:
        return [Facts("", cuda, version)]
    return [
        Facts(gpu.uuid or str(gpu.index), cuda, version, gpu.compute_capability, gpu.brand)
        for gpu in given
    ]


def _is_given(gpu: Gpu, gpu_nodes: Collection[str]) -> bool:
    return gpu.minor is not None and f"/dev/nvidia{gpu.minor}" in gpu_nodes


def _requirement(one: Requirement, facts: list[Facts]) -> dict[str, Any]:
    verdicts = [requirements.of_requirement(one, fact) for fact in facts]
    return {
        "variable": one.variable,
        "text": one.text,
        "verdict": _worst(verdicts),
        "alternatives": [
            {
                "verdict": _worst([requirements.of_alternative(terms, fact) for fact in facts]),
                "terms": [_term(term, fact) for term in terms for fact in _telling(term, facts)],
            }
            for terms in one.alternatives
        ],
    }


def _telling(term: Term, facts: list[Facts]) -> list[Facts]:
    """Return the facts by which a term is judged differently: one for each value there is."""
    by_value = {requirements.fact_of(term, fact): fact for fact in facts}
    return list(by_value.values()) if not term.trouble else facts[:1]


def _term(term: Term, fact: Facts) -> dict[str, Any]:
    is_of_gpu = term.name in ("arch", "brand") and not term.trouble
    return {
        "term": term.text,
        "verdict": requirements.of_term(term, fact),
        "is": None if term.trouble else requirements.fact_of(term, fact),
        "gpu": fact.gpu if is_of_gpu and fact.gpu else None,
        "trouble": term.trouble,
    }


def _worst(verdicts: list[str]) -> str:
    return next((one for one in (INVALID, UNMET, UNKNOWN) if one in verdicts), MET)
