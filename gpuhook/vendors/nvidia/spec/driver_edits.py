# SPDX-License-Identifier: Apache-2.0
"""The driver's edits for every container: control nodes, files, links, hook; and nodes as edits."""

from __future__ import annotations

from dataclasses import replace

from gpuhook.apply.rootfs.hook_args import Jobs
from gpuhook.errors import printable
from gpuhook.loader import library_directory
from gpuhook.vendors.nvidia.devices import driver_nodes, drm
from gpuhook.vendors.nvidia.driver import hookless_mounts
from gpuhook.vendors.nvidia.hot import requirement_check, vocabulary
from gpuhook.vendors.nvidia.hot.extras import live_devices
from gpuhook.vendors.nvidia.inventory.inventory import VDPAU_PLUGIN, DriverFile, Gpu, Link, Node
from gpuhook.vendors.nvidia.warm import hook_names

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from gpuhook.cdi.hot.container_edits import ContainerEdits, Mount
    from gpuhook.cdi.hot.container_edits import DeviceNode as DeviceNodeEdit
    from gpuhook.vendors.nvidia.inventory.inventory import DeviceNode
    from gpuhook.vendors.nvidia.spec.generate_options import Choices

COMPAT_DIRECTORY = "/usr/local/cuda/compat"
DRI_DIRECTORY = "/dev/dri"
_DRI_MODE = 0o755
_EVERYBODY = 0o666
# No mounts are below files, so `bind`: a recursive one costs crun 0.1 ms each.
_FILE_OPTIONS = ["ro", "nosuid", "nodev", "bind", "rprivate"]
_SOCKET_OPTIONS = ["nosuid", "nodev", "noexec", "bind", "rprivate"]
_OPTIONS = {
    "socket": _SOCKET_OPTIONS,
    "pipes": _SOCKET_OPTIONS,
    "directory": ["ro", "nosuid", "nodev", "rbind", "rprivate"],
}
_IPC = ("socket", "pipes")  # connections to daemons of the host
_ODD_NAME = "{path}: its name or its SONAME is not UTF-8, as a spec requires; skipped"
_HOOKLESS = (
    "every hook is disabled: containers get no links and no loader cache (--hooks none "
    "compensates for both), and an engine that applies this spec does not notice when it is stale"
)


def common(
    node: Node,
    choices: Choices,
    gpus: tuple[Gpu, ...] = (),
    adjust: Callable[[Jobs], None] | None = None,
) -> tuple[ContainerEdits, list[str]]:
    """Return (the edits for every container of `node`, sentences about missing parts).

    The edits are its control nodes, its files and links, and our one hook, which has the facts of
    `gpus` for requirements. `adjust` sets what differs in the jobs of the hook.
    """
    node, odd = _sayable(node)
    given = limited(node, choices)
    todo = _jobs(given, gpus, choices, libcuda_of(node))
    if adjust is not None:
        adjust(todo)
    edits, missing = _edits(given, choices, todo)
    return edits, [*odd, *missing]


def node_edits(nodes: Iterable[DeviceNode], choices: Choices) -> ContainerEdits:
    """Return the edits that give a container `nodes`, and the groups that it needs to open them.

    A node that every user may open needs no group, and its spec no version newer than 0.5.0. So the
    nodes of /dev/dri, which the host restricts to the groups video and render, get the driver's own
    mode: every user in the container may open them. Without `additional_gids` no group is added,
    and every node has the host's mode.
    """
    entries = []
    for node in sorted(nodes, key=lambda node: live_devices.numeric_order(node.path)):
        entry: DeviceNodeEdit = {"path": node.path}
        if node.host_path != node.path:
            entry["hostPath"] = node.host_path
        is_opened = choices.additional_gids and node.path.startswith(drm.DIRECTORY)
        entry["fileMode"] = node.mode | _EVERYBODY if is_opened else node.mode
        entry["permissions"] = "rw"
        if node.gid:
            entry["gid"] = node.gid
        entries.append(entry)
    return live_devices.edits(entries) if choices.additional_gids else {"deviceNodes": entries}


def _sayable(node: Node) -> tuple[Node, list[str]]:
    """Return (the node without files that a spec cannot name, a sentence about each of them).

    A spec is UTF-8, while a file's name and a library's SONAME are any bytes.
    """
    odd = [one for one in node.files if not _is_unicode(one.host_path, one.container_path)]
    odd += [one for one in node.files if one not in odd and not _is_unicode(one.soname or "")]
    links = tuple(link for link in node.links if _is_unicode(link.path, link.target))
    if not odd and len(links) == len(node.links):
        return node, []
    warnings = [_ODD_NAME.format(path=printable(one.host_path)) for one in odd]
    files = tuple(one for one in node.files if one not in odd)
    return replace(node, files=files, links=links), warnings


def _is_unicode(*texts: str) -> bool:
    try:
        "".join(texts).encode()
    except UnicodeEncodeError:
        return False
    return True


def limited(node: Node, choices: Choices) -> Node:
    """Return `node` with only those nodes, files and links that `choices` select."""
    capabilities = choices.capabilities
    if not choices.ipc:
        node = replace(node, files=tuple(f for f in node.files if f.kind not in _IPC))
    if capabilities is None:
        return node
    return replace(
        node,
        device_nodes=tuple(
            d for d in node.device_nodes if vocabulary.is_wanted(d.path, capabilities)
        ),
        files=tuple(f for f in node.files if _is_wanted(f, capabilities)),
        links=tuple(link for link in node.links if vocabulary.is_wanted(link.path, capabilities)),
    )


def _is_wanted(file: DriverFile, capabilities: frozenset[str]) -> bool:
    if file.capabilities:
        return not capabilities.isdisjoint(file.capabilities)
    return vocabulary.is_wanted(file.container_path, capabilities)


def _edits(node: Node, choices: Choices, todo: Jobs) -> tuple[ContainerEdits, list[str]]:
    """Return (the edits for every container, sentences about missing parts)."""
    control = [device for device in node.device_nodes if device.path in driver_nodes.CONTROL_NODES]
    found: ContainerEdits = {"env": [f"{vocabulary.VOCABULARY.devices_env}=void"]}
    where = _libcuda_directory(node, choices)
    if where:
        found["env"].insert(0, f"{vocabulary.LIBCUDA_DIRECTORY_ENV}={where}")
    if control:
        found.update(node_edits(control, choices))
    missing = []
    if choices.hooks == "none":
        found["env"].append(hookless_mounts.ENV)
        bindings, lost = hookless_mounts.bindings(node.files, node.links)
        missing += [f"without a hook, the link {link} does not exist" for link in lost]
        if node.masks_params:
            missing.append(
                "without a hook, containers see the host's /proc/driver/nvidia/params, "
                "with ModifyDeviceFiles 1"
            )
    else:
        bindings = [(file.host_path, file.container_path) for file in node.files]
    options = {file.host_path: _OPTIONS.get(file.kind, _FILE_OPTIONS) for file in node.files}
    found["mounts"] = _mounts(bindings, options)
    if choices.hooks != "none":
        if hook_names.enabled_hooks(choices):
            found["hooks"] = [todo.hook()]
        else:
            missing.append(_HOOKLESS)
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
    """Return the host path of libcuda, "" without one: its identity represents the driver tree.

    It is used also by a spec that does not give libcuda to containers.
    """
    return next((file.host_path for file in node.files if _is_libcuda(file)), "")


def _libcuda_directory(node: Node, choices: Choices) -> str:
    """Return the directory of libcuda in the container, "" if containers get none."""
    path = next((file.container_path for file in node.files if _is_libcuda(file)), "")
    if path and choices.hooks == "none":
        return hookless_mounts.DIRECTORY
    return path.rpartition("/")[0]


def _jobs(node: Node, gpus: tuple[Gpu, ...], choices: Choices, libcuda: str) -> Jobs:
    enabled = hook_names.enabled_hooks(choices)
    jobs = Jobs(choices.hook_path)
    libraries = [file for file in node.files if _is_loaded_by_name(file)]
    jobs.libraries = sorted((file.container_path, _soname(file)) for file in libraries)
    jobs.gpus = requirement_check.gpu_groups(gpus)
    jobs.cuda_version = node.driver.cuda or ""
    jobs.needs = {f.container_path: frozenset(f.capabilities) for f in node.files if f.capabilities}
    jobs.skipped = hook_names.skipped(enabled)
    jobs.ldconfig = choices.ldconfig_path
    if hook_names.LINKS in enabled:
        own = {_soname_link(file) for file in libraries}
        jobs.links = sorted((link.target, link.path) for link in node.links if link not in own)
    jobs.driver_version = node.driver.version or ""
    has_libcuda = any(_is_libcuda(file) for file in libraries)
    if has_libcuda and hook_names.CUDA_COMPAT in enabled:
        jobs.cuda_compat = COMPAT_DIRECTORY
    jobs.libcuda = libcuda
    jobs.driver_params = node.masks_params and hook_names.PARAMS in enabled
    if hook_names.CHMOD in enabled:
        jobs.chmod = [(_DRI_MODE, DRI_DIRECTORY)]
    jobs.fingerprint = node.fingerprint
    jobs.host_root = choices.host_root
    return jobs


def _is_loaded_by_name(file: DriverFile) -> bool:
    """Return whether programs open a library by its name only.

    libvdpau does so with NVIDIA's plugin, if it was built for a directory other than the host's.
    """
    name = file.container_path.rpartition("/")[2]
    is_vdpau = file.kind == "plugin" and name.startswith(VDPAU_PLUGIN)
    return is_vdpau or (file.kind == "library" and library_directory.is_library(name))


def _soname(file: DriverFile) -> str:
    """Return the name by which the loader opens a library: the file's name without a SONAME."""
    return file.soname or file.container_path.rpartition("/")[2]


def _is_libcuda(file: DriverFile) -> bool:
    return file.soname == "libcuda.so.1" and not vocabulary.is_32_bit(file.container_path)


def _soname_link(file: DriverFile) -> Link:
    """Return the link that the hook makes for every library."""
    directory, _, name = file.container_path.rpartition("/")
    return Link(f"{directory}/{_soname(file)}", name)


def _order(path: str) -> tuple[int, str]:
    return path.count("/"), path
