# SPDX-License-Identifier: Apache-2.0
"""The commands that install NVIDIA's driver on a node, by its distribution."""

from __future__ import annotations

from gpuhook.node_facts import package_commands
from gpuhook.vendors.nvidia.driver import driver_locations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gpuhook.node_facts.sources.node_tree import Tree

_NIXOS = "hardware.nvidia"
# The pods that install a driver below their root.
_PODS = {
    driver_locations.OPERATOR: "kubectl -n gpu-operator delete pod -l app=nvidia-driver-daemonset",
    driver_locations.GKE: "kubectl -n kube-system delete pod -l k8s-app=nvidia-driver-installer",
}
_AGAIN = {
    "nix": package_commands.nixos_command(_NIXOS),
    "apt-get": "apt-get install --reinstall $(dpkg-query -W -f '${db:Status-Abbrev} ${Package}\\n'"
    " '*nvidia*' | awk '$1 == \"ii\" {print $2}')",
    "dnf": "dnf reinstall '*nvidia*'",
    "zypper": "zypper install -f $(rpm -qa --qf '%{NAME}\\n' '*nvidia*')",
    "pacman": "pacman -S $(pacman -Qqs nvidia)",
}


def driver(tree: Tree, branch: str) -> str:
    """Return the command that installs the driver's user space; `branch` is "" if unknown."""
    if not branch and package_commands.has_program(tree, "ubuntu-drivers"):
        return "ubuntu-drivers install"
    debian = f"libnvidia-compute-{branch} nvidia-utils-{branch}" if branch else "nvidia-driver"
    others = "nvidia-driver-cuda nvidia-driver-cuda-libs"
    return package_commands.install(tree, debian, others, nixos=_NIXOS)


def graphics(tree: Tree, branch: str) -> str:
    """Return the command that installs the driver's libraries for graphics."""
    debian = f"libnvidia-gl-{branch}" if branch else "nvidia-driver-libs"
    return package_commands.install(tree, debian, "nvidia-driver-libs", nixos=_NIXOS)


def driver_again(tree: Tree, root: str) -> str:
    """Return the command that installs NVIDIA's driver below `root` again."""
    return _PODS.get(root) or _AGAIN[package_commands.package_manager(tree)]
