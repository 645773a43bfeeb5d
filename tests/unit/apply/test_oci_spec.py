# SPDX-License-Identifier: Apache-2.0
"""Applying ContainerEdits to an OCI spec, with the semantics of the CDI library."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import Any

import pytest

from gpuhook.apply.spec import oci_spec
from gpuhook.errors import GpuhookError

NULL = {"major": 1, "minor": 3}
HOOK_ENV = ["PATH=/usr/sbin:/usr/bin:/sbin:/bin"]


def applied(spec: dict[str, Any], **edits: Any) -> dict[str, Any]:
    oci_spec.apply(spec, edits)  # type: ignore[arg-type] # a dict of CDI's keys
    return spec


def test_variables_are_replaced_in_place() -> None:
    """A variable keeps its place and occurs once; a new one is last; malformed entries are kept."""
    spec = {"process": {"env": ["A=1", "B=2", "odd", "A=3", 7, "AB=4"]}}
    applied(spec, env=["A=x", "C=y"])
    assert spec["process"]["env"] == ["A=x", "B=2", "odd", 7, "AB=4", "C=y"]


def test_device_numbers_are_read_from_the_host() -> None:
    """A node without numbers gets those of the host's node, and a rule for that node alone."""
    spec = applied({}, deviceNodes=[{"path": "/dev/null", "permissions": "rw"}])
    assert spec["linux"]["devices"] == [{"path": "/dev/null", "type": "c", **NULL}]
    rule = {"allow": True, "type": "c", **NULL, "access": "rw"}
    assert spec["linux"]["resources"]["devices"] == [rule]


def test_default_permissions_are_rwm() -> None:
    """CDI's default of `permissions` is rwm."""
    spec = applied({}, deviceNodes=[{"path": "/dev/null"}])
    assert spec["linux"]["resources"]["devices"][0]["access"] == "rwm"


def test_complete_node_is_not_looked_up() -> None:
    """A node with type and major is used as it is: the host's node need not exist."""
    node = {"path": "/dev/x", "hostPath": "/nowhere", "type": "c", "major": 195, "minor": 254}
    spec = applied({}, deviceNodes=[node])
    device = {"path": "/dev/x", "type": "c", "major": 195, "minor": 254}
    assert spec["linux"]["devices"] == [device]


def test_device_replaces_one_with_the_same_path() -> None:
    """Other devices and their order are kept, and so is a deny rule."""
    other, deny = {"path": "/dev/a", "type": "c"}, {"allow": False, "access": "rwm"}
    spec: dict[str, Any] = {
        "linux": {
            "devices": [other, {"path": "/dev/null", "type": "b"}, "odd"],
            "resources": {"devices": [deny]},
        }
    }
    applied(spec, deviceNodes=[{"path": "/dev/null", "fileMode": 0o600, "uid": 5, "gid": 6}])
    made = {"path": "/dev/null", "type": "c", **NULL, "fileMode": 0o600, "uid": 5, "gid": 6}
    assert spec["linux"]["devices"] == [other, "odd", made]
    assert spec["linux"]["resources"]["devices"][0] == deny


def test_last_of_two_nodes_with_one_path_applies() -> None:
    """The result is that of applying the edits one after another."""
    nodes = [{"path": "/dev/null", "fileMode": mode} for mode in (0o600, 0o666)]
    spec = applied({}, deviceNodes=nodes)
    assert [device["fileMode"] for device in spec["linux"]["devices"]] == [0o666]


@pytest.mark.parametrize(
    ("user", "owner"),
    [
        ({"uid": 1000, "gid": 100}, {"uid": 1000, "gid": 100}),
        ({"uid": 0, "gid": 0}, {}),
        ({"uid": 1000}, {"uid": 1000}),
        ("root", {}),
    ],
)
def test_owner_of_a_device(user: object, owner: dict[str, int]) -> None:
    """If CDI names no owner, a device belongs to the user of the process, unless that is root."""
    spec = applied({"process": {"user": user}}, deviceNodes=[{"path": "/dev/null"}])
    device = spec["linux"]["devices"][0]
    assert {key: device[key] for key in ("uid", "gid") if key in device} == owner


@pytest.mark.parametrize("node", ["/nowhere/nvidia0", "/etc/passwd", "/dev"])
def test_missing_node_is_a_fault(node: str) -> None:
    """A node that is missing, or is not a device node, is GH1302 with its path."""
    with pytest.raises(GpuhookError) as caught:
        applied({}, deviceNodes=[{"path": "/dev/nvidia0", "hostPath": node}])
    assert caught.value.code == "GH1302"
    assert node in caught.value.message


def test_node_of_another_type_is_a_fault() -> None:
    """A node whose type differs from the host's node is GH1302."""
    with pytest.raises(GpuhookError) as caught:
        applied({}, deviceNodes=[{"path": "/dev/null", "type": "b"}])
    assert caught.value.code == "GH1302"


def test_a_pipe_has_no_rule(tmp_path: Path) -> None:
    """A FIFO is a device without numbers and without a cgroup rule."""
    os.mkfifo(tmp_path / "pipe")
    assert stat.S_ISFIFO(os.stat(tmp_path / "pipe").st_mode)
    node = {"path": "/dev/pipe", "hostPath": str(tmp_path / "pipe")}
    assert applied({}, deviceNodes=[node]) == {
        "process": {},
        "linux": {"devices": [{"path": "/dev/pipe", "type": "p"}]},
    }


@pytest.mark.parametrize("here", [True, False])
def test_nodes_in_a_user_namespace(here: bool) -> None:
    """A node with another host path is bound; else the runtime binds the same path."""
    source = "/dev/null" if here else "/dev/zero"
    spec: dict[str, Any] = {"linux": {"namespaces": [{"type": "user"}]}}
    applied(spec, deviceNodes=[{"path": "/dev/null", "hostPath": source}])
    assert len(spec["linux"]["devices"]) == (1 if here else 0)
    mounts = spec.get("mounts", [])
    assert [(m["source"], m["destination"]) for m in mounts] == (
        [] if here else [("/dev/zero", "/dev/null")]
    )
    assert [rule["minor"] for rule in spec["linux"]["resources"]["devices"]] == [3 if here else 5]


def test_mount_replaces_one_with_the_same_destination() -> None:
    """Spellings of one path are equal, and the new mount is last."""
    spec = {"mounts": [{"destination": "/usr//lib/x/", "source": "old"}, {"destination": "/proc"}]}
    mount = {"hostPath": "/h", "containerPath": "/usr/lib/x", "options": ["ro", "bind"]}
    applied(spec, mounts=[mount, {"hostPath": "tmpfs", "containerPath": "/t", "type": "tmpfs"}])
    assert spec["mounts"] == [
        {"destination": "/proc"},
        {"destination": "/usr/lib/x", "source": "/h", "type": "bind", "options": ["ro", "bind"]},
        {"destination": "/t", "source": "tmpfs", "type": "tmpfs"},
    ]


def test_hooks_are_added_once() -> None:
    """A hook is added to its stage, without its name, once."""
    hook = {"hookName": "createContainer", "path": "/h", "args": ["h", "x"], "timeout": 3}
    spec = applied({"hooks": {"prestart": [{"path": "/p"}]}}, hooks=[hook, hook])
    assert spec["hooks"] == {
        "prestart": [{"path": "/p"}],
        "createContainer": [{"path": "/h", "args": ["h", "x"], "timeout": 3, "env": HOOK_ENV}],
    }


@pytest.mark.parametrize("said", [{}, {"env": []}])
def test_host_hooks_do_not_get_the_variables_of_the_image(said: dict[str, Any]) -> None:
    """Without its own variables, runc gives it the image's; other stages are unchanged."""
    hook = {"path": "/h", **said}
    assert applied({}, hooks=[{"hookName": "createContainer", **hook}])["hooks"] == {
        "createContainer": [{"path": "/h", "env": HOOK_ENV}]
    }
    assert applied({}, hooks=[{"hookName": "startContainer", **hook}])["hooks"] == {
        "startContainer": [hook]
    }
    engines = {"hooks": {"createContainer": [dict(hook)]}}
    assert applied(engines, hooks=[{"hookName": "createContainer", **hook}])["hooks"] == {
        "createContainer": [{"path": "/h", "env": HOOK_ENV}]
    }
    own = {"hookName": "createContainer", "path": "/h", "env": ["A=1"]}
    assert applied({}, hooks=[own])["hooks"] == {
        "createContainer": [{"path": "/h", "env": ["A=1"]}]
    }


def test_groups_are_added_once() -> None:
    """Group 0 is skipped, as in the CDI library."""
    spec = {"process": {"user": {"additionalGids": [10]}}}
    applied(spec, additionalGids=[0, 44, 10, 44])
    assert spec["process"]["user"]["additionalGids"] == [10, 44]
    assert applied({}, additionalGids=[0]) == {}


def test_rdt_and_network_devices() -> None:
    """intelRdt replaces the whole object; a network device is added under its name on the host."""
    device = {"hostInterfaceName": "eth0", "name": "net1"}
    spec = applied({"linux": {"intelRdt": {"x": 1}}}, intelRdt={"closID": "c"}, netDevices=[device])
    assert spec["linux"] == {"intelRdt": {"closID": "c"}, "netDevices": {"eth0": {"name": "net1"}}}
    assert device == {"hostInterfaceName": "eth0", "name": "net1"}


USER = {"namespaces": [{"type": "user"}]}
MAPPINGS = {
    "uidMappings": [{"containerID": 0, "hostID": 100000, "size": 65536}],
    "gidMappings": [{"containerID": 0, "hostID": 200000, "size": 65536}],
}


@pytest.mark.parametrize("option", ["idmap", "ridmap"])
@pytest.mark.parametrize(
    ("linux", "kept", "expected"),
    [
        ({}, False, {}),
        ({"namespaces": [{"type": "mount"}], **MAPPINGS}, False, {}),
        ({**USER, **MAPPINGS}, True, MAPPINGS),
        ({"namespaces": [{"type": "user", "path": "/proc/1/ns/user"}]}, True, {}),
        ({**USER, "uidMappings": MAPPINGS["uidMappings"]}, True, {}),
    ],
)
def test_mapped_mounts(
    option: str, linux: dict[str, Any], kept: bool, expected: dict[str, Any]
) -> None:
    """They get the mappings of the user namespace, and no option without one."""
    mount = {"hostPath": "/h", "containerPath": "/c", "options": ["ro", option, "nodev"]}
    spec = applied({"linux": dict(linux)}, mounts=[mount])
    (found,) = spec["mounts"]
    assert found.pop("options") == ["ro", *([option] if kept else []), "nodev"]
    assert found == {"destination": "/c", "source": "/h", "type": "bind", **expected}
    assert mount["options"] == ["ro", option, "nodev"]


def test_mounts_are_mapped_only_on_request() -> None:
    """A user namespace maps only mounts that request it and have no own mapping."""
    plain = {"hostPath": "/h", "containerPath": "/c", "options": ["ro", "idmap=uids=0-1-10"]}
    (found,) = applied({"linux": {**USER, **MAPPINGS}}, mounts=[plain])["mounts"]
    assert found["options"] == ["ro", "idmap=uids=0-1-10"]
    assert "uidMappings" not in found


@pytest.mark.parametrize(
    ("spec", "key"),
    [
        ({"linux": []}, "linux"),
        ({"linux": {"devices": {}}}, "devices"),
        ({"linux": {"resources": 5}}, "resources"),
        ({"process": "x"}, "process"),
        ({"process": {"env": "A=1"}}, "env"),
        ({"mounts": {}}, "mounts"),
        ({"hooks": {"createContainer": "x"}}, "createContainer"),
    ],
)
def test_parts_of_another_type_are_faults(spec: dict[str, Any], key: str) -> None:
    """A part of the spec whose type is not OCI's is GH1303 with its name."""
    with pytest.raises(GpuhookError) as caught:
        applied(
            spec,
            env=["A=1"],
            deviceNodes=[{"path": "/dev/null"}],
            mounts=[{"hostPath": "/h", "containerPath": "/c"}],
            hooks=[{"hookName": "createContainer", "path": "/h"}],
        )
    assert caught.value.code == "GH1303"
    assert f" {key} is not " in caught.value.message


def test_null_means_absent() -> None:
    """null means an absent part, as in Go."""
    spec = applied({"process": {"env": None}, "mounts": None, "linux": None}, env=["A=1"])
    assert spec == {"process": {"env": ["A=1"]}, "mounts": None, "linux": None}


@pytest.mark.parametrize(
    ("before", "added", "after"),
    [
        (["/proc", "/data/in/side"], ["/data"], ["/proc", "/data", "/data/in/side"]),
        (["/data/a", "/data/b"], ["/new", "/data/"], ["/data/", "/data/a", "/data/b", "/new"]),
        ([], ["/x/y", "/x", "/xy"], ["/x", "/x/y", "/xy"]),
        (["/data"], ["/data/in", "/datas"], ["/data", "/data/in", "/datas"]),
        (["/data/in", 7, {}], ["/data"], ["/data", "/data/in", 7, {}]),
        (["/usr/lib/a", "/usr"], ["/usr/lib"], ["/usr/lib/a", "/usr", "/usr/lib"]),
        (
            ["/usr/lib/a", "/usr", "/usr/lib/b"],
            ["/usr/lib"],
            ["/usr/lib/a", "/usr", "/usr/lib", "/usr/lib/b"],
        ),
        (["/data/in", "/"], ["/data"], ["/data/in", "/", "/data"]),
    ],
)
def test_mounts_are_sorted_by_depth(before: list[Any], added: list[str], after: list[Any]) -> None:
    """A mount must not hide those below it: the CDI library sorts them by depth, too."""
    held = [{"destination": one} if isinstance(one, str) else one for one in before]
    spec: dict[str, Any] = {"mounts": held}
    mounts: Any = [{"hostPath": "/h", "containerPath": path} for path in added]
    oci_spec.apply(spec, {"mounts": mounts})
    found = [one["destination"] if isinstance(one, dict) and one else one for one in spec["mounts"]]
    assert found == after
