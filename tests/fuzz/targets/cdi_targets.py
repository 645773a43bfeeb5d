# SPDX-License-Identifier: Apache-2.0
"""CDI specs of any vendor, their compiled forms, and names of devices."""

from __future__ import annotations

import json
import os
from functools import cache
from typing import Any

from gpuhook.cdi import resolution, spec_file, spec_list, spec_notes, transform, validate
from gpuhook.cdi.hot import compile as compiler
from gpuhook.cdi.hot import compiled_spec, names, registry, spec_rules, spec_versions
from gpuhook.errors import GpuhookError
from gpuhook.spec_check import spec_report
from gpuhook.vendors.nvidia.hot.device_names import short_names
from tests.fuzz.fuzz_target import fuzz_target, scratch, scratch_file, text

SPEC: dict[str, Any] = {
    "cdiVersion": "0.6.0",
    "kind": "nvidia.com/gpu",
    "annotations": {"a.b/c": "d"},
    "containerEdits": {
        "env": ["NVIDIA_VISIBLE_DEVICES=void"],
        "hooks": [
            {
                "hookName": "createContainer",
                "path": "/usr/bin/nvidia-cdi-hook",
                "args": ["nvidia-cdi-hook", "create-symlinks", "--link", "a::/usr/lib/b"],
                "timeout": 2,
            }
        ],
        "mounts": [
            {"hostPath": "/lib/x", "containerPath": "/lib/x", "options": ["ro", "nosuid", "bind"]}
        ],
        "intelRdt": {"closID": "x", "enableCMT": True},
        "additionalGids": [44],
        "netDevices": [{"hostInterfaceName": "e0", "name": "e1"}],
    },
    "devices": [
        {
            "name": "0",
            "containerEdits": {
                "deviceNodes": [
                    {"path": "/dev/null", "hostPath": "/dev/null", "type": "c", "major": 1,
                     "minor": 3, "fileMode": 438, "permissions": "rw", "uid": 0, "gid": 0}
                ]
            },
        },
        {"name": "all", "containerEdits": {"env": ["A=b"]}},
    ],
}  # fmt: skip
YAML = spec_file.document(SPEC, "yaml")  # type: ignore[arg-type] # the keys of a spec
JSON = json.dumps(SPEC)
SMALL = (
    '{"cdiVersion":"0.3.0","kind":"a.b/c","devices":[{"name":"x","containerEdits":'
    '{"deviceNodes":[{"path":"/dev/null"}]}}],"containerEdits":{}}'
)
ODD = """\
cdiVersion: 0.5.0
kind: a.b/c
devices: &d
- name: 0:1
  containerEdits: &e {deviceNodes: [{path: /dev/null, fileMode: 0o644, major: 1, minor: 3}]}
- name: 07
  containerEdits: {<<: *e, env: [A=1]}
"""


@cache
def moves() -> tuple[transform.Move, ...]:
    return transform.Move("/lib", "/host/lib"), transform.Move("/dev", "/host/dev")


def _use(spec: Any, path: str) -> None:
    """Do with a valid spec what commands and the wrapper do."""
    made = compiled_spec.of_spec(path, spec)
    assert made.names() == [device["name"] for device in spec["devices"]]
    for device in spec["devices"]:
        assert made.device(device["name"]) == device["containerEdits"]
    validate_fault(spec, path)
    lowest = spec_versions.lowest(spec)
    assert lowest in spec_versions.needed(spec)
    for form in (transform.HOST, transform.CONTAINER):
        options = transform.TransformOptions(frozenset(("--of-host",)), {"--a": ":"}, {"--b": ":"})
        moved = transform.moved(spec, moves(), form, options=options)
        assert list(moved) == list(spec)
        assert transform.moved(moved, moves(), form, options=options).keys() == moved.keys()
    spec_notes.options(spec)


def validate_fault(spec: Any, path: str) -> None:
    try:
        validate.check(spec, path)
    except GpuhookError as error:
        assert error.code == "GH1106"  # noqa: PT017 # the schema is stricter than the rules


@fuzz_target([JSON, SMALL, b"[1]", b"null"], size=8192, everyday=100)
def json_spec(data: bytes) -> None:
    """A valid spec is the same after it was written and read again."""
    spec: Any = compiler.parse_json(data, "x.json")
    spec_rules.check(spec, "x.json")
    spec = compiler.checked(lambda _data, _path: spec, scratch_file(b""))
    _use(spec, "x.json")
    for form in spec_file.FORMATS:
        try:
            written = spec_file.document(spec, form)
        except GpuhookError:
            continue
        assert spec_file.parser(f"x.{form}")(written.encode(), "x") == spec


@fuzz_target([YAML, ODD, SMALL], size=8192, everyday=40)
def yaml_spec(data: bytes) -> None:
    spec: Any = spec_file.parse_yaml(data, "x.yaml")
    spec_rules.check(spec, "x.yaml")
    spec = compiler.checked(lambda _data, _path: spec, scratch_file(b""))
    _use(spec, "x.yaml")


@fuzz_target([JSON, SMALL, YAML, ODD], size=8192, everyday=20)
def spec_directory(data: bytes) -> None:
    """A directory with a broken spec gives containers the devices of the others."""
    scratch_file(SMALL.encode(), "cdi/good.json")
    is_json = data[:1] == b"{"
    path = scratch_file(data, f"cdi/other.{'json' if is_json else 'yaml'}")
    directories = [str(scratch() / "cdi")]
    try:
        found = registry.load(directories, lambda *_: None)
        assert "x" in found.names("a.b/c")
        for kind in {one.kind for one in found.all()}:
            for name in found.names(kind):
                _device(found, f"{kind}={name}")
        spec_list.devices(directories)
        for report in spec_report.directory_reports(directories, is_here=True):
            assert report.is_valid or report.error is not None or report.findings
    finally:
        os.unlink(path)


def _device(found: registry.Registry, name: str) -> None:
    """Look up a device; several specs may have it."""
    try:
        found.device(name)
    except GpuhookError as error:
        assert error.code != "GH1101"  # noqa: PT017 # any other one is right


def compiled_forms() -> list[bytes]:
    spec: Any = SPEC
    return [
        compiled_spec.encoded("/x.json", os.stat(scratch_file(b"")), spec),
        compiled_spec.encoded("/x", os.stat(scratch_file(b"")), GpuhookError("GH1106", "a", "b")),
    ]


@fuzz_target(compiled_forms, size=8192, everyday=100)
def compiled_form(data: bytes) -> None:
    """A damaged compiled form is none: the spec is compiled again."""
    source = scratch_file(SMALL.encode(), "source.json")
    found = os.stat(source)
    head = compiled_spec.encoded(source, found, GpuhookError("GH1106", "a", "b")).split(b"\n")[0]
    kept = compiled_spec.compiled_path(source)
    os.makedirs(os.path.dirname(kept), exist_ok=True)
    with open(kept, "wb") as file:
        file.write(head + b"\n" + data.partition(b"\n")[2])
    made = compiled_spec.load(source, found)
    if made is not None:
        for name in made.names():
            made.device(name)


NAMES = "0 all GPU-1 gpu-5c9a1f7e 0-3 1a:00.0 nvidia.com/gpu=0 a.b/c=d:e / = MIG-1 0:1 mig-1/0/0"


@fuzz_target([*NAMES.split(), "nvidia.com/gpu=", "a/b=c=d", "GPU-\udcff"], everyday=200)
def device_name(data: bytes) -> None:
    """A qualified name has three parts that are names themselves."""
    name = text(data)
    parts = names.split(name)
    if parts is not None:
        vendor, kind, device = parts
        assert f"{vendor}/{kind}={device}" == name
        assert names.is_kind(f"{vendor}/{kind}")
        assert names.is_device(device)
    known = ["0", "1", "0:1", "GPU-5c9a1f7e-1", "MIG-5c9a1f7e-2"]
    short_names.advice(name, "NVIDIA_VISIBLE_DEVICES", known)
    full = short_names.full_names(name, lambda: known)
    assert len(full) <= 1 or full == [str(int(full[0]) + place) for place in range(len(full))]
    resolution.resolve((name,), "a.b/c", lambda _kind: registry.load([], lambda *_: None))
