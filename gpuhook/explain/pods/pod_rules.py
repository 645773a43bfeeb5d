# SPDX-License-Identifier: Apache-2.0
"""Objections to the GPU request of a pod, other than to amounts and fields.

Sources: the messages of the RuntimeClass admission plugin and the kubelet. The kubelet sets the
variables of the pod after those of device plugins, so the pod's values apply.
"""

from __future__ import annotations

from gpuhook.errors import printable
from gpuhook.explain.pods import resource_names
from gpuhook.explain.pods.pod_requests import (
    API_SERVER,
    EPHEMERAL,
    KUBELET,
    REFUSED,
    WARNING,
    Objection,
)
from gpuhook.host.suggestion import nearest
from gpuhook.vendors.nvidia.hot.vocabulary import VOCABULARY

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping

    from gpuhook.explain.pods.manifest_value import Value
    from gpuhook.explain.pods.pod_requests import VolumeMount
    from gpuhook.explain.pods.workloads import Pod

RUNTIME_CLASSES = ("nvidia", "nvidia-cdi", "nvidia-legacy", "nvidia-experimental", "gpuhook")
_DEVICES = VOCABULARY.devices_env
_VARIABLES = (_DEVICES, VOCABULARY.capabilities_env)
_NOTHING = ("", "void", "none")


def pod_objections(pod: Pod, classes: Collection[str] | None) -> Iterator[Objection]:
    """Yield the objections to a pod; `classes` are the RuntimeClasses of the cluster, if known."""
    yield from _runtime_class(pod, classes)
    for section in ("limits", "requests"):
        for name, amount in pod.spec.at("resources", section).members().items():
            if resource_names.is_extended(name):
                yield Objection(
                    "pod-level-gpu",
                    API_SERVER,
                    REFUSED,
                    f'{pod.path}.resources.{section}[{name}]: Unsupported value: "{name}"',
                    f"{name}: {amount.text()} under resources.limits of the container that uses it",
                    amount.where,
                )


def _runtime_class(pod: Pod, classes: Collection[str] | None) -> Iterator[Objection]:
    value = pod.spec["runtimeClassName"]
    name = value.text()
    if not name or classes is None or name in classes:
        return
    like = nearest(name, classes) or next((c for c in RUNTIME_CLASSES if c in classes), None)
    yield Objection(
        "runtime-class-unknown",
        API_SERVER,
        REFUSED,
        f'pod rejected: RuntimeClass "{name}" not found',
        f"runtimeClassName: {like}" if like else f"create the RuntimeClass {name} first",
        value.where,
    )


def container_objections(
    container: Value, env: Mapping[str, str], gpus: Mapping[str, int], kind: str
) -> Iterator[Objection]:
    """Yield the objections to one container with these variables and GPUs."""
    if kind == EPHEMERAL:
        return
    place = next((v for v in container["env"].items() if v["name"].text() == _DEVICES), container)
    yield from _variable(place.where, env.get(_DEVICES), gpus)
    yield from _not_strings(container)
    if len(gpus) > 1:
        yield Objection(
            "several-resources",
            KUBELET,
            WARNING,
            f"requests {' and '.join(gpus)}: each is allocated separately, and the kubelet keeps "
            f"one of their values of {_DEVICES}, in no defined order",
            "one of them; or use the list strategy cdi-cri, which adds all devices",
            container["resources"].where,
        )
    yield from _zero(container, env)
    privileged = container.at("securityContext", "privileged")
    if privileged.is_true() and gpus:
        held = ", ".join(f"{count} of {name}" for name, count in gpus.items())
        yield Objection(
            "privileged",
            KUBELET,
            WARNING,
            f"is privileged: it has the nodes of all GPUs of the machine, but is allocated {held}",
            "no privileged: true; the capabilities that it needs instead",
            privileged.where,
        )


def _variable(where: str, value: str | None, gpus: Mapping[str, int]) -> Iterator[Objection]:
    if value is None:
        return
    shown = f"{_DEVICES}={printable(value, 80)}"
    if gpus:
        what = "no GPU" if value in _NOTHING else "these GPUs"
        count = ", ".join(f"{number} of {name}" for name, number in gpus.items())
        yield Objection(
            "devices-by-hand",
            KUBELET,
            WARNING,
            f"{shown} in the pod overrides the variable of the device plugin (list strategy "
            f"envvar): the container gets {what}, but is allocated {count}",
            f"no {_DEVICES} in env: the device plugin sets it",
            where,
        )
    elif value not in _NOTHING:
        yield Objection(
            "devices-unbooked",
            KUBELET,
            WARNING,
            f"{shown} uses GPUs without the scheduler's knowledge: other pods get them too",
            f"resources.limits: {{{resource_names.GPU}: 1}}",
            where,
        )


def _not_strings(container: Value) -> Iterator[Objection]:
    """Yield an objection to each variable of the vendor whose value is not a string in YAML."""
    for variable in container["env"].items():
        name, value = variable["name"].text(), variable["value"]
        if name in _VARIABLES and value.kind in ("number", "bool"):
            yield Objection(
                "not-a-string",
                API_SERVER,
                REFUSED,
                f"json: cannot unmarshal {value.kind} into Go struct field EnvVar.env.value of "
                "type string",
                f'{name}: value: "{value.text()}"',
                value.where,
            )


def _zero(container: Value, env: Mapping[str, str]) -> Iterator[Objection]:
    for name, amount in container.at("resources", "limits").members().items():
        if resource_names.is_gpu(name) and amount.text() == "0" and _DEVICES not in env:
            yield Objection(
                "zero",
                KUBELET,
                WARNING,
                f"{name}: 0 does not hide GPUs: the kubelet does not call the device plugin, and "
                f"{_DEVICES}=all of a CUDA image applies if the node's runtime accepts it",
                f'env: {_DEVICES}: "void"',
                amount.where,
            )


def mount_objections(mounts: Collection[VolumeMount], where: str) -> Iterator[Objection]:
    """Yield the objections to mounts of GPU devices."""
    for mount in mounts:
        path = mount.path.rstrip("/")
        if (path + "/").startswith(VOCABULARY.mount_prefix + "/"):
            yield Objection(
                "mounted-by-hand",
                KUBELET,
                WARNING,
                f"mounts {printable(path)}: that requests a GPU from the runtime without the "
                "scheduler's knowledge",
                f"resources.limits: {{{resource_names.GPU}: 1}}",
                where,
            )
        elif mount.is_host and _is_gpu_node(mount.source):
            yield Objection(
                "node-by-hand",
                KUBELET,
                WARNING,
                f"mounts {printable(mount.source)} of the host: a mount does not allow the device. "
                "Opening it fails with Operation not permitted unless the container is privileged",
                f"resources.limits: {{{resource_names.GPU}: 1}}",
                where,
            )


def _is_gpu_node(path: str) -> bool:
    return path.startswith(("/dev/nvidia", "/dev/dri/")) or path.rstrip("/") == "/dev/dri"
