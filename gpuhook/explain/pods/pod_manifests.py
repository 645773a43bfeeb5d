# SPDX-License-Identifier: Apache-2.0
"""Reads manifests: the containers of all pods, and the objections of Kubernetes.

The input is what kubectl accepts or prints: YAML with several documents, JSON, lists.
"""

from __future__ import annotations

import re
from dataclasses import replace

from gpuhook.device_plugin.config.grammar.yaml_tree import NotReadableError, YamlBounds, compose_all
from gpuhook.errors import fault
from gpuhook.explain.pods import mount_rules, pod_notes, pod_rules, resource_names, workloads
from gpuhook.explain.pods.constraints import ClassScheduling, read_class, read_constraints
from gpuhook.explain.pods.manifest_value import Value
from gpuhook.explain.pods.pod_environment import EnvironmentBudget, PodEnvironment
from gpuhook.explain.pods.pod_requests import (
    CONTAINER,
    EPHEMERAL,
    INIT,
    SIDECAR,
    PodRequest,
    VolumeMount,
)
from gpuhook.explain.pods.scheduling import scheduling_node
from gpuhook.host import documents, quantity

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

    from gpuhook.explain.pods.workloads import Pod, Workloads

# A list of all pods of a cluster is large; managed fields make it deep.
BOUNDS = YamlBounds(largest=documents.LARGEST, deepest=64, most_nodes=500_000)
_MOST_GPUS = 1 << 31  # amounts can have any number of digits
_CLAIMS = {"ResourceClaim", "ResourceClaimTemplate", "DeviceClass"}
_LISTS = (("initContainers", INIT), ("containers", CONTAINER), ("ephemeralContainers", EPHEMERAL))
_SURROGATES = re.compile(
    r"(?<!\\)((?:\\\\)*)\\u(d[89ab][0-9a-f]{2})\\u(d[c-f][0-9a-f]{2})", re.IGNORECASE
)


def read(text: str, where: str) -> tuple[PodRequest, ...]:
    """Return the containers of all pods of a manifest, in their order; `where` names the file.

    Raises what compose() raises, GH1931 without a pod or a claim, and GH1932 if the pods have no
    containers.
    """
    found = workloads.read_workloads(compose(text, where))
    if not found.pods and not _CLAIMS.isdisjoint(found.kinds):
        return ()
    if not found.pods:
        raise fault(
            "GH1931", path=where, kinds=", ".join(found.kinds[:5]) or "no object has a `kind`"
        )
    budget = EnvironmentBudget()
    classes = {name: read_class(one) for name, one in found.runtime_classes.items()}
    of_manifest = tuple(map(scheduling_node.read_node, found.nodes))
    asked = tuple(
        replace(one, nodes=of_manifest, position=position)
        for position, pod in enumerate(found.pods)
        for one in _containers(pod, found, classes, budget)
    )
    if not asked:
        named = ", ".join(pod.workload for pod in found.pods[:5])
        raise fault("GH1932", path=where, pods=named)
    return asked


def compose(text: str, where: str) -> list[Value]:
    """Return the documents; raises GH1930 for a text that is not YAML or JSON, or too large."""
    try:
        nodes = compose_all(_as_yaml(text).encode("utf-8", "replace"), BOUNDS)
    except NotReadableError as error:
        place = f"{where}:{error.line}:{error.column}"
        reason = "; ".join(filter(None, (error.message, error.hint)))
        raise fault("GH1930", place=place, reason=reason) from error
    return [Value(node, where) for node in nodes]


def _as_yaml(text: str) -> str:
    """Return JSON with surrogate pairs of escapes replaced, which YAML does not know."""
    if text.lstrip()[:1] not in ("{", "["):
        return text
    return _SURROGATES.sub(_character, text)


def _character(found: re.Match[str]) -> str:
    high, low = int(found[2], 16), int(found[3], 16)
    return found[1] + chr(0x10000 + ((high - 0xD800) << 10) + (low - 0xDC00))


def _containers(
    pod: Pod,
    found: Workloads,
    classes: dict[str, ClassScheduling],
    budget: EnvironmentBudget,
) -> tuple[PodRequest, ...]:
    objections = tuple(pod_rules.pod_objections(pod))
    named = pod.spec["runtimeClassName"]
    runtime_class = classes.get(named.text(), ClassScheduling())
    constraints = read_constraints(pod.spec, runtime_class)
    asked: list[PodRequest] = []
    for field, kind in _LISTS:
        for number, container in enumerate(pod.spec[field].items()):
            path = f"{pod.path}.{field}[{number}]"
            environment = PodEnvironment(pod, found.config_maps, budget)
            environment.add(container)
            one = replace(
                _container(pod, container, path, _kind(container, kind), environment),
                runtime_class=named.text() or None,
                runtime_class_where=named.where,
                handler=runtime_class.handler,
                constraints=constraints,
            )
            # The first container has the objections to the pod.
            own = (*(() if asked else objections), *one.objections)
            asked.append(replace(one, objections=own))
    return tuple(replace(one, notes=tuple(pod_notes.pod_notes(one, asked))) for one in asked)


def _kind(container: Value, kind: str) -> str:
    is_sidecar = kind == INIT and container["restartPolicy"].text() == "Always"
    return SIDECAR if is_sidecar else kind


def _container(
    pod: Pod, container: Value, path: str, kind: str, environment: PodEnvironment
) -> PodRequest:
    resources = container["resources"]
    limits, requests = resources["limits"].texts(), resources["requests"].texts()
    gpus = {} if kind == EPHEMERAL else _gpus(requests | limits)
    mounts = tuple(_mounts(pod, container))
    security = container["securityContext"]
    if kind == EPHEMERAL:
        objections = [*pod_rules.ephemeral_objections(resources, f"{path}.resources")]
    else:
        objections = [
            *pod_rules.resource_objections(resources, f"{path}.resources"),
            *pod_rules.container_objections(container, environment.known, gpus),
        ]
    objections += mount_rules.mount_objections(mounts, container["volumeMounts"].where)
    return PodRequest(
        pod=pod.name,
        namespace=pod.namespace,
        container=container["name"].text(),
        where=container.where,
        image=container["image"].text(),
        kind=kind,
        workload=pod.workload,
        env=environment.known,
        unknown_env=environment.unknown,
        limits=limits,
        requests=requests,
        gpus=gpus,
        claims=tuple(claim["name"].text() for claim in resources["claims"].items()),
        claim_requests=tuple(
            (claim["name"].text(), claim["request"].text()) for claim in resources["claims"].items()
        ),
        annotations=pod.metadata["annotations"].texts(),
        privileged=security["privileged"].is_true(),
        capabilities=tuple(c.text() for c in security.at("capabilities", "add").items()),
        host_pid=pod.spec["hostPID"].is_true(),
        mounts=mounts,
        objections=tuple(objections),
    )


def _gpus(amounts: dict[str, str]) -> dict[str, int]:
    """Return the requested number of each GPU resource, without invalid amounts."""
    found = {}
    for name, text in amounts.items():
        number = quantity.quantity(text)
        is_whole = number is not None and number.denominator == 1 and 0 < number < _MOST_GPUS
        if is_whole and number is not None and resource_names.is_gpu(name):
            found[name] = int(number)
    return found


def _mounts(pod: Pod, container: Value) -> Iterator[VolumeMount]:
    volumes = {volume["name"].text(): volume for volume in pod.spec["volumes"].items()}
    for mount in container["volumeMounts"].items():
        path = mount["mountPath"].text()
        volume = volumes.get(mount["name"].text())
        if not path or volume is None:
            continue
        host = volume.at("hostPath", "path").text()
        kind = next((name for name in volume.members() if name != "name"), "emptyDir")
        below = mount["subPath"].text()
        source = f"{host.rstrip('/')}/{below}" if host and below else host
        is_read_only = mount["readOnly"].is_true()
        yield VolumeMount(path, source or kind, bool(host), is_read_only)
