# SPDX-License-Identifier: Apache-2.0
"""The kubelet's messages for drivers: the bytes, and the names of the services."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import pytest

from gpuhook.device_plugin.api.services import Method
from gpuhook.dra.api import dra_pb2, dra_services, drahealth_pb2, pluginregistration_pb2
from tests.unit.device_plugin.api import test_protos

MODULES = [dra_pb2, drahealth_pb2, pluginregistration_pb2]
METHODS: list[Method[Any, Any]] = [
    dra_services.GET_INFO,
    dra_services.NOTIFY,
    dra_services.prepare("v1"),
    dra_services.unprepare("v1"),
]


@pytest.mark.parametrize("module", MODULES, ids=test_protos.source_of)
def test_generated_code_matches_its_proto_file(module: ModuleType, tmp_path: Any) -> None:
    test_protos.test_generated_code_matches_its_proto_file(module, tmp_path)
    test_protos.test_generated_types_match_the_proto_file(module)
    test_protos.test_generated_code_does_not_check_the_protobuf_version(module)


@pytest.mark.parametrize("method", METHODS, ids=lambda method: str(method.path))
def test_methods_match_the_proto_file(method: Method[Any, Any]) -> None:
    test_protos.test_methods_match_the_proto_file(method)


def test_names_of_the_versions() -> None:
    paths = [dra_services.prepare(version).path for version in dra_services.VERSIONS]
    assert paths == [
        "/k8s.io.kubelet.pkg.apis.dra.v1.DRAPlugin/NodePrepareResources",
        "/k8s.io.kubelet.pkg.apis.dra.v1beta1.DRAPlugin/NodePrepareResources",
    ]
    assert dra_services.unprepare("v1").path.endswith("v1.DRAPlugin/NodeUnprepareResources")
    assert dra_services.GET_INFO.path == "/pluginregistration.Registration/GetInfo"


def test_field_numbers_are_those_of_the_kubelet() -> None:
    """No other test would find a changed number."""
    claim = dra_pb2.Claim(namespace="n", uid="u", name="m")
    asked = dra_pb2.NodePrepareResourcesRequest(claims=[claim])
    assert asked.SerializeToString() == b"\x0a\x09\x0a\x01n\x12\x01u\x1a\x01m"
    device = dra_pb2.Device(
        request_names=["r"],
        pool_name="p",
        device_name="d",
        cdi_device_ids=["c"],
        share_id="s",
    )
    answer = dra_pb2.NodePrepareResourceResponse(devices=[device], error="e")
    assert answer.SerializeToString() == (
        b"\x0a\x0f\x0a\x01r\x12\x01p\x1a\x01d\x22\x01c\x2a\x01s\x12\x01e"
    )
    found = dra_pb2.NodePrepareResourcesResponse(claims={"u": answer})
    assert found.SerializeToString().startswith(b"\x0a\x19\x0a\x01u\x12\x14")
    ended = dra_pb2.NodeUnprepareResourceResponse(error="e")
    assert ended.SerializeToString() == b"\x0a\x01e"
    info = pluginregistration_pb2.PluginInfo(
        type="t", name="n", endpoint="e", supported_versions=["v"]
    )
    assert info.SerializeToString() == b"\x0a\x01t\x12\x01n\x1a\x01e\x22\x01v"
    status = pluginregistration_pb2.RegistrationStatus(plugin_registered=True, error="e")
    assert status.SerializeToString() == b"\x08\x01\x12\x01e"
    health = drahealth_pb2.DeviceHealth(
        device=drahealth_pb2.DeviceIdentifier(pool_name="p", device_name="d"),
        health=drahealth_pb2.UNHEALTHY,
        last_updated_time=3,
        health_check_timeout_seconds=4,
        message="m",
    )
    assert health.SerializeToString() == (
        b"\x0a\x06\x0a\x01p\x12\x01d\x10\x02\x18\x03\x20\x04\x2a\x01m"
    )


def test_an_absent_share_is_not_sent() -> None:
    assert not dra_pb2.Device(share_id=None).HasField("share_id")
    assert dra_pb2.Device(share_id="").HasField("share_id")
