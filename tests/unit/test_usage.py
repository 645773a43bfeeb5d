# SPDX-License-Identifier: Apache-2.0
"""Memory and processes of a GPU, on a small real libnvidia-ml.so.1."""

from __future__ import annotations

from pathlib import Path

import pytest

from gpuhook.vendors.nvidia import nvml, usage
from gpuhook.vendors.nvidia.usage import Memory, ProcessUse
from tests.simulated import build, stub_events
from tests.simulated.node import SimulatedNode, make_node

MIB = 1024**2
TOTAL = 15360 * MIB


@pytest.fixture
def node(tmp_path: Path) -> SimulatedNode:
    return make_node(tmp_path, "t4", real_nodes=False)


@pytest.fixture
def old(node: SimulatedNode) -> SimulatedNode:
    library = Path(node.nvml_library)
    library.unlink()
    library.write_bytes(build.nvml_stub(old=True).read_bytes())
    return node


def gpu(node: SimulatedNode) -> str:
    return str(node.node.gpus[0].uuid)


def test_memory(node: SimulatedNode) -> None:
    """What the driver has reserved is told from what processes use."""
    stub_events.say(node, gpu(node), f"used {5000 * MIB}", f"reserved {400 * MIB}")
    with nvml.opened(node.nvml_library):
        assert usage.memory(gpu(node)) == Memory(TOTAL, 5000 * MIB, 9960 * MIB, 400 * MIB)
        stub_events.say(node, gpu(node), "used 0")
        assert usage.memory(gpu(node)) == Memory(TOTAL, 0, 14960 * MIB, 400 * MIB)


def test_memory_of_an_old_library(old: SimulatedNode) -> None:
    """An old library counts what is reserved as used, and doesn't tell how much it is."""
    stub_events.say(old, gpu(old), f"used {5000 * MIB}", f"reserved {400 * MIB}")
    with nvml.opened(old.nvml_library):
        assert usage.memory(gpu(old)) == Memory(TOTAL, 5400 * MIB, 9960 * MIB)


def test_processes(node: SimulatedNode) -> None:
    """All kinds of processes are listed; what NVML cannot tell is not sixteen exbibytes."""
    stub_events.say(
        node,
        gpu(node),
        f"process compute 41 {7 * MIB}",
        "process compute 42 -",
        f"process mps 43 {MIB} 2 0",
        f"process graphics 44 {3 * MIB}",
    )
    with nvml.opened(node.nvml_library):
        assert usage.processes(gpu(node)) == (
            ProcessUse(41, 7 * MIB, None, None, "compute"),
            ProcessUse(42, None, None, None, "compute"),
            ProcessUse(44, 3 * MIB, None, None, "graphics"),
            ProcessUse(43, MIB, 2, 0, "mps"),
        )


def test_many_processes(node: SimulatedNode) -> None:
    """A long list arrives whole, and an idle GPU has an empty one."""
    with nvml.opened(node.nvml_library):
        assert usage.processes(gpu(node)) == ()
        lines = [f"process compute {pid} {pid * MIB}" for pid in range(1, 65)]
        stub_events.say(node, gpu(node), *lines)
        found = usage.processes(gpu(node)) or ()
    assert [(use.pid, use.memory_bytes) for use in found] == [
        (pid, pid * MIB) for pid in range(1, 65)
    ]


def test_processes_with_protected_memory(node: SimulatedNode) -> None:
    """The first drivers of 535 tell of each process how much of its memory is protected, too."""
    library = Path(node.nvml_library)
    library.unlink()
    library.write_bytes(build.nvml_stub(without="DETAIL_LIST").read_bytes())
    said = [f"process compute {pid} {pid * MIB} 1 0" for pid in range(41, 45)]
    stub_events.say(node, gpu(node), *said)
    with nvml.opened(node.nvml_library):
        assert usage.processes(gpu(node)) == tuple(
            ProcessUse(pid, pid * MIB, 1, 0, "compute") for pid in range(41, 45)
        )


def test_processes_of_an_old_library(old: SimulatedNode) -> None:
    """An old library lists computing processes only, in its own structure, without instances."""
    stub_events.say(
        old,
        gpu(old),
        f"process compute 41 {7 * MIB} 1 1",
        f"process compute 42 {MIB}",
        "process graphics 44 1",
    )
    with nvml.opened(old.nvml_library):
        assert usage.processes(gpu(old)) == (
            ProcessUse(41, 7 * MIB, None, None, "compute"),
            ProcessUse(42, MIB, None, None, "compute"),
        )


def test_a_list_that_keeps_growing_ends() -> None:
    """A library that never finds its room large enough gives nothing, after a few questions."""
    asked = []

    def function(handle: object, count: object, room: object) -> int:
        asked.append(room)
        return 7  # NVML_ERROR_INSUFFICIENT_SIZE

    assert usage._filled(function, None, 24) is None
    assert len(asked) == 4


def test_a_lost_gpu_tells_nothing(node: SimulatedNode) -> None:
    """Of a lost GPU all is unknown, which is not nothing in use."""
    with nvml.opened(node.nvml_library):
        stub_events.lose(node, gpu(node))
        assert usage.memory(gpu(node)) is None
        assert usage.processes(gpu(node)) is None
        stub_events.find(node, gpu(node))
        assert usage.processes(gpu(node)) == ()


def test_a_gpu_without_process_list(node: SimulatedNode) -> None:
    """A GPU whose processes NVML may not tell has an unknown list, not an empty one."""
    stub_events.say(node, gpu(node), "fail processes 4")
    with nvml.opened(node.nvml_library):
        assert usage.processes(gpu(node)) is None


def test_a_mig_instance_has_its_own_use(tmp_path: Path) -> None:
    """Memory and processes of an instance are asked by its own UUID, and are not its GPU's."""
    node = make_node(tmp_path, "a100-mig", real_nodes=False)
    parent = next(gpu for gpu in node.node.gpus if gpu.instances)
    instance, other = parent.instances[:2]
    total = instance.memory_bytes or 0
    stub_events.say(node, instance.uuid, f"used {9 * MIB}", f"process compute 41 {8 * MIB} 1 0")
    with nvml.opened(node.nvml_library):
        assert usage.memory(instance.uuid) == Memory(total, 9 * MIB, total - 9 * MIB, 0)
        assert usage.processes(instance.uuid) == (ProcessUse(41, 8 * MIB, 1, 0, "compute"),)
        assert usage.processes(other.uuid) == ()
        assert usage.processes(str(parent.uuid)) == ()
        stub_events.lose(node, str(parent.uuid))
        assert usage.memory(instance.uuid) is None
