# SPDX-License-Identifier: Apache-2.0
"""The containers that run: whether they still have what they were given, and of whom."""

from __future__ import annotations

from functools import partial
from typing import Any

from gpuhook.doctor.check import CONTAINERS, FAILED, OK, WARNING, Check, Finding, absent, ok
from gpuhook.doctor.facts import driver_facts as facts
from gpuhook.doctor.facts import gpu_loss
from gpuhook.node import node_readings

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator

    from gpuhook.doctor.check import ExaminedNode

_LOOKED_AT = "the running containers"
_DENIED, _OTHER_DRIVER, _REMOVED, _UNHEARD = "GH1744", "GH1741", "GH1742", "GH1745"
_DEPARTED = "GH1123"  # of a GPU that is missing, driver.gpu and driver.bus report it
_APART = (_DENIED, _OTHER_DRIVER, _REMOVED, _UNHEARD)


def _unreadable(node: ExaminedNode) -> Iterable[Finding]:
    """Find the containers that cannot be looked at."""
    if (none := _none(node)) is not None:
        return [none]
    found = [
        Finding(
            WARNING,
            f"{one['where']} cannot be looked at: {one['message']}",
            subject=one["where"],
            meaning="what this container has lost, if anything, nobody can tell",
            command=one["hint"],
            looked_at=(_LOOKED_AT,),
        )
        for one in _reading(node)["trouble"]
    ]
    number = _reading(node)["looked_at"]
    return found or [ok(f"{number} running containers were looked at", _LOOKED_AT)]


def _access(node: ExaminedNode) -> Iterable[Finding]:
    """Find containers whose device cgroup denies what they were given."""
    return _each(node, _lost_access, "no container has lost the access to its GPUs")


def _lost_access(one: dict[str, Any]) -> Iterator[Finding]:
    for told in one["missing"]:
        if told["code"] == _DENIED:
            yield _finding(
                one,
                FAILED,
                told["message"],
                'its programs say "Failed to initialize NVML: Unknown Error", or find no CUDA'
                " device, though nobody has changed anything in it",
                f"gpuhook repair {one['id']}" if one["repairable"] else _restart(one),
            )


def _pieces(node: ExaminedNode) -> Iterable[Finding]:
    """Find containers that lack nodes, files or entries of what they were given."""
    missing = gpu_loss.missing(node)
    find = partial(_lost_pieces, apart=(*_APART, _DEPARTED) if missing else _APART)
    well = "no container lacks a node or file that it was given"
    return _each(node, find, f"{well}, except of a GPU that is missing" if missing else well)


def _lost_pieces(one: dict[str, Any], apart: Collection[str]) -> Iterator[Finding]:
    for told in [*one["missing"], *one["findings"]]:
        if told["code"] not in apart:
            is_lost = told in one["missing"] and one["repairable"]
            yield _finding(
                one,
                FAILED,
                told["message"],
                "its programs find a GPU less, or none of the driver's libraries"
                ' ("libcuda.so.1: cannot open shared object file")',
                f"gpuhook repair {one['id']}" if is_lost else _restart(one),
            )


def _driver(node: ExaminedNode) -> Iterable[Finding]:
    """Find containers with the files of another driver than the loaded one."""
    found = _each(node, _other_driver, "every container has the files of the loaded driver")
    is_told = facts.module_version(node) or any(one.status != OK for one in found)
    return found if is_told else [absent("no kernel module of NVIDIA's is loaded", facts.VERSION)]


def _other_driver(one: dict[str, Any]) -> Iterator[Finding]:
    for told in one["findings"]:
        if told["code"] == _OTHER_DRIVER:
            yield _finding(
                one,
                FAILED,
                told["message"],
                'its programs say "Failed to initialize NVML: Driver/library version mismatch":'
                " the driver was upgraded while it ran",
                _restart(one),
            )


def _removed(node: ExaminedNode) -> Iterable[Finding]:
    """Find containers whose mounted files are no more on the node."""
    return _each(node, _gone_files, "what is mounted of the driver is there on the node")


def _gone_files(one: dict[str, Any]) -> Iterator[Finding]:
    for told in one["findings"]:
        if told["code"] == _REMOVED:
            yield _finding(
                one,
                WARNING,
                told["message"],
                "it goes on with the old files, and meets a version mismatch as soon as the node"
                " has loaded the new driver",
                _restart(one),
            )


def _unheard(node: ExaminedNode) -> Iterable[Finding]:
    """Find containers that ask for GPUs and were given none."""
    return _each(node, _without, "every container that asks for GPUs has some")


def _without(one: dict[str, Any]) -> Iterator[Finding]:
    for told in one["findings"]:
        if told["code"] == _UNHEARD:
            yield _finding(
                one,
                WARNING,
                told["message"],
                "if it needs a GPU, its programs find none; images of CUDA ask for all of them"
                " by themselves, and may do so in vain",
                _start_again(one),
            )


def _stacks(node: ExaminedNode) -> Iterable[Finding]:
    """Find containers that got their GPUs twice."""
    return _each(node, _given_twice, "no container got its GPUs of two stacks")


def _given_twice(one: dict[str, Any]) -> Iterator[Finding]:
    if len(one["injected_by"]) > 1:
        names = " and ".join(one["injected_by"])
        yield _finding(
            one,
            WARNING,
            f"{_name(one)} got its GPUs of two stacks: {names}",
            "mounts and nodes are there twice, libraries of one can hide those of the other, and"
            " what one takes away the other has given",
            "remove one of the two from the engine: the hook file of the one in"
            " /usr/share/containers/oci/hooks.d or /etc/containers/oci/hooks.d, or the runtime",
        )


def _each(node: ExaminedNode, find: Any, well: str) -> list[Finding]:
    """Return what `find` yields of each container; what is `well` where that is nothing."""
    if (none := _none(node)) is not None:
        return [none]
    containers = _reading(node)["containers"]
    if not containers:
        other = "other " if _reading(node)["trouble"] else ""
        return [absent(f"no {other}running container has a GPU, or asks for one", _LOOKED_AT)]
    found = [finding for one in containers for finding in find(one)]
    return found or [ok(well, _LOOKED_AT)]


def _none(node: ExaminedNode) -> Finding | None:
    """Return why the running containers cannot be told of, None where they can."""
    reading = node.readings.of(node_readings.CONTAINERS)
    if reading.document is not None:
        return None
    hint = f": {reading.hint}" if reading.hint else ""
    return absent(f"running containers cannot be told of: {reading.trouble}{hint}", _LOOKED_AT)


def _reading(node: ExaminedNode) -> dict[str, Any]:
    document: dict[str, Any] = node.readings.document(node_readings.CONTAINERS)
    return document


def _finding(one: dict[str, Any], status: str, said: str, meaning: str, command: str) -> Finding:
    name = _name(one)
    told = said if name == one["id"] else f"{name}: {said}"
    return Finding(status, told, one["id"], meaning, command, (f"container {one['id']}",))


def _name(one: dict[str, Any]) -> str:
    """Return the names of a pod's container, the id of another."""
    names = [one[key] for key in ("namespace", "pod", "container") if one[key]]
    return "/".join(names) or str(one["id"])


def _restart(one: dict[str, Any]) -> str:
    """Return the command that has a container made anew."""
    if one["pod"]:
        namespace = f" -n {one['namespace']}" if one["namespace"] else ""
        return f"kubectl delete pod{namespace} {one['pod']}"
    if one["engine"] in ("docker", "podman"):
        return f"{one['engine']} restart {one['id']}"
    return f"stop container {one['id']} and start it again with its engine"


def _start_again(one: dict[str, Any]) -> str:
    if one["pod"]:
        return (
            "give the pod `runtimeClassName: nvidia` and a limit of nvidia.com/gpu, and create it"
            " anew"
        )
    if one["engine"] == "docker":
        return "docker run --runtime=nvidia ... (or --gpus), in place of this container"
    if one["engine"] == "podman":
        return "podman run --device nvidia.com/gpu=all ..., in place of this container"
    return f"start it with a runtime that gives GPUs, or: gpuhook attach {one['id']} --device 0"


CHECKS = (
    Check(
        "containers.state",
        CONTAINERS,
        "All running containers can be looked at",
        _unreadable,
    ),
    Check(
        "containers.access",
        CONTAINERS,
        "The device rules of running containers allow the GPUs that they were given",
        _access,
    ),
    Check(
        "containers.pieces",
        CONTAINERS,
        "Running containers have all nodes and files that they were given",
        _pieces,
    ),
    Check(
        "containers.driver",
        CONTAINERS,
        "The driver's files in running containers are of the loaded driver",
        _driver,
    ),
    Check(
        "containers.files",
        CONTAINERS,
        "What is mounted in running containers is still there on the node",
        _removed,
    ),
    Check(
        "containers.request",
        CONTAINERS,
        "Running containers that ask for GPUs have some",
        _unheard,
    ),
    Check(
        "containers.stacks",
        CONTAINERS,
        "No running container got its GPUs of two stacks",
        _stacks,
    ),
)
