# SPDX-License-Identifier: Apache-2.0
"""The command that writes a spec again."""

from __future__ import annotations

from unittest.mock import Mock

from gpuhook.doctor.facts import spec_facts


def test_a_spec_of_ours_is_refreshed_and_keeps_its_options() -> None:
    """generate-cdi would forget the options that it was made with."""
    node, one = Mock(), Mock(path="/etc/cdi/nvidia.yaml", kind="nvidia.com/gpu")
    one.author = spec_facts.GPUHOOK
    assert spec_facts.rewrite_command(node, one) == "gpuhook refresh --force"
    one.author = spec_facts.OTHER
    node.tree.status.return_value = None
    assert (
        spec_facts.rewrite_command(node, one)
        == "gpuhook generate-cdi --output /etc/cdi/nvidia.yaml"
    )
