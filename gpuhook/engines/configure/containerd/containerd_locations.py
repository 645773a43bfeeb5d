# SPDX-License-Identifier: Apache-2.0
"""The configuration files of a node's containerd, plain or of a Kubernetes distribution."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

from gpuhook.engines.configure.engine_plan import Service
from gpuhook.engines.read import toml_document, unit_flags
from gpuhook.engines.read.containerd_config import PATH
from gpuhook.engines.toml import toml_text
from gpuhook.errors import fault

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from gpuhook.engines.configure.engine_plan import EngineNode
    from gpuhook.engines.read.config_files import ConfigFiles
    from gpuhook.engines.read.engine_config import Version
    from gpuhook.engines.toml.toml_edit import Setting


# file: containerd reads it. template: k3s and rke2 generate containerd's file from it. patch: k0s
# merges it into the file that it generates.
Kind = Literal["file", "template", "patch"]
NAMES = ("k3s", "rke2", "k0s", "microk8s")

RANCHER = "/var/lib/rancher/{0}/agent/etc/containerd"
MICROK8S = "/var/snap/microk8s/current/args/containerd-template.toml"
K0S = "/etc/k0s/containerd.toml"
K0S_DROP_INS = "/etc/k0s/containerd.d"
K0S_MADE = "/run/k0s/containerd-cri.toml"  # k0s generates it from its own file and the drop-ins
K0S_MANAGED = b"# k0s_managed=true"
_PROGRAMS = ("/usr/bin", "/usr/local/bin", "/usr/sbin", "/opt/eks", "/etc/eks")
_OS = re.compile(r"^ID=[\"']?([\w.-]+)", re.MULTILINE)

_PLAIN = Service(units=("containerd.service",), processes=("containerd",))
_SERVICES = {
    "k3s": Service(units=("k3s.service", "k3s-agent.service"), processes=("k3s",)),
    "rke2": Service(units=("rke2-server.service", "rke2-agent.service"), processes=("rke2",)),
    "k0s": Service(units=("k0sworker.service", "k0scontroller.service"), processes=("k0s",)),
    "microk8s": Service(units=("snap.microk8s.daemon-containerd.service",)),
}


@dataclass(frozen=True, slots=True)
class ContainerdLocation:
    """A containerd's configuration. `root` is the file that it reads, possibly a generated one.

    `daemon` is the version of this containerd, None if unknown.
    """

    distribution: str
    kind: Kind
    root: str
    service: Service
    daemon: Version | None = None
    notes: tuple[str, ...] = ()


def containerd_location(node: EngineNode) -> ContainerdLocation:
    """Return the configuration of the containerd that the node's kubelet uses.

    Raises GH2022 if there are several, GH2024 for a system that writes the file itself.
    """
    system = _system(node.files)
    if system in ("bottlerocket", "talos"):
        raise fault("GH2024", system=system.capitalize())
    if node.config:
        return _named(node, node.config)
    installed = [one for one in NAMES if _is_installed(node.files, one)]
    root = started_with(node.files)
    content = node.files.read(root)
    if content is not None and (not installed or _serves_kubelet(content)):
        installed.append("")
    if len(installed) > 1:
        paths = ", ".join(_root(node.files, one) if one else root for one in installed)
        raise fault("GH2022", files=paths)
    if installed and installed[0]:
        return _place(node, installed[0])
    return _plain(node, root, system)


def started_with(files: ConfigFiles) -> str:
    """Return the file in the command line of containerd's unit, the usual one if it has none."""
    path = unit_flags.main_file(unit_flags.unit_options(files, "containerd.service"))
    return path if path.startswith("/") else PATH


def _system(files: ConfigFiles) -> str:
    for path in ("/etc/os-release", "/usr/lib/os-release"):
        match = _OS.search((files.read(path) or b"").decode("utf-8", "replace"))
        if match:
            return match.group(1)
    return ""


def _serves_kubelet(content: bytes) -> bool:
    """Return whether a plain file may serve a kubelet; Docker's package disables the CRI plugin."""
    try:
        document = toml_document.parsed(content)
    except toml_document.UnreadableTomlError:
        return True
    return "cri" not in toml_document.texts(document.get("disabled_plugins"))


def _is_installed(files: ConfigFiles, name: str) -> bool:
    if name == "microk8s":
        return files.read(MICROK8S) is not None
    if name == "k0s":
        return files.read(K0S) is not None or bool(files.names(K0S_DROP_INS))
    return bool(files.names(RANCHER.format(name)))


def _root(files: ConfigFiles, name: str) -> str:
    if name == "microk8s":
        return MICROK8S
    if name == "k0s":
        return K0S_MADE if files.read(K0S_MADE) is not None else K0S
    return f"{RANCHER.format(name)}/config.toml"


def _place(node: EngineNode, name: str) -> ContainerdLocation:
    files = node.files
    root = _root(files, name)
    service = _SERVICES[name]
    if name == "microk8s":
        note = "microk8s generates containerd.toml from its template when its containerd starts"
        return ContainerdLocation(name, "file", root, service, notes=(note,))
    if name == "k0s":
        managed = (files.read(K0S) or K0S_MANAGED).lstrip().startswith(K0S_MANAGED)
        if managed:
            note = f"k0s merges it into its configuration at its next start: see {K0S_MADE} then"
            return ContainerdLocation(name, "patch", root, service, notes=(note,))
        note = f"{K0S} does not begin with {K0S_MANAGED.decode()}: k0s does not change it"
        return ContainerdLocation(name, "file", K0S, service, notes=(note,))
    note = f"{name} regenerates containerd's configuration at its next start"
    return ContainerdLocation(name, "template", root, service, notes=(note,))


def _named(node: EngineNode, config: str) -> ContainerdLocation:
    for name in NAMES:
        directory = MICROK8S.rpartition("/")[0] if name == "microk8s" else RANCHER.format(name)
        if config.startswith(f"{directory}/") or (name == "k0s" and config in (K0S, K0S_MADE)):
            return _place(node, name)
    return _plain(node, config, _system(node.files))


def _plain(node: EngineNode, root: str, system: str) -> ContainerdLocation:
    return ContainerdLocation(
        "", "file", root, _PLAIN, node.version, tuple(_warnings(node.files, system))
    )


def _warnings(files: ConfigFiles, system: str) -> Iterator[str]:
    if any("nodeadm" in files.names(place) for place in _PROGRAMS):
        yield "nodeadm"
    elif system == "cos":
        yield (
            "Container-Optimized OS recreates /etc at each boot: use the DaemonSet, "
            "which runs again automatically, with its programs below /home/kubernetes/bin"
        )


def node_config(settings: Iterable[Setting]) -> str:
    """Return the NodeConfig with which nodeadm writes the settings at each boot of an EKS node."""
    lines: list[str] = []
    for one in settings:
        if isinstance(one.value, dict):
            lines += toml_text.table_lines(one.path, one.value)
        elif one.value is not None and len(one.path) > 1:
            lines += toml_text.table_lines(one.path[:-1], {one.path[-1]: one.value})
    text = "\n".join(f"      {line}" for line in lines)
    return (
        "nodeadm overwrites this file at each boot. To keep the settings without the DaemonSet, "
        "put this into the node's user data:\n"
        "apiVersion: node.eks.aws/v1alpha1\nkind: NodeConfig\nspec:\n  containerd:\n    config: |\n"
        f"{text}"
    )
