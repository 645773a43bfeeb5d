# SPDX-License-Identifier: Apache-2.0
"""The commands that install packages on a node, by its distribution."""

from __future__ import annotations

import posixpath

from gpuhook.vendors.nvidia.driver import driver_locations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gpuhook.node_facts.sources.node_tree import Tree

_NIXOS = "/etc/NIXOS"
_NIX = "nixos-rebuild switch # with {what} in /etc/nixos/configuration.nix"
_DRIVER = "hardware.nvidia"
_LIBRARY = "/usr/lib/gpuhook"
_OF_THE_IMAGE = "/opt/gpuhook"
# The pods that install a driver below their root.
_PODS = {
    driver_locations.OPERATOR: "kubectl -n gpu-operator delete pod -l app=nvidia-driver-daemonset",
    driver_locations.GKE: "kubectl -n kube-system delete pod -l k8s-app=nvidia-driver-installer",
}
_DRIVER_AGAIN = {
    "nix": _NIX.format(what=_DRIVER),
    "apt-get": "apt-get install --reinstall $(dpkg-query -W -f '${db:Status-Abbrev} ${Package}\\n'"
    " '*nvidia*' | awk '$1 == \"ii\" {print $2}')",
    "dnf": "dnf reinstall '*nvidia*'",
    "zypper": "zypper install -f $(rpm -qa --qf '%{NAME}\\n' '*nvidia*')",
    "pacman": "pacman -S $(pacman -Qqs nvidia)",
}
_DEBIAN = "/etc/debian_version"
_MANAGERS = ("dnf", "zypper", "pacman", "apt-get")
_PROGRAMS = ("/usr/bin", "/usr/sbin", "/bin")


def install(tree: Tree, debian: str, others: str = "", *, again: bool = False) -> str:
    """Return the command that installs packages, or reinstalls them if `again`.

    `debian` are their names on Debian and Ubuntu, `others` on other distributions if they differ.
    """
    others = others or debian
    manager = _package_manager(tree)
    if manager == "nix":
        return _NIX.format(what=_DRIVER if "driver" in others else others)
    if manager == "apt-get":
        return f"apt-get install {'--reinstall ' if again else ''}-y {debian}"
    if manager == "zypper":
        return f"zypper install {'-f ' if again else ''}-y {others}"
    if manager == "pacman":
        return f"pacman -S {others}"
    return f"dnf {'reinstall' if again else 'install'} -y {others}"


def _package_manager(tree: Tree) -> str:
    """Return nix, apt-get, dnf, zypper or pacman; dnf if there is none of them."""
    if tree.status(_NIXOS) is not None:
        return "nix"
    if tree.status(_DEBIAN) is not None:
        return "apt-get"
    return next((name for name in _MANAGERS if _has(tree, name)), "dnf")


def gpuhook(tree: Tree, *, again: bool = False) -> str:
    """Return the command that installs gpuhook's packages, or reinstalls them if `again`."""
    names = ("gpuhook-runtime", "gpuhook")
    if tree.status(_DEBIAN) is not None:
        option = "--reinstall " if again else ""
        return f"apt-get install {option}-y {' '.join(f'./{name}_*.deb' for name in names)}"
    if _has(tree, "dnf"):
        verb = "reinstall" if again else "install"
        return f"dnf {verb} -y {' '.join(f'./{name}-[0-9]*.rpm' for name in names)}"
    return "make install # in gpuhook's source directory"


def gpuhook_again(tree: Tree, directory: str, options: str = "") -> str:
    """Return the command that installs gpuhook again in a directory, as it was installed before.

    `options` are options of packaging/install.py.
    """
    place = posixpath.dirname(directory)
    if directory == "/usr/bin" and _is_packaged(tree):
        return gpuhook(tree, again=True)
    if tree.status(f"{place}/versions") is not None or place == _OF_THE_IMAGE:
        return f"gpuhook node install --host-root /host --install-dir {place} # in gpuhook's image"
    command = f"python3 packaging/install.py --prefix {place} {options}".rstrip()
    return f"{command} # in gpuhook's source directory"


def _is_packaged(tree: Tree) -> bool:
    """Return whether /usr has, or had, gpuhook from a package.

    A package has a directory for each version. A removed package leaves nothing.
    """
    here = [name for name in tree.names(_LIBRARY) if name != "__pycache__"]
    modules = [f"{_LIBRARY}/{name}/gpuhook/__init__.py" for name in here]
    return not here or any(tree.status(path) is not None for path in modules)


def driver(tree: Tree, branch: str) -> str:
    """Return the command that installs the driver's user space; `branch` is "" if unknown."""
    if not branch and _has(tree, "ubuntu-drivers"):
        return "ubuntu-drivers install"
    debian = f"libnvidia-compute-{branch} nvidia-utils-{branch}" if branch else "nvidia-driver"
    return install(tree, debian, "nvidia-driver-cuda nvidia-driver-cuda-libs")


def driver_again(tree: Tree, root: str) -> str:
    """Return the command that installs NVIDIA's driver below `root` again."""
    return _PODS.get(root) or _DRIVER_AGAIN[_package_manager(tree)]


def _has(tree: Tree, name: str) -> bool:
    return any(tree.status(f"{place}/{name}") is not None for place in _PROGRAMS)
