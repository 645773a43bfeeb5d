# SPDX-License-Identifier: Apache-2.0
"""NRI's messages of interest, by field number: pods and containers in, registration out.

Package nri.pkg.api.v1alpha1. Source: github.com/containerd/nri, pkg/api/api.proto.
"""

from __future__ import annotations

from gpuhook.nri.wire import protobuf_wire
from gpuhook.nri.wire.protobuf_wire import Message, as_text

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

PLUGIN_SERVICE = "nri.pkg.api.v1alpha1.Plugin"
RUNTIME_SERVICE = "nri.pkg.api.v1alpha1.Runtime"
CREATE_CONTAINER = 0x8  # the mask of the only event to subscribe to
STOPPED = 4  # the state of a container
# Stage of OCI hooks -> field of the message Hooks.
HOOK_STAGES = {
    "prestart": 1, "createRuntime": 2, "createContainer": 3,
    "startContainer": 4, "poststart": 5, "poststop": 6,
}  # fmt: skip
_NAME_LABEL = "io.kubernetes.container.name"


class PodSandbox:
    """The pod of a container."""

    __slots__ = ("annotations", "name", "namespace", "runtime_handler", "uid")

    def __init__(self, message: Message) -> None:
        """Raises WireError."""
        self.name = message.text(2)
        self.uid = message.text(3)
        self.namespace = message.text(4)
        self.annotations = message.mapping(6)
        self.runtime_handler = message.text(7)


class NriContainer:
    """A container as the runtime describes it; `spec` is the part of its config.json.

    The runtime has applied the CDI names of the kubelet to it, so these are not read.
    """

    __slots__ = ("identity", "name", "pod_id", "spec", "state")

    def __init__(self, message: Message) -> None:
        """Raises WireError."""
        self.identity = message.text(1)
        self.pod_id = message.text(2)
        self.name = message.text(3) or message.mapping(5).get(_NAME_LABEL, "")
        self.state = message.integer(4)
        self.spec = _spec(message)


def _spec(message: Message) -> dict[str, Any]:
    """Return the parts of a container as a config.json has them."""
    linux = message.message(11)
    process: dict[str, Any] = {"env": message.texts(8)}
    if message.has(21):
        user = message.message(21)
        process["user"] = {"uid": user.integer(1), "gid": user.integer(2)}
    rules = [_rule(rule) for rule in linux.message(3).messages(7)]
    if any(map(_is_every_device, rules)):
        process["capabilities"] = {"bounding": ["CAP_SYS_ADMIN"]}
    hooks = message.message(10)
    return {
        "process": process,
        "mounts": [_mount(mount) for mount in message.messages(9)],
        "hooks": {
            stage: [_hook(hook) for hook in hooks.messages(number)]
            for stage, number in HOOK_STAGES.items()
            if hooks.has(number)
        },
        "annotations": message.mapping(6),
        "linux": {
            "namespaces": [{"type": one.text(1), "path": one.text(2)} for one in linux.messages(1)],
            "devices": [_device(device) for device in linux.messages(2)],
            "resources": {"devices": rules},
        },
    }


def _mount(message: Message) -> dict[str, Any]:
    mount: dict[str, Any] = {"destination": message.text(1), "source": message.text(3)}
    mount["type"] = message.text(2)
    options = message.texts(4)
    return {**mount, "options": options} if options else mount


def _hook(message: Message) -> dict[str, Any]:
    hook: dict[str, Any] = {"path": message.text(1), "args": message.texts(2)}
    if message.has(3):
        hook["env"] = message.texts(3)
    timeout = message.wrapped_integer(4)
    return hook if timeout is None else {**hook, "timeout": timeout}


def _device(message: Message) -> dict[str, Any]:
    device: dict[str, Any] = {"path": message.text(1), "type": message.text(2)}
    device["major"], device["minor"] = message.integer(3), message.integer(4)
    for key, number in (("fileMode", 5), ("uid", 6), ("gid", 7)):
        value = message.wrapped_integer(number)
        if value is not None:
            device[key] = value
    return device


def _rule(message: Message) -> dict[str, Any]:
    rule: dict[str, Any] = {"allow": bool(message.integer(1)), "access": message.text(5)}
    for key, number in (("major", 3), ("minor", 4)):
        value = message.wrapped_integer(number)
        if value is not None:
            rule[key] = value
    kind = message.text(2)
    return {**rule, "type": kind} if kind else rule


def _is_every_device(rule: dict[str, Any]) -> bool:
    """Return whether a rule allows all devices, as that of a privileged container does.

    NRI has no capabilities.
    """
    numbers = (rule.get("major", -1), rule.get("minor", -1))
    is_any = rule.get("type", "a") == "a" and all(number < 0 for number in numbers)
    return rule["allow"] and is_any and set("rwm").issubset(rule["access"])


class RuntimeFacts:
    """What the runtime reports about itself. Times are in seconds, 0 if unknown."""

    __slots__ = ("request_timeout", "runtime", "version")

    def __init__(self, data: memoryview) -> None:
        """Raises WireError."""
        message = Message(data)
        self.runtime = message.text(2)
        self.version = message.text(3)
        self.request_timeout = max(0, message.integer(5)) / 1000


def create_parts(data: memoryview) -> tuple[memoryview, memoryview]:
    """Return the bytes of pod and container in a CreateContainerRequest; raises WireError."""
    message = Message(data)
    return message.raw(1), message.raw(2)


def synchronized(data: memoryview) -> tuple[list[memoryview], list[memoryview], bool]:
    """Return (pods, containers, whether more follow) of a SynchronizeRequest."""
    pods: list[memoryview] = []
    containers: list[memoryview] = []
    more = False
    for number, value in protobuf_wire.fields(data):
        if isinstance(value, int):
            more = bool(value) if number == 3 else more
        elif number in (1, 2):
            (pods if number == 1 else containers).append(value)
    return pods, containers, more


def pod_identity(data: memoryview) -> str:
    """Return the id of a pod without reading the rest."""
    found = (v for n, v in protobuf_wire.fields(data) if n == 1 and not isinstance(v, int))
    return as_text(next(found, memoryview(b"")))


def registration(name: str, index: str) -> bytes:
    """Return a RegisterPluginRequest."""
    return protobuf_wire.encode_text(1, name) + protobuf_wire.encode_text(2, index)


def subscription(events: int) -> bytes:
    """Return a ConfigureResponse."""
    return protobuf_wire.encode_integer(2, events)


def synchronization(*, more: bool) -> bytes:
    """Return a SynchronizeResponse without updates; `more` asks for the rest."""
    return protobuf_wire.encode_integer(2, int(more))
