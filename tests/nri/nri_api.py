# SPDX-License-Identifier: Apache-2.0
"""NRI's messages by protobuf's own library, as the runtime writes and reads them.

The types are made from this table, not from the package's reader and writer. A text that is not
UTF-8 is an error, as it is for runtimes.
"""

from __future__ import annotations

from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

# Message -> field -> number and type. `*` repeats; `Name` is a message; `map` is text to text.
TABLE: dict[str, dict[str, tuple[int, str]]] = {
    "Pair": {"key": (1, "string"), "value": (2, "string")},
    "Int": {"value": (1, "int64")},
    "Name": {"name": (1, "string")},
    "Request": {
        "service": (1, "string"),
        "method": (2, "string"),
        "payload": (3, "bytes"),
        "timeout_nano": (4, "int64"),
        "metadata": (5, "*Pair"),
    },
    "Status": {"code": (1, "int32"), "message": (2, "string")},
    "Response": {"status": (1, "Status"), "payload": (2, "bytes")},
    "RegisterPluginRequest": {"plugin_name": (1, "string"), "plugin_idx": (2, "string")},
    "ConfigureRequest": {
        "config": (1, "string"),
        "runtime_name": (2, "string"),
        "runtime_version": (3, "string"),
        "registration_timeout": (4, "int64"),
        "request_timeout": (5, "int64"),
        "nri_version": (6, "string"),
    },
    "ConfigureResponse": {"events": (2, "int32")},
    "SynchronizeRequest": {
        "pods": (1, "*PodSandbox"),
        "containers": (2, "*Container"),
        "more": (3, "bool"),
    },
    "SynchronizeResponse": {"update": (1, "*Int"), "more": (2, "bool")},
    "CreateContainerRequest": {"pod": (1, "PodSandbox"), "container": (2, "Container")},
    "CreateContainerResponse": {
        "adjust": (1, "ContainerAdjustment"),
        "update": (2, "*Int"),
        "evict": (3, "*Int"),
    },
    "PodSandbox": {
        "id": (1, "string"),
        "name": (2, "string"),
        "uid": (3, "string"),
        "namespace": (4, "string"),
        "labels": (5, "*Pair"),
        "annotations": (6, "*Pair"),
        "runtime_handler": (7, "string"),
    },
    "Container": {
        "id": (1, "string"),
        "pod_sandbox_id": (2, "string"),
        "name": (3, "string"),
        "state": (4, "int32"),
        "labels": (5, "*Pair"),
        "annotations": (6, "*Pair"),
        "args": (7, "*string"),
        "env": (8, "*string"),
        "mounts": (9, "*Mount"),
        "hooks": (10, "Hooks"),
        "linux": (11, "LinuxContainer"),
        "pid": (12, "uint32"),
        "CDI_devices": (20, "*Name"),
        "user": (21, "User"),
    },
    "User": {"uid": (1, "uint32"), "gid": (2, "uint32")},
    "Mount": {
        "destination": (1, "string"),
        "type": (2, "string"),
        "source": (3, "string"),
        "options": (4, "*string"),
    },
    "Hooks": {
        "prestart": (1, "*Hook"),
        "create_runtime": (2, "*Hook"),
        "create_container": (3, "*Hook"),
        "start_container": (4, "*Hook"),
        "poststart": (5, "*Hook"),
        "poststop": (6, "*Hook"),
    },
    "Hook": {
        "path": (1, "string"),
        "args": (2, "*string"),
        "env": (3, "*string"),
        "timeout": (4, "Int"),
    },
    "LinuxContainer": {
        "namespaces": (1, "*Namespace"),
        "devices": (2, "*LinuxDevice"),
        "resources": (3, "LinuxResources"),
        "oom_score_adj": (4, "Int"),
    },
    "Namespace": {"type": (1, "string"), "path": (2, "string")},
    "LinuxDevice": {
        "path": (1, "string"),
        "type": (2, "string"),
        "major": (3, "int64"),
        "minor": (4, "int64"),
        "file_mode": (5, "Int"),
        "uid": (6, "Int"),
        "gid": (7, "Int"),
    },
    "LinuxResources": {"devices": (7, "*DeviceRule")},
    "DeviceRule": {
        "allow": (1, "bool"),
        "type": (2, "string"),
        "major": (3, "Int"),
        "minor": (4, "Int"),
        "access": (5, "string"),
    },
    "ContainerAdjustment": {
        "annotations": (2, "*Pair"),
        "mounts": (3, "*Mount"),
        "env": (4, "*Pair"),
        "hooks": (5, "Hooks"),
        "linux": (6, "LinuxContainerAdjustment"),
        "CDI_devices": (8, "*Name"),
        "args": (9, "*string"),
    },
    "LinuxContainerAdjustment": {
        "devices": (1, "*LinuxDevice"),
        "resources": (2, "LinuxResources"),
    },
}
_FIELD = descriptor_pb2.FieldDescriptorProto


def _types() -> dict[str, Any]:
    file = descriptor_pb2.FileDescriptorProto(name="nri-test.proto", package="t", syntax="proto3")
    for name, fields in TABLE.items():
        message = file.message_type.add(name=name)
        for field, (number, kind) in fields.items():
            plain = kind.lstrip("*")
            made = message.field.add(
                name=field,
                number=number,
                label=_FIELD.LABEL_REPEATED if kind[0] == "*" else _FIELD.LABEL_OPTIONAL,
            )
            if plain in TABLE:
                made.type, made.type_name = _FIELD.TYPE_MESSAGE, f".t.{plain}"
            else:
                made.type = getattr(_FIELD, f"TYPE_{plain.upper()}")
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    found = ((name, pool.FindMessageTypeByName(f"t.{name}")) for name in TABLE)
    return {name: message_factory.GetMessageClass(one) for name, one in found}


TYPES = _types()


def new(name: str, /, **values: Any) -> Any:
    """Return a message; values are as protobuf's constructors take them."""
    return TYPES[name](**values)


def parsed(name: str, data: bytes) -> Any:
    """Return the message in `data`; raises DecodeError."""
    return TYPES[name].FromString(data)


def pairs(values: dict[str, str]) -> list[dict[str, str]]:
    """Return a map as its entries."""
    return [{"key": key, "value": value} for key, value in values.items()]
