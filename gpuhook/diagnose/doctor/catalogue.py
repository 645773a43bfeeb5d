# SPDX-License-Identifier: Apache-2.0
"""All checks, one module of them per subject; in the order in which they are listed."""

from __future__ import annotations

from gpuhook.diagnose.doctor.checks import (
    cluster_node,
    containers,
    installation,
    kubelet,
    launchers,
    plugin,
    plugin_config,
    runtime_class,
    state,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gpuhook.diagnose.doctor.check import Check


def checks() -> tuple[Check, ...]:
    """Return every check of doctor."""
    return (
        *kubelet.CHECKS,
        *runtime_class.CHECKS,
        *plugin.CHECKS,
        *plugin_config.CHECKS,
        *cluster_node.CHECKS,
        *launchers.CHECKS,
        *installation.CHECKS,
        *state.CHECKS,
        *containers.CHECKS,
    )
