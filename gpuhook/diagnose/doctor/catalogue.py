# SPDX-License-Identifier: Apache-2.0
"""All checks, one module of them per subject; in the order in which they are listed."""

from __future__ import annotations

from gpuhook.diagnose.doctor.checks import (
    cgroups,
    cluster_node,
    configured,
    containerd,
    containerd_annotations,
    containerd_runtimes,
    containers,
    crio,
    device_links,
    devices,
    docker,
    docker_flags,
    driver,
    driver_files,
    fabric,
    gpu_access,
    gpus,
    graphics,
    installation,
    kubelet,
    launchers,
    nvidia_toolkit,
    plugin,
    plugin_config,
    podman,
    rootless,
    runtime_class,
    security,
    spec_devices,
    spec_files,
    specs,
    state,
    upkeep,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gpuhook.diagnose.doctor.check import Check


def checks() -> tuple[Check, ...]:
    """Return every check of doctor."""
    return (
        *driver.CHECKS,
        *driver_files.CHECKS,
        *devices.CHECKS,
        *device_links.CHECKS,
        *gpus.CHECKS,
        *fabric.CHECKS,
        *spec_files.CHECKS,
        *specs.CHECKS,
        *spec_devices.CHECKS,
        *upkeep.CHECKS,
        *graphics.CHECKS,
        *cgroups.CHECKS,
        *security.CHECKS,
        *rootless.CHECKS,
        *nvidia_toolkit.CHECKS,
        *containerd.CHECKS,
        *containerd_runtimes.CHECKS,
        *containerd_annotations.CHECKS,
        *gpu_access.CHECKS,
        *docker.CHECKS,
        *docker_flags.CHECKS,
        *crio.CHECKS,
        *podman.CHECKS,
        *kubelet.CHECKS,
        *runtime_class.CHECKS,
        *plugin.CHECKS,
        *plugin_config.CHECKS,
        *cluster_node.CHECKS,
        *launchers.CHECKS,
        *installation.CHECKS,
        *configured.CHECKS,
        *state.CHECKS,
        *containers.CHECKS,
    )
