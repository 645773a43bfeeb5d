# SPDX-License-Identifier: Apache-2.0
"""A container's description as a config.json, and the changes of one as an adjustment."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from google.protobuf.json_format import MessageToDict

from gpuhook.nri.adjustment import Adjustment
from gpuhook.nri.wire.nri_messages import NriContainer, PodSandbox
from gpuhook.nri.wire.protobuf_wire import Message
from gpuhook.request import policy
from tests.nri import nri_api
from tests.nri.fake_runtime import container

SPEC: dict[str, Any] = {
    "process": {"env": ["A=1", "B=2", "A=3"]},
    "mounts": [{"destination": "/proc", "type": "proc", "source": "proc"}],
    "linux": {"devices": [{"path": "/dev/fuse", "type": "c", "major": 10, "minor": 229}]},
}


def sent(before: dict[str, Any], after: dict[str, Any]) -> dict[str, Any]:
    """Return the adjustment as protobuf's library reads it."""
    response = Adjustment(before, after).response()
    made = nri_api.parsed("CreateContainerResponse", response)
    found: dict[str, Any] = MessageToDict(made.adjust, preserving_proto_field_name=True)
    return found


def read(message: Any) -> NriContainer:
    return NriContainer(Message(message.SerializeToString()))


def test_cdi_bytes() -> None:
    """The answer with one CDI name, byte by byte."""
    after = copy.deepcopy(SPEC)
    after["linux"]["devices"].append({"path": "/dev/nvidia0", "type": "c", "major": 195})
    change = Adjustment(SPEC, after)
    change.by_cdi(["nvidia.com/gpu=0"], {})
    assert change.response() == b"\x0a\x14\x42\x12\x0a\x10nvidia.com/gpu=0"


def test_nothing_changed() -> None:
    assert Adjustment(SPEC, copy.deepcopy(SPEC)).response() == b""


def test_every_part() -> None:
    """Each kind of edit has its field; values of 0 differ from absent ones."""
    after = copy.deepcopy(SPEC)
    after["process"]["env"] += ["NEW=x=y", "EMPTY="]
    after["mounts"].append(
        {"destination": "/lib/a", "source": "/host/a", "type": "bind", "options": ["ro", "nodev"]}
    )
    after["linux"]["devices"] += [
        {"path": "/dev/a", "type": "c", "major": 195, "minor": 0, "fileMode": 0o660, "uid": 0},
        {"path": "/dev/p", "type": "p", "gid": 44},
    ]
    after["hooks"] = {
        "createRuntime": [{"path": "/h", "args": ["h", ""], "env": ["K=V"], "timeout": 60}],
        "createContainer": [{"path": "/g"}],
    }
    assert sent(SPEC, after) == {
        "env": [{"key": "NEW", "value": "x=y"}, {"key": "EMPTY"}],
        "mounts": [
            {"destination": "/lib/a", "source": "/host/a", "type": "bind"}
            | {"options": ["ro", "nodev"]}
        ],
        "linux": {
            "devices": [
                {"path": "/dev/a", "type": "c", "major": "195"}
                | {"file_mode": {"value": "432"}, "uid": {}},
                {"path": "/dev/p", "type": "p", "gid": {"value": "44"}},
            ]
        },
        "hooks": {
            "create_runtime": [
                {"path": "/h", "args": ["h", ""], "env": ["K=V"], "timeout": {"value": "60"}}
            ],
            "create_container": [{"path": "/g"}],
        },
    }


def test_variable_that_occurs_twice() -> None:
    """The one entry that remains of two is sent, although the config.json had it."""
    after = copy.deepcopy(SPEC)
    after["process"]["env"] = ["B=2", "A=3"]
    assert sent(SPEC, after) == {"env": [{"key": "A", "value": "3"}]}


def test_what_nri_has_no_field_for() -> None:
    after = copy.deepcopy(SPEC)
    after["process"]["user"] = {"additionalGids": [44]}
    after["linux"]["netDevices"] = {"ib0": {}}
    assert Adjustment(SPEC, after).left_out == ["additionalGids", "netDevices"]
    before: dict[str, Any] = {"process": {"user": {"additionalGids": []}}}
    assert Adjustment(before, {"process": {}}).left_out == []


def test_by_cdi_leaves_the_rest_to_the_runtime() -> None:
    """Variables that the container had are set here, and limits have a hook of no spec."""
    after = copy.deepcopy(SPEC)
    after["process"]["env"] = ["A=void", "B=2", "OWN=1", "LIMIT=5"]
    after["mounts"].append({"destination": "/lib/a", "source": "/host/a", "type": "bind"})
    limit = {"path": "/h", "args": ["gpuhook-hook", "limit"]}
    after["hooks"] = {
        "createRuntime": [limit],
        "createContainer": [{"path": "/h", "args": ["gpuhook-hook", "apply"]}, {"path": "/other"}],
    }
    change = Adjustment(SPEC, after)
    change.by_cdi(["v.com/c=1"], {"env": ["A=void", "OWN=1"]})
    assert change.env == ["A=void", "LIMIT=5"]
    assert change.hooks == {"createRuntime": [limit]}
    assert (change.cdi_devices, change.mounts, change.devices) == (["v.com/c=1"], [], [])


def test_devices_of_the_kubelet_are_not_named_again() -> None:
    """A container that has all devices and mounts already gets variables only."""
    after = copy.deepcopy(SPEC)
    after["process"]["env"] = ["A=void", "B=2"]
    change = Adjustment(SPEC, after)
    change.by_cdi(["v.com/c=1"], {})
    assert (change.cdi_devices, change.env) == ([], ["A=void"])


def test_text_that_is_not_unicode_is_not_sent() -> None:
    after = {**SPEC, "process": {"env": ["A=\udcff"]}}
    with pytest.raises(UnicodeEncodeError):
        Adjustment(SPEC, after).response()


def test_container_as_config_json() -> None:
    """Each part of the description is where a config.json has it."""
    message = container(
        ["X=1"],
        annotations=nri_api.pairs({"a": "b"}),
        hooks={"create_container": [{"path": "/h", "args": ["h"], "timeout": {"value": 3}}]},
        CDI_devices=[{"name": "nvidia.com/gpu=0"}],
        user={"uid": 7, "gid": 8},
        state=3,
    )
    message.linux.devices.add(path="/dev/x", type="c", major=1, minor=3, file_mode={"value": 438})
    found = read(message)
    assert (found.identity, found.name, found.state) == ("c0", "main", 3)
    spec = found.spec
    assert spec["process"]["env"][-1] == "X=1"
    assert spec["process"]["user"] == {"uid": 7, "gid": 8}
    assert spec["mounts"][0] == {
        "destination": "/proc", "type": "proc", "source": "proc", "options": ["nosuid"],
    }  # fmt: skip
    assert spec["hooks"] == {"createContainer": [{"path": "/h", "args": ["h"], "timeout": 3}]}
    assert spec["linux"]["devices"] == [
        {"path": "/dev/x", "type": "c", "major": 1, "minor": 3, "fileMode": 438}
    ]
    assert spec["linux"]["namespaces"] == [{"type": t, "path": ""} for t in ("pid", "mount")]
    assert spec["annotations"] == {"a": "b"}


@pytest.mark.parametrize(
    ("rule", "is_privileged"),
    [
        ({"allow": True, "access": "rwm"}, True),
        ({"allow": True, "type": "a", "access": "rwm"}, True),
        ({"allow": True, "type": "a", "major": {"value": -1}, "minor": {"value": -1}}
         | {"access": "rwm"}, True),
        ({"allow": False, "access": "rwm"}, False),
        ({"allow": True, "access": "rw"}, False),
        ({"allow": True, "type": "c", "access": "rwm"}, False),
        ({"allow": True, "type": "a", "major": {"value": 0}, "access": "rwm"}, False),
        ({"allow": True, "major": {"value": 1}, "minor": {"value": 3}, "access": "rwm"}, False),
    ],
)  # fmt: skip
def test_privileged(rule: dict[str, Any], is_privileged: bool) -> None:  # a value
    """NRI has no capabilities: a rule for all devices shows a privileged container."""
    message = container()
    message.linux.resources.devices.add(**rule)
    assert policy.privileged(read(message).spec) == is_privileged


def test_name_of_a_container() -> None:
    """An older runtime may have the name in a label only."""
    labels = nri_api.pairs({"io.kubernetes.container.name": "labelled"})
    assert read(container(name="", labels=labels)).name == "labelled"


def test_pod() -> None:
    message = nri_api.new(
        "PodSandbox", id="s", name="p", uid="u", namespace="n", runtime_handler="nvidia",
        annotations=nri_api.pairs({"k": "v"}),
    )  # fmt: skip
    found = PodSandbox(Message(message.SerializeToString()))
    assert (found.name, found.uid, found.namespace) == ("p", "u", "n")
    assert (found.runtime_handler, found.annotations) == ("nvidia", {"k": "v"})
