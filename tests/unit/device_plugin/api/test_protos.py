# SPDX-License-Identifier: Apache-2.0
"""The kubelet's gRPC messages: the generated code matches the .proto files and their numbers."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from google.protobuf.descriptor_pb2 import FileDescriptorProto, FileDescriptorSet

from gpuhook.device_plugin.api import deviceplugin_pb2, exporter_pb2, podresources_pb2, services

CHECKOUT = Path(__file__).parents[4]
MODULES = [deviceplugin_pb2, podresources_pb2, exporter_pb2]
METHODS = [one for one in vars(services).values() if isinstance(one, services.Method)]


def protoc(source: str, *outputs: str) -> None:
    """Run the compiler of the installed grpcio-tools."""
    command = [sys.executable, "-W", "ignore", "-m", "grpc_tools.protoc", "-I", ".", *outputs]
    subprocess.run([*command, source], cwd=CHECKOUT, check=True, timeout=120)


def source_of(module: ModuleType) -> str:
    """Return the .proto file that a generated module names."""
    return str(module.DESCRIPTOR.name)


def without_json_names(described: FileDescriptorProto) -> FileDescriptorProto:
    """Remove the field names for JSON, which only one of two descriptions has."""
    for message in described.message_type:
        for field in [*message.field, *(one for n in message.nested_type for one in n.field)]:
            field.ClearField("json_name")
    return described


@pytest.mark.parametrize("module", MODULES, ids=source_of)
def test_generated_code_matches_its_proto_file(module: ModuleType, tmp_path: Path) -> None:
    made = tmp_path / "set"
    protoc(source_of(module), f"--descriptor_set_out={made}")
    (compiled,) = FileDescriptorSet.FromString(made.read_bytes()).file
    committed = FileDescriptorProto.FromString(module.DESCRIPTOR.serialized_pb)
    assert without_json_names(committed) == without_json_names(compiled)


@pytest.mark.parametrize("module", MODULES, ids=source_of)
def test_generated_types_match_the_proto_file(module: ModuleType) -> None:
    """The .pyi file has a class with the same fields for each message."""
    stub = (CHECKOUT / source_of(module)).with_name(f"{module.__name__.rpartition('.')[2]}.pyi")
    lines = stub.read_text(encoding="utf-8").splitlines()
    for name, message in module.DESCRIPTOR.message_types_by_name.items():
        at = lines.index(f"class {name}(_message.Message):")
        slots = ", ".join(f'"{field.name}"' for field in message.fields)
        if len(message.fields) == 1:
            slots += ","
        assert f"    __slots__ = ({slots})" in lines[at : at + 12]


@pytest.mark.parametrize("module", MODULES, ids=source_of)
def test_generated_code_does_not_check_the_protobuf_version(module: ModuleType) -> None:
    """Code of newer generators refuses older protobuf packages."""
    assert module.__file__
    assert "runtime_version" not in Path(module.__file__).read_text(encoding="utf-8")


def test_field_numbers_are_those_of_the_kubelet() -> None:
    """No other test would find a changed number."""
    sent = deviceplugin_pb2.ContainerAllocateResponse(
        envs={"A": "b"},
        mounts=[deviceplugin_pb2.Mount(container_path="c", host_path="h", read_only=True)],
        devices=[deviceplugin_pb2.DeviceSpec(container_path="c", host_path="h", permissions="r")],
        annotations={"k": "v"},
        cdi_devices=[deviceplugin_pb2.CDIDevice(name="n")],
    )
    assert sent.SerializeToString() == (
        b"\x0a\x06\x0a\x01A\x12\x01b"
        b"\x12\x08\x0a\x01c\x12\x01h\x18\x01"
        b"\x1a\x09\x0a\x01c\x12\x01h\x1a\x01r"
        b"\x22\x06\x0a\x01k\x12\x01v"
        b"\x2a\x03\x0a\x01n"
    )
    topology = deviceplugin_pb2.TopologyInfo(nodes=[deviceplugin_pb2.NUMANode(ID=1)])
    device = deviceplugin_pb2.Device(ID="i", health="H", topology=topology)
    assert device.SerializeToString() == b"\x0a\x01i\x12\x01H\x1a\x04\x0a\x02\x08\x01"
    options = deviceplugin_pb2.DevicePluginOptions(
        pre_start_required=True, get_preferred_allocation_available=True
    )
    registered = deviceplugin_pb2.RegisterRequest(
        version="v", endpoint="e", resource_name="r", options=options
    )
    assert registered.SerializeToString() == (
        b"\x0a\x01v\x12\x01e\x1a\x01r\x22\x04\x08\x01\x10\x01"
    )
    preferred = deviceplugin_pb2.ContainerPreferredAllocationRequest(
        available_deviceIDs=["a"], must_include_deviceIDs=["m"], allocation_size=1
    )
    assert preferred.SerializeToString() == b"\x0a\x01a\x12\x01m\x18\x01"


@pytest.mark.parametrize("method", METHODS, ids=lambda method: str(method.path))
def test_methods_match_the_proto_file(method: services.Method[Any, Any]) -> None:
    service, name = method.path[1:].split("/")
    file = method.request.DESCRIPTOR.file
    described = file.services_by_name[service.removeprefix(f"{file.package}.")]
    found = described.methods_by_name[name]
    assert found.input_type is method.request.DESCRIPTOR
    assert found.output_type is method.response.DESCRIPTOR


def test_all_methods_of_the_device_plugin_api_are_defined() -> None:
    """The plugin uses only List of the pod resources API."""
    plugin_services = deviceplugin_pb2.DESCRIPTOR.services_by_name.values()
    described = {
        f"/{service.full_name}/{method.name}"
        for service in plugin_services
        for method in service.methods
    }
    assert {method.path for method in METHODS} == described | {services.LIST_PODS.path}
