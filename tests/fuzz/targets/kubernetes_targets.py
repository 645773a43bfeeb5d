# SPDX-License-Identifier: Apache-2.0
"""What the kubelet, the API server, operators and users of Kubernetes send."""

from __future__ import annotations

import asyncio
import base64
import json
import re
from functools import cache
from typing import Any, NoReturn

from gpuhook.cluster import plugin_metrics
from gpuhook.device_plugin.api import deviceplugin_pb2, services
from gpuhook.device_plugin.config import config_reader
from gpuhook.device_plugin.kubelet import call_status, device_checkpoint
from gpuhook.device_plugin.metrics.metrics_endpoint import MetricsEndpoint
from gpuhook.dra.api.resource_api import VERSIONS
from gpuhook.dra.claims.settings import opaque_parameters
from gpuhook.dra.slices import server_features, slice_document
from gpuhook.errors import GpuhookError
from gpuhook.explain import explain_inputs
from gpuhook.explain.claims import claim_manifests
from gpuhook.explain.claims.cel import cel_selectors, cel_values
from gpuhook.explain.claims.rules import claim_rules
from gpuhook.explain.pods import pod_manifests
from gpuhook.host import documents
from gpuhook.node_facts.sources import dra_files
from gpuhook.nri.policy import kubelet_grants
from tests.fuzz.fuzz_target import fuzz_target, scratch, scratch_file, text

CONFIG = """\
version: v1
flags:
  migStrategy: mixed
  deviceListStrategy: [envvar, cdi-cri]
  plugin: {deviceIDStrategy: uuid}
resources:
  gpus: [{pattern: "*", name: nvidia.com/gpu}]
sharing:
  timeSlicing:
    renameByDefault: false
    resources: [{name: nvidia.com/gpu, replicas: 4, devices: [0, "1:0"]}]
gpuhook:
  minFreeMemory: 1Gi
  metrics: {address: "127.0.0.1:9395"}
"""


@fuzz_target([CONFIG, "version: v1\n", '{"version": "v1", "flags": {"a": &a [*a]}}'], everyday=30)
def plugin_config(data: bytes) -> None:
    """A configuration has values or findings, with their lines."""
    for strict in (False, True):
        found = config_reader.read(data, "config.yaml", strict=strict)
        assert found.configuration is not None or found.findings


def messages() -> list[bytes]:
    request = deviceplugin_pb2.AllocateRequest(
        container_requests=[deviceplugin_pb2.ContainerAllocateRequest(devices_ids=["GPU-1::0"])]
    )
    return [request.SerializeToString(), b"\x0a\x03\x0a\x01\xff", b""]


@fuzz_target(messages)
def plugin_requests(data: bytes) -> None:
    """A request of the kubelet is a message, or refused."""
    methods: Any = (services.ALLOCATE, services.PREFERRED, services.PRE_START)
    for method in methods:
        try:
            call_status.parsed(method, data)
        except GpuhookError as error:
            assert error.code == "GH1820"  # noqa: PT017 # not a message


ANSWER = base64.b64encode(b"\x0a\x06\x0a\x01A\x12\x01b\x12\x07\x0a\x02/x\x12\x01y\x2a\x03\x0a\x01z")
ENTRY = {
    "PodUID": "u", "ContainerName": "c", "ResourceName": "nvidia.com/gpu",
    "DeviceIDs": {"-1": ["GPU-1::0"]}, "AllocResp": ANSWER.decode(),
}  # fmt: skip
CHECKPOINT = json.dumps(
    {"Data": {"PodDeviceEntries": [ENTRY], "RegisteredDevices": {"nvidia.com/gpu": ["GPU-1::0"]}},
     "Checksum": 1}
)  # fmt: skip


@fuzz_target([CHECKPOINT, CHECKPOINT.replace('{"-1": ["GPU-1::0"]}', '["GPU-1"]')], size=8192)
def kubelet_checkpoint(data: bytes) -> None:
    scratch_file(data, f"kubelet/{device_checkpoint.PLUGINS}/{device_checkpoint.NAME}")
    answer = device_checkpoint.kubelet_units(str(scratch() / "kubelet"), ["0000:03:00.0"])
    assert all(units for units in answer.units.values())
    directory = str(scratch() / "kubelet" / device_checkpoint.PLUGINS)
    grants = kubelet_grants.KubeletGrants(directory)
    try:
        grants.variables("u", "c")
        grants.mounts("u", "c")
        grants.cdi_devices("u", "c")
    except GpuhookError as error:
        assert error.code == "GH2710"  # noqa: PT017 # the file cannot be read


STATE = {
    "DriverState": {"gpu.nvidia.com": {}}, "ClaimUID": "u", "ClaimName": "n", "Namespace": "ns",
    "PodUIDs": ["p"],
}  # fmt: skip
NEW = json.dumps({"Data": json.dumps({"ClaimInfoStateList": [STATE]}), "Checksum": 1})


@fuzz_target(
    [NEW, json.dumps({"Entries": [STATE]})],
    allowed=(GpuhookError, ValueError, KeyError, TypeError, AttributeError),  # callers catch these
)
def kubelet_claims(data: bytes) -> None:
    dra_files.kubelet_claims(data)


POD = """\
apiVersion: v1
kind: Pod
metadata: {name: a, namespace: n, annotations: {x: "y"}}
spec:
  runtimeClassName: nvidia
  nodeSelector: {k: v}
  containers:
  - name: c
    image: i
    env:
    - {name: NVIDIA_VISIBLE_DEVICES, value: all}
    - {name: B, value: "$(NVIDIA_VISIBLE_DEVICES)x"}
    resources: {limits: {nvidia.com/gpu: 1, memory: 1Gi}}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: d}
spec: {template: {spec: {containers: [{name: c, envFrom: [{configMapRef: {name: m}}]}]}}}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: m}
data: {A: b}
"""
CLAIM = """\
apiVersion: resource.k8s.io/v1
kind: ResourceClaim
metadata: {name: a}
spec:
  devices:
    requests:
    - name: gpu
      exactly:
        deviceClassName: gpu.nvidia.com
        selectors: [{cel: {expression: 'device.driver == "gpu.nvidia.com"'}}]
        capacity: {requests: {memory: 10Gi}}
    constraints: [{requests: [gpu], matchAttribute: gpu.nvidia.com/uuid}]
    config:
    - opaque:
        driver: gpu.nvidia.com
        parameters:
          apiVersion: gpu.gpuhook.io/v1alpha1
          kind: GpuConfig
          sharing: {strategy: TimeSlicing}
"""


@fuzz_target([POD, CLAIM, POD.split("---\n", maxsplit=1)[0]], size=8192, everyday=30)
def manifests(data: bytes) -> None:
    """Manifests of pods and claims: questions and objections, or why it is not one."""
    explain_inputs.text_questions(data, "x.yaml")
    found = pod_manifests.read(text(data), "x.yaml")
    assert len(found) < 1 << 16


# An expression is judged in its own child process: cel_expression.
PLAIN_CLAIM = re.sub(r" +selectors:.*\n", "", CLAIM)


@fuzz_target([PLAIN_CLAIM, PLAIN_CLAIM + "---\n" + POD, POD], size=8192, everyday=30)
def claims(data: bytes) -> None:
    manifest = claim_manifests.read(text(data), "x.yaml")
    list(claim_rules.claim_objections([manifest]))
    for one in manifest.objects:
        claim_manifests.name_of(one)


IMAGE = '[{"Config":{"Env":["NVIDIA_VISIBLE_DEVICES=all"]},'
IMAGE += '"HostConfig":{"DeviceRequests":[{"Count":-1,"Capabilities":[["gpu"]]}]}}]'
SPEC = '{"ociVersion":"1.0","process":{"env":["A=b"]},"root":{"path":"x"}}'


@fuzz_target([IMAGE, SPEC, '{"config":{"Env":null}}', SPEC.encode("utf-16")], everyday=60)
def explained_files(data: bytes) -> None:
    for where in ("x.json", "-"):
        for question in explain_inputs.text_questions(data, where):
            assert isinstance(question.spec, dict)


PARAMETERS = {"apiVersion": "gpu.gpuhook.io/v1alpha1", "kind": "GpuConfig", "sharing": {}}


@fuzz_target([json.dumps(PARAMETERS), '{"kind":7}'], allowed=(ValueError,))
def claim_parameters(data: bytes) -> None:
    found = documents.parse_json(data)
    read = opaque_parameters.read(found, "a claim", "spec.devices")
    assert read.settings is not None or read.problems
    if isinstance(found, dict):
        opaque_parameters.problems(found)
        opaque_parameters.owner_of(found)


SERVER = '{"minor":"34+","preferredVersion":{"version":"v1"},"versions":[{"version":"v1beta1"}]}'
SLICE = '{"devices":[{"name":"a","basic":{"attributes":{"x":{"int":1}}}}],"sharedCounters":[]}'


@fuzz_target([SERVER, SLICE], allowed=(ValueError,))
def api_server_answers(data: bytes) -> None:
    found = documents.parse_json_object(data)
    server_features.minor_version(found)
    server_features.served_version(found)
    for version in VERSIONS:
        stored = slice_document.stored_spec(found, version)
        assert isinstance(stored, dict)
        server_features.dropped_gates(found, stored)


SAMPLE = 'gpuhook_gpu_memory_used_bytes{gpu="GPU-1",x="a\\"b\\n"} 1e3\n# HELP a\nother 1\n'


@fuzz_target([SAMPLE], everyday=200)
def plugin_samples(data: bytes) -> None:
    for sample in plugin_metrics.samples(data.decode("utf-8", "replace")):
        assert sample.name.startswith("gpuhook_")


VALUES = ["40Gi", "1.5", "1e3", "1.2.3-rc.1+b", "v1.0", "-1", "9" * 400, "1e999999999"]


@fuzz_target(VALUES, allowed=(ValueError,))
def cel_quantity(data: bytes) -> None:
    value = text(data)
    number = cel_values.quantity(value)
    assert cel_values.is_quantity(value)
    assert cel_values.compare(number, number) == 0


@fuzz_target(VALUES, allowed=(ValueError,))
def cel_version(data: bytes) -> None:
    value = text(data)
    for normalize in (False, True):
        if cel_values.is_semver(value, normalize):
            version = cel_values.semver(value, normalize)
            assert cel_values.compare(version, version) == 0


@cache
def evaluator() -> cel_selectors._Evaluator:
    memory = cel_values.quantity("16Gi")
    device = {
        "driver": "gpu.nvidia.com",
        "allowMultipleAllocations": False,
        "attributes": {"gpu.nvidia.com": {"uuid": "GPU-1", "index": 0, "ecc": True}},
        "capacity": {"gpu.nvidia.com": {"memory": memory}},
    }
    return cel_selectors._Evaluator([device])


EXPRESSIONS = [
    'device.capacity["gpu.nvidia.com"].memory.compareTo(quantity("1Gi")) > 0',
    'device.attributes["gpu.nvidia.com"].uuid.matches("^GPU-.*") && device.driver != "x"',
    '[1, 2].exists(x, x > 1) && semver("1.2.3").isGreaterThan(semver("1.0.0"))',
]


@fuzz_target(EXPRESSIONS, everyday=30)
def cel_expression(data: bytes) -> None:
    """An expression has a verdict for each device, and one of the compiler."""
    found = evaluator().verdicts(text(data))
    assert len(found) == 2


@fuzz_target(
    ["GET /metrics HTTP/1.1\r\nAccept: text/plain\r\n\r\n", "PUT / HTTP/1.1\r\n\r\n", "GET /x"]
)
def metrics_requests(data: bytes) -> None:
    """The head of a request has an answer; one for the metrics begins to collect them."""
    endpoint = MetricsEndpoint.__new__(MetricsEndpoint)
    endpoint._collect = _cancelled  # type: ignore[method-assign] # there is no node
    try:
        event_loop().run_until_complete(endpoint._answer(data))
    except asyncio.CancelledError:
        assert b"/metrics" in data


def _cancelled() -> NoReturn:
    raise asyncio.CancelledError


@cache
def event_loop() -> asyncio.AbstractEventLoop:
    return asyncio.new_event_loop()
