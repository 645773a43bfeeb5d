# SPDX-License-Identifier: Apache-2.0
"""All checks, in the order in which `gpuhook doctor --list` prints them."""

from __future__ import annotations

from itertools import chain

from gpuhook.doctor.checks.cdi import graphics, spec_devices, spec_files, specs, systemd_units
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
    nri_plugins,
    plugin,
    plugin_config,
    runtime_class,
)
from gpuhook.node_facts.check import ENGINES
from gpuhook.vendors.catalogue import vendors

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gpuhook.node_facts.check import Check

_TITLES = {
    "specs": "CDI specs",
    "host": "Host",
    ENGINES: "Engines",
    "kubernetes": "Kubernetes",
    "gpuhook": "gpuhook itself",
    "containers": "Running containers",
}


def checks() -> tuple[Check, ...]:
    """Return all checks."""
    return (
        *(one for vendor in vendors() for one in vendor.doctor_checks().checks),
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
        *nri_plugins.CHECKS,
        *plugin.CHECKS,
        *plugin_config.CHECKS,
        *cluster_node.CHECKS,
        *installation.CHECKS,
        *configuration.CHECKS,
        *containers.CHECKS,
    )


def section_titles() -> dict[str, str]:
    """Return the titles of all sections, in reading order: a fault explains the faults below it."""
    of_vendors = (vendor.doctor_checks().sections.items() for vendor in vendors())
    return {**dict(chain.from_iterable(of_vendors)), **_TITLES}


def presence_checks() -> tuple[str, ...]:
    """Return the ids of the checks whether the machine has a GPU, one for each vendor."""
    return tuple(vendor.doctor_checks().presence for vendor in vendors())
