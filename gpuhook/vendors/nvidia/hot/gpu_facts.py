# SPDX-License-Identifier: Apache-2.0
"""What requirements are judged by, of the GPUs that a container gets.

Imported only for a container that requires something. A description of the node has it in the
arguments of its hook (hook_args.py): `--cuda-version 13.0 --driver-version 580.95.05 --gpus
0-7=9.0,nvidia`, GPUs by their minors. Descriptions without our hook have not: there counts what
generate-cdi noted, if it was of this driver, else the version of the kernel module.
"""

from __future__ import annotations

from gpuhook.host.hot import state
from gpuhook.vendors.nvidia.hot import host_fingerprint, node_json, vocabulary
from gpuhook.vendors.nvidia.hot.requirements import RequirementFacts

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from gpuhook.vendors.nvidia.hot.rootfs.hook_args import Jobs
    from gpuhook.vendors.nvidia.inventory.inventory import Driver, Gpu


class KnownGpu:
    """What somebody knows of a driver and its GPUs; `gpus` are (minors, arch, brand)."""

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
        """Return the compute capability and the brand of a GPU, None for what is not known."""
        arch = brand = None
        for ranges, its_arch, its_brand in self._ranges:
            if any(first <= minor <= last for first, last in ranges):
                arch, brand = arch or its_arch or None, brand or its_brand or None
        return arch, brand


def of_jobs(todo: Sequence[Jobs]) -> KnownGpu:
    """Return what the jobs of a container's hooks say."""
    cuda = next((job.cuda_version for job in todo if job.cuda_version), None)
    driver = next((job.driver_version for job in todo if job.driver_version), None)
    return KnownGpu(cuda, driver, [gpu for job in todo for gpu in job.gpus])


def of_node(driver: Driver, gpus: Iterable[Gpu]) -> KnownGpu:
    """Return what an inventory says."""
    return KnownGpu(driver.cuda, driver.version, grouped(gpus))


def noted() -> KnownGpu:
    """Return what generate-cdi noted of this node, else what its kernel module tells."""
    module = host_fingerprint.module_version(state.host_root())
    cuda, driver, noted_module, gpus = node_json.versions_and_kinds()
    if module and module != noted_module:
        return KnownGpu(None, module)
    return KnownGpu(cuda, driver or module, gpus)


def of_paths(
    paths: Iterable[str], known: KnownGpu, more: Callable[[], KnownGpu]
) -> list[RequirementFacts]:
    """Return the facts of each GPU whose node is among `paths`, each sort of GPU once.

    Without such a node, those of the driver alone. `more` is asked for what `known` lacks.
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


def grouped(gpus: Iterable[Gpu]) -> list[tuple[str, str, str]]:
    """Return (minors, compute capability, brand) of each sort of GPU, as hooks' arguments say it.

    Minors are ranges, 0-3,5. A GPU of which neither is known is left out.
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
    """Return the ranges of minors, without what is none."""
    parts = [part.partition("-") for part in minors.split(",")]
    pairs = [(first, last or first) for first, _, last in parts]
    return [(int(a), int(b)) for a, b in pairs if a.isdigit() and b.isdigit()]
