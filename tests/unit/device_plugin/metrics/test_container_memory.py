# SPDX-License-Identifier: Apache-2.0
"""Memory per container: attribution, limits, and unattributed memory."""

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
from gpuhook.vendors.usage_device import ProcessOnDevice

GPU = "GPU-0"
DEVICE = Device(GPU, "0", GPU, 0, (), (), "Tesla T4", 1000)
UNITS = tuple(Unit(f"{GPU}::{n}", DEVICE, n) for n in range(4))
SHARED = shares([Resource("nvidia.com/gpu", UNITS)])
A, B = "aa" * 32, "bb" * 32
TRAINER, SERVER = Holder("demo", "trainer", "main"), Holder("demo", "server", "main")


def process(pid: int, memory: int | None) -> ProcessOnDevice:
    return ProcessOnDevice(pid, memory)


def device_use(*processes: ProcessOnDevice, used: int | None = 900) -> DeviceUse:
    return DeviceUse(GPU, 1000, used, processes)


def member(identity: str, *, in_pod: bool = True) -> Membership:
    return Membership((identity,), in_pod)


def test_ledger_and_kubelet_give_use_and_share() -> None:
    """The remaining memory is unattributed."""
    entries = {
        A: HolderEntry(A, "demo", "trainer", "main", (f"{GPU}::0",)),
        B: HolderEntry(B, "demo", "server", "main", (f"{GPU}::1", f"{GPU}::2")),
    }
    holders = {f"{GPU}::0": TRAINER, f"{GPU}::1": SERVER, f"{GPU}::2": SERVER}
    uses = device_use(process(1, 300), process(2, 100), process(3, 50), process(4, 77))
    members = {1: member(A), 2: member(A), 3: member(B), 4: Membership()}
    found = container_memory([uses], members, entries, holders, SHARED)
    assert found == (
        ContainerMemory(GPU, "demo", "server", "main", 50, 500),
        ContainerMemory(GPU, "demo", "trainer", "main", 400, 250),
    )
    assert unattributed(uses, found) == 450


def test_container_without_a_process_uses_0() -> None:
    """The use of a container without a ledger entry is unknown."""
    entries = {A: HolderEntry(A, "demo", "trainer", "main", (f"{GPU}::0",))}
    holders = {f"{GPU}::0": TRAINER, f"{GPU}::1": SERVER}
    assert container_memory([device_use()], {}, entries, holders, SHARED) == (
        ContainerMemory(GPU, "demo", "server", "main", None, 250),
        ContainerMemory(GPU, "demo", "trainer", "main", 0, 250),
    )


def test_only_holder_needs_no_ledger() -> None:
    """Processes outside of pods do not belong to that holder."""
    members = {1: member(A), 2: member(B, in_pod=False)}
    found = container_memory(
        [device_use(process(1, 300), process(2, 5))], members, {}, {f"{GPU}::0": TRAINER}, SHARED
    )
    assert found == (
        ContainerMemory(GPU, "", "", B, 5, None),
        ContainerMemory(GPU, "demo", "trainer", "main", 300, 250),
    )


def test_several_holders_without_a_ledger_are_not_attributed() -> None:
    """The process is listed by the id of its container."""
    holders = {f"{GPU}::0": TRAINER, f"{GPU}::1": SERVER}
    found = container_memory([device_use(process(1, 300))], {1: member(A)}, {}, holders, SHARED)
    assert found == (
        ContainerMemory(GPU, "", "", A, 300, None),
        ContainerMemory(GPU, "demo", "server", "main", None, 250),
        ContainerMemory(GPU, "demo", "trainer", "main", None, 250),
    )


def test_ledger_gives_shares_without_the_kubelet() -> None:
    """Containers of Docker and podman are listed by their id."""
    entries = {"web": HolderEntry("web", units=(f"{GPU}::3",))}
    found = container_memory(
        [device_use(process(1, 10))], {1: Membership(("web",))}, entries, {}, SHARED
    )
    assert found == (ContainerMemory(GPU, "", "", "web", 10, 250),)


def test_unknown_memory_is_not_0() -> None:
    """Without processes, no memory is attributed or unattributed."""
    entries = {A: HolderEntry(A, "demo", "trainer", "main", (f"{GPU}::0",))}
    holders = {f"{GPU}::0": TRAINER}
    (found,) = container_memory(
        [device_use(process(1, None))], {1: member(A)}, entries, holders, SHARED
    )
    assert (found.used_bytes, found.fair_share_bytes) == (None, 250)
    silent = DeviceUse(GPU, 1000, 900, None)
    (found,) = container_memory([silent], {}, entries, holders, SHARED)
    assert found.used_bytes is None
    assert unattributed(silent, (found,)) is None
    assert unattributed(device_use(used=None), ()) is None


def test_unattributed_memory_is_never_negative() -> None:
    """The two values are read at different times."""
    found = (ContainerMemory(GPU, "", "", A, 950, None),)
    assert unattributed(device_use(used=900), found) == 0


def test_compute_and_graphics_process_is_counted_once() -> None:
    """The driver lists it for each kind, with all of its memory."""
    entries = {A: HolderEntry(A, "demo", "trainer", "main", (f"{GPU}::0",))}
    uses = device_use(process(1, 300), process(1, 300), process(1, None))
    (found,) = container_memory([uses], {1: member(A)}, entries, {f"{GPU}::0": TRAINER}, SHARED)
    assert found.used_bytes == 300


def test_share_of_a_whole_device_is_all_its_memory() -> None:
    assert shares([Resource("nvidia.com/gpu", (Unit(GPU, DEVICE),))]) == {
        GPU: MemoryShare(GPU, 1000)
    }
    mute = Device(GPU, "0", GPU, 0, (), ())
    assert shares([Resource("nvidia.com/gpu", (Unit(GPU, mute),))]) == {GPU: MemoryShare(GPU)}


LIMITED = Resource("nvidia.com/gpu", UNITS, "time-slicing", memory={GPU: UnitMemory(240, 200)})


def limits_of(
    entries: dict[str, HolderEntry], holders: dict[str, Holder], resource: Resource = LIMITED
) -> list[tuple[str, int | None, int | None, str]]:
    """Return pod, limit, guarantee and enforcing component of each container, with a guard."""
    found = container_memory([device_use()], {}, entries, holders, shares([resource], guards=True))
    return [(one.pod, one.limit_bytes, one.guaranteed_bytes, one.limited_by) for one in found]


def test_limit_in_the_ledger_is_of_the_driver_or_the_guard() -> None:
    """The driver enforces a limit that was set and read back."""
    entries = {
        A: HolderEntry(
            A, "demo", "trainer", "main", memory=(MemoryLimitFact(GPU, 150, 100, "driver"),)
        ),
        B: HolderEntry(B, "demo", "server", "main", memory=(MemoryLimitFact(GPU, 240, 200),)),
    }
    holders = {f"{GPU}::0": TRAINER, f"{GPU}::1": SERVER}
    assert limits_of(entries, holders) == [
        ("server", 240, 200, "guard"),
        ("trainer", 150, 100, "driver"),
    ]


def test_limit_without_a_ledger_entry_is_that_of_the_units() -> None:
    """Other runtimes write no ledger entry."""
    holders = {f"{GPU}::0": SERVER, f"{GPU}::1": SERVER}
    assert limits_of({}, holders) == [("server", 480, 400, "guard")]
    by_mps = Resource("nvidia.com/gpu", UNITS, "mps", memory={GPU: UnitMemory(240, 240)})
    assert limits_of({}, holders, by_mps) == [("server", 480, 480, "mps")]


def test_container_older_than_the_limit_has_no_limit() -> None:
    """MPS limits need no ledger entry."""
    entries = {A: HolderEntry(A, "demo", "server", "main", (f"{GPU}::0",))}
    holders = {f"{GPU}::0": SERVER}
    assert limits_of(entries, holders) == [("server", None, None, "nobody")]
    by_mps = Resource("nvidia.com/gpu", UNITS, "mps", memory={GPU: UnitMemory(240, 240)})
    assert limits_of(entries, holders, by_mps) == [("server", 240, 240, "mps")]


def test_newest_ledger_entry_of_a_container_applies() -> None:
    """The ledger may still have the entry from before a restart."""
    entries = {
        A: HolderEntry(A, "demo", "server", "main", memory=(MemoryLimitFact(GPU, 100, 100),)),
        B: HolderEntry(B, "demo", "server", "main", memory=(MemoryLimitFact(GPU, 240, 200),)),
    }
    assert limits_of(entries, {f"{GPU}::1": SERVER}) == [("server", 240, 200, "guard")]


def test_memory_request_without_a_limit_is_no_limit() -> None:
    entries = {"web": HolderEntry("web", memory=(MemoryLimitFact(GPU, NO_LIMIT, 100, "driver"),))}
    (found,) = container_memory([device_use()], {}, entries, {}, {})
    assert (found.limit_bytes, found.guaranteed_bytes, found.limited_by) == (None, 100, "driver")
