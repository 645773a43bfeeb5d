# SPDX-License-Identifier: Apache-2.0
"""AMD GPUs in containers of gpuhook-runtime and of the prestart hook, seen from inside."""

from __future__ import annotations

import json
import os
import shutil
import stat
from pathlib import Path
from typing import Any

import pytest

from gpuhook.vendors.amd.hot.amd_words import KFD
from tests.contract.amd_installation import (
    GROUP,
    AmdInstallation,
    amd_installation,
    asks_amd,
    beside_nvidia,
    nodes_of,
)
from tests.contract.bundles import Bundles
from tests.contract.installation import CONTROL, Installation, asks
from tests.contract.live import prestart
from tests.contract.runtimes import ENGINES, EVERY, run
from tests.contract.test_user_namespace import let_through, mapped
from tests.contract.views import View, questions

NULL = {"type": "bind", "source": "/dev/null", "options": ["bind", "ro"]}


@pytest.fixture(scope="module")
def partitioned(node8: Installation, tmp_path_factory: pytest.TempPathFactory) -> AmdInstallation:
    """Return an installation on a node with 64 partitions; no test changes it."""
    return amd_installation(tmp_path_factory.mktemp("partitioned"), "mi300x-cpx", node8)


@pytest.fixture
def whole(node8: Installation, tmp_path: Path) -> AmdInstallation:
    """Return an installation on a node with eight GPUs, which the test may change."""
    return amd_installation(tmp_path / "whole", "mi300x8", node8)


@pytest.fixture(scope="module")
def both(node8: Installation, tmp_path_factory: pytest.TempPathFactory) -> AmdInstallation:
    """Return an installation on a node with a T4 and two MI210; no test changes it."""
    return beside_nvidia(tmp_path_factory.mktemp("both"), "mixed", node8)


def tried(installation: AmdInstallation, *indices: int) -> list[str]:
    """Return the probe's command: it tries to open the render nodes of these devices."""
    return ["/probe", *questions(tries=installation.numbers(*indices))]


def assert_has(view: View, installation: AmdInstallation, *indices: int) -> None:
    """Assert that a container has exactly these devices, and can open no other that it tried."""
    assert nodes_of(view) == installation.paths(*indices)
    assert all(view.nodes[path].allowed for path in nodes_of(view))
    own = installation.numbers(*indices)
    assert {number for number, answer in view.tries.items() if answer != "EPERM"} <= set(own)


@EVERY
def test_a_partition_and_no_other(
    engine: str, cgroup: str, partitioned: AmdInstallation, bundle_of: Bundles
) -> None:
    """The cgroup denies the neighbours on the same GPU: KFD shows what the cgroup allows."""
    bundle = bundle_of("debian", tried(partitioned, 7, 8, 9, 10), asks_amd("1:0,amdgpu_xcp.7"))
    view = partitioned.run(bundle, engine, cgroup).view
    assert_has(view, partitioned, 8, 9)
    assert set(view.tries) == set(partitioned.numbers(7, 8, 9, 10))
    assert view.nodes[KFD].major == 238  # of the host's node: no spec has it


@pytest.mark.parametrize(
    ("value", "indices"),
    [
        ("all", range(8)),
        ("ALL", range(8)),
        ("2,0", (0, 2)),
        ("1-2", (1, 2)),
        ("+1", (1,)),
        (" 1 , 0-1", (0, 1)),
        ("0x08DA87C12EF81B5D", (0,)),
        ("0x00008da87c12ef81b5d", (0,)),
        ("8da87c12ef81b5d", (0,)),
        ("GPU-08da87c12ef81b5d", (0,)),
        ("0000:27:00.0", (1,)),
        ("27:00.0", (1,)),
        ("7:0", (7,)),
        ("3::2", (3,)),
        ("0000:27:00.0-slice-1", (1,)),
        ("none", ()),
        ("void", ()),
        ("", ()),
    ],
)
def test_values(
    value: str, indices: tuple[int, ...], whole: AmdInstallation, bundle_of: Bundles
) -> None:
    """Every spelling of a device gives the container that device."""
    bundle = bundle_of("debian", tried(whole, *range(8)), asks_amd(value))
    before = bundle.file.read_bytes()
    view = whole.run(bundle).view
    if indices:
        assert_has(view, whole, *indices)
    else:
        assert nodes_of(view) == set()
        assert bundle.file.read_bytes() == before


@pytest.mark.parametrize(
    ("value", "code", "texts"),
    [
        ("3-1", "GH1102", ["3-1", "write 1-3", "8 devices, 0 to 7"]),
        ("2-9", "GH1102", ["2-9", "ends after the last device"]),
        ("8", "GH1102", ["8 devices, 0 to 7"]),
        ("-1", "GH1101", ["-1", "none for no GPU"]),
        ("0-", "GH1101", ["0-", "first-last"]),
        ("aLL", "GH1102", ["aLL", "lower case"]),
        ("123456789", "GH1102", ["123456789", "8 devices"]),
        ("0xdeadbeef", "GH1102", ["0xdeadbeef"]),
        ("0 1", "GH1101", ["separate devices by commas: 0,1"]),
        ("0,all", "GH2510", ["`all` together"]),
        ("none,1", "GH2510", ["`none` together"]),
        ("nvidia.com/gpu=0", "GH1009", ["nvidia.com/gpu=0"]),
    ],
)
def test_typing_errors_are_named(
    value: str, code: str, texts: list[str], whole: AmdInstallation, bundle_of: Bundles
) -> None:
    """Where AMD's runtime starts a container without a GPU, this one says what is wrong."""
    bundle = bundle_of("debian", ["/probe"], asks_amd(value))
    before = bundle.file.read_bytes()
    done = whole.edit(bundle)
    assert done.rc == 1
    assert f"error {code}: AMD_VISIBLE_DEVICES" in done.stderr, done
    assert [text for text in texts if text not in done.stderr] == []
    assert bundle.file.read_bytes() == before


def test_other_sources(whole: AmdInstallation, bundle_of: Bundles) -> None:
    """Annotations win over the variable; mounts only if the settings accept them."""
    noted = bundle_of("debian", ["/probe"], asks_amd("0"), {"cdi.k8s.io/x": "amd.com/gpu=3"})
    assert_has(whole.run(noted).view, whole, 3)
    mounted = bundle_of("debian", ["/probe"], asks_amd("/var/run/amd-container-devices"))
    config = mounted.config()
    config["mounts"].append({**NULL, "destination": "/var/run/amd-container-devices/0000:27:00.0"})
    mounted.write(config)
    assert "GH1101" in whole.edit(mounted).stderr
    settings = {"cdi": {"specDirs": [str(whole.specs)]}, "request": {"acceptVolumeMounts": True}}
    whole.config.write_text(json.dumps(settings), encoding="utf-8")
    assert_has(whole.run(mounted).view, whole, 1)


@pytest.mark.parametrize(
    ("variable", "value", "indices"),
    [
        ("DOCKER_RESOURCE_AMD_GPU", "0x8da87c12ef81b5d", (0,)),
        ("DOCKER_RESOURCE_AMD-GPU", "2", (2,)),
        ("DOCKER_RESOURCE_GPU", "0x8da87c12ef81b5d,GPU-08daa5c1b0cf62ec", (0, 1)),
        ("DOCKER_RESOURCE_CPU", "2", (5,)),
        ("DOCKER_RESOURCE_SSD", "fast", (5,)),
    ],
)
def test_swarm_resources(
    variable: str, value: str, indices: tuple[int, ...], whole: AmdInstallation, bundle_of: Bundles
) -> None:
    """Resources of other kinds are not taken for GPUs, and none without the setting."""
    names = ["DOCKER_RESOURCE_AMD_GPU", "DOCKER_RESOURCE_AMD-GPU", "DOCKER_RESOURCE_GPU"]
    bundle = bundle_of("debian", ["/probe"], [*asks_amd("5"), f"{variable}={value}"])
    assert_has(whole.run(bundle).view, whole, 5)
    settings = {"cdi": {"specDirs": [str(whole.specs)]}, "request": {"swarmResources": names}}
    whole.config.write_text(json.dumps(settings), encoding="utf-8")
    again = bundle_of("debian", ["/probe"], [*asks_amd("5"), f"{variable}={value}"])
    assert_has(whole.run(again).view, whole, *indices)


def test_unprivileged_variable_is_refused(whole: AmdInstallation, bundle_of: Bundles) -> None:
    """The policy for variables of pods and images is the same for each vendor."""
    settings = {
        "cdi": {"specDirs": [str(whole.specs)]},
        "request": {"acceptEnvWhenUnprivileged": False},
    }
    whole.config.write_text(json.dumps(settings), encoding="utf-8")
    done = whole.run(bundle_of("debian", ["/probe"], asks_amd("all")))
    assert nodes_of(done.view) == set()
    granted = bundle_of("debian", ["/probe"], asks_amd("all"), {"cdi.k8s.io/x": "amd.com/gpu=1"})
    assert_has(whole.run(granted).view, whole, 1)


def test_a_user_gets_the_hosts_groups(whole: AmdInstallation, bundle_of: Bundles) -> None:
    """A process that is not root can open its nodes, and keeps its own groups."""
    user = {"uid": 1000, "gid": 1000, "additionalGids": [27]}
    bundle = bundle_of("debian", ["/probe"], asks_amd("2"), process={"user": user})
    view = whole.run(bundle).view
    assert {27, GROUP} <= set(view.groups)
    assert_has(view, whole, 2)


def test_a_second_create_starts_from_the_original(
    whole: AmdInstallation, bundle_of: Bundles
) -> None:
    """The record of a create has the groups and the nodes: nothing is in config.json twice."""
    bundle = bundle_of("debian", ["/probe"], asks_amd("2"), process={"user": {"uid": 1000}})
    assert whole.edit(bundle).rc == 0
    first = bundle.config()
    assert whole.edit(bundle).rc == 0
    assert bundle.config() == first
    env = [one for one in first["process"]["env"] if not one.startswith("AMD_VISIBLE")]
    bundle.write({**first, "process": {**first["process"], "env": [*env, *asks_amd("none")]}})
    assert whole.edit(bundle).rc == 0
    last = bundle.config()
    assert last["process"]["user"]["additionalGids"] == []
    assert [one["path"] for one in last["linux"]["devices"]] == []


@ENGINES
def test_in_a_user_namespace(engine: str, whole: AmdInstallation, bundle_of: Bundles) -> None:
    """There the host's nodes are bound: there are no others."""
    let_through(whole.amd.root / "any")
    bundle = mapped(bundle_of("debian", ["/probe"], asks_amd("1")))
    view = whole.run(bundle, engine).view
    assert nodes_of(view) == whole.paths(1)


def test_majors_of_amds_tool_are_ignored(whole: AmdInstallation, bundle_of: Bundles) -> None:
    """A spec of amd-ctk has the major that /dev/kfd had when it was written."""
    spec = json.loads(whole.amd_spec.read_text(encoding="utf-8"))
    del spec["annotations"]
    for edits in (spec["containerEdits"], *(one["containerEdits"] for one in spec["devices"])):
        for node in edits["deviceNodes"]:
            node.update(type="c", major=511, minor=7, permissions="rwm")
    whole.amd_spec.write_text(json.dumps(spec), encoding="utf-8")
    bundle = bundle_of("debian", ["/probe"], asks_amd("0"))
    view = whole.run(bundle).view
    assert_has(view, whole, 0)
    assert (view.nodes[KFD].major, view.nodes[KFD].minor) == (238, 0)
    access = {rule["access"] for rule in bundle.config()["linux"]["resources"]["devices"][1:]}
    assert access == {"rw"}


def test_a_stale_spec_is_refused(whole: AmdInstallation, bundle_of: Bundles) -> None:
    """After a repartition, a name may mean another device: the spec has the change token."""
    whole.refuse_stale()
    bundle = bundle_of("debian", ["/probe"], asks_amd("0"))
    whole.amd.generation(11)
    done = whole.edit(bundle)
    assert done.rc == 1
    assert "GH1120" in done.stderr
    assert "generation: was 10, is 11" in done.stderr
    whole.describe()
    assert_has(whole.run(bundle).view, whole, 0)


@pytest.mark.parametrize(
    ("gone", "reason"),
    [
        ("module/amdgpu", "the amdgpu driver is not loaded on this node"),
        (
            "module/amdgpu/drivers/pci:amdgpu",
            "the amdgpu driver, which is loaded, serves no GPU of this node",
        ),
        ("class/kfd/kfd/topology/nodes", "KFD lists none of the GPUs that the amdgpu driver"),
    ],
)
def test_without_the_driver(
    gone: str, reason: str, whole: AmdInstallation, bundle_of: Bundles
) -> None:
    """An image that requests all GPUs starts without one; a named GPU is an error.

    The kernel may load the driver although it serves no GPU, or only graphics that are not in KFD.
    """
    shutil.rmtree(whole.amd.root / "sys" / gone)
    whole.amd_spec.unlink()
    done = whole.edit(bundle_of("debian", ["/probe"], asks_amd("all")))
    assert done.rc == 0
    assert f"GH1008: AMD_VISIBLE_DEVICES requests GPUs, but {reason}" in done.log
    named = whole.edit(bundle_of("debian", ["/probe"], asks_amd("1")))
    assert f"GH2511: AMD_VISIBLE_DEVICES requests 1, but {reason}" in named.stderr


def test_without_a_spec(whole: AmdInstallation, bundle_of: Bundles) -> None:
    """The error names the kind, the directories and what to do."""
    whole.refuse_stale()
    whole.amd_spec.unlink()
    done = whole.edit(bundle_of("debian", ["/probe"], asks_amd("1")))
    assert "GH1104: amd.com/gpu=1: no CDI spec of kind amd.com/gpu" in done.stderr
    assert "gpuhook refresh" in done.stderr


@EVERY
def test_both_vendors_in_one_container(
    engine: str, cgroup: str, both: AmdInstallation, bundle_of: Bundles
) -> None:
    """Each vendor's request is served by its own specs; the ledger has one entry."""
    bundle = bundle_of("debian", tried(both, 0, 1), [*asks("0"), *asks_amd("1")])
    view = both.run(bundle, engine, cgroup).view
    assert_has(view, both, 1)
    assert set(view.gpus()) == {*CONTROL, both.device(0)}
    assert view.values("NVIDIA_VISIBLE_DEVICES") == ["void"]


def test_ledger_of_both_vendors(both: AmdInstallation, bundle_of: Bundles) -> None:
    """The entry has the devices of both, and the request for AMD's with its kind."""
    bundle = bundle_of(
        "debian",
        ["/probe"],
        [*asks("all"), *asks_amd("0x8da41c12ef81b5d"), "GPUHOOK_REPLICAS=GPU-08da41c12ef81b5d::3"],
    )
    assert both.edit(bundle, container_id="both-vendors").rc == 0
    (entry,) = [one for one in _entries(both) if one["id"] == "both-vendors"]
    assert "amd.com/gpu=GPU-08da41c12ef81b5d" in entry["devices"]
    assert any(name.startswith("nvidia.com/gpu=") for name in entry["devices"])
    assert entry["requested"] == ["all", "amd.com/gpu=0x8da41c12ef81b5d"]
    assert entry["source"] == "NVIDIA_VISIBLE_DEVICES; AMD_VISIBLE_DEVICES"
    assert entry["replicas"] == ["GPU-08da41c12ef81b5d::3"]
    assert set(both.paths(0)) < set(entry["nodes"])


def _entries(installation: AmdInstallation) -> list[dict[str, Any]]:
    directory = installation.state / "containers"
    texts = (path.read_text(encoding="utf-8") for path in directory.glob("[!.]*"))
    return [json.loads(text) for text in texts]


def test_one_annotation_for_both_vendors(both: AmdInstallation, bundle_of: Bundles) -> None:
    annotation = {"cdi.k8s.io/x": "nvidia.com/gpu=0,amd.com/gpu=0"}
    view = both.run(bundle_of("debian", ["/probe"], [], annotation)).view
    assert_has(view, both, 0)
    assert both.device(0) in view.gpus()


@pytest.mark.parametrize("lost", ["nvidia", "amdgpu"])
def test_one_driver_may_be_missing(
    lost: str, node8: Installation, tmp_path: Path, bundle_of: Bundles
) -> None:
    """A container with the other vendor's GPUs starts; one that names this vendor's does not."""
    made = beside_nvidia(tmp_path, "mixed", node8)
    made.refuse_stale()
    host = Path(made.node.host_root)
    shutil.rmtree(host / "sys/module" / lost)
    if lost == "nvidia":
        shutil.rmtree(host / "proc/driver/nvidia")
    env = {"nvidia": [*asks("all"), *asks_amd("0")], "amdgpu": [*asks("0"), *asks_amd("all")]}
    view = made.run(bundle_of("debian", ["/probe"], env[lost])).view
    has_nvidia, has_amd = bool(view.gpus()), bool(nodes_of(view))
    assert (has_nvidia, has_amd) == (lost != "nvidia", lost != "amdgpu")
    refused = made.edit(bundle_of("debian", ["/probe"], [*asks("0"), *asks_amd("0")]))
    assert refused.rc == 1
    assert "GH1120" in refused.stderr


def test_a_container_without_amd_words_reads_no_amd_spec(
    both: AmdInstallation, bundle_of: Bundles
) -> None:
    """NVIDIA's containers are the same with and without AMD GPUs in the node."""
    bundle = bundle_of("debian", ["/probe"], asks("0"))
    assert both.edit(bundle).rc == 0
    made = json.dumps(bundle.config())
    assert "kfd" not in made
    assert "AMD" not in made


@EVERY
def test_prestart_hook(
    engine: str, cgroup: str, whole: AmdInstallation, bundle_of: Bundles
) -> None:
    """A plain runtime with the hook gives the same devices."""
    bundle = bundle_of("debian", tried(whole, 1, 2, 3), asks_amd("2"), hooks=prestart(whole))
    view = run(bundle, [engine], engine, cgroup).view
    assert_has(view, whole, 2)
    assert whole.entry()["devices"] == ["amd.com/gpu=2"]


def test_prestart_hook_of_a_mixed_container(both: AmdInstallation, bundle_of: Bundles) -> None:
    env = [*asks("0"), *asks_amd("0")]
    view = run(bundle_of("debian", ["/probe"], env, hooks=prestart(both)), ["runc"]).view
    assert_has(view, both, 0)
    assert both.device(0) in view.gpus()


def test_a_missing_node_is_named(whole: AmdInstallation, bundle_of: Bundles) -> None:
    """The container does not start without an assigned GPU."""
    device = whole.amd.device_node(whole.amd.node.device_nodes[2])
    device.unlink()
    done = whole.edit(bundle_of("debian", ["/probe"], asks_amd("0")))
    assert done.rc == 1
    assert f"GH1302: device node {device}" in done.stderr


def test_mode_of_the_nodes(whole: AmdInstallation, bundle_of: Bundles) -> None:
    view = whole.run(bundle_of("debian", ["/probe"], asks_amd("0"))).view
    node = view.nodes["/dev/dri/renderD128"]
    assert (node.mode, node.major, node.minor) == (0o660, 226, 128)
    host = os.stat(whole.amd.device_node(whole.amd.node.device_nodes[2]))
    assert stat.S_ISCHR(host.st_mode)


@pytest.mark.parametrize(
    ("name", "kind", "number"),
    [
        ("renderD128", stat.S_IFCHR, (226, 136)),  # another GPU's
        ("renderD128", stat.S_IFBLK, (226, 128)),
        ("card1", stat.S_IFCHR, (1, 1)),
        ("kfd", stat.S_IFCHR, (511, 0)),  # of an earlier boot, in a static /dev
    ],
)
def test_a_node_of_another_device_is_refused(
    name: str, kind: int, number: tuple[int, int], whole: AmdInstallation, bundle_of: Bundles
) -> None:
    """The host's node gives the numbers, so it must be the one that its name says."""
    (one,) = [node for node in whole.amd.node.device_nodes if node.path.endswith("/" + name)]
    device = whole.amd.device_node(one)
    device.unlink()
    os.mknod(device, 0o660 | kind, os.makedev(*number))
    bundle = bundle_of("debian", ["/probe"], asks_amd("0"))
    before = bundle.file.read_bytes()
    done = whole.edit(bundle)
    assert done.rc == 1
    assert f"GH1302: device node {device}: it is not the character device" in done.stderr
    assert bundle.file.read_bytes() == before
