# SPDX-License-Identifier: Apache-2.0
"""The commands that install packages on a node, by its distribution."""

from __future__ import annotations

import posixpath

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gpuhook.node_facts.sources.node_tree import Tree

_NIXOS = "/etc/NIXOS"
_NIX = "nixos-rebuild switch # with {what} in /etc/nixos/configuration.nix"
_LIBRARY = "/usr/lib/gpuhook"
_OF_THE_IMAGE = "/opt/gpuhook"
_DEBIAN = "/etc/debian_version"
_MANAGERS = ("dnf", "zypper", "pacman", "apt-get")
_PROGRAMS = ("/usr/bin", "/usr/sbin", "/bin")


def install(
    tree: Tree, debian: str, others: str = "", *, nixos: str = "", again: bool = False
) -> str:
    """Return the command that installs packages, or reinstalls them if `again`.

    `debian` are their names on Debian and Ubuntu, `others` on other distributions if they differ.
    NixOS has the option `nixos`, if it is not "", in place of a package.
    """
    others = others or debian
    manager = package_manager(tree)
    if manager == "nix":
        return nixos_command(nixos or others)
    if manager == "apt-get":
        return f"apt-get install {'--reinstall ' if again else ''}-y {debian}"
    if manager == "zypper":
        return f"zypper install {'-f ' if again else ''}-y {others}"
    if manager == "pacman":
        return f"pacman -S {others}"
    return f"dnf {'reinstall' if again else 'install'} -y {others}"


def nixos_command(what: str) -> str:
    """Return the command that adds an option or a package to NixOS."""
    return _NIX.format(what=what)


def package_manager(tree: Tree) -> str:
    """Return nix, apt-get, dnf, zypper or pacman; dnf if there is none of them."""
    if tree.status(_NIXOS) is not None:
        return "nix"
    if tree.status(_DEBIAN) is not None:
        return "apt-get"
    return next((name for name in _MANAGERS if has_program(tree, name)), "dnf")


def gpuhook(tree: Tree, *, again: bool = False) -> str:
    """Return the command that installs gpuhook's packages, or reinstalls them if `again`."""
    names = ("gpuhook-runtime", "gpuhook")
    if tree.status(_DEBIAN) is not None:
        option = "--reinstall " if again else ""
        return f"apt-get install {option}-y {' '.join(f'./{name}_*.deb' for name in names)}"
    if has_program(tree, "dnf"):
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


def has_program(tree: Tree, name: str) -> bool:
    return any(tree.status(f"{place}/{name}") is not None for place in _PROGRAMS)
