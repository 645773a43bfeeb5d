# SPDX-License-Identifier: Apache-2.0
"""The pods in the documents of a manifest, and the objects on which they depend.

Pods are found in pods, in workloads of Kubernetes, in lists, and in any object with a pod template.
"""

from __future__ import annotations

from dataclasses import dataclass

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from gpuhook.explain.pods.manifest_value import Value

_TEMPLATES = {
    "Pod": (),
    "PodTemplate": ("template",),
    "CronJob": ("spec", "jobTemplate", "spec", "template"),
    **dict.fromkeys(
        (
            "Deployment",
            "StatefulSet",
            "DaemonSet",
            "ReplicaSet",
            "ReplicationController",
            "Job",
        ),
        ("spec", "template"),
    ),
}


@dataclass(frozen=True, slots=True)
class Pod:
    """One pod, or a template of pods. `path` leads to its specification: "spec.template.spec"."""

    workload: str  # "Deployment/train", "Pod" without a name
    name: str
    namespace: str
    metadata: Value
    spec: Value
    path: str


@dataclass(frozen=True, slots=True)
class Workloads:
    """The pods and their context.

    `config_maps` are the data by (namespace, name), `runtime_classes` the objects by name.
    """

    pods: tuple[Pod, ...]
    config_maps: Mapping[tuple[str, str], Mapping[str, str]]
    runtime_classes: Mapping[str, Value]
    nodes: tuple[Value, ...]
    kinds: tuple[str, ...]  # of the objects without pods, each once


def read_workloads(documents: Sequence[Value]) -> Workloads:
    """Return the contents of the documents, in their order."""
    pods: list[Pod] = []
    maps: dict[tuple[str, str], Mapping[str, str]] = {}
    classes: dict[str, Value] = {}
    nodes: list[Value] = []
    others: dict[str, None] = {}
    for one in objects(documents):
        kind = one["kind"].text()
        own = list(_pods(one, kind))
        pods += own
        if kind == "ConfigMap":
            name = one.at("metadata", "name").text()
            maps[namespace(one["metadata"]), name] = one["data"].texts()
        elif kind == "RuntimeClass":
            classes[one.at("metadata", "name").text()] = one
        elif kind == "Node":
            nodes.append(one)
        if not own:
            others[kind or "an object without a kind"] = None
    return Workloads(tuple(pods), maps, classes, tuple(nodes), tuple(others))


def namespace(metadata: Value) -> str:
    """Return the namespace in metadata, "default" without one."""
    return metadata["namespace"].text() or "default"


def objects(documents: Sequence[Value]) -> Iterator[Value]:
    """Yield the objects, with the items of lists in the place of the list."""
    for document in documents:
        if document["kind"].text().endswith("List") and document["items"].kind == "array":
            yield from objects(document["items"].items())
        elif document.kind == "array":
            yield from objects(document.items())
        elif document.kind == "object":
            yield document


def _pods(one: Value, kind: str) -> Iterator[Pod]:
    if kind in _TEMPLATES:
        keys = _TEMPLATES[kind]
        template = one.at(*keys)
        if template["spec"].is_there:
            yield _pod(one, kind, template, ".".join((*keys, "spec")))
        return
    for keys, template in _templates(one, ()):
        yield _pod(one, kind, template, ".".join((*keys, "spec")))


def _templates(value: Value, keys: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], Value]]:
    """Yield the paths and the pod templates in an object of an unknown kind."""
    for name, member in value.members().items():
        if name.lower().endswith("template") and member.at("spec", "containers").kind == "array":
            yield (*keys, name), member
        else:
            yield from _templates(member, (*keys, name))
    for number, item in enumerate(value.items()):
        last = f"{keys[-1] if keys else ''}[{number}]"
        yield from _templates(item, (*keys[:-1], last))


def _pod(one: Value, kind: str, template: Value, path: str) -> Pod:
    metadata = one["metadata"]
    name = metadata["name"].text() or metadata["generateName"].text()
    return Pod(
        workload="/".join(filter(None, (kind or "object", name))),
        name=name,
        namespace=namespace(metadata),
        metadata=template["metadata"],
        spec=template["spec"],
        path=path,
    )
