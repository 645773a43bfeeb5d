# SPDX-License-Identifier: Apache-2.0
"""Containers that have a GPU and no entry in the ledger: NVIDIA's stack gave it, or somebody else.

What they have is told by their config.json (which NVIDIA's CDI mode and device plugins change) and
by the kernel's list of their mounts (to which NVIDIA's legacy hook adds). Nothing in the container
is opened: its own file systems answer when they like.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass

from gpuhook.apply.spec import oci_spec
from gpuhook.containers.hot import ledger
from gpuhook.entry import replica_env
from gpuhook.errors import GpuhookError
from gpuhook.host.hot import files
from gpuhook.request import parse
from gpuhook.vendors.nvidia.hot import vocabulary
from gpuhook.vendors.nvidia.spec import injection_traces

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any

    from gpuhook.containers.warm.runtime_state import Found
    from gpuhook.kernel.mountinfo import Mount

# Who gave it: NVIDIA's hook, which mounts into the container by itself; edits that a CDI spec of
# NVIDIA's made; ours, through an engine, with no entry left; nobody can tell.
LEGACY, CDI, OURS, UNKNOWN = "nvidia-legacy", "nvidia-cdi", "gpuhook", "unknown"
_CDI_HOOKS = ("nvidia-ctk", "nvidia-cdi-hook")
_OUR_HOOK = "gpuhook-hook"
_STAGES = ("prestart", "createRuntime", "createContainer", "startContainer", "poststart")
_NOTHING = ("", "void", "none")
# A UID, or the hash that is a static pod's.
_POD_CGROUP = re.compile(
    r"(?:^|[-/])pod([0-9a-f]{8}(?:[-_][0-9a-f]{4}){3}[-_][0-9a-f]{12}|[0-9a-f]{32})(?:\.slice)?[:/]"
)
_HOST_DEVICES = ("devtmpfs", "/")  # file system and root of a mount of the whole /dev


@dataclass(frozen=True, slots=True)
class InjectedDevices:
    """What a container has: device nodes of single GPUs, and whether it has the driver's files.

    `is_everything`: it may open all devices of the host, as a privileged container may.
    """

    nodes: tuple[str, ...]
    has_driver: bool
    is_everything: bool
    given_by: str
    asked: str

    @property
    def is_holder(self) -> bool:
        """Return whether somebody meant it to have GPUs.

        Not so of who has all devices of the host and no driver, nor of an image that asks and runs
        where nobody listens.
        """
        if self.is_everything:
            return self.has_driver
        return bool(self.nodes)


def injected_devices(found: Found, spec: Mapping[str, Any]) -> InjectedDevices:
    """Return what a running container has; its config.json is `spec`, {} where nobody has it."""
    mounts = _mounts(found)
    by_config = _config_nodes(spec)
    bound = [mount.target for mount in mounts if vocabulary.is_gpu_node(mount.target)]
    return InjectedDevices(
        nodes=tuple(dict.fromkeys((*by_config, *bound))),
        has_driver=any(injection_traces.is_driver_mount(mount.target) for mount in mounts),
        is_everything=has_all_devices(spec, mounts),
        given_by=_given_by(spec, set(bound) - set(by_config)),
        asked=_asked(spec),
    )


def entry(
    found: Found, spec: dict[str, Any], has: InjectedDevices, by_node: Mapping[str, str]
) -> dict[str, Any]:
    """Return what the container holds in the form of an entry of the ledger, and its pod's UID.

    `by_node` has the UUID of each device by its own device node.
    """
    named = [name.strip() for name in has.asked.split(",") if name.strip()]
    devices = [f"{vocabulary.VOCABULARY.default_kind}={name}" for name in named]
    return {
        "schema": ledger.SCHEMA,
        "id": found.id,
        "root": found.state_root,
        **ledger.pod_of(spec.get("annotations")),
        "pod_uid": pod_uid(spec),
        "bundle": found.bundle,
        "devices": devices,
        "nodes": list(has.nodes),
        "replicas": replica_env.replicas_of(
            spec, devices, lambda: [by_node[node] for node in has.nodes if node in by_node]
        ),
        "requested": named,
        "source": vocabulary.VOCABULARY.devices_env if named else "",
        "route": has.given_by,
        "runtime": found.runtime,
        "since": _since(found),
    }


def config(found: Found) -> dict[str, Any]:
    """Return the container's config.json, {} where it is gone or nothing to be believed."""
    try:
        return found.config()
    except (OSError, GpuhookError):
        return {}


def _mounts(found: Found) -> list[Mount]:
    try:
        with found.process() as process:
            return process.mounts()
    except (OSError, GpuhookError):
        return []  # it has ended meanwhile, or is another user's


def _config_nodes(spec: Mapping[str, Any]) -> list[str]:
    return [path for path in oci_spec.device_paths(dict(spec)) if vocabulary.is_gpu_node(path)]


def has_all_devices(spec: Mapping[str, Any], mounts: Sequence[Mount] = ()) -> bool:
    """Return whether the container may open whatever the host has, or has its whole /dev."""
    at_dev = [(mount.fstype, mount.root) for mount in mounts if mount.target == "/dev"]
    if at_dev[-1:] == [_HOST_DEVICES]:  # the last one is what is seen
        return True
    return any(
        isinstance(rule, dict)
        and rule.get("allow") is True
        and rule.get("type") in (None, "", "a")
        and rule.get("major") in (None, -1)
        for rule in oci_spec.device_rules(dict(spec))
    )


def _given_by(spec: Mapping[str, Any], bound_later: set[str]) -> str:
    hooks = set(_hooks(spec))
    if _OUR_HOOK in hooks:
        return OURS
    if hooks.intersection(vocabulary.FOREIGN_HOOKS) or bound_later:
        return LEGACY
    return CDI if hooks.intersection(_CDI_HOOKS) else UNKNOWN


def _hooks(spec: Mapping[str, Any]) -> list[str]:
    """Return the names of the programs that a config.json runs as hooks."""
    stages = spec.get("hooks")
    found = []
    for name in _STAGES:
        stage = stages.get(name) if isinstance(stages, dict) else None
        for hook in stage if isinstance(stage, list) else ():
            path = hook.get("path") if isinstance(hook, dict) else None
            if isinstance(path, str):
                found.append(os.path.basename(path).removesuffix(".real"))
    return found


def _asked(spec: Mapping[str, Any]) -> str:
    """Return the GPUs that the container asks for by its variable, "" for none."""
    value = parse.environment(dict(spec)).get(vocabulary.VOCABULARY.devices_env, "").strip()
    return "" if value in _NOTHING or value.startswith("/") else value


def pod_uid(spec: Mapping[str, Any]) -> str:
    """Return the UID of a container's pod, "" if it has none.

    The kubelet names the pod's cgroup by it; under the systemd driver `_` is for `-`.
    """
    linux = spec.get("linux")
    path = linux.get("cgroupsPath") if isinstance(linux, dict) else None
    uid = _POD_CGROUP.search(path) if isinstance(path, str) else None
    return uid[1].replace("_", "-") if uid else ""


def _since(found: Found) -> float:
    """Return when the container's first process started, in seconds of the epoch."""
    return _booted() + (found.started or 0) / os.sysconf("SC_CLK_TCK")


def _booted() -> float:
    for line in files.read("/proc/stat", 1 << 24).splitlines():
        if line.startswith(b"btime "):
            return float(line.split()[1])
    return 0.0
