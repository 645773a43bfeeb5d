# SPDX-License-Identifier: Apache-2.0
"""All checks, in the order in which `gpuhook doctor --list` prints them."""

from __future__ import annotations

from gpuhook.doctor.checks.amd import amd_devices, amd_driver, amd_gpus, amd_specs, amd_stack
from gpuhook.doctor.checks.cdi import graphics, spec_devices, spec_files, specs, systemd_units
from gpuhook.doctor.checks.driver import (
    device_links,
    devices,
    driver,
    driver_files,
    fabric,
    gpus,
)
from gpuhook.doctor.checks.engine import (
    containerd,
    containerd_runtimes,
    crio,
    docker,
    gpu_access,
    nvidia_toolkit,
    podman,
    rootless,
)
from gpuhook.doctor.checks.host import cgroups, containers, security
from gpuhook.doctor.checks.installation import configuration, installation
from gpuhook.doctor.checks.kubernetes import (
    cluster_node,
    kubelet,
    plugin,
    plugin_config,
    runtime_class,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gpuhook.node_facts.check import Check


def checks() -> tuple[Check, ...]:
    """Return all checks."""
    return (
        *driver.CHECKS,
        *driver_files.CHECKS,
        *devices.CHECKS,
        *device_links.CHECKS,
        *gpus.CHECKS,
        *fabric.CHECKS,
        *amd_driver.CHECKS,
        *amd_devices.CHECKS,
        *amd_gpus.CHECKS,
        *amd_specs.CHECKS,
        *amd_stack.CHECKS,
        *spec_files.CHECKS,
        *specs.CHECKS,
        *spec_devices.CHECKS,
        *systemd_units.CHECKS,
        *graphics.CHECKS,
        *cgroups.CHECKS,
        *security.CHECKS,
        *rootless.CHECKS,
        *nvidia_toolkit.CHECKS,
        *containerd.CHECKS,
        *containerd_runtimes.CHECKS,
        *gpu_access.CHECKS,
        *docker.CHECKS,
        *crio.CHECKS,
        *podman.CHECKS,
        *kubelet.CHECKS,
        *runtime_class.CHECKS,
        *plugin.CHECKS,
        *plugin_config.CHECKS,
        *cluster_node.CHECKS,
        *installation.CHECKS,
        *configuration.CHECKS,
        *containers.CHECKS,
    )
