# SPDX-License-Identifier: Apache-2.0
"""The command that generates a spec again."""

from __future__ import annotations

from unittest.mock import Mock

from gpuhook.node_facts import cdi_specs
from gpuhook.vendors.nvidia.doctor.facts import nvidia_specs


def test_rewrite_command_by_author() -> None:
    """`gpuhook refresh` keeps the options of gpuhook's spec; generate-cdi would forget them."""
    node, one = Mock(), Mock(path="/etc/cdi/nvidia.yaml", kind="nvidia.com/gpu")
    one.author = nvidia_specs.GPUHOOK
    assert nvidia_specs.rewrite_command(node, one) == "gpuhook refresh --force"
    one.author = cdi_specs.OTHER
    node.tree.status.return_value = None
    assert (
        nvidia_specs.rewrite_command(node, one)
        == "gpuhook generate-cdi --output-file /etc/cdi/nvidia.yaml"
    )
