# SPDX-License-Identifier: Apache-2.0
"""What a container's image requires of the driver and of the GPUs it gets: refused where it is not.

Loaded only for a container that requires something.
"""

from __future__ import annotations

from gpuhook.errors import fault
from gpuhook.vendors.nvidia.hot import gpu_facts, requirements
from gpuhook.vendors.nvidia.hot.requirements import INVALID, NEWER, OF_GPU, UNKNOWN, UNMET

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from gpuhook.errors import GpuhookError
    from gpuhook.vendors.nvidia.hot.gpu_facts import KnownGpu
    from gpuhook.vendors.nvidia.hot.requirements import Requirement, RequirementFacts, Term
    from gpuhook.vendors.nvidia.hot.rootfs.hook_args import Jobs

_ADVISED = ("cuda", "driver")  # a newer driver may help
_MAX_DOUBTS = 8


def doubts(
    environment: Mapping[str, str],
    todo: Sequence[Jobs],
    nodes: Iterable[str],
    noted: Callable[[], KnownGpu],
) -> list[GpuhookError]:
    """Return warnings: a CUDA version newer than the driver's, what could not be judged.

    `todo` are the jobs of the descriptions that its GPUs come from, `nodes` the paths of its
    device nodes; `noted` is asked for what the jobs do not tell. Raises GH1043 and GH1044 for a
    requirement that is not met, GH1045 for one that cannot be read, GH1046 for too many.
    """
    if requirements.disabled(environment):
        return []
    asked = requirements.required_terms(environment)
    if not asked:
        return []
    if len(asked) > requirements.MAX_VARIABLES:
        raise fault("GH1046", count=len(asked), limit=requirements.MAX_VARIABLES)
    open_terms: dict[str, str] = {}
    newer: dict[str, str] = {}
    for facts in gpu_facts.of_paths(nodes, gpu_facts.of_jobs(todo), noted):
        for requirement in asked:
            verdict = requirements.of_requirement(requirement, facts)
            if verdict == UNMET:
                raise _unmet(requirement, facts)
            if verdict == INVALID:
                raise _invalid(requirement, facts)
            if verdict == NEWER:
                newer[requirement.text.rpartition("=")[2]] = facts.cuda or ""
            if verdict == UNKNOWN:
                open_terms.update(_unknown(requirement, facts))
    return _warnings(newer, open_terms)


def _warnings(newer: Mapping[str, str], open_terms: Mapping[str, str]) -> list[GpuhookError]:
    """Return a warning for each version in `newer`, and one for all terms with their variables."""
    found = [fault("GH1062", version=version, cuda=cuda) for version, cuda in newer.items()]
    if open_terms:
        variables = ", ".join(dict.fromkeys(open_terms.values()))
        terms = ", ".join([*open_terms][:_MAX_DOUBTS])
        found.append(fault("GH1047", variables=variables, terms=terms))
    return found


def _unmet(requirement: Requirement, facts: RequirementFacts) -> GpuhookError:
    """Return the fault of a requirement no alternative of which holds.

    Alternatives for GPUs of other brands say nothing about this one, as long as there are others.
    """
    every = (
        [term for term in terms if requirements.of_term(term, facts) == UNMET]
        for terms in requirement.alternatives()
    )
    failed = [terms for terms in every if terms]
    own = [terms for terms in failed if all(term.name != "brand" for term in terms)] or failed
    told = dict.fromkeys(" and ".join(_shown(term, facts) for term in terms) for terms in own)
    named = {term.name for terms in own for term in terms}
    where = f"the GPU of {facts.gpu}" if not named.isdisjoint(OF_GPU) else "this node's driver"
    return fault(
        "GH1044" if named.isdisjoint(_ADVISED) else "GH1043",
        variable=requirement.variable,
        where=where,
        terms="; ".join(told),
    )


def _shown(term: Term, facts: RequirementFacts) -> str:
    return f"{term.text} (it is {requirements.fact_of(term, facts)})"


def _invalid(requirement: Requirement, facts: RequirementFacts) -> GpuhookError:
    """Return the fault of a requirement that cannot be read, by the term that was come to."""
    read = [list(terms) for terms in requirement.alternatives()]
    bad = next(terms for terms in read if requirements.of_alternative(terms, facts) == INVALID)
    told = ((term, requirements.trouble_of(term, facts)) for term in bad)
    term, reason = next((term, reason) for term, reason in told if reason)
    shown = term.text[: requirements.MAX_TERM]
    return fault("GH1045", variable=requirement.variable, term=shown, reason=reason)


def _unknown(requirement: Requirement, facts: RequirementFacts) -> dict[str, str]:
    """Return the terms that could not be judged, each with its variable."""
    read = [list(terms) for terms in requirement.alternatives()]
    return {
        term.text: requirement.variable
        for terms in read
        if requirements.of_alternative(terms, facts) == UNKNOWN
        for term in terms
        if requirements.of_term(term, facts) == UNKNOWN
    }
