# SPDX-License-Identifier: Apache-2.0
"""A node as a CDI spec: its GPUs and MIG instances, and what every container needs of the driver.

Device nodes carry no numbers: whoever applies the spec looks at the node itself, so no number can
be stale. The lowest version of CDI that fits is declared, since engines refuse newer ones.
"""

from __future__ import annotations

from dataclasses import replace

from gpuhook.cdi import versions
from gpuhook.vendors.nvidia import drm, gpu_facts, hookless, nodes, selection, words
from gpuhook.vendors.nvidia.choices import Choices, Described
from gpuhook.vendors.nvidia.inventory import (
    DeviceNode,
    DriverFile,
    Gpu,
    Link,
    MigInstance,
    Node,
)
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
_OPTIONS = {
    "socket": _SOCKET_OPTIONS,
    "pipes": _SOCKET_OPTIONS,
    "directory": ["ro", "nosuid", "nodev", "rbind", "rprivate"],
}
_IPC = ("socket", "pipes")  # by which containers talk to daemons of the host
_WORLD = 0o006
_EVERYBODY = 0o666


def describe(node: Node, choices: Choices) -> Described:
    """Return the CDI spec of `node`; raises GH1511 to GH1513 as selection.chosen does."""
    gpus, warnings = selection.chosen(node, choices.device_ids)
    edits, missing = common(node, choices, gpus)
    spec = of_parts(choices.kind, _devices(limited(node, choices), gpus, choices), edits)
    nameless = selection.nameless(gpus, choices.strategies)
    return Described(spec, gpus, (*warnings, *nameless, *missing), node)


def common(
    node: Node, choices: Choices, gpus: tuple[Gpu, ...] = ()
) -> tuple[ContainerEdits, list[str]]:
    """Return (the edits for every container of `node`, sentences about what could not be had).

    They are its control nodes, its files and links, and our one hook, which knows what `gpus` are.
    """
    given = limited(node, choices)
    return _common(given, choices, _jobs(given, gpus, choices, libcuda_of(node)))


def of_parts(kind: str, devices: list[Device], common: ContainerEdits) -> Spec:
    """Return the spec of `devices`, each of which comes with the edits `common`."""
    spec: Spec = {
        "cdiVersion": _LOWEST_VERSION,
        "kind": kind,
        "devices": devices,
        "containerEdits": common,
    }
    lowest = versions.lowest(dict(spec))
    spec["cdiVersion"] = max(_LOWEST_VERSION, lowest, key=versions.VERSIONS.index)
    return spec


def limited(node: Node, choices: Choices) -> Node:
    """Return `node` with only those nodes, files and links that are to be given."""
    capabilities = choices.capabilities
    if not choices.ipc:
        node = replace(node, files=tuple(f for f in node.files if f.kind not in _IPC))
    if capabilities is None:
        return node
    return replace(
        node,
        device_nodes=tuple(d for d in node.device_nodes if words.wanted(d.path, capabilities)),
        files=tuple(f for f in node.files if _is_wanted(f, capabilities)),
        links=tuple(link for link in node.links if words.wanted(link.path, capabilities)),
    )


def _is_wanted(file: DriverFile, capabilities: frozenset[str]) -> bool:
    if file.capabilities:
        return not capabilities.isdisjoint(file.capabilities)
    return words.wanted(file.container_path, capabilities)


def _devices(node: Node, gpus: tuple[Gpu, ...], choices: Choices) -> list[Device]:
    nodes = {device.path: device for device in node.device_nodes}
    gids = choices.additional_gids
    own = [
        (gpu, instance, [nodes[path] for path in _paths(gpu, instance) if path in nodes])
        for gpu in gpus
        for instance in selection.offered(gpu)
    ]
    devices: list[Device] = [
        {"name": name, "containerEdits": node_edits(mine, additional_gids=gids)}
        for strategy in dict.fromkeys(choices.strategies)
        for gpu, instance, mine in own
        for name in selection.names(gpu, (strategy,), instance)
    ]
    if choices.with_all:
        # Instances of one GPU have its node in common.
        every = {device.path: device for *_, mine in own for device in mine}
        whole = node_edits([*every.values()], additional_gids=gids)
        devices.append({"name": selection.EVERY, "containerEdits": whole})
    return devices


def _paths(gpu: Gpu, instance: MigInstance | None) -> list[str]:
    return selection.node_paths(gpu, instance) + selection.drm_paths(gpu, instance)


def node_edits(nodes: list[DeviceNode], *, additional_gids: bool = True) -> ContainerEdits:
    """Return the edits that give a container `nodes`, and the groups without which it can't open.

    A node that everybody may open needs no group, and its spec no version newer than 0.5.0. So
    those of /dev/dri, which the host keeps for the groups video and render, may be opened by
    everybody in the container that is given them, as the driver's own nodes may.
    Without `additional_gids` no group is added, and every node has the host's mode.
    """
    found: ContainerEdits = {"deviceNodes": []}
    gids = []
    for node in sorted(nodes, key=lambda node: _numeric_order(node.path)):
        entry: DeviceNodeEdit = {"path": node.path}
        if node.host_path != node.path:
            entry["hostPath"] = node.host_path
        is_graphics = node.path.startswith(drm.DIRECTORY)
        mode = node.mode | _EVERYBODY if is_graphics and additional_gids else node.mode
        entry["fileMode"] = mode
        entry["permissions"] = "rw"
        if node.gid:
            entry["gid"] = node.gid
            if additional_gids and mode & _WORLD != _WORLD and node.gid not in gids:
                gids.append(node.gid)
        found["deviceNodes"].append(entry)
    if gids:
        found["additionalGids"] = gids
    return found


def _common(node: Node, choices: Choices, todo: Jobs) -> tuple[ContainerEdits, list[str]]:
    """Return (the edits for every container, what could not be had)."""
    control = [device for device in node.device_nodes if device.path in nodes.CONTROL_NODES]
    found: ContainerEdits = {"env": [f"{words.VOCABULARY.devices_env}=void"]}
    if control:
        found.update(node_edits(control, additional_gids=choices.additional_gids))
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
    options = {file.host_path: _OPTIONS.get(file.kind, _FILE_OPTIONS) for file in node.files}
    found["mounts"] = _mounts(bindings, options)
    if choices.hooks != "none":
        found["hooks"] = [todo.hook()]
    return found, missing


def _mounts(bindings: list[tuple[str, str]], options: dict[str, list[str]]) -> list[Mount]:
    return [
        {
            "hostPath": source,
            "containerPath": place,
            "options": list(options.get(source, _FILE_OPTIONS)),
        }
        for source, place in sorted(set(bindings), key=lambda pair: _order(pair[1]))
    ]


def libcuda_of(node: Node) -> str:
    """Return the host path of libcuda, "" where there is none: its identity is the driver tree's.

    Also for a spec that does not give it to containers.
    """
    return next((file.host_path for file in node.files if _is_libcuda(file)), "")


def _jobs(node: Node, gpus: tuple[Gpu, ...], choices: Choices, libcuda: str) -> Jobs:
    """Return what our one hook has to do for the files of `node`."""
    jobs = Jobs(choices.hook_path)
    libraries = [file for file in node.files if file.kind == "library" and file.soname]
    jobs.libraries = sorted((file.container_path, str(file.soname)) for file in libraries)
    own = {_soname_link(file) for file in libraries}
    jobs.links = sorted((link.target, link.path) for link in node.links if link not in own)
    jobs.gpus = gpu_facts.grouped(gpus)
    jobs.cuda_version = node.driver.cuda or ""
    jobs.needs = {f.container_path: frozenset(f.capabilities) for f in node.files if f.capabilities}
    jobs.driver_version = node.driver.version or ""
    if any(_is_libcuda(file) for file in libraries):
        jobs.cuda_compat = COMPAT_DIRECTORY
    jobs.libcuda = libcuda
    jobs.driver_params = node.masks_params
    jobs.fingerprint = node.fingerprint
    jobs.host_root = choices.host_root
    return jobs


def _is_libcuda(file: DriverFile) -> bool:
    return file.soname == "libcuda.so.1" and not words.is_32_bit(file.container_path)


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
