# SPDX-License-Identifier: Apache-2.0
"""Memory per container: how it is attributed, and what remains unattributed."""

from __future__ import annotations

from gpuhook.device_plugin.metrics.cgroup_names import Membership
from gpuhook.device_plugin.metrics.container_memory import (
    ContainerMemory,
    DeviceUse,
    HolderEntry,
    MemoryLimitFact,
    MemoryShare,
    container_memory,
    shares,
    unattributed,
)
from gpuhook.device_plugin.metrics.unit_holders import Holder
from gpuhook.device_plugin.offer.offered_devices import Device, Resource, Unit, UnitMemory
from gpuhook.request.memory_request import NO_LIMIT
from gpuhook.vendors.nvidia.nvml.gpu_usage import ProcessUse

GPU = "GPU-0"
DEVICE = Device(GPU, "0", GPU, 0, (), (), "Tesla T4", 1000)
UNITS = tuple(Unit(f"{GPU}::{n}", DEVICE, n) for n in range(4))
SHARED = shares([Resource("nvidia.com/gpu", UNITS)])
A, B = "aa" * 32, "bb" * 32
TRAINER, SERVER = Holder("demo", "trainer", "main"), Holder("demo", "server", "main")


def process(pid: int, memory: int | None) -> ProcessUse:
    return ProcessUse(pid, memory, None, None, "compute")


def use(*processes: ProcessUse, used: int | None = 900) -> DeviceUse:
    return DeviceUse(GPU, 1000, used, processes)


def member(identity: str, *, in_pod: bool = True) -> Membership:
    return Membership((identity,), in_pod)


def test_the_ledger_joins_processes_and_replicas() -> None:
    """With ledger and kubelet, each container has its use and share; the rest is unattributed."""
    entries = {
        A: HolderEntry(A, "demo", "trainer", "main", (f"{GPU}::0",)),
        B: HolderEntry(B, "demo", "server", "main", (f"{GPU}::1", f"{GPU}::2")),
    }
    holders = {f"{GPU}::0": TRAINER, f"{GPU}::1": SERVER, f"{GPU}::2": SERVER}
    uses = use(process(1, 300), process(2, 100), process(3, 50), process(4, 77))
    members = {1: member(A), 2: member(A), 3: member(B), 4: Membership()}
    found = container_memory([uses], members, entries, holders, SHARED)
    assert found == (
        ContainerMemory(GPU, "demo", "server", "main", 50, 500),
        ContainerMemory(GPU, "demo", "trainer", "main", 400, 250),
    )
    assert unattributed(uses, found) == 450


def test_a_holder_that_uses_nothing_uses_0() -> None:
    """A container that the ledger knows and that has no process on the GPU is idle."""
    entries = {A: HolderEntry(A, "demo", "trainer", "main", (f"{GPU}::0",))}
    holders = {f"{GPU}::0": TRAINER, f"{GPU}::1": SERVER}
    assert container_memory([use()], {}, entries, holders, SHARED) == (
        ContainerMemory(GPU, "demo", "server", "main", None, 250),
        ContainerMemory(GPU, "demo", "trainer", "main", 0, 250),
    )


def test_without_a_ledger_the_only_holder_is_meant() -> None:
    """A GPU with one holder needs no ledger; processes outside of pods are not that holder's."""
    members = {1: member(A), 2: member(B, in_pod=False)}
    found = container_memory(
        [use(process(1, 300), process(2, 5))], members, {}, {f"{GPU}::0": TRAINER}, SHARED
    )
    assert found == (
        ContainerMemory(GPU, "", "", B, 5, None),
        ContainerMemory(GPU, "demo", "trainer", "main", 300, 250),
    )


def test_without_a_ledger_several_holders_stay_apart() -> None:
    """A process that may belong to several holders is listed by its container's id."""
    holders = {f"{GPU}::0": TRAINER, f"{GPU}::1": SERVER}
    found = container_memory([use(process(1, 300))], {1: member(A)}, {}, holders, SHARED)
    assert found == (
        ContainerMemory(GPU, "", "", A, 300, None),
        ContainerMemory(GPU, "demo", "server", "main", None, 250),
        ContainerMemory(GPU, "demo", "trainer", "main", None, 250),
    )


def test_without_the_kubelet_the_ledger_has_the_shares() -> None:
    """Containers of Docker and podman have a share as well; they go by their id."""
    entries = {"web": HolderEntry("web", units=(f"{GPU}::3",))}
    found = container_memory([use(process(1, 10))], {1: Membership(("web",))}, entries, {}, SHARED)
    assert found == (ContainerMemory(GPU, "", "", "web", 10, 250),)


def test_what_the_driver_cannot_tell_is_not_0() -> None:
    """Unknown memory of a process gives no number, and no processes give nothing to attribute."""
    entries = {A: HolderEntry(A, "demo", "trainer", "main", (f"{GPU}::0",))}
    holders = {f"{GPU}::0": TRAINER}
    (found,) = container_memory([use(process(1, None))], {1: member(A)}, entries, holders, SHARED)
    assert (found.used_bytes, found.fair_share_bytes) == (None, 250)
    silent = DeviceUse(GPU, 1000, 900, None)
    (found,) = container_memory([silent], {}, entries, holders, SHARED)
    assert found.used_bytes is None
    assert unattributed(silent, (found,)) is None
    assert unattributed(use(used=None), ()) is None


def test_processes_that_use_more_than_is_used_leave_0() -> None:
    """Values of two moments need not agree: unattributed memory is never negative."""
    found = (ContainerMemory(GPU, "", "", A, 950, None),)
    assert unattributed(use(used=900), found) == 0


def test_a_process_that_computes_and_draws_counts_once() -> None:
    """The driver tells such a process for each kind of use, with all of its memory."""
    entries = {A: HolderEntry(A, "demo", "trainer", "main", (f"{GPU}::0",))}
    uses = use(process(1, 300), process(1, 300), process(1, None))
    (found,) = container_memory([uses], {1: member(A)}, entries, {f"{GPU}::0": TRAINER}, SHARED)
    assert found.used_bytes == 300


def test_whole_devices_are_their_own_share() -> None:
    """A device that is not shared is one unit, of all its memory."""
    assert shares([Resource("nvidia.com/gpu", (Unit(GPU, DEVICE),))]) == {
        GPU: MemoryShare(GPU, 1000)
    }
    mute = Device(GPU, "0", GPU, 0, (), ())
    assert shares([Resource("nvidia.com/gpu", (Unit(GPU, mute),))]) == {GPU: MemoryShare(GPU)}


LIMITED = Resource("nvidia.com/gpu", UNITS, "time-slicing", memory={GPU: UnitMemory(240, 200)})


def limits_of(
    entries: dict[str, HolderEntry], holders: dict[str, Holder], resource: Resource = LIMITED
) -> list[tuple[str, int | None, int | None, str]]:
    """Return container, limit, guarantee and who holds it, where the plugin ends processes."""
    found = container_memory([use()], {}, entries, holders, shares([resource], guards=True))
    return [(one.pod, one.limit_bytes, one.guaranteed_bytes, one.limited_by) for one in found]


def test_the_ledger_says_what_the_driver_holds() -> None:
    """A limit that was set and read back is the driver's; one that was only granted is watched."""
    entries = {
        A: HolderEntry(
            A, "demo", "trainer", "main", memory=(MemoryLimitFact(GPU, 150, 100, is_held=True),)
        ),
        B: HolderEntry(B, "demo", "server", "main", memory=(MemoryLimitFact(GPU, 240, 200),)),
    }
    holders = {f"{GPU}::0": TRAINER, f"{GPU}::1": SERVER}
    assert limits_of(entries, holders) == [
        ("server", 240, 200, "guard"),
        ("trainer", 150, 100, "driver"),
    ]


def test_without_a_record_the_units_say_it() -> None:
    """Another runtime writes no ledger: the limit is that of the units, and is not enforced."""
    holders = {f"{GPU}::0": SERVER, f"{GPU}::1": SERVER}
    assert limits_of({}, holders) == [("server", 480, 400, "guard")]
    by_mps = Resource("nvidia.com/gpu", UNITS, "mps", memory={GPU: UnitMemory(240, 240)})
    assert limits_of({}, holders, by_mps) == [("server", 480, 480, "mps")]


def test_a_container_that_is_older_than_the_limit_of_its_units_has_none() -> None:
    """The configuration has changed since. The server of MPS needs no record."""
    entries = {A: HolderEntry(A, "demo", "server", "main", (f"{GPU}::0",))}
    holders = {f"{GPU}::0": SERVER}
    assert limits_of(entries, holders) == [("server", None, None, "nobody")]
    by_mps = Resource("nvidia.com/gpu", UNITS, "mps", memory={GPU: UnitMemory(240, 240)})
    assert limits_of(entries, holders, by_mps) == [("server", 240, 240, "mps")]


def test_a_record_of_the_youngest_container_counts() -> None:
    """The ledger may still know the container that was there before a restart: it comes first."""
    entries = {
        A: HolderEntry(A, "demo", "server", "main", memory=(MemoryLimitFact(GPU, 100, 100),)),
        B: HolderEntry(B, "demo", "server", "main", memory=(MemoryLimitFact(GPU, 240, 200),)),
    }
    assert limits_of(entries, {f"{GPU}::1": SERVER}) == [("server", 240, 200, "guard")]


def test_a_request_alone_is_no_limit() -> None:
    """A container that is only kept something for may use all."""
    entries = {
        "web": HolderEntry("web", memory=(MemoryLimitFact(GPU, NO_LIMIT, 100, is_held=True),))
    }
    (found,) = container_memory([use()], {}, entries, {}, {})
    assert (found.limit_bytes, found.guaranteed_bytes, found.limited_by) == (None, 100, "driver")
