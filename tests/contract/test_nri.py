# SPDX-License-Identifier: Apache-2.0
"""`gpuhook nri run` with the runtime's end of the socket: what each container gets."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from gpuhook.host.hot.file_lock import FileLock
from tests.contract.amd_installation import amd_installation, asks_amd
from tests.contract.bundles import Bundles
from tests.contract.installation import CONTROL, KIND, Installation
from tests.contract.runtimes import CGROUPS, V2, lifecycle
from tests.nri import nri_api
from tests.nri.fake_runtime import FakePlugin, FakeRuntime, StatusError, container, pod
from tests.nri.nri_plugin import NriPlugin, nri_plugin
from tests.waiting import eventually

EXPANDED, BY_CDI = ("containerd", "1.7.24~ds1"), ("containerd", "v2.1.4")
MIB4 = 4 << 20
V2_FILE = "cgroup.controllers"


@pytest.fixture
def runtime(tmp_path: Path) -> Iterator[FakeRuntime]:
    """Yield a runtime that listens."""
    made = FakeRuntime(tmp_path / "nri/nri.sock")
    yield made
    made.close()


@pytest.fixture
def node(node8: Installation, tmp_path: Path) -> Installation:
    """Return an installation on which pods of the namespace `default` may request devices."""
    return node8.apart(tmp_path / "apart", nri={"namespaces": ["default"]})


@pytest.fixture
def plugin(node: Installation, runtime: FakeRuntime, tmp_path: Path) -> Iterator[NriPlugin]:
    """Yield a plugin that connects to it, on a node whose kubelet has assigned nothing."""
    with nri_plugin(node, runtime.path, "--plugin-directory", str(tmp_path)) as made:
        yield made


@pytest.fixture
def link(runtime: FakeRuntime, plugin: NriPlugin) -> FakePlugin:
    """Return the plugin as containerd 1.7 sees it."""
    assert plugin.process.poll() is None
    made = runtime.accept()
    assert made.start(*EXPANDED) == 8  # CREATE_CONTAINER and no other event
    return made


def asking(value: str, **more: Any) -> Any:
    """Return a container whose variable requests devices."""
    return container([f"NVIDIA_VISIBLE_DEVICES={value}"], **more)


def variables(adjust: Any) -> dict[str, str]:
    return {one.key: one.value for one in adjust.env}


def nodes(adjust: Any) -> set[str]:
    """Return the paths of the device nodes of an adjustment."""
    return {device.path for device in adjust.linux.devices}


def test_expanded(node: Installation, link: FakePlugin, plugin: NriPlugin) -> None:
    """containerd 1.7 gets each device, mount and hook of the grant."""
    response = link.create(pod(), asking("2"))
    adjust = response.adjust
    assert nodes(adjust) >= {*CONTROL, node.device(2)}
    assert node.device(1) not in nodes(adjust)
    assert {(device.type, device.major) for device in adjust.linux.devices} >= {("c", 195)}
    assert variables(adjust)["NVIDIA_VISIBLE_DEVICES"] == "void"
    assert any("libcuda.so" in mount.destination for mount in adjust.mounts)
    assert {mount.type for mount in adjust.mounts} == {"bind"}
    (hook,) = adjust.hooks.create_container
    assert list(hook.args[:2]) == ["gpuhook-hook", "apply"]
    assert {field.name for field, _ in response.ListFields()} == {"adjust"}
    assert list(adjust.CDI_devices) == []
    line = plugin.wait_for("injected")
    assert (line["devices"], line["mode"], line["pod"]) == ([f"{KIND}=2"], "expanded", "train-0")
    assert node.entry()["route"] == "nri"
    assert node.holders()[0]["pod"] == "train-0"


def test_by_cdi(runtime: FakeRuntime, plugin: NriPlugin) -> None:
    """containerd 2.1 applies the specs itself."""
    link = runtime.accept()
    link.start(*BY_CDI)
    adjust = link.create(pod(), asking("2")).adjust
    assert [one.name for one in adjust.CDI_devices] == [f"{KIND}=2"]
    assert variables(adjust) == {"NVIDIA_VISIBLE_DEVICES": "void"}
    assert {field.name for field, _ in adjust.ListFields()} == {"env", "CDI_devices"}
    assert plugin.wait_for("injected")["mode"] == "cdi"


def test_expanded_by_choice(node: Installation, runtime: FakeRuntime) -> None:
    """--expanded lets the driver capabilities of a container apply also with containerd 2.1."""
    with nri_plugin(node, runtime.path, "--expanded"):
        link = runtime.accept()
        link.start(*BY_CDI)
        adjust = link.create(pod(), asking("2")).adjust
        assert nodes(adjust) >= {node.device(2)}
        assert not adjust.CDI_devices


def test_hook_of_the_host(node: Installation, runtime: FakeRuntime) -> None:
    """A plugin in a container names the hook by its path on the host."""
    with nri_plugin(node, runtime.path, "--hook", "/opt/host/gpuhook-hook"):
        link = runtime.accept()
        link.start(*EXPANDED)
        adjust = link.create(pod(), asking("0")).adjust
        assert [one.path for one in adjust.hooks.create_container] == ["/opt/host/gpuhook-hook"]


@pytest.mark.parametrize("name", ["docker", "containerd"])
def test_runtime_without_devices(name: str, runtime: FakeRuntime, plugin: NriPlugin) -> None:
    """Docker's NRI and containerd 1.6 cannot give GPUs: said once, and no container changes."""
    link = runtime.accept()
    assert link.start(name, "1.6.20~ds1") == 8
    for index in range(3):
        assert link.create(pod(), asking("0", identity=f"c{index}")).ByteSize() == 0
    codes = [line.get("code") for line in plugin.lines()]
    assert codes.count("GH2703") == 1


def test_no_request(link: FakePlugin, plugin: NriPlugin, node: Installation) -> None:
    """A container without a request gets an empty answer, no line in the log and no entry."""
    assert link.create(pod(), container()).ByteSize() == 0
    assert link.create(pod(), asking("void")).ByteSize() == 0
    assert plugin.lines("injected") == []
    assert node.entries() == []


@pytest.mark.parametrize(
    ("value", "code"),
    [("77", "GH1102"), ("GPU-unknown", "GH1102"), ("a\nb", "GH1004"), ("x" * 300, "GH1004")],
)
def test_refused(value: str, code: str, link: FakePlugin, plugin: NriPlugin) -> None:
    """A container whose device does not exist does not start, with cause and remedy on one line."""
    with pytest.raises(StatusError, match=f"gpuhook: {code}: ") as raised:
        link.create(pod(), asking(value))
    assert raised.value.code == 2
    assert "\n" not in raised.value.text
    assert plugin.wait_for("refused")["code"] == code
    assert link.create(pod(), container()).ByteSize() == 0
    assert link.create(pod(), asking("0")).HasField("adjust")


def test_refused_by_policy(node8: Installation, tmp_path: Path, runtime: FakeRuntime) -> None:
    """An image's own variable requests nothing by default; it becomes `void` for the others."""
    node = node8.apart(tmp_path / "default")
    with nri_plugin(node, runtime.path) as plugin:
        link = runtime.accept()
        link.start(*EXPANDED)
        adjust = link.create(pod(), asking("all")).adjust
        assert variables(adjust) == {"NVIDIA_VISIBLE_DEVICES": "void"}
        assert nodes(adjust) == set()
        assert plugin.lines("refused") == []


def test_devices_of_the_kubelet(node: Installation, link: FakePlugin) -> None:
    """A container to which the kubelet's CDI names gave its devices gets nothing twice."""
    given = link.create(pod(), asking("1")).adjust
    again = asking("1", identity="c1")
    again.linux.devices.extend(given.linux.devices)
    again.mounts.extend(given.mounts)
    again.hooks.create_container.extend(given.hooks.create_container)
    again.CDI_devices.add(name=f"{KIND}=1")
    adjust = link.create(pod(), again).adjust
    assert nodes(adjust) == set()
    assert (list(adjust.mounts), list(adjust.hooks.create_container)) == ([], [])
    assert variables(adjust)["NVIDIA_VISIBLE_DEVICES"] == "void"


def test_entry_is_completed(node: Installation, link: FakePlugin, bundle_of: Bundles) -> None:
    """The hook enters the process of a container that had none when the runtime asked."""
    identity = f"gpuhook-test-{uuid4().hex[:12]}"
    adjust = link.create(pod(), asking("2", identity=identity)).adjust
    before = node.entry()
    assert "expected" in before
    assert "pid" not in before
    bundle = bundle_of("debian", ["/bin/sleep", "1000"])
    bundle.write(adjusted(bundle.config(), adjust))
    with lifecycle(bundle, node.command_with_state("runc"), container_id=identity) as made:
        made.start()
        after = node.entry()
        assert after["pid"] == made.pid
        assert after["bundle"] == str(bundle.path)
        assert after.keys() - before.keys() == {"pid", "started"}
        assert before.keys() - after.keys() == {"expected"}
        assert {key: after[key] for key in ("devices", "requested", "route", "pod")} == {
            key: before[key] for key in ("devices", "requested", "route", "pod")
        }


def adjusted(config: dict[str, Any], adjust: Any) -> dict[str, Any]:
    """Return a config.json with the mounts and hooks of an adjustment."""
    config["mounts"] += [
        {"destination": one.destination, "source": one.source, "type": one.type}
        | {"options": list(one.options)}
        for one in adjust.mounts
    ]
    hooks = config.setdefault("hooks", {}).setdefault("createContainer", [])
    hooks += [
        {"path": one.path, "args": list(one.args), "env": list(one.env)}
        for one in adjust.hooks.create_container
    ]
    return config


@pytest.mark.parametrize("mode", [EXPANDED, BY_CDI], ids=["expanded", "cdi"])
def test_memory_limit(mode: tuple[str, str], node: Installation, runtime: FakeRuntime) -> None:
    """A limit adds the hook that sets it, which is in no spec, and the variable of its amount."""
    env = ["NVIDIA_VISIBLE_DEVICES=0", "NVIDIA_GPU_MEMORY_LIMIT=1024"]
    with nri_plugin(node, runtime.path, steps="" if (CGROUPS / V2_FILE).exists() else V2):
        link = runtime.accept()
        link.start(*mode)
        adjust = link.create(pod(), container(env)).adjust
    (hook,) = adjust.hooks.create_runtime
    assert list(hook.args[:2]) == ["gpuhook-hook", "limit"]
    assert f"{node.gpu(0).uuid}={1 << 30},0,asked" in hook.args
    assert hook.timeout.value == 60
    assert [one.name for one in adjust.CDI_devices] == ([f"{KIND}=0"] if mode == BY_CDI else [])
    assert node.entry()["memory"][0]["hard"] == 1 << 30


def test_no_spec_on_the_disk(node: Installation, runtime: FakeRuntime) -> None:
    """Without a CDI spec, the plugin describes the devices in memory, and writes nothing."""
    shutil.rmtree(node.specs)
    node.specs.mkdir()
    settings = {
        "cdi": {"specDirs": [str(node.specs)]},
        "driver": {"root": str(node.node.driver_root), "devRoot": str(node.node.dev_root)},
        "nri": {"namespaces": ["default"]},
    }
    node.config.write_text(json.dumps(settings), encoding="utf-8")
    with nri_plugin(node, runtime.path) as plugin:
        link = runtime.accept()
        link.start(*BY_CDI)
        adjust = link.create(pod(), asking("3")).adjust
        assert nodes(adjust) >= {*CONTROL, node.device(3)}
        assert not adjust.CDI_devices
        assert plugin.wait_for("injected")["mode"] == "expanded"
    assert list(node.specs.iterdir()) == []


def test_amd(node8: Installation, tmp_path: Path, runtime: FakeRuntime) -> None:
    """Another vendor's devices; groups of the user are an edit that NRI cannot express."""
    node = amd_installation(tmp_path / "amd", "mi300x8", node8)
    known = json.loads(node.config.read_text(encoding="utf-8"))
    known["nri"] = {"namespaces": ["default"]}
    node.config.write_text(json.dumps(known), encoding="utf-8")
    with nri_plugin(node, runtime.path) as plugin:
        link = runtime.accept()
        link.start(*EXPANDED)
        adjust = link.create(pod(), container(asks_amd("1"))).adjust
        assert nodes(adjust) == node.paths(1)
        assert variables(adjust)["AMD_VISIBLE_DEVICES"] == "void"
        assert plugin.wait_for("injected")["devices"] == ["amd.com/gpu=1"]
        assert "GH2705" in plugin.text()


def test_settings_change(node: Installation, link: FakePlugin) -> None:
    """A change of the settings applies to the next container; broken ones refuse requests."""
    text = node.config.read_text(encoding="utf-8")
    node.config.write_text("nri: [", encoding="utf-8")
    with pytest.raises(StatusError, match="GH1530"):
        link.create(pod(), asking("0"))
    assert link.create(pod(), container()).ByteSize() == 0
    node.config.write_text(json.dumps({**json.loads(text), "nri": {}}), encoding="utf-8")
    assert nodes(link.create(pod(), asking("0")).adjust) == set()
    node.config.write_text(text, encoding="utf-8")
    assert nodes(link.create(pod(), asking("0")).adjust) != set()


def test_late(node: Installation, link: FakePlugin, plugin: NriPlugin) -> None:
    """A container that could not be decided in time does not start; those without requests do."""
    known = json.loads(node.config.read_text(encoding="utf-8"))
    known["request"] = {"exclusiveDevices": ["all"]}
    node.config.write_text(json.dumps(known), encoding="utf-8")
    with FileLock(str(node.state / "locks/exclusive")):  # another create takes its time
        for timeout in (0, 200_000_000):  # the runtime's limit in nanoseconds
            with pytest.raises(StatusError, match="GH2706"):
                link.create(pod(), asking("0"), timeout_nano=timeout)
            assert link.create(pod(), container()).ByteSize() == 0
        assert node.entries() == []

    def has_started() -> bool:
        try:
            return bool(link.create(pod(), asking("0", identity="c9")).HasField("adjust"))
        except StatusError:
            return False

    eventually(has_started)
    assert plugin.process.poll() is None
    with pytest.raises(StatusError, match="GH1063"):  # it has the device
        link.create(pod(), asking("0", identity="c10"))


def test_refusal_while_another_container_waits(
    node8: Installation, tmp_path: Path, runtime: FakeRuntime
) -> None:
    """A container that may not request devices starts while a driver or a lock delays others."""
    settings: dict[str, Any] = {
        "nri": {"runtimeClasses": ["gpu"]},
        "request": {"exclusiveDevices": ["all"]},
    }
    node = node8.apart(tmp_path / "waiting", **settings)
    running = nri_plugin(node, runtime.path, "--plugin-directory", str(tmp_path))
    with running, FileLock(str(node.state / "locks/exclusive")):
        link = runtime.accept()
        link.start(*EXPANDED)
        for identity in ("c1", "c2"):
            with pytest.raises(StatusError, match="GH2706"):
                link.create(pod(runtime_handler="gpu"), asking("0", identity=identity))
            adjust = link.create(pod(), asking("all", identity="c3")).adjust
            assert variables(adjust) == {"NVIDIA_VISIBLE_DEVICES": "void"}


def test_runtime_with_a_short_limit(runtime: FakeRuntime, node: Installation) -> None:
    """The plugin's own limit is below request_timeout of Configure."""
    known = json.loads(node.config.read_text(encoding="utf-8"))
    known["request"] = {"exclusiveDevices": ["all"]}
    node.config.write_text(json.dumps(known), encoding="utf-8")
    lock = FileLock(str(node.state / "locks/exclusive"))
    with nri_plugin(node, runtime.path), lock:
        link = runtime.accept()
        link.start(*EXPANDED, registration_timeout=5000, request_timeout=400, nri_version="0.8.0")
        with pytest.raises(StatusError, match=r"within 0\.3 s"):
            link.create(pod(), asking("0"))


HOSTILE = {
    "bytes": b"NVIDIA_VISIBLE_DEVICES=\xff\xfe\xc3(",
    "of-another-variable": b"X=\xff",
    "nul": b"NVIDIA_VISIBLE_DEVICES=0\x00,1",
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_bytes(name: str, link: FakePlugin, node: Installation) -> None:
    """A variable that is not UTF-8 neither ends the connection nor gives more devices."""
    raw = asking("1").SerializeToString() + b"\x42" + bytes([len(HOSTILE[name])]) + HOSTILE[name]
    parts = ((1, pod().SerializeToString()), (2, raw))
    payload = b"".join(_field(number, part) for number, part in parts)
    try:
        answer, text = link.call("CreateContainer", payload), ""
    except StatusError as error:
        answer, text = b"", error.text
    assert text.isprintable()
    if not text:
        adjust = nri_api.parsed("CreateContainerResponse", answer).adjust
        assert nodes(adjust) >= {node.device(1)}
    assert nodes(link.create(pod(), asking("0")).adjust) >= {node.device(0)}


def _field(number: int, data: bytes) -> bytes:
    size, value = b"", len(data)
    while value >= 128:
        size += bytes([value & 127 | 128])
        value >>= 7
    return bytes([number << 3 | 2]) + size + bytes([value]) + data


def test_malformed_container(link: FakePlugin, plugin: NriPlugin) -> None:
    """A description that cannot be read is refused if it may request devices."""
    broken = b"\x12\x05\x42\x99NVIDIA_VISIBLE_DEVICES=0"
    with pytest.raises(StatusError, match="GH2708"):
        link.call("CreateContainer", broken)
    assert link.call("CreateContainer", b"\x12\x05\x42\x99") == b""
    assert plugin.wait_for("refused")["code"] == "GH2708"


def test_four_mebibytes(link: FakePlugin, node: Installation) -> None:
    """A container of almost 4 MiB is served, with and without a request; above, it is refused."""
    filler = [f"V{index}={'x' * 4000}" for index in range(MIB4 // 4096)]
    assert link.create(pod(), container(filler)).ByteSize() == 0
    adjust = link.create(pod(), container([*filler, "NVIDIA_VISIBLE_DEVICES=0"])).adjust
    assert nodes(adjust) >= {node.device(0)}
    many = {f"key-{index}": "value" for index in range(60_000)}
    crowd = pod(annotations=nri_api.pairs(many))
    assert nodes(link.create(crowd, asking("0")).adjust) >= {node.device(0)}
    with pytest.raises(StatusError, match="4 MiB") as raised:
        link.create(pod(), container([*filler, *filler]))
    assert raised.value.code == 8
    assert nodes(link.create(pod(), asking("0")).adjust) >= {node.device(0)}


def test_many_variables(link: FakePlugin, plugin: NriPlugin) -> None:
    """A tenant's image cannot keep the plugin from others: the runtime would drop a slow one."""
    many = asking("0")
    many.env.extend(["A="] * 900_000)
    with pytest.raises(StatusError, match=r"GH2708.*more than 65536"):
        link.create(pod(), many)
    assert nodes(link.create(pod(), asking("0")).adjust) != set()
    assert len(plugin.lines("ready")) == 1


def test_rule_without_a_node(link: FakePlugin, plugin: NriPlugin) -> None:
    """In a user namespace, the nodes of another directory are bound: NRI has no rule for them."""
    one = asking("2")
    one.linux.namespaces.add(type="user")
    adjust = link.create(pod(), one).adjust
    assert nodes(adjust) == set()
    assert {mount.destination for mount in adjust.mounts}.issuperset(CONTROL)
    (warning,) = [line for line in plugin.lines() if line.get("code") == "GH2705"]
    assert "resources.devices" in warning["event"]


def test_unknown_methods(link: FakePlugin) -> None:
    """Events that the plugin does not have end with code 12; it goes on."""
    for method in ("RunPodSandbox", "StateChange", "UpdateContainer", "PostCreateContainer"):
        with pytest.raises(StatusError) as raised:
            link.call(method)
        assert raised.value.code == 12
    assert link.create(pod(), asking("0")).HasField("adjust")


def test_containers_that_started_without(runtime: FakeRuntime, plugin: NriPlugin) -> None:
    """One warning for each container that requested devices and has none, with its pod's name.

    The list of the node comes in parts; nothing of it is updated.
    """
    seen = [
        asking("0", identity="without", state=3),
        container(identity="plain", state=3),
        asking("void", identity="given", state=3),
        asking("0", identity="stopped", state=4),
        asking("0", identity="with", state=3),
    ]
    seen[4].linux.devices.add(path="/dev/nvidia0", type="c", major=195)
    pods = [pod("train-0"), pod("other")]
    for _ in range(2):  # a second list of the same containers is no second warning
        link = runtime.accept()
        link.accept_registration()
        link.configure(*EXPANDED)
        assert plugin.lines("ready") == plugin.lines("ready")[:_]
        for index, one in enumerate(seen):
            answer = link.synchronize(pods if index == 0 else (), [one], more=True)
            assert (answer.more, list(answer.update)) == (True, [])
        last = link.synchronize()
        assert (last.more, list(last.update)) == (False, [])
        plugin.wait_for("ready", _ + 1)
        eventually(lambda: "GH2707" in plugin.text())
        link.close()
    warned = [line for line in plugin.lines() if line.get("code") == "GH2707"]
    assert [(one["id"], one["pod"]) for one in warned] == [("without", "train-0")]
