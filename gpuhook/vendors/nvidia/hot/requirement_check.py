# SPDX-License-Identifier: Apache-2.0
"""The check of an image's requirements (NVIDIA_REQUIRE_*) against the driver and the GPUs.

Loaded only for a container that requires something. gpuhook's spec has the facts in the arguments
of its hook (hook_args.py): `--cuda-version 13.0 --driver-version 580.95.05 --gpus 0-7=9.0,nvidia`,
GPUs by their minors. For a spec without our hook, node.json applies if it is of this driver, else
the version of the kernel module.
"""

from __future__ import annotations

from gpuhook.errors import fault
from gpuhook.host.hot import state
from gpuhook.vendors.nvidia.hot import host_fingerprint, node_json, requirements, vocabulary
from gpuhook.vendors.nvidia.hot.requirements import (
    INVALID,
    NEWER,
    OF_GPU,
    UNKNOWN,
    UNMET,
    RequirementFacts,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from gpuhook.apply.rootfs.hook_args import Jobs
    from gpuhook.errors import GpuhookError
    from gpuhook.vendors.nvidia.hot.requirements import Requirement, Term
    from gpuhook.vendors.nvidia.inventory.inventory import Driver, Gpu

_ADVISED = ("cuda", "driver")  # a newer driver may help
_MAX_DOUBTS = 8


class KnownGpu:
    """The known facts about a driver and its GPUs; `gpus` are (minors, arch, brand)."""

    __slots__ = ("_ranges", "cuda", "driver", "gpus")

    def __init__(
        self,
        cuda: str | None = None,
        driver: str | None = None,
        gpus: Iterable[tuple[str, str, str]] = (),
    ) -> None:
        self.cuda = cuda or None
        self.driver = driver or None
        self.gpus = list(gpus)
        self._ranges = [(_read(minors), arch, brand) for minors, arch, brand in self.gpus]

    def of_minor(self, minor: int) -> tuple[str | None, str | None]:
        """Return the compute capability and the brand of a GPU, None for an unknown one."""
        arch = brand = None
        for ranges, its_arch, its_brand in self._ranges:
            if any(first <= minor <= last for first, last in ranges):
                arch, brand = arch or its_arch or None, brand or its_brand or None
        return arch, brand


def facts_of_jobs(todo: Sequence[Jobs]) -> KnownGpu:
    """Return the facts in the jobs of a container's hooks."""
    cuda = next((job.cuda_version for job in todo if job.cuda_version), None)
    driver = next((job.driver_version for job in todo if job.driver_version), None)
    return KnownGpu(cuda, driver, [gpu for job in todo for gpu in job.gpus])


def facts_of_inventory(driver: Driver, gpus: Iterable[Gpu]) -> KnownGpu:
    """Return the facts in an inventory."""
    return KnownGpu(driver.cuda, driver.version, gpu_groups(gpus))


def noted_facts() -> KnownGpu:
    """Return the facts in this node's node.json, else those of its kernel module."""
    module = host_fingerprint.module_version(state.host_root())
    cuda, driver, noted_module, gpus = node_json.versions_and_kinds()
    if module and module != noted_module:
        return KnownGpu(None, module)
    known = [(minor, capability, brand) for minor, _, capability, brand in gpus]
    return KnownGpu(cuda, driver or module, known)


def requirement_facts(
    paths: Iterable[str], known: KnownGpu, more: Callable[[], KnownGpu]
) -> list[RequirementFacts]:
    """Return the facts of each GPU whose node is among `paths`, each sort of GPU once.

    Without such a node, those of the driver alone. `more` is called for facts that `known` lacks.
    """
    minors = sorted(
        int(path[len("/dev/nvidia") :]) for path in paths if vocabulary.is_whole_gpu(path)
    )
    sorts = {minor: known.of_minor(minor) for minor in minors}
    if known.cuda is None or known.driver is None or any(None in sort for sort in sorts.values()):
        other = more()
        gpus = [*known.gpus, *other.gpus]
        known = KnownGpu(known.cuda or other.cuda, known.driver or other.driver, gpus)
        sorts = {minor: known.of_minor(minor) for minor in minors}
    if not minors:
        return [RequirementFacts("", known.cuda, known.driver)]
    by_sort: dict[tuple[str | None, str | None], int] = {}
    for minor, sort in sorts.items():
        by_sort.setdefault(sort, minor)
    return [
        RequirementFacts(f"/dev/nvidia{minor}", known.cuda, known.driver, arch, brand)
        for (arch, brand), minor in by_sort.items()
    ]


def gpu_groups(gpus: Iterable[Gpu]) -> list[tuple[str, str, str]]:
    """Return (minors, compute capability, brand) of each sort of GPU, for hooks' arguments.

    Minors are ranges, 0-3,5. A GPU with neither fact is skipped.
    """
    by_sort: dict[tuple[str, str], list[int]] = {}
    for gpu in gpus:
        sort = (gpu.compute_capability or "", gpu.brand or "")
        if gpu.minor is not None and any(sort):
            by_sort.setdefault(sort, []).append(gpu.minor)
    return [(_ranges(minors), *sort) for sort, minors in by_sort.items()]


def _ranges(minors: Iterable[int]) -> str:
    found: list[list[int]] = []
    for minor in sorted(minors):
        if found and minor == found[-1][1] + 1:
            found[-1][1] = minor
        else:
            found.append([minor, minor])
    return ",".join(str(a) if a == b else f"{a}-{b}" for a, b in found)


def _read(minors: str) -> list[tuple[int, int]]:
    """Return the ranges of minors, without malformed ones."""
    parts = [part.partition("-") for part in minors.split(",")]
    pairs = [(first, last or first) for first, _, last in parts]
    return [(int(a), int(b)) for a, b in pairs if a.isdigit() and b.isdigit()]


def check_requirements(
    environment: Mapping[str, str],
    todo: Sequence[Jobs],
    nodes: Iterable[str],
    noted: Callable[[], KnownGpu],
) -> list[GpuhookError]:
    """Return warnings: a CUDA version newer than the driver's, and terms that cannot be judged.

    `todo` are the jobs of the specs that its GPUs come from, `nodes` the paths of its device nodes;
    `noted` is called for facts that the jobs lack. Raises GH1043 and GH1044 for a requirement that
    is not met, GH1045 for a malformed one, GH1046 for too many.
    """
    if requirements.disabled(environment):
        return []
    required = requirements.required_terms(environment)
    if not required:
        return []
    if len(required) > requirements.MAX_VARIABLES:
        raise fault("GH1046", count=len(required), limit=requirements.MAX_VARIABLES)
    open_terms: dict[str, str] = {}
    newer: dict[str, str] = {}
    for facts in requirement_facts(nodes, facts_of_jobs(todo), noted):
        for requirement in required:
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
    found = [fault("GH1062", version=version, cuda=cuda) for version, cuda in newer.items()]
    if open_terms:
        variables = ", ".join(dict.fromkeys(open_terms.values()))
        terms = ", ".join([*open_terms][:_MAX_DOUBTS])
        found.append(fault("GH1047", variables=variables, terms=terms))
    return found


def _unmet(requirement: Requirement, facts: RequirementFacts) -> GpuhookError:
    """Return the fault of a requirement none of whose alternatives holds.

    The message omits alternatives for GPUs of other brands, unless there are no others.
    """
    every = (
        [term for term in terms if requirements.of_term(term, facts) == UNMET]
        for terms in requirement.alternatives()
    )
    failed = [terms for terms in every if terms]
    relevant = [terms for terms in failed if all(term.name != "brand" for term in terms)]
    relevant = relevant or failed
    shown = dict.fromkeys(" and ".join(_shown(term, facts) for term in terms) for terms in relevant)
    named = {term.name for terms in relevant for term in terms}
    where = f"the GPU of {facts.gpu}" if not named.isdisjoint(OF_GPU) else "this node's driver"
    return fault(
        "GH1044" if named.isdisjoint(_ADVISED) else "GH1043",
        variable=requirement.variable,
        where=where,
        terms="; ".join(shown),
    )


def _shown(term: Term, facts: RequirementFacts) -> str:
    return f"{term.text} (it is {requirements.fact_of(term, facts)})"


def _invalid(requirement: Requirement, facts: RequirementFacts) -> GpuhookError:
    """Return the fault of a malformed requirement, with the first malformed term."""
    read = [list(terms) for terms in requirement.alternatives()]
    bad = next(terms for terms in read if requirements.of_alternative(terms, facts) == INVALID)
    reasons = ((term, requirements.trouble_of(term, facts)) for term in bad)
    term, reason = next((term, reason) for term, reason in reasons if reason)
    shown = term.text[: requirements.MAX_TERM]
    return fault("GH1045", variable=requirement.variable, term=shown, reason=reason)


def _unknown(requirement: Requirement, facts: RequirementFacts) -> dict[str, str]:
    read = [list(terms) for terms in requirement.alternatives()]
    return {
        term.text: requirement.variable
        for terms in read
        if requirements.of_alternative(terms, facts) == UNKNOWN
        for term in terms
        if requirements.of_term(term, facts) == UNKNOWN
    }
