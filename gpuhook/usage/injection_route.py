# SPDX-License-Identifier: Apache-2.0
"""Containers that have a GPU and no entry in the ledger: they got it from another stack.

Sources are config.json, which CDI and device plugins change, and the kernel's list of mounts, to
which the prestart hook of a vendor adds. No file in the container is opened: a file system of the
container may never answer.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass

from gpuhook.apply.spec import oci_spec
from gpuhook.containers.hot import ledger
from gpuhook.errors import GpuhookError
from gpuhook.host.hot import files, state
from gpuhook.request import parse
from gpuhook.request.replicas import claims_of, replicas_of
from gpuhook.vendors.catalogue import vendors

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from typing import Any

    from gpuhook.containers.warm.runtime_state import Found
    from gpuhook.kernel.mountinfo import Mount
    from gpuhook.vendors.interfaces.usage_interface import ContainerTraces
    from gpuhook.vendors.interfaces.vendor_interface import Vendor

OURS, UNKNOWN = "gpuhook", "unknown"  # gpuhook through an engine, without an entry
_OUR_HOOK = "gpuhook-hook"
_STAGES = ("prestart", "createRuntime", "createContainer", "startContainer", "poststart")
_NOTHING = ("", "void", "none")
# A UID, or the hash of a static pod.
_POD_CGROUP = re.compile(
    r"(?:^|[-/])pod([0-9a-f]{8}(?:[-_][0-9a-f]{4}){3}[-_][0-9a-f]{12}|[0-9a-f]{32})(?:\.slice)?[:/]"
)
_HOST_DEVICES = ("devtmpfs", "/")  # file system and root of a mount of the whole /dev


@dataclass(frozen=True, slots=True)
class InjectedDevices:
    """The GPUs of a container: device nodes of single GPUs, and whether it has driver files.

    `is_everything`: it can open all devices of the host, as a privileged container can. `asked` has
    the variables that request GPUs: their CDI kind, name and value. `given_by` is OURS, UNKNOWN, or
    the stack of a vendor (ContainerTraces).
    """

    nodes: tuple[str, ...]
    has_driver: bool
    is_everything: bool
    given_by: str
    asked: tuple[tuple[str, str, str], ...]

    @property
    def is_holder(self) -> bool:
        """Whether GPUs were assigned to it.

        They were not if it has all devices of the host and no driver, or if its image requests GPUs
        and no stack handled the request.
        """
        if self.is_everything:
            return self.has_driver
        return bool(self.nodes)


def injected_devices(found: Found, spec: Mapping[str, Any]) -> InjectedDevices:
    """Return the devices of a running container; its config.json is `spec`, {} if it is gone."""
    mounts = _mounts(found)
    by_config = _config_nodes(spec)
    bound = [mount.target for mount in mounts if is_device_node(mount.target)]
    return InjectedDevices(
        nodes=tuple(dict.fromkeys((*by_config, *bound))),
        has_driver=any(one.is_driver_mount(m.target) for one in _traces() for m in mounts),
        is_everything=has_all_devices(spec, mounts),
        given_by=_given_by(spec, set(bound) - set(by_config)),
        asked=_asked(spec),
    )


def entry(
    found: Found, spec: dict[str, Any], has: InjectedDevices, by_node: Mapping[str, str]
) -> dict[str, Any]:
    """Return a container in the form of a ledger entry, with the UID of its pod.

    `by_node` has device node -> UUID.
    """
    named = [(kind, name) for kind, _, value in has.asked for name in _names(value)]
    devices = [f"{kind}={name}" for kind, name in named]

    def known() -> list[str]:
        return [by_node[node] for node in has.nodes if node in by_node]

    return {
        "schema": ledger.SCHEMA,
        "id": found.id,
        "root": found.state_root,
        **ledger.pod_of(spec.get("annotations")),
        "pod_uid": pod_uid(spec),
        "bundle": found.bundle,
        "devices": devices,
        "nodes": list(has.nodes),
        "replicas": replicas_of(spec, devices, known),
        "claims": claims_of(spec, devices, known),
        "requested": [name for _, name in named],
        "source": ", ".join(variable for _, variable, value in has.asked if _names(value)),
        "route": has.given_by,
        "runtime": found.runtime,
        "since": _since(found),
    }


def config(found: Found) -> dict[str, Any]:
    """Return the container's config.json, {} if it is gone or not root's."""
    try:
        return found.config()
    except (OSError, GpuhookError):
        return {}


def _mounts(found: Found) -> list[Mount]:
    try:
        with found.process() as process:
            return process.mounts()
    except (OSError, GpuhookError):
        return []  # it has exited, or belongs to another user


def _config_nodes(spec: Mapping[str, Any]) -> list[str]:
    return [path for path in oci_spec.device_paths(dict(spec)) if is_device_node(path)]


def is_device_node(path: str) -> bool:
    """Return whether a path is that of the node of one device of this host, of any vendor."""
    root = state.host_root()
    return any(one.is_device_node(path, root) for one in _traces())


def has_all_devices(spec: Mapping[str, Any], mounts: Sequence[Mount] = ()) -> bool:
    """Return whether the container can open all devices of the host, or has its whole /dev."""
    at_dev = [(mount.fstype, mount.root) for mount in mounts if mount.target == "/dev"]
    if at_dev[-1:] == [_HOST_DEVICES]:  # the last mount is visible
        return True
    return any(
        isinstance(rule, dict)
        and rule.get("allow") is True
        and rule.get("type") in (None, "", "a")
        and rule.get("major") in (None, -1)
        for rule in oci_spec.device_rules(dict(spec))
    )


def _given_by(spec: Mapping[str, Any], bound_later: set[str]) -> str:
    paths = hook_paths(spec, *_STAGES)
    programs = {os.path.basename(path).removesuffix(".real") for path in paths}
    if _OUR_HOOK in programs:
        return OURS
    # Root does not read the config.json of another user's container.
    bound = bound_later if spec else ()
    by_hook = (
        vendor.traces.HOOK_INJECTOR for vendor in vendors() if _has_hook(vendor, programs, bound)
    )
    by_spec = (one.SPEC_HOOKS.get(name) for one in _traces() for name in programs)
    return next(filter(None, (*by_hook, *by_spec)), UNKNOWN)


def _has_hook(vendor: Vendor, programs: set[str], bound: Iterable[str]) -> bool:
    """Return whether a vendor's prestart hook is in config.json, or has bound nodes of devices."""
    root, traces = state.host_root(), vendor.traces
    return not programs.isdisjoint(vendor.vocabulary.foreign_hooks) or any(
        traces.is_device_node(path, root) for path in bound
    )


def _traces() -> list[ContainerTraces]:
    return [vendor.traces for vendor in vendors()]


def hooks(spec: Mapping[str, Any], *stages: str) -> list[dict[str, Any]]:
    """Return the hooks of a config.json for these stages."""
    section = spec.get("hooks")
    listed = [section.get(stage) for stage in stages] if isinstance(section, dict) else []
    return [
        hook
        for stage in listed
        for hook in (stage if isinstance(stage, list) else ())
        if isinstance(hook, dict)
    ]


def hook_paths(spec: Mapping[str, Any], *stages: str) -> list[str]:
    """Return the paths of the programs that a config.json runs as hooks of these stages."""
    paths = (hook.get("path") for hook in hooks(spec, *stages))
    return [path for path in paths if isinstance(path, str)]


def _asked(spec: Mapping[str, Any]) -> tuple[tuple[str, str, str], ...]:
    """Return CDI kind, name and value of the variables that request GPUs."""
    environment = parse.environment(dict(spec))
    words = [vendor.vocabulary for vendor in vendors()]
    values = [environment.get(one.devices_env, "").strip() for one in words]
    return tuple(
        (one.default_kind, one.devices_env, value)
        for one, value in zip(words, values, strict=True)
        if value not in _NOTHING and not value.startswith("/")
    )


def _names(value: str) -> list[str]:
    return [name.strip() for name in value.split(",") if name.strip()]


def pod_uid(spec: Mapping[str, Any]) -> str:
    """Return the UID of a container's pod, "" if it has none.

    It is in the name of the pod's cgroup; the systemd driver writes `_` for `-`.
    """
    linux = spec.get("linux")
    path = linux.get("cgroupsPath") if isinstance(linux, dict) else None
    uid = _POD_CGROUP.search(path) if isinstance(path, str) else None
    return uid[1].replace("_", "-") if uid else ""


def _since(found: Found) -> float:
    """Return the start of the container's first process, in seconds since the epoch."""
    return _booted() + (found.started or 0) / os.sysconf("SC_CLK_TCK")


def _booted() -> float:
    for line in files.read("/proc/stat", 1 << 24).splitlines():
        if line.startswith(b"btime "):
            return float(line.split()[1])
    return 0.0
