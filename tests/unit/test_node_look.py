# SPDX-License-Identifier: Apache-2.0
"""The plugin's look at its node, and whether it is time for another one."""

from __future__ import annotations

from pathlib import Path

import pytest

from gpuhook.kubernetes import node_look
from gpuhook.kubernetes.configuration import Configuration
from gpuhook.kubernetes.launch import Launch
from gpuhook.vendors.nvidia import nvml
from tests.simulated.node import SimulatedNode, make_node

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gpuhook.vendors.nvidia.inventory import Gpu


@pytest.fixture
def made(tmp_path: Path) -> SimulatedNode:
    return make_node(tmp_path, "h100x8", real_nodes=False)


def launch(made: SimulatedNode) -> Launch:
    return Launch(
        host_root=made.host_root, node_driver_root=made.driver_root, node_dev_root=made.dev_root
    )


def new_instance(made: SimulatedNode) -> None:
    capabilities = Path(made.host_root, "proc/driver/nvidia/capabilities")
    (capabilities / "gpu0/mig/gi1/ci0").mkdir(parents=True)


def test_a_node_that_stays_is_not_looked_at_again(made: SimulatedNode) -> None:
    look = node_look.look(launch(made), Configuration())
    assert len(look.seen.gpus) == 8
    assert not node_look.has_changed(look, launch(made))
    new_instance(made)
    assert node_look.has_changed(look, launch(made))


def test_a_change_during_a_look_is_looked_at_again(
    made: SimulatedNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An instance that came when NVML had told of its GPU would be seen by nobody else."""
    answers = nvml.Library.gpus

    def late(library: nvml.Library) -> tuple[Gpu, ...]:
        gpus = answers(library)
        new_instance(made)
        return gpus

    with monkeypatch.context() as patched:
        patched.setattr(nvml.Library, "gpus", late)
        look = node_look.look(launch(made), Configuration())
    assert node_look.has_changed(look, launch(made))
    assert not node_look.has_changed(node_look.look(launch(made), Configuration()), launch(made))
