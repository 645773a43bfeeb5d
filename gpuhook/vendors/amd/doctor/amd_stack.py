# SPDX-License-Identifier: Apache-2.0
"""AMD's container toolkit and device plugin in addition to gpuhook; containers and their GPUs."""

from __future__ import annotations

import posixpath

from gpuhook.host.text_table import counted
from gpuhook.node_facts import container_facts, kubelet_facts
from gpuhook.node_facts.check import (
    FAILED,
    WARNING,
    Finding,
    absent,
    check,
    fact,
    first_items,
    for_each,
    ok,
    unless,
)
from gpuhook.node_facts.engine_facts import DockerHere, dockers
from gpuhook.node_facts.program_facts import program
from gpuhook.node_facts.sources import kubelet_files
from gpuhook.vendors.amd.doctor import amd_facts as facts
from gpuhook.vendors.amd.doctor.amd_devices import TOPOLOGY
from gpuhook.vendors.amd.doctor.amd_driver import MODULE
from gpuhook.vendors.amd.hot import amd_words

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

    from gpuhook.engines.read.engine_config import Runtime
    from gpuhook.node_facts.check import ExaminedNode, Findings

_RUNTIME, _TOOL = "amd-container-runtime", "amd-ctk"
_HOOK = f"/usr/local/bin/{_TOOL}"  # AMD's runtime writes this path into each config.json
_NO_RUNTIME = "no Docker here has AMD's runtime"
_PACKAGE = "/var/lib/dpkg/info/amd-container-toolkit.prerm"
_ETC = "/etc/cdi"
_AMD_SOCKET = "amd.com_"  # and the resource, without .sock


def _runtimes(node: ExaminedNode) -> list[tuple[DockerHere, Runtime]]:
    """Return AMD's runtimes of the Docker daemons here."""
    return [
        (one, runtime)
        for one in dockers(node)
        for runtime in one.configuration.runtimes.values()
        if posixpath.basename(runtime.path) == _RUNTIME
    ]


@check("amd.runtime", "AMD's runtime is not Docker's default runtime", needs=("docker.config",))
@for_each(_runtimes, absent(_NO_RUNTIME))
def _runtime(_node: ExaminedNode, found: tuple[DockerHere, Runtime]) -> Finding:
    one, runtime = found
    if one.configuration.default != runtime.name:
        message = f"AMD's runtime gives GPUs to containers with --runtime={runtime.name}"
        return ok(message, one.path, subject=runtime.name)
    return Finding(
        WARNING,
        f"AMD's runtime {runtime.name} is the default runtime of {one.path}",
        subject=runtime.name,
        meaning="it writes the config.json of every container again, also without a GPU, and loses "
        "members that it does not know; it uses runc only, and a GPU that gpuhook assigns may be "
        "added twice",
        command=f"sed -i '/\"default-runtime\"/d' {one.path} && {one.restart}",
        looked_at=(one.path,),
    )


@check("amd.hook", "The hook of AMD's runtime is installed", needs=("docker.config",))
@for_each(_runtimes, absent(_NO_RUNTIME))
def _hook(node: ExaminedNode, found: tuple[DockerHere, Runtime]) -> Finding:
    _, runtime = found
    if program(node.tree, _HOOK):
        return ok(f"{_HOOK} exists", _HOOK, subject=runtime.name)
    path = program(node.tree, _TOOL)
    command = f"ln -s {path} {_HOOK}" if path else f"ln -s $(command -v {_TOOL}) {_HOOK}"
    return Finding(
        WARNING,
        f"AMD's runtime runs {_HOOK} when a container ends, and that program does not exist",
        subject=runtime.name,
        meaning="with `amd-ctk gpu-tracker enable`, a GPU is never released: exclusive GPUs stay "
        'busy ("GPUs [..] are exclusive and already in use")',
        command=command,
        looked_at=(_HOOK,),
    )


@check("amd.package", "AMD's package does not remove CDI specs of others")
def _package(node: ExaminedNode) -> Finding:
    if node.tree.status(_PACKAGE) is None:
        return absent("AMD's container toolkit is not installed from a Debian package", _PACKAGE)
    own = [f"{_ETC}/{name}" for name in node.tree.names(_ETC) if name != "amd.json"]
    if not own:
        return ok(f"{_ETC} has no spec of others", _ETC)
    return Finding(
        WARNING,
        f"amd-container-toolkit is installed, and {_ETC} has {first_items(own)}",
        subject=_ETC,
        meaning=f"an upgrade or removal of the package removes all files in {_ETC}: containers "
        "that request their devices then do not start",
        command=f"mkdir -p /var/run/cdi && mv -n {' '.join(own)} /var/run/cdi/  # until the next "
        "boot; gpuhook-refresh.service writes gpuhook's specs there",
        looked_at=(_PACKAGE, _ETC),
    )


@fact
def _sockets(node: ExaminedNode) -> tuple[list[str], list[str]]:
    """Return the sockets of AMD's device plugin, and those of gpuhook's plugin for AMD GPUs."""
    place = kubelet_facts.kubelet(node).directory
    names = kubelet_files.sockets(node.tree, place) if place else []
    theirs = [name for name in names if name.startswith(_AMD_SOCKET)]
    ours = [name for name in names if name.startswith("amd-") and name.endswith(".sock")]
    return theirs, ours


@check("amd.plugins", "Only one device plugin offers the AMD GPUs")
@unless(kubelet_facts.no_kubelet)
def _plugins(node: ExaminedNode) -> Finding:
    theirs, ours = _sockets(node)
    place = kubelet_facts.kubelet(node).plugin_directory
    if not theirs or not ours:
        message = f"the plugin of {', '.join(theirs or ours)} offers the AMD GPUs"
        none = "no device plugin offers AMD GPUs"
        return ok(message, place) if theirs or ours else absent(none, place)
    return Finding(
        FAILED,
        f"two device plugins offer AMD GPUs: AMD's ({', '.join(theirs)}) and gpuhook's "
        f"({', '.join(ours)})",
        subject=place,
        meaning="the kubelet keeps the last plugin that registers a resource, and the devices of "
        "the other disappear; if the names differ, each assigns GPUs that the other has assigned",
        command="kubectl get daemonsets -A | grep -iE 'amdgpu|device-plugin' && kubectl -n "
        "NAMESPACE delete daemonset THE-ONE-TOO-MANY  # also AMD's node labeller, which removes "
        "and writes the same labels",
        looked_at=(place,),
    )


@check("amd.registered", "The kubelet's AMD devices exist", needs=(MODULE, TOPOLOGY))
@unless(facts.no_gpus)
@unless(kubelet_facts.no_kubelet)
def _registered(node: ExaminedNode) -> Findings:
    found = kubelet_files.checkpoint(node.tree, kubelet_facts.kubelet(node).directory)
    resources = {
        name: ids
        for name, ids in (found.registered if found else {}).items()
        if name.partition("/")[0] == amd_words.VENDOR
    }
    if found is None or not resources or facts.topology(node).refused:
        return absent("the kubelet has registered no AMD GPU, or KFD refuses its files")
    known = facts.device_ids(node)
    result = []
    for resource, ids in sorted(resources.items()):
        gone = sorted({kubelet_files.uuid(one) for one in ids} - known)
        result.append(
            Finding(
                WARNING,
                f"the kubelet has {first_items(gone)} registered as {resource}, which this node "
                "does not have",
                subject=resource,
                meaning="the partition mode or the GPUs were changed, and AMD's plugin reads them "
                "only when it starts: pods get devices that do not exist, or none",
                command=kubelet_facts.restart(kubelet_facts.pods(node)),
                looked_at=(found.path,),
            )
            if gone
            else ok(f"{resource}: {len(ids)} registered", found.path, subject=resource)
        )
    return result


@check("amd.containers", "The AMD devices of running containers exist", needs=(MODULE, TOPOLOGY))
@unless(facts.no_gpus)
def _containers(node: ExaminedNode) -> Findings:
    if facts.topology(node).refused:
        return absent("KFD refuses to read its files (amd.topology)")
    holders = container_facts.containers_with_nodes(node)
    held = {name: paths for name, paths in holders if facts.KFD in paths}
    found = [
        Finding(
            FAILED,
            f"{name} has {first_items(gone)}, which no AMD GPU or partition has now",
            subject=name,
            meaning="the partition mode was changed, or a GPU was lost, while the container ran: "
            "its programs fail, and another container can get the same part of the GPU",
            command="stop the container and start it again, with devices of the present mode",
            looked_at=(facts.NODES, facts.BOUND),
        )
        for name, paths in held.items()
        if (gone := _gone(node, paths))
    ]
    if not held:
        return absent("no running container has an AMD GPU")
    return found or ok(f"the AMD devices of {counted(len(held), 'container')} exist")


def _gone(node: ExaminedNode, paths: Iterable[object]) -> list[str]:
    """Return the render nodes of no GPU: neither of AMD's now, nor of another driver."""
    drm = set(node.tree.names(facts.DRM_CLASS)) - {
        facts.render_path(minor).rpartition("/")[2] for minor in facts.drm_minors(node)
    }
    known = {facts.render_path(minor) for minor in facts.device_minors(node)}
    known |= {f"{facts.DRI}/{name}" for name in drm}
    return [
        path for path in paths if isinstance(path, str) and _is_render(path) and path not in known
    ]


def _is_render(path: str) -> bool:
    return path.startswith(facts.render_path(0)[:-1])


CHECKS = (_runtime, _hook, _package, _plugins, _registered, _containers)
