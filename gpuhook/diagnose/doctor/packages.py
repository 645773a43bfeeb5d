# SPDX-License-Identifier: Apache-2.0
"""The commands that install packages, by the distribution of a node."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gpuhook.diagnose.node.tree import Tree

_NIXOS = "/etc/NIXOS"
_NIX = "nixos-rebuild switch # with {what} in /etc/nixos/configuration.nix"
_DRIVER = "hardware.nvidia"
_PROGRAMS = ("/usr/bin", "/usr/sbin", "/bin")


def install(tree: Tree, debian: str, others: str = "", *, again: bool = False) -> str:
    """Return the command that installs packages, over what is there if `again`.

    `debian` are their names at Debian and Ubuntu, `others` those elsewhere, if these differ.
    """
    others = others or debian
    if tree.status(_NIXOS) is not None:
        return _NIX.format(what=_DRIVER if "driver" in others else others)
    if tree.status("/etc/debian_version") is not None:
        return f"apt-get install {'--reinstall ' if again else ''}-y {debian}"
    if not _has(tree, "dnf") and _has(tree, "zypper"):
        return f"zypper install {'-f ' if again else ''}-y {others}"
    if not _has(tree, "dnf") and _has(tree, "pacman"):
        return f"pacman -S {others}"
    if not _has(tree, "dnf") and _has(tree, "apt-get"):
        return f"apt-get install {'--reinstall ' if again else ''}-y {debian}"
    return f"dnf {'reinstall' if again else 'install'} -y {others}"


def reinstall_driver(tree: Tree) -> str:
    """Return the command that installs the packages of NVIDIA's driver again."""
    if tree.status(_NIXOS) is not None:
        return _NIX.format(what=_DRIVER)
    if tree.status("/etc/debian_version") is not None:
        installed = "dpkg-query -W -f '${db:Status-Abbrev} ${Package}\\n' '*nvidia*'"
        return f"apt-get install --reinstall $({installed} | awk '$1 == \"ii\" {{print $2}}')"
    if not _has(tree, "dnf") and _has(tree, "zypper"):
        return "zypper install -f $(rpm -qa --qf '%{NAME}\\n' '*nvidia*')"
    if not _has(tree, "dnf") and _has(tree, "pacman"):
        return "pacman -S $(pacman -Qqs nvidia)"
    return "dnf reinstall '*nvidia*'"


def _has(tree: Tree, name: str) -> bool:
    return any(tree.status(f"{place}/{name}") is not None for place in _PROGRAMS)
