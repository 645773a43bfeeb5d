# SPDX-License-Identifier: Apache-2.0
"""Memory units with a kubelet that allocates and releases at random, against a model of the GPUs.

The model counts the free units of each GPU. The simulated kubelet keeps ids over restarts of
kubelet and plugin, as in its checkpoint, and gives the units of an init container to a container of
its pod.
"""

from __future__ import annotations

import json
import random
from collections import Counter

from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    RuleBasedStateMachine,
    consumes,
    initialize,
    invariant,
    multiple,
    rule,
)

from gpuhook.device_plugin.allocate.allocate import allocate
from gpuhook.device_plugin.allocate.allocation_context import Context
from gpuhook.device_plugin.allocate.container_allocation import Allocation
from gpuhook.device_plugin.config.configuration import Configuration
from gpuhook.device_plugin.config.sharing_section import (
    MEMORY_UNITS,
    PACKED,
    SPREAD,
    SharedResource,
    Sharing,
)
from gpuhook.device_plugin.offer.offered_devices import Resource
from gpuhook.device_plugin.offer.preferred_allocation import preferred
from gpuhook.device_plugin.offer.resources import offered
from gpuhook.request import memory_request
from gpuhook.vendors.nvidia.hot.vocabulary import VOCABULARY
from gpuhook.vendors.nvidia.inventory.inventory import Driver, Gpu, Node
from tests.refusal import refused
from tests.unit.choosing import NO_LINKS

GIB, RESERVE = 1 << 30, 256 << 20
NAME = "nvidia.com/gpumem"
SIZES = st.lists(st.integers(1, 12), min_size=1, max_size=8)


def offered_units(sizes: list[int], policy: str) -> Resource:
    """Return the offer of a plugin that has just started, for GPUs with so many GiB."""
    gpus = tuple(
        Gpu(n, f"GPU-{n}", n, name="T4", memory_bytes=size * GIB + RESERVE, numa_node=n % 2)
        for n, size in enumerate(sizes)
    )
    entry = SharedResource("nvidia.com/gpu", rename=NAME, unit=GIB)
    sharing = Sharing(MEMORY_UNITS, resources=(entry,), policy=policy)
    (resource,) = offered(Node(Driver(), gpus=gpus), Configuration(sharing=sharing)).resources
    return resource


def gpu_of(name: str) -> str:
    return name.partition("::")[0]


def granted_gib(answer: Allocation) -> dict[str, int]:
    """Return the granted GiB of each GPU, as a runtime reads them."""
    mounts = [{"destination": m.container_path, "source": m.host_path} for m in answer.mounts]
    found = memory_request.granted({"mounts": mounts}, VOCABULARY.memory_prefix)
    return {uuid: limit.hard // GIB for uuid, limit in found.items()}


class Containers(RuleBasedStateMachine):
    """A node, its plugin, and the kubelet's device manager."""

    running = Bundle("running")

    @initialize(sizes=SIZES, policy=st.sampled_from([PACKED, SPREAD]), seed=st.integers())
    def boot(self, sizes: list[int], policy: str, seed: int) -> None:
        self.sizes, self.policy = sizes, policy
        self.order = random.Random(seed)
        self.plugin = offered_units(sizes, policy)
        self.used: set[str] = set()
        self.free = Counter({f"GPU-{n}": size for n, size in enumerate(sizes)})

    def admit(self, size: int, reused: list[str]) -> list[str]:
        """Allocate `size` units as the kubelet does. Raises GpuhookError if that fails."""
        chosen = reused[:size]
        if len(chosen) < size:
            known = [unit.id for unit in self.plugin.units]
            available = [name for name in known if name not in self.used]
            available += [name for name in chosen if name not in available]
            self.order.shuffle(available)  # sets of the kubelet are unordered
            chosen = preferred(
                self.plugin, available, chosen, size, policy=self.policy, topology=NO_LINKS
            )
        self.order.shuffle(chosen)
        answer = allocate(self.plugin, chosen, Context(("envvar",)))
        (uuid,) = {gpu_of(name) for name in chosen}
        assert granted_gib(answer) == {uuid: size}
        assert answer.envs["NVIDIA_VISIBLE_DEVICES"] == uuid
        return chosen

    @rule(target=running, size=st.integers(1, 13))
    def start(self, size: int) -> object:
        fitting = {uuid: free for uuid, free in self.free.items() if free >= size}
        if len(self.plugin.units) - len(self.used) < size:
            return multiple()  # the kubelet refuses by itself
        if not fitting:
            with refused("GH1849"):
                self.admit(size, [])
            return multiple()
        chosen = self.admit(size, [])
        best = (min if self.policy == PACKED else max)(fitting.values())
        assert self.free[gpu_of(chosen[0])] == best
        assert not self.used.intersection(chosen)
        self.take(chosen)
        return chosen

    @rule(target=running, pod=consumes(running), size=st.integers(1, 13))
    def follow_init_container(self, pod: list[str], size: int) -> object:
        """The units of an init container go to the next container of its pod."""
        uuid = gpu_of(pod[0])
        if size > len(pod) + self.free[uuid]:
            if len(self.plugin.units) - len(self.used) >= size - len(pod):
                with refused("GH1849"):
                    self.admit(size, pod)
            self.give_back(pod)  # the pod has failed
            return multiple()
        chosen = self.admit(size, pod)
        assert set(pod[:size]) <= set(chosen)
        assert not (self.used - set(pod)).intersection(chosen)
        self.give_back(pod)
        self.take(chosen)
        return chosen

    @rule(pod=consumes(running))
    def end(self, pod: list[str]) -> None:
        self.give_back(pod)

    @rule()
    def restart_plugin(self) -> None:
        before, self.plugin = self.plugin, offered_units(self.sizes, self.policy)
        assert [unit.id for unit in self.plugin.units] == [unit.id for unit in before.units]

    @rule()
    def restart_kubelet(self) -> None:
        """Restore the allocations from the checkpoint."""
        self.used = set(json.loads(json.dumps(sorted(self.used))))

    def take(self, chosen: list[str]) -> None:
        self.used.update(chosen)
        self.free[gpu_of(chosen[0])] -= len(chosen)

    def give_back(self, chosen: list[str]) -> None:
        self.used.difference_update(chosen)
        self.free[gpu_of(chosen[0])] += len(chosen)

    @invariant()
    def allocations_fit_on_each_gpu(self) -> None:
        allocated = Counter(gpu_of(name) for name in self.used)
        for index, size in enumerate(self.sizes):
            assert size - allocated[f"GPU-{index}"] == self.free[f"GPU-{index}"] >= 0


TestContainers = Containers.TestCase
TestContainers.settings = settings(max_examples=60, stateful_step_count=40)


@given(SIZES, st.data())
def test_units_of_two_gpus_are_never_allocated(sizes: list[int], data: st.DataObject) -> None:
    resource = offered_units(sizes, PACKED)
    names = [unit.id for unit in resource.units]
    requested = data.draw(st.lists(st.sampled_from(names), min_size=1, unique=True))
    gpus_of_ids = {gpu_of(name) for name in requested}
    if len(gpus_of_ids) > 1:
        with refused("GH1859"):
            allocate(resource, requested, Context(("envvar",)))
    else:
        answer = allocate(resource, requested, Context(("envvar",)))
        assert granted_gib(answer) == {gpus_of_ids.pop(): len(requested)}
