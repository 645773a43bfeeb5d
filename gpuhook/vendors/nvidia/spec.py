# SPDX-License-Identifier: Apache-2.0
"""A node as a CDI spec: its GPUs and MIG instances, and what every container needs of the driver.

Device nodes carry no numbers: whoever applies the spec looks at the node itself, so no number can
be stale. The lowest version of CDI that fits is declared, since engines refuse newer ones.
"""

from __future__ import annotations

from dataclasses import replace

from gpuhook.cdi import shared, versions
from gpuhook.vendors.nvidia import coherence, hook_names, hookless, nodes, selection, words
from gpuhook.vendors.nvidia.choices import Choices, Described
from gpuhook.vendors.nvidia.inventory import DeviceNode, DriverFile, Gpu, Link, Node
from gpuhook.vendors.nvidia.jobs import Jobs

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gpuhook.cdi.edits import ContainerEdits, Device, Mount, Spec
    from gpuhook.cdi.edits import DeviceNode as DeviceNodeEdit

COMPAT_DIRECTORY = "/usr/local/cuda/compat"
# What CDI offers at least: podman 4 reads nothing newer, nothing older names devices by number.
_LOWEST_VERSION = "0.5.0"
# Files have nothing mounted below them, so `bind`: a recursive one costs crun 0.1 ms each.
_FILE_OPTIONS = ["ro", "nosuid", "nodev", "bind", "rprivate"]
_SOCKET_OPTIONS = ["nosuid", "nodev", "noexec", "bind", "rprivate"]
_WORLD = 0o006
DRI_DIRECTORY = "/dev/dri"
_DRI_MODE = 0o755
_HOOKLESS = (
    "every hook is disabled: containers get no links and no loader cache (--hooks none makes up "
    "for both), and an engine that applies this spec does not notice when it is stale"
)


def describe(node: Node, choices: Choices) -> Described:
    """Return the CDI spec of `node`; raises GH1511 to GH1513 as selection.chosen does."""
    gpus, warnings = selection.chosen(node, choices.device_ids)
    given = limited(node, choices.capabilities)
    edits, missing = common(given, choices, libcuda_of(node))
    spec = of_parts(choices.kind, _devices(given, gpus, choices), edits)
    further = []
    if choices.coherent:
        missing += coherence.unknown(gpus)
        for infix, some in coherence.groups(gpus):
            kind = choices.kind + infix
            further.append((infix, of_parts(kind, _devices(given, some, choices), edits)))
    nameless = selection.nameless(gpus, choices.strategies)
    return Described(spec, gpus, (*warnings, *nameless, *missing), node, tuple(further))


def of_parts(kind: str, devices: list[Device], common: ContainerEdits) -> Spec:
    """Return the spec of `devices`, each of which comes with the edits `common`.

    What a device has in common with all is left out of it, unless nothing would be left.
    """
    devices = [shared.without(device, common) for device in devices]
    spec: Spec = {
        "cdiVersion": _LOWEST_VERSION,
        "kind": kind,
        "devices": devices,
        "containerEdits": common,
    }
    lowest = versions.lowest(dict(spec))
    spec["cdiVersion"] = max(_LOWEST_VERSION, lowest, key=versions.VERSIONS.index)
    return spec


def limited(node: Node, capabilities: frozenset[str] | None) -> Node:
    """Return `node` with only those nodes, files and links that `capabilities` need."""
    if capabilities is None:
        return node
    return replace(
        node,
        device_nodes=tuple(d for d in node.device_nodes if words.wanted(d.path, capabilities)),
        files=tuple(f for f in node.files if words.wanted(f.container_path, capabilities)),
        links=tuple(link for link in node.links if words.wanted(link.path, capabilities)),
    )


def _devices(node: Node, gpus: tuple[Gpu, ...], choices: Choices) -> list[Device]:
    nodes = {device.path: device for device in node.device_nodes}
    own = [
        (gpu, instance, [nodes[path] for path in selection.node_paths(gpu, instance)])
        for gpu in gpus
        for instance in selection.offered(gpu)
    ]
    devices: list[Device] = [
        {"name": name, **_annotations(gpu, choices), "containerEdits": node_edits(mine)}
        for strategy in dict.fromkeys(choices.strategies)
        for gpu, instance, mine in own
        for name in selection.names(gpu, (strategy,), instance)
    ]
    if choices.with_all:
        # Instances of one GPU have its node in common.
        every = {device.path: device for *_, mine in own for device in mine}
        devices.append({"name": selection.EVERY, "containerEdits": node_edits([*every.values()])})
    return devices


def _annotations(gpu: Gpu, choices: Choices) -> Device:
    if not choices.coherent or gpu.coherent is None:
        return {}
    return {"annotations": {coherence.ANNOTATION: str(gpu.coherent).lower()}}


def node_edits(nodes: list[DeviceNode]) -> ContainerEdits:
    """Return the edits that give a container `nodes`, and the groups without which it can't open.

    A node that everybody may open needs no group, and its spec no version newer than 0.5.0.
    """
    found: ContainerEdits = {"deviceNodes": []}
    gids = []
    for node in sorted(nodes, key=lambda node: _numeric_order(node.path)):
        entry: DeviceNodeEdit = {"path": node.path}
        if node.host_path != node.path:
            entry["hostPath"] = node.host_path
        entry["fileMode"] = node.mode
        entry["permissions"] = "rw"
        if node.gid:
            entry["gid"] = node.gid
            if node.mode & _WORLD != _WORLD and node.gid not in gids:
                gids.append(node.gid)
        found["deviceNodes"].append(entry)
    if gids:
        found["additionalGids"] = gids
    return found


def common(node: Node, choices: Choices, libcuda: str) -> tuple[ContainerEdits, list[str]]:
    """Return (the edits for every container, what could not be had)."""
    control = [device for device in node.device_nodes if device.path in nodes.CONTROL_NODES]
    found: ContainerEdits = {"env": [f"{words.VOCABULARY.devices_env}=void"]}
    if control:
        found.update(node_edits(control))
    missing = []
    if choices.hooks == "none":
        found["env"].append(hookless.ENV)
        bindings, lost = hookless.bindings(node.files, node.links)
        missing += [f"without a hook there is no link {link}" for link in lost]
        if node.masks_params:
            missing.append(
                "without a hook containers see the host's /proc/driver/nvidia/params, "
                "with ModifyDeviceFiles 1"
            )
    else:
        bindings = [(file.host_path, file.container_path) for file in node.files]
    sockets = {file.host_path for file in node.files if file.kind == "socket"}
    found["mounts"] = _mounts(bindings, sockets)
    if choices.hooks != "none":
        if hook_names.is_any_on(choices):
            found["hooks"] = [_jobs(node, choices, libcuda).hook()]
        else:
            missing.append(_HOOKLESS)
    return found, missing


def _mounts(bindings: list[tuple[str, str]], sockets: set[str]) -> list[Mount]:
    return [
        {
            "hostPath": source,
            "containerPath": place,
            "options": list(_SOCKET_OPTIONS if source in sockets else _FILE_OPTIONS),
        }
        for source, place in sorted(set(bindings), key=lambda pair: _order(pair[1]))
    ]


def libcuda_of(node: Node) -> str:
    """Return the host path of libcuda, "" where there is none: its identity is the driver tree's.

    Also for a spec that does not give it to containers.
    """
    known = [f.host_path for f in node.files if f.kind == "library" and f.soname == "libcuda.so.1"]
    return known[0] if known else ""


def _jobs(node: Node, choices: Choices, libcuda: str) -> Jobs:
    """Return what our one hook has to do for the files of `node`."""
    jobs = Jobs(choices.hook_path)
    libraries = [file for file in node.files if file.kind == "library" and file.soname]
    jobs.libraries = sorted((file.container_path, str(file.soname)) for file in libraries)
    jobs.skipped = hook_names.skipped(choices)
    jobs.ldconfig = choices.ldconfig_path
    if hook_names.is_on(hook_names.LINKS, choices):
        own = {_soname_link(file) for file in libraries}
        jobs.links = sorted((link.target, link.path) for link in node.links if link not in own)
    jobs.driver_version = node.driver.version or ""
    if libcuda_of(node) and hook_names.is_on(hook_names.CUDA_COMPAT, choices):
        jobs.cuda_compat = COMPAT_DIRECTORY
    jobs.libcuda = libcuda
    jobs.driver_params = node.masks_params and hook_names.is_on(hook_names.PARAMS, choices)
    if hook_names.is_on(hook_names.CHMOD, choices):
        jobs.chmod = [(_DRI_MODE, DRI_DIRECTORY)]
    jobs.fingerprint = node.fingerprint
    jobs.host_root = choices.host_root
    return jobs


def _soname_link(file: DriverFile) -> Link:
    """Return the link that the hook makes for a library anyway."""
    directory, _, name = file.container_path.rpartition("/")
    return Link(f"{directory}/{file.soname}", name)


def _numeric_order(path: str) -> tuple[str, int]:
    """Return the sort key of a device node: /dev/nvidia2 comes before /dev/nvidia10."""
    stem = path.rstrip("0123456789")
    return stem, int(path[len(stem) :] or -1)


def _order(path: str) -> tuple[int, str]:
    """Return the sort key of a path: what lies less deep is mounted first."""
    return path.count("/"), path
