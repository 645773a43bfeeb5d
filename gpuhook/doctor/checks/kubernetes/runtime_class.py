# SPDX-License-Identifier: Apache-2.0
"""RuntimeClasses: pods select the engine's handler for GPUs by them."""

from __future__ import annotations

from gpuhook.doctor.checks.kubernetes import kubelet, plugin_files
from gpuhook.host import bounded_yaml
from gpuhook.node_facts import kubelet_facts as facts
from gpuhook.node_facts.check import (
    FAILED,
    WARNING,
    Finding,
    absent,
    check,
    fact,
    for_each,
    ok,
    unless,
)
from gpuhook.node_facts.sources import kubelet_files
from gpuhook.node_facts.sources.engine_handlers import is_for_gpus

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gpuhook.node_facts.check import ExaminedNode

_MAX_MANIFEST = 1 << 20  # bytes
EXISTS = "runtime-class.exists"
# Distributions create these for more handlers than a node needs, and create deleted ones again.
_OF_DISTRIBUTIONS = ("nvidia-experimental", "nvidia-cdi", "nvidia-legacy")


@fact
def _classes(node: ExaminedNode) -> dict[str, str] | None:
    """Return RuntimeClass name -> handler, None if they are unknown."""
    found = (facts.api(node) or {}).get("runtimeClasses")
    if isinstance(found, list):
        return {
            str(one.get("name")): str(one.get("handler")) for one in found if isinstance(one, dict)
        }
    return _declared(node) or None


def _declared(node: ExaminedNode) -> dict[str, str]:
    """Return the RuntimeClasses in the manifests that k3s and rke2 apply."""
    import yaml

    found: dict[str, str] = {}
    for path in kubelet_files.manifests(node.tree):
        content = node.tree.read(path, _MAX_MANIFEST) or b""
        if b"RuntimeClass" not in content:
            continue
        try:
            documents = bounded_yaml.all_documents(content, _MAX_MANIFEST)
        except yaml.YAMLError:
            continue
        for one in documents:
            if isinstance(one, dict) and one.get("kind") == "RuntimeClass":
                metadata = one.get("metadata")
                name = metadata.get("name") if isinstance(metadata, dict) else ""
                found[str(name)] = str(one.get("handler"))
    return found


def _nothing_to_compare(node: ExaminedNode) -> Finding | None:
    handlers = facts.handlers(node)
    if not handlers.gpu:
        return absent("no engine here has a handler for GPUs", *handlers.files)
    return facts.without_api(node) if _classes(node) is None else None


@check(EXISTS, "The engine's handler for GPUs has a RuntimeClass", needs=(kubelet.RUNNING,))
@unless(facts.no_kubelet)
@unless(_nothing_to_compare)
def _exists(node: ExaminedNode) -> Finding:
    handlers, classes = facts.handlers(node), _classes(node) or {}
    gpu = handlers.gpu
    named = [name for name, handler in classes.items() if is_for_gpus(name) or handler in gpu]
    if named:
        return ok(f"RuntimeClass {', '.join(named)} exists for handler {', '.join(gpu)}")
    if is_for_gpus(handlers.default):
        message = f"pods get their GPUs from the default runtime, {handlers.default}"
        return ok(f"{message}, and need no RuntimeClass", *handlers.files)
    return _missing(node, gpu[0], handlers.written[gpu[0]])


def _missing(node: ExaminedNode, handler: str, where: str) -> Finding:
    message = f"the engine has the handler {handler} ({where}), but no RuntimeClass refers to it"
    rejected = f'pod rejected: RuntimeClass "{handler}" not found'
    others = ""
    if plugin_files.uses_cdi(node):
        others = "other pods get their GPUs with CDI"
    meaning = f'pods with `runtimeClassName: {handler}` are refused: "{rejected}"; '
    meaning += others or (
        "the device plugin of a chart is such a pod, so the node offers no GPU. A GPU "
        "operator's chart from a git clone or a release archive creates neither: install it from "
        "https://helm.ngc.nvidia.com/nvidia"
    )
    return Finding(
        WARNING if others else FAILED,
        message,
        subject=handler,
        meaning=meaning,
        command=_creation(handler),
        looked_at=(where,),
    )


def _creation(handler: str) -> str:
    text = (
        '{"apiVersion": "node.k8s.io/v1", "kind": "RuntimeClass", '
        f'"metadata": {{"name": "{handler}"}}, "handler": "{handler}"}}'
    )
    return f"echo '{text}' | kubectl apply -f -"


def _gpu_classes(node: ExaminedNode) -> list[tuple[str, str]]:
    """Return (name, handler) of the RuntimeClasses for GPUs."""
    classes = _classes(node) or {}
    return [one for one in classes.items() if any(map(is_for_gpus, one))]


@check(
    "runtime-class.handler",
    "Each RuntimeClass for GPUs refers to an existing handler",
    needs=(EXISTS,),
)
@unless(facts.no_kubelet)
@unless(_nothing_to_compare)
@for_each(_gpu_classes, absent("no RuntimeClass is for GPUs"))
def _handler(node: ExaminedNode, gpu_class: tuple[str, str]) -> Finding:
    handlers, (name, handler) = facts.handlers(node), gpu_class
    if handler in handlers.written:
        message = f"RuntimeClass {name} uses handler {handler} ({handlers.written[handler]})"
        return ok(message, subject=name)
    if name in _OF_DISTRIBUTIONS:
        message = f"RuntimeClass {name} belongs to a distribution and is not used here"
        return absent(message, *handlers.files)
    return _no_handler(name, handler, handlers.gpu, handlers.files)


def _no_handler(name: str, handler: str, gpu: list[str], files: tuple[str, ...]) -> Finding:
    return Finding(
        FAILED if name == "nvidia" else WARNING,
        f"RuntimeClass {name} refers to the handler {handler}, but the engine has {', '.join(gpu)}",
        subject=name,
        meaning=f"pods with `runtimeClassName: {name}` stay in ContainerCreating: "
        f'"Failed to create pod sandbox: ... no runtime for "{handler}" is configured"',
        command=f"kubectl delete runtimeclass {name} && {_creation(gpu[0])}",
        looked_at=files,
    )


CHECKS = (_exists, _handler)
