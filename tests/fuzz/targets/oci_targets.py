# SPDX-License-Identifier: Apache-2.0
"""config.json of a container, the OCI state that hooks read, and the messages of NRI."""

from __future__ import annotations

import os
import socket
from contextlib import suppress
from functools import cache
from typing import Any

from gpuhook.apply.spec import change_record, config_json, oci_spec
from gpuhook.entry import create, oci_command, runtime
from gpuhook.entry.hooks import oci_state
from gpuhook.entry.plan_context import PlanContext
from gpuhook.explain.dry_run_rootfs import RootfsDryRun
from gpuhook.host.hot import fastjson
from gpuhook.nri import injection
from gpuhook.nri.wire.mux import Mux, MuxClosedError
from gpuhook.nri.wire.protobuf_wire import WireError
from gpuhook.nri.wire.ttrpc import MessageStream, Peer
from gpuhook.request import parse, policy
from gpuhook.usage import injection_route
from gpuhook.vendors.warm import config_devices
from tests.fuzz.fuzz_target import fuzz_target, scratch
from tests.nri import nri_api
from tests.nri.message_readers import readings
from tests.plans import described

GPU: dict[str, Any] = {
    "ociVersion": "1.0.2",
    "x-unknown": {"b": 1, "a": [1.50, 123456789012345678901234567890, "\udcff"]},
    "process": {
        "args": ["sh"],
        "env": ["PATH=/bin", "NVIDIA_VISIBLE_DEVICES=0", "NVIDIA_DRIVER_CAPABILITIES=all"],
        "user": {"uid": 0, "gid": 0, "additionalGids": [5]},
        "capabilities": {"bounding": ["CAP_CHOWN"]},
    },
    "root": {"path": "rootfs"},
    "mounts": [
        {"destination": "/proc", "type": "proc", "source": "proc"},
        {"destination": "/var/run/nvidia-container-devices/GPU-1", "source": "/dev/null"},
    ],
    "annotations": {"cdi.k8s.io/x": "nvidia.com/gpu=all", "io.kubernetes.pod.name": "p"},
    "hooks": {"prestart": [{"path": "/usr/bin/nvidia-container-runtime-hook", "args": ["x"]}]},
    "linux": {
        "namespaces": [{"type": "user"}, {"type": "mount"}],
        "uidMappings": [{"containerID": 0, "hostID": 100000, "size": 65536}],
        "devices": [{"path": "/dev/null", "type": "c", "major": 1, "minor": 3}],
        "resources": {"devices": [{"allow": False, "access": "rwm"}]},
        "cgroupsPath": "/x",
    },
}
RECORD = {
    "env": [["NVIDIA_VISIBLE_DEVICES=void", "NVIDIA_VISIBLE_DEVICES=0"]],
    "devices": ["/dev/nvidia0"],
    "mounts": ["/usr/lib/x"],
    "rules": [{"allow": True, "type": "c", "major": 195, "minor": 0, "access": "rw"}],
    "groups": [5],
}
MEMORY = ["NVIDIA_VISIBLE_DEVICES=0::1", "NVIDIA_GPU_MEMORY_LIMIT=2048", "NVIDIA_REQUIRE_CUDA=x"]
PLAIN = {"process": {"env": ["PATH=/bin"]}, "mounts": None, "linux": {}}
EDITS: Any = {
    "env": ["A=new"],
    "deviceNodes": [{"path": "/dev/null", "hostPath": "/dev/null", "permissions": "rw"}],
    "mounts": [
        {"hostPath": "/usr/lib/a", "containerPath": "/usr/lib/a", "options": ["ro", "bind"]}
    ],
    "hooks": [{"hookName": "createContainer", "path": "/a", "args": ["b"]}],
    "additionalGids": [44],
}
DEEP = (
    b'{"process":{"env":["NVIDIA_VISIBLE_DEVICES=0"]},"x":'
    + b"[" * 900
    + b"1.5"
    + b"]" * 900
    + b"}"
)


def configs() -> list[bytes]:
    specs: list[dict[str, Any]] = [GPU, PLAIN, {**PLAIN, change_record.KEY: RECORD}]
    specs += [{**GPU, "process": {"env": MEMORY}, "annotations": {}, "mounts": []}]
    return [fastjson.dumps(one) for one in specs] + [DEEP, b'{"Process":{},"process":{}}', b"[]"]


@fuzz_target([*configs(), b"-0", b"1E5", b'"\\ud800\xff"'], allowed=(ValueError,), everyday=300)
def json_document(data: bytes) -> None:
    """A document is the same after it was read and written, but for white space and escapes."""
    repeated: list[str] = []
    value = fastjson.loads(data, exact=True, repeated=repeated)
    written = fastjson.dumps(value, data)
    again = fastjson.loads(written, exact=True)
    assert fastjson.dumps(again, written) == written
    assert again == value or b"NaN" in data  # it does not equal itself
    if not repeated:
        assert written.count(b"{") <= data.count(b"{") + data.count(b"\\u007b".lower()) + 99


@fuzz_target(configs, everyday=200)
def config_edits(data: bytes) -> None:
    """Edits are idempotent, and what they do not know remains."""
    spec = config_json.parsed("/config.json", data)
    config_json.require_unambiguous(spec)
    before = {key: fastjson.dumps(value) for key, value in spec.items()}
    survey = change_record.survey(spec)
    oci_spec.apply(spec, EDITS)
    once = fastjson.dumps(spec)
    oci_spec.apply(spec, EDITS)
    assert fastjson.dumps(spec) == once
    assert list(spec)[: len(before)] == list(before)
    known = {"process", "mounts", "linux", "hooks"}
    assert all(fastjson.dumps(spec[key]) == before[key] for key in before.keys() - known)
    change_record.write(spec, survey, EDITS)
    assert change_record.take_back(spec)
    assert not change_record.take_back(spec)


@cache
def context() -> PlanContext:
    return described("t4", is_elsewhere=True)


def edited(spec: dict[str, Any], bundle: str) -> create.Edited:
    """Edit a config.json as the wrapper does, without a change of files."""
    command = oci_command.Command()
    command.bundle = bundle
    work = RootfsDryRun(empty=f"{bundle}/rootfs")
    wrapper = create.Create(command, context(), "/usr/bin/gpuhook-runtime", None, work, hook="/h")
    context().log.warnings.clear()
    return wrapper.edited(spec, "/usr/bin/runc")


@fuzz_target(configs, everyday=60)
def wrapper_create(data: bytes) -> None:
    """A create of an edited config.json gives the same; one without a request changes nothing."""
    bundle = str(scratch() / "bundle")
    os.makedirs(f"{bundle}/rootfs", exist_ok=True)
    if not runtime.may_ask(data, runtime.own_marks(context().settings)):
        return
    spec = config_json.parsed("/config.json", data)
    before = fastjson.dumps(spec, data)
    first = edited(spec, bundle)
    once = fastjson.dumps(spec, data)
    if not first.is_changed:
        assert once == before
        return
    again = config_json.parsed("/config.json", once)
    if edited(again, bundle).is_changed and first.route:
        assert fastjson.dumps(again, once) == once


@fuzz_target(configs, everyday=60)
def config_readers(data: bytes) -> None:
    """What commands read of a config.json, also of one that no runtime takes."""
    spec = config_json.parsed("/config.json", data)
    parse.environment(spec)
    parse.limits_memory(spec)
    policy.privileged(spec)
    config_devices.by_config(spec)
    injection_route.has_all_devices(spec)
    injection_route.hook_paths(spec, "createContainer", "prestart")
    injection_route.pod_uid(spec)
    oci_spec.user_namespace(spec)
    oci_spec.owner(spec)
    oci_spec.device_paths(spec)


STATE = (
    '{"ociVersion":"1.0.2","id":"abc","status":"creating","pid":7,"bundle":"%s","annotations":{}}'
)


@fuzz_target([STATE % "/b", STATE.replace("bundle", "bundlePath") % "/b", '{"pid":"7"}', "[]"])
def hook_state(data: bytes) -> None:
    """The state of a container that a runtime writes to its hooks."""
    reader, writer = os.pipe()
    os.write(writer, data[: 60 << 10])
    os.close(writer)
    kept = os.dup(0)
    try:
        os.dup2(reader, 0)
        state = oci_state.read()
    finally:
        os.dup2(kept, 0)
        os.close(kept)
        os.close(reader)
    state.require_id()
    assert state.init_pid() > 0
    assert state.pid == 7 or state.id


def containers() -> list[bytes]:
    container = nri_api.new(
        "Container",
        id="c",
        name="n",
        env=["NVIDIA_VISIBLE_DEVICES=all"],
        annotations=[{"key": "a", "value": "b"}],
        mounts=[{"destination": "/d", "source": "/s", "options": ["ro"]}],
        linux={"devices": [{"path": "/dev/x", "major": 1, "minor": 3}]},
    )
    pod = nri_api.new("PodSandbox", id="p", name="n", uid="u", namespace="ns")
    inner = container.SerializeToString(), pod.SerializeToString()
    request = (
        b"\x0a" + bytes([len(inner[1])]) + inner[1] + b"\x12" + bytes([len(inner[0])]) + inner[0]
    )
    return [*inner, request]


@fuzz_target(containers, allowed=(WireError,), everyday=300)
def nri_message(data: bytes) -> None:
    """Any bytes are a message of NRI, or refused with one exception."""
    readings(data)
    with suppress(WireError):
        injection.read_request(memoryview(data))


def frames() -> list[bytes]:
    call = b"\x0a\x03a.b\x12\x01m\x1a\x00"
    message = len(call).to_bytes(4, "big") + b"\0\0\0\x01\x01\0" + call
    return [b"\0\0\0\x01" + len(message).to_bytes(4, "big") + message, b"\0\0\0\x09\0\0\0\x01x"]


@fuzz_target(frames, allowed=(WireError, MuxClosedError), everyday=200)
def ttrpc_frames(data: bytes) -> None:
    """Frames of the multiplexer, and calls in them, as they arrive at the socket."""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        theirs.sendall(data[: 60 << 10])
        theirs.shutdown(socket.SHUT_WR)
        peer = Peer(Mux(ours), {"a.b": {"m": lambda _data, _limit: b"x"}})
        for _ in range(99):
            peer.step()


@fuzz_target([b"\0\0\0\x01\0\0\0\x01\x01\0x" * 2, b"\xff\xff\xff\xff" + bytes(20)], allowed=())
def ttrpc_stream(data: bytes) -> None:
    """The messages are the same, however the bytes arrive."""
    whole = [(one, kind, bytes(m or b"")) for one, kind, m in MessageStream().messages(data)]
    stream = MessageStream()
    parts = [
        (one, kind, bytes(m or b""))
        for at in range(0, len(data), 3)
        for one, kind, m in stream.messages(data[at : at + 3])
    ]
    assert parts == whole
