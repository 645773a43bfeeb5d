# SPDX-License-Identifier: Apache-2.0
"""The plugin's CDI specs: written by gpuhook's generator, and again whenever they change.

There is one file for each class, <plugin_vendor()>-<class>.json, in the host's CDI directory: `gpu`
of each vendor, and those of the extras. The plugin never removes a file, neither at its end nor if
the driver is incomplete: the kubelet keeps its answers, and a container that restarts needs their
names. A running container needs no spec.
"""

from __future__ import annotations

import os
from dataclasses import dataclass

from gpuhook.apply.rootfs import hook_args
from gpuhook.cdi import spec_file
from gpuhook.cdi.hot import spec_rules
from gpuhook.device_plugin.allocate.allocation_context import Specs
from gpuhook.device_plugin.allocate.container_allocation import DeviceSpec
from gpuhook.errors import GpuhookError
from gpuhook.host.hot import files, rooted_path, state
from gpuhook.vendors.catalogue import vendor_of_resource
from gpuhook.vendors.plugin.plugin_place import is_below, joined
from gpuhook.vendors.plugin.vendor_part import plugin_vendor
from gpuhook.vendors.spec.spec_choices import DEFAULT_HOOK_PATH

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from gpuhook.cdi.hot.container_edits import ContainerEdits, DeviceNode, Spec
    from gpuhook.cdi.hot.container_edits import Device as SpecDevice
    from gpuhook.device_plugin.allocate.auxiliary_devices import AuxiliaryDevice
    from gpuhook.device_plugin.allocate.container_allocation import AllocatedMount
    from gpuhook.device_plugin.config.configuration import Flags
    from gpuhook.device_plugin.offer.offered_devices import Device
    from gpuhook.vendors.plugin.vendor_part import VendorPart

_VERSION = "0.5.0"  # podman 4 reads it, and the specs of the extras need no newer one
_INSTALLED = "/opt/gpuhook/bin"  # by `gpuhook node install`
_VAR = "/var"
_SOCKET_OPTIONS = ["nosuid", "nodev", "rbind", "rprivate"]


@dataclass(frozen=True, slots=True)
class Hook:
    """gpuhook's hook in the specs: its path on the host, or None with the reason `warning`."""

    path: str | None
    warning: str = ""


def hook(flags: Flags) -> Hook:
    """Return the hook for specs of this host: gpuhook-hook if the host has it, else none.

    It is searched at the configured path, else in the directories of packages and the installer.
    The plugin sees the host's file system only if the driver root is "/", and then possibly without
    /var: a configured path that it cannot see is used unchecked, and without one the specs have no
    hook. They have none either if the configured program is not gpuhook-hook, such as nvidia-ctk.
    """
    configured = flags.plugin.cdi_hook_path
    path = configured or DEFAULT_HOOK_PATH
    if os.path.basename(path) != hook_args.HOOK_NAME:
        return Hook(None, f"{path} is not {hook_args.HOOK_NAME}: CDI specs contain no hooks")
    mounted = os.path.isdir(flags.plugin.container_driver_root)
    root = flags.plugin.container_driver_root if mounted else "/"
    is_seen = not mounted or os.path.normpath(flags.driver_root) == "/"
    places = [path]
    if not configured and is_seen:
        directories = (*state.PROGRAM_DIRS, _INSTALLED)
        places += [os.path.join(directory, hook_args.HOOK_NAME) for directory in directories]
    for place in places if is_seen else ():
        if _is_program(root, place):
            return Hook(place)
    unseen = next((place for place in places if not is_seen or _is_hidden(root, place)), "")
    if unseen and configured:
        return Hook(path)
    reason = f"the host's {unseen} cannot be seen" if unseen else f"the host has no {path}"
    return Hook(None, f"{reason}: CDI specs contain no hooks")


def _is_program(root: str, path: str) -> bool:
    """Return whether `path`, with links followed inside `root`, can be executed."""
    try:
        real = rooted_path.resolve(root, path, must_exist=True)
    except OSError:
        return False
    return os.access(joined(root, real), os.X_OK)


def _is_hidden(root: str, path: str) -> bool:
    """Return whether `path` is below the host's /var, which the plugin's pod may hide.

    OSTree has links there, from /opt and /usr/local. The /var of a host is never empty.
    """
    try:
        real = rooted_path.resolve(root, path)
        return is_below(real, _VAR) and not os.listdir(joined(root, _VAR))
    except OSError:
        return False


def update(
    part: VendorPart,
    devices: Iterable[Device],
    extras: tuple[AuxiliaryDevice, ...],
    chosen: Hook,
    *,
    directory: str | None,
    host_root: str = "/",
) -> Specs:
    """Write the changed specs of a part: that of `devices`, which it offers, and of the extras.

    Each file is replaced atomically; without a directory nothing is written. A failure is returned
    as `trouble`, and not raised, since other strategies may work; that of an extra is a warning.
    """
    if part.files_trouble:
        return Specs(trouble=part.files_trouble)
    try:
        document, warnings = describe(part, devices, chosen, host_root)
        written = write(document, directory)
    except GpuhookError as trouble:
        return Specs(trouble=trouble.message)
    names = _names(document)
    for extra in extras:
        kind = f"{plugin_vendor(part.domain)}/{extra.device_class}"
        document = _node_spec(kind, extra.devices, extra.mounts)
        try:
            written += write(document, directory)
        except GpuhookError as trouble:
            warnings.append(trouble.message)
        else:
            names += _names(document)
    return Specs(frozenset(names), "", tuple(written), tuple(warnings))


def describe(
    part: VendorPart, devices: Iterable[Device], chosen: Hook, host_root: str = "/"
) -> tuple[Spec, list[str]]:
    """Return the spec of `devices`, which have the names of their UUIDs, and warnings.

    A vendor with files of the driver describes all devices of the part. Raises GpuhookError.
    """
    described = vendor_of_resource(part.domain).driver_spec(part, chosen.path, host_root)
    if described is None:
        return _device_spec(part, devices), []
    return described[0], [*filter(None, [chosen.warning]), *described[1]]


def _device_spec(part: VendorPart, devices: Iterable[Device]) -> Spec:
    """Return the spec of devices of a vendor without driver files."""
    words = vendor_of_resource(part.domain).vocabulary
    found = {
        device.uuid: tuple(map(DeviceSpec, device.paths, device.host_paths)) for device in devices
    }
    control = tuple(DeviceSpec(path, path) for path in part.control_nodes)
    named = {name: control + own for name, own in found.items()}
    document = _node_spec(f"{plugin_vendor(part.domain)}/gpu", named, ())
    # The engine has handled the request: no runtime below it adds the GPUs of the image's variable.
    document["containerEdits"] = {"env": [f"{words.devices_env}=void"]}
    return document


def write(document: Spec, directory: str | None) -> list[str]:
    """Write the spec if its file differs; return [path] if it was written."""
    path = os.path.join(directory or "", document["kind"].replace("/", "-") + ".json")
    spec_rules.check(document, path)
    if directory is None:
        return []
    try:
        if files.read(path) == spec_file.document(document, "json").encode():
            return []
    except (OSError, GpuhookError):
        pass  # missing or unreadable: it is written
    spec_file.write(document, path, "json")
    return [path]


def _node_spec(
    kind: str,
    named: Mapping[str, tuple[DeviceSpec, ...]],
    mounted: tuple[AllocatedMount, ...],
) -> Spec:
    devices: list[SpecDevice] = []
    for name, specs in named.items():
        nodes: list[DeviceNode] = []
        for device in specs:
            node: DeviceNode = {"path": device.container_path}
            if device.host_path != device.container_path:
                node["hostPath"] = device.host_path
            node["permissions"] = device.permissions
            nodes.append(node)
        edits: ContainerEdits = {"deviceNodes": nodes}
        if mounted:
            edits["mounts"] = [
                {
                    "hostPath": mount.host_path,
                    "containerPath": mount.container_path,
                    "options": ["ro", *_SOCKET_OPTIONS],
                }
                for mount in mounted
            ]
        devices.append({"name": name, "containerEdits": edits})
    return {"cdiVersion": _VERSION, "kind": kind, "devices": devices}


def _names(document: Spec) -> list[str]:
    return [f"{document['kind']}={device['name']}" for device in document["devices"]]
