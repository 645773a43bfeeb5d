# SPDX-License-Identifier: Apache-2.0
"""Running containers: whether they still have the GPUs that were assigned to them."""

from __future__ import annotations

from gpuhook.node_facts import nri_facts
from gpuhook.node_facts.check import FAILED, OK, WARNING, Finding, absent, check, ok
from gpuhook.node_facts.sources import node_readings
from gpuhook.vendors.nvidia.doctor.facts import driver_facts as facts
from gpuhook.vendors.nvidia.doctor.facts import gpu_loss

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from typing import Any

    from gpuhook.node_facts.check import ExaminedNode, Findings

_LOOKED_AT = "the running containers"
_DENIED, _OTHER_DRIVER, _REMOVED, _UNHEARD = "GH1744", "GH1741", "GH1742", "GH1745"
_OTHER_DEVICES = "GH1763"
_DEPARTED = "GH1123"  # of a missing GPU, which driver.gpu and driver.bus report
_OWN_CHECKS = (_DENIED, _OTHER_DRIVER, _REMOVED, _UNHEARD)
# By code: what users see.
_MEANINGS = {
    _DENIED: 'its programs print "Failed to initialize NVML: Unknown Error", or find no CUDA'
    " device, although nothing was changed in it",
    _OTHER_DRIVER: 'its programs print "Failed to initialize NVML: Driver/library version'
    ' mismatch": the driver was upgraded while it ran',
    _REMOVED: "it keeps the old files, and fails with a version mismatch as soon as the node loads"
    " the new driver",
    _OTHER_DEVICES: "it can open a GPU or partition that it was not given, and may share it with"
    " another container; `gpuhook repair` restores nothing in it",
    _UNHEARD: "if it needs a GPU, its programs find none; CUDA images request all GPUs by"
    " default, often unnecessarily",
}
_PIECES = (
    "its programs find one GPU fewer, or no driver libraries"
    ' ("libcuda.so.1: cannot open shared object file")'
)


@check("containers.state", "All running containers can be inspected")
def _state(node: ExaminedNode) -> Findings:
    reading = node.readings.of(node_readings.CONTAINERS)
    if reading.document is None:
        return _unknown(node)
    found = [
        Finding(
            WARNING,
            f"{one['where']} cannot be inspected: {one['message']}",
            subject=one["where"],
            meaning="it is unknown whether this container has lost its GPUs",
            command=one["hint"],
            looked_at=(_LOOKED_AT,),
        )
        for one in reading.document["trouble"]
    ]
    number = reading.document["looked_at"]
    return found or [ok(f"{number} running containers were inspected", _LOOKED_AT)]


@check("containers.access", "The device rules of running containers allow their GPUs")
def _access(node: ExaminedNode) -> Iterable[Finding]:
    well = "every container can access its GPUs"
    return _of_code(node, _DENIED, FAILED, _repair, well)


@check("containers.pieces", "Running containers have all their device nodes and files")
def _pieces(node: ExaminedNode) -> Iterable[Finding]:
    missing = gpu_loss.missing_gpus(node)
    reported = (*_OWN_CHECKS, _DEPARTED) if missing else _OWN_CHECKS

    def lost(one: dict[str, Any]) -> Iterator[Finding]:
        for fault in [*one["missing"], *one["findings"]]:
            if fault["code"] not in reported:
                command = _repair(one) if fault in one["missing"] else _restart(one)
                meaning = _MEANINGS.get(fault["code"], _PIECES)
                yield _finding(one, FAILED, fault["message"], meaning, command)

    well = "no container lacks a device node or file of its GPUs"
    return _each(node, lost, f"{well}, except of a missing GPU" if missing else well)


@check("containers.driver", "Running containers use the files of the loaded driver")
def _driver(node: ExaminedNode) -> Iterable[Finding]:
    well = "every container uses the files of the loaded driver"
    found = _of_code(node, _OTHER_DRIVER, FAILED, _restart, well)
    is_known = facts.module_version(node) or any(one.status != OK for one in found)
    return found if is_known else [absent("no NVIDIA kernel module is loaded", facts.VERSION)]


@check("containers.files", "The files that running containers mount still exist on the node")
def _files(node: ExaminedNode) -> Iterable[Finding]:
    well = "the driver files that containers mount exist on the node"
    return _of_code(node, _REMOVED, WARNING, _restart, well)


@check("containers.request", "Running containers that request GPUs have them")
def _request(node: ExaminedNode) -> Iterable[Finding]:
    well = "every container that requests GPUs has them"
    if nri_facts.uses_nri(node):  # created while the engine could not ask the plugin
        return _of_code(node, _UNHEARD, FAILED, _restart, well)
    return _of_code(node, _UNHEARD, WARNING, _start_again, well)


@check("containers.stacks", "No running container got its GPUs from two stacks")
def _stacks(node: ExaminedNode) -> Iterable[Finding]:
    def twice(one: dict[str, Any]) -> Iterator[Finding]:
        if len(one["injected_by"]) > 1:
            yield _finding(
                one,
                WARNING,
                f"{_name(one)} got its GPUs from two stacks: {' and '.join(one['injected_by'])}",
                "mounts and nodes are duplicated, libraries of one stack can hide those"
                " of the other, and each stack removes what the other has added",
                "remove one of the two from the engine: its hook file in"
                " /usr/share/containers/oci/hooks.d or /etc/containers/oci/hooks.d, or its runtime",
            )

    return _each(node, twice, "no container got its GPUs from two stacks")


def _of_code(
    node: ExaminedNode,
    code: str,
    status: str,
    command: Callable[[dict[str, Any]], str],
    well: str,
) -> list[Finding]:
    """Return a finding for each container with a fault of that code, or that all is `well`."""

    def faults(one: dict[str, Any]) -> Iterator[Finding]:
        for fault in [*one["missing"], *one["findings"]]:
            if fault["code"] == code:
                yield _finding(one, status, fault["message"], _MEANINGS[code], command(one))

    return _each(node, faults, well)


def _each(
    node: ExaminedNode, find: Callable[[dict[str, Any]], Iterator[Finding]], well: str
) -> list[Finding]:
    document = node.readings.document(node_readings.CONTAINERS)
    if document is None:
        return [_unknown(node)]
    if not document["containers"]:
        other = "other " if document["trouble"] else ""
        return [absent(f"no {other}running container has or requests a GPU", _LOOKED_AT)]
    found = [finding for one in document["containers"] for finding in find(one)]
    return found or [ok(well, _LOOKED_AT)]


def _unknown(node: ExaminedNode) -> Finding:
    reading = node.readings.of(node_readings.CONTAINERS)
    hint = f": {reading.hint}" if reading.hint else ""
    return absent(f"running containers are unknown: {reading.trouble}{hint}", _LOOKED_AT)


def _finding(one: dict[str, Any], status: str, text: str, meaning: str, command: str) -> Finding:
    name = _name(one)
    message = text if name == one["id"] else f"{name}: {text}"
    return Finding(status, message, one["id"], meaning, command, (f"container {one['id']}",))


def _name(one: dict[str, Any]) -> str:
    """Return NAMESPACE/POD/CONTAINER, or the id of a container outside of a pod."""
    names = [one[key] for key in ("namespace", "pod", "container") if one[key]]
    return "/".join(names) or str(one["id"])


def _repair(one: dict[str, Any]) -> str:
    return f"gpuhook repair {one['id']}" if one["repairable"] else _restart(one)


def _restart(one: dict[str, Any]) -> str:
    """Return the command that makes a container again."""
    if one["pod"]:
        namespace = f" -n {one['namespace']}" if one["namespace"] else ""
        return f"kubectl delete pod{namespace} {one['pod']}"
    if one["engine"] in ("docker", "podman"):
        return f"{one['engine']} restart {one['id']}"
    return f"restart container {one['id']} with its engine"


def _start_again(one: dict[str, Any]) -> str:
    """Return what makes a container again, with GPUs."""
    if one["pod"]:
        return (
            "give the pod `runtimeClassName: nvidia` and a limit of nvidia.com/gpu, and recreate it"
        )
    if one["engine"] == "docker":
        return "docker run --runtime=nvidia ... (or --gpus) instead of this container"
    if one["engine"] == "podman":
        return "podman run --device nvidia.com/gpu=all ... instead of this container"
    return f"start it with a GPU runtime, or: gpuhook attach {one['id']} --device 0"


CHECKS = (_state, _access, _pieces, _driver, _files, _request, _stacks)
