# SPDX-License-Identifier: Apache-2.0
"""The commands that install packages, by the distribution of a node."""

from __future__ import annotations

import posixpath

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gpuhook.node.node_tree import Tree

_NIXOS = "/etc/NIXOS"
_NIX = "nixos-rebuild switch # with {what} in /etc/nixos/configuration.nix"
_DRIVER = "hardware.nvidia"
_LIBRARY = "/usr/lib/gpuhook"
_OF_THE_IMAGE = "/opt/gpuhook"
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


def gpuhook(tree: Tree, *, again: bool = False) -> str:
    """Return the command that installs gpuhook's packages, over what is there if `again`."""
    names = ("gpuhook-runtime", "gpuhook")
    if tree.status("/etc/debian_version") is not None:
        option = "--reinstall " if again else ""
        return f"apt-get install {option}-y {' '.join(f'./{name}_*.deb' for name in names)}"
    if _has(tree, "dnf"):
        verb = "reinstall" if again else "install"
        return f"dnf {verb} -y {' '.join(f'./{name}-[0-9]*.rpm' for name in names)}"
    return "make install # in gpuhook's source directory"


def gpuhook_again(tree: Tree, directory: str, options: str = "") -> str:
    """Return the command that puts gpuhook anew into a directory of programs, by who put it there.

    `options` are those of a checkout's installer.
    """
    place = posixpath.dirname(directory)
    if directory == "/usr/bin" and _is_packaged(tree):
        return gpuhook(tree, again=True)
    if tree.status(f"{place}/versions") is not None or place == _OF_THE_IMAGE:
        return f"gpuhook install --host-root /host --install-dir {place} # in gpuhook's image"
    command = f"python3 packaging/install.py --prefix {place} {options}".rstrip()
    return f"{command} # in gpuhook's source directory"


def _is_packaged(tree: Tree) -> bool:
    """Return whether /usr has gpuhook out of a package: these have a directory for each version.

    Nothing at all is there where a package was removed.
    """
    here = [name for name in tree.names(_LIBRARY) if name != "__pycache__"]
    modules = [f"{_LIBRARY}/{name}/gpuhook/__init__.py" for name in here]
    return not here or any(tree.status(path) is not None for path in modules)


def driver(tree: Tree, branch: str) -> str:
    """Return the command that installs the driver's user space for a branch, "" where unknown."""
    if not branch and _has(tree, "ubuntu-drivers"):
        return "ubuntu-drivers install"
    debian = f"libnvidia-compute-{branch} nvidia-utils-{branch}" if branch else "nvidia-driver"
    return install(tree, debian, "nvidia-driver-cuda nvidia-driver-cuda-libs")


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
