# SPDX-License-Identifier: Apache-2.0
"""The recovery action of a GPU, in a small real libnvidia-ml.so.1."""

from __future__ import annotations

from pathlib import Path

import pynvml
import pytest

from gpuhook.vendors.nvidia.nvml import nvml_device, nvml_inventory
from tests.simulated import build, stub_events
from tests.simulated.node import SimulatedNode, make_node


@pytest.fixture
def node(tmp_path: Path) -> SimulatedNode:
    return make_node(tmp_path, "h100x8", real_nodes=False)


def first(node: SimulatedNode) -> str:
    return str(node.node.gpus[0].uuid)


@pytest.mark.parametrize(
    ("number", "action"),
    [
        (0, "none"),
        (1, "reset"),
        (2, "reboot"),
        (3, "drain-p2p"),
        (4, "drain-and-reset"),
        (5, "recover-imex"),
        (7, "system-reboot"),
        (9, "action 9"),
    ],
)
def test_each_action_has_a_word(node: SimulatedNode, number: int, action: str) -> None:
    """An unknown number is not taken for none."""
    stub_events.say(node, first(node), f"recovery {number}")
    with nvml_inventory.opened(node.nvml_library):
        assert nvml_device.recovery_action(first(node)) == action


def test_numbers_are_those_of_nvml() -> None:
    """The numbers in the code are those that pynvml has names for."""
    assert pynvml.NVML_FI_DEV_GET_GPU_RECOVERY_ACTION == nvml_device._RECOVERY_FIELD
    names = {
        "none": "NONE",
        "reset": "GPU_RESET",
        "reboot": "NODE_REBOOT",
        "drain-p2p": "DRAIN_P2P",
        "drain-and-reset": "DRAIN_AND_RESET",
        "recover-imex": "RECOVER_IMEX_DOMAIN",
        "bus-reset": "BUS_RESET",
        "system-reboot": "SYSTEM_REBOOT",
    }
    for number, action in enumerate(nvml_device._RECOVERY_ACTIONS):
        assert getattr(pynvml, f"NVML_GPU_RECOVERY_ACTION_{names[action]}") == number


def test_change_is_read_while_nvml_is_open(node: SimulatedNode) -> None:
    """The recovery action after an XID is read again each time."""
    with nvml_inventory.opened(node.nvml_library):
        assert nvml_device.recovery_action(first(node)) == "none"
        stub_events.say(node, first(node), "recovery 1")
        assert nvml_device.recovery_action(first(node)) == "reset"


@pytest.mark.parametrize("line", ["recovery -1", "fail recovery 13", "lost_after 0"])
def test_unknown_action(node: SimulatedNode, line: str) -> None:
    """A driver without the field, an old library and a lost GPU report nothing."""
    stub_events.say(node, first(node), line)
    with nvml_inventory.opened(node.nvml_library):
        assert nvml_device.recovery_action(first(node)) is None


def test_old_library_has_no_action(node: SimulatedNode) -> None:
    """A library without the call leaves the action unknown."""
    library = Path(node.nvml_library)
    library.unlink()
    library.write_bytes(build.nvml_stub(old=True).read_bytes())
    with nvml_inventory.opened(node.nvml_library):
        assert nvml_device.recovery_action(first(node)) is None


def test_without_nvml_no_action_is_known(node: SimulatedNode) -> None:
    assert nvml_device.recovery_action(first(node)) is None
