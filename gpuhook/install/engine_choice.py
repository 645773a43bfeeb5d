# SPDX-License-Identifier: Apache-2.0
"""The engine of a host to configure with --engine auto.

The first match decides: the engine of the configuration file in the options, the engine that the
kubelet calls, an engine with a socket.
"""

from __future__ import annotations

import os
import posixpath

import yaml

from gpuhook.engines.configure.engine_plan import ENGINES
from gpuhook.engines.configure.host_files import Host
from gpuhook.engines.read import toml_document, unit_flags
from gpuhook.engines.state import host_processes
from gpuhook.errors import GpuhookError, fault
from gpuhook.host import bounded_yaml, documents
from gpuhook.install.mounted_host import inside

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

CHOICES = ("auto", *ENGINES, "none")
# In this order: sockets for a kubelet first. Docker's containerd has a socket as well.
_SOCKETS = (
    ("crio", "/run/crio/crio.sock"),
    ("docker", "/run/cri-dockerd.sock"),
    ("containerd", "/run/k3s/containerd/containerd.sock"),
    ("containerd", "/run/k0s/containerd.sock"),
    ("containerd", "/var/snap/microk8s/common/run/containerd.sock"),
)
_ALONE = (
    ("docker", "/run/docker.sock"),
    ("containerd", "/run/containerd/containerd.sock"),
    ("podman", "/run/podman/podman.sock"),
)
_KUBELET = "/var/lib/kubelet"
# The top-level keys that only this engine's configuration has.
_KEYS = {
    "containerd": {"disabled_plugins", "grpc", "imports", "plugins", "state"},
    "crio": {"crio"},
    "podman": {"containers", "engine", "machine", "secrets"},
}
# Parts of paths and of sockets' names.
_NAMES = {
    "containerd": ("containerd",),
    "crio": ("crio",),
    "docker": ("daemon.json", "docker", "dockerd", "cri-dockerd"),
    "podman": ("containers.conf", "podman"),
}


def engines(root: str, chosen: str, config: str = "") -> tuple[str, ...]:
    """Return the engine to configure, () for "none". Raises GH2106 if "auto" finds no engine.

    `config` is the engine's file, a path on the host, or "".
    """
    if chosen == "none":
        return ()
    if chosen != "auto":
        return (chosen,)
    host = Host(root)
    found = _engine_of_file(host, config) if config else ""
    found = found or _engine_of_kubelet(host) or _engine_of_sockets(root)
    if not found:
        raise fault("GH2106", root=root)
    return (found,)


def _engine_of_file(host: Host, path: str) -> str:
    """Return the engine of a file, by its content, else by its name; "" if it is ambiguous."""
    try:
        content = host.read(path) or b""
    except (OSError, GpuhookError):
        content = b""
    if content.lstrip().startswith(b"{"):
        return "docker" if _is_object(content) else _engine_of_name(path)
    try:
        keys = toml_document.parsed(content).keys()
    except toml_document.UnreadableTomlError:  # such as a template of k3s
        return _engine_of_name(path)
    return _single(one for one, own in _KEYS.items() if own & keys) or _engine_of_name(path)


def _is_object(content: bytes) -> bool:
    try:
        return isinstance(documents.parse_json(content), dict)
    except ValueError:
        return False


def _engine_of_name(path: str) -> str:
    parts = [part.removesuffix(".sock").removesuffix(".d") for part in path.split("/")]
    return _single(one for one, names in _NAMES.items() if set(names).intersection(parts))


def _single(found: Iterable[str]) -> str:
    every = set(found)
    return every.pop() if len(every) == 1 else ""


def _engine_of_kubelet(host: Host) -> str:
    """Return the engine whose socket a kubelet of the host calls, "" if it is unknown.

    A pod without the host's pid namespace does not see the kubelet.
    """
    for process in host_processes.running(host.root):
        if process.program == "kubelet" and process.is_trusted:
            options = unit_flags.command_options(process.arguments)
            endpoint = options.get("container-runtime-endpoint") or _configured(host, options)
            return _engine_of_endpoint(endpoint.removeprefix("unix://"))
    return ""


def _configured(host: Host, options: Mapping[str, str]) -> str:
    """Return the endpoint in the kubelet's configuration file, "" for none."""
    try:
        document = bounded_yaml.document(host.read(options.get("config", "")) or b"")
    except (OSError, GpuhookError, yaml.YAMLError):
        return ""
    return (
        toml_document.text(document.get("containerRuntimeEndpoint"))
        if isinstance(document, dict)
        else ""
    )


def _engine_of_endpoint(socket: str) -> str:
    known = {path: engine for engine, path in (*_SOCKETS, *_ALONE)}
    return known.get(
        posixpath.normpath(socket.replace("/var/run/", "/run/", 1))
    ) or _engine_of_name(socket)


def _engine_of_sockets(root: str) -> str:
    alone: tuple[tuple[str, str], ...] = _ALONE
    if os.path.isdir(inside(root, _KUBELET)):
        alone = tuple(sorted(_ALONE, key=lambda one: one[0] != "containerd"))
    for engine, socket in (*_SOCKETS, *alone):
        if os.path.exists(inside(root, socket)):
            return engine
    return ""
