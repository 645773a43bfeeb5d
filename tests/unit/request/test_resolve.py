# SPDX-License-Identifier: Apache-2.0
"""Resolving names to one ContainerEdits object with real spec files."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from gpuhook.cdi.hot import registry
from gpuhook.cdi.hot.compiled_spec import Compiled
from gpuhook.errors import GpuhookError
from gpuhook.request import resolve
from tests.plans import PlainNode

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gpuhook.cdi.hot.container_edits import ContainerEdits

KIND = "nvidia.com/gpu"
ALL: frozenset[str] = frozenset()
UUIDS = {"00000000:3b:00.0": "GPU-0", "gpu-one": "GPU-1"}


def node(path: str) -> dict[str, Any]:
    return {"deviceNodes": [{"path": path}]}


def device(name: str, *paths: str) -> dict[str, Any]:
    return {
        "name": name,
        "containerEdits": {"deviceNodes": [{"path": path} for path in paths], "env": [f"D={name}"]},
    }


class Host:
    """Spec directories of a host, lowest priority first."""

    def __init__(self, place: Path) -> None:
        self.dirs = [str(place / name) for name in ("etc", "run")]
        for directory in self.dirs:
            Path(directory).mkdir()

    def spec(
        self, devices: list[dict[str, Any]], kind: str = KIND, name: str = "nvidia", level: int = 1
    ) -> None:
        """Write a spec in which each device adds the node with the device's name."""
        document = {
            "cdiVersion": "0.5.0",
            "kind": kind,
            "devices": devices,
            "containerEdits": node(f"/dev/{kind.partition('/')[0]}ctl"),
        }
        (Path(self.dirs[level]) / f"{name}.json").write_text(json.dumps(document))

    def resolve(self, *names: str) -> resolve.Grant:
        found = registry.load(self.dirs, self._no_yaml)
        return resolve.resolve_names(list(names), ALL, PlainNode(found, KIND, UUIDS))

    def paths(self, *names: str) -> list[str]:
        return [node["path"] for node in self.resolve(*names).edits["deviceNodes"]]

    @staticmethod
    def _no_yaml(*paths: str) -> None:
        raise AssertionError(paths)


@pytest.fixture
def host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Host:
    """Return a host with two GPUs in one spec, which has no device `all`."""
    monkeypatch.setenv("GPUHOOK_STATE_DIR", str(tmp_path / "state"))
    made = Host(tmp_path)
    made.spec([device("GPU-0", "/dev/nvidia0"), device("GPU-1", "/dev/nvidia1")])
    return made


def test_common_edits_of_a_spec_come_first(host: Host) -> None:
    """The edits of a spec come once, before those of the devices in the order of request."""
    assert host.paths("GPU-1", "GPU-0") == ["/dev/nvidia.comctl", "/dev/nvidia1", "/dev/nvidia0"]
    assert host.resolve("GPU-1", "GPU-0").edits["env"] == ["D=GPU-1", "D=GPU-0"]


def test_device_with_several_names_is_resolved_once(host: Host) -> None:
    grant = host.resolve("GPU-0", f"{KIND}=GPU-0", "00000000:3B:00.0", "GPU-0::1")
    assert grant.devices == [f"{KIND}=GPU-0"]
    assert grant.edits["env"] == ["D=GPU-0"]


def test_all_without_a_device_all(host: Host) -> None:
    """`all` is every device of the kind if no spec has a device of that name."""
    grant = host.resolve("all")
    assert grant.devices == [f"{KIND}=GPU-0", f"{KIND}=GPU-1"]
    assert [name for name, _ in grant.reasons] == ["all", "all"]


def test_all_of_the_spec(host: Host) -> None:
    """A device `all` in a spec applies."""
    host.spec([device("GPU-0", "/dev/nvidia0"), device("all", "/dev/nvidia7")])
    grant = host.resolve("all")
    assert grant.devices == [f"{KIND}=all"]
    assert host.paths("all")[1:] == ["/dev/nvidia7"]


def test_none_is_the_driver_without_a_device(host: Host) -> None:
    grant = host.resolve("none")
    assert grant.devices == []
    assert grant.edits == node("/dev/nvidia.comctl")


def test_replicas_are_resolved_to_their_device(host: Host) -> None:
    """The device is added once, and each replica is recorded."""
    grant = host.resolve("GPU-1::0", "GPU-1::3", f"{KIND}=GPU-0::2")
    assert grant.devices == [f"{KIND}=GPU-1", f"{KIND}=GPU-0"]
    assert grant.replicas == ["GPU-1::0", "GPU-1::3", "GPU-0::2"]


def test_aliases_are_resolved(host: Host) -> None:
    """A bus id or an index is looked up if no spec has it; the reason has the requested name."""
    grant = host.resolve("00000000:3B:00.0")
    assert grant.devices == [f"{KIND}=GPU-0"]
    name, reason = grant.reasons[0]
    assert name == "00000000:3B:00.0"
    assert reason == f"{KIND}=GPU-0 of {host.dirs[1]}/nvidia.json"


def test_devices_of_two_vendors(host: Host) -> None:
    """Names of another kind come from its specs, with that spec's common edits."""
    host.spec([device("eth0", "/dev/net0")], kind="example.org/net", name="net", level=0)
    grant = host.resolve("example.org/net=eth0", "GPU-0")
    assert grant.devices == ["example.org/net=eth0", f"{KIND}=GPU-0"]
    paths = [node["path"] for node in grant.edits["deviceNodes"]]
    assert paths == ["/dev/example.orgctl", "/dev/nvidia.comctl", "/dev/net0", "/dev/nvidia0"]
    assert [spec.kind for spec in grant.specs] == ["example.org/net", KIND]


def test_one_kind_in_two_files(host: Host) -> None:
    """A device in a later directory takes precedence."""
    host.spec([device("GPU-1", "/dev/old"), device("GPU-2", "/dev/nvidia2")], name="x", level=0)
    assert host.paths("GPU-1")[1:] == ["/dev/nvidia1"]
    assert host.paths("GPU-2")[1:] == ["/dev/nvidia2"]
    assert sorted(host.resolve("all").devices) == [f"{KIND}=GPU-{n}" for n in range(3)]


@pytest.mark.parametrize(
    ("name", "code"),
    [
        ("GPU-9", "GH1102"),
        ("GPU-9::0", "GH1102"),
        ("7", "GH1102"),
        ("GPU-0::x", "GH1003"),
        ("example.org/net=eth0", "GH1104"),
        ("example.org/net=00000000:3B:00.0", "GH1104"),
        ("example.org/net=all", "GH1104"),
        ("-", "GH1101"),
    ],
)
def test_unknown_name_is_a_fault(name: str, code: str, host: Host) -> None:
    """The fault repeats the name; no part of the request is granted."""
    with pytest.raises(GpuhookError) as caught:
        host.resolve("GPU-0", name)
    assert caught.value.code == code
    assert name.partition("::")[0].partition("=all")[0] in caught.value.message


def hint(host: Host, name: str) -> str:
    """Return the hint of the fault about an unknown name."""
    found = registry.load(host.dirs, host._no_yaml, "nvidia.com")
    with pytest.raises(GpuhookError) as caught:
        resolve.resolve_names([name], ALL, PlainNode(found, KIND))
    return caught.value.hint


def test_hint_has_one_command(host: Host) -> None:
    """A new spec goes into a directory that is read; generate-cdi is for one vendor."""
    run = host.dirs[1]
    assert f"`gpuhook generate-cdi --output-file {run}/nvidia.json`" in hint(host, "GPU-9")
    (Path(run) / "nvidia.json").unlink()
    assert hint(host, "GPU-9") == f"run `gpuhook refresh`, which writes {run}/nvidia.yaml"
    for kind in ("management.nvidia.com/gpu", "nvidia.com/gpu.coherent"):
        assert "`gpuhook generate-cdi`: its --mode" in hint(host, f"{kind}=all")
    other = hint(host, "example.org/net=eth0")
    assert "generate-cdi" not in other
    assert run in other
    host.spec([device("a", "/dev/a")], kind="example.org/net", name="net")
    assert "generate-cdi" not in hint(host, "example.org/net=b")


def test_hint_for_a_spec_of_gpuhook_is_refresh(host: Host) -> None:
    """A spec of another kind is not written again: the hint is generate-cdi."""
    run = host.dirs[1]
    path = Path(run, "nvidia.json")
    document = json.loads(path.read_text())
    hook = {"hookName": "createContainer", "path": "/opt/bin/gpuhook-hook"}
    document["containerEdits"] = {"hooks": [hook]}
    path.write_text(json.dumps(document))
    assert f"run `gpuhook refresh`, which regenerates {path}" in hint(host, "GPU-9")
    document["kind"] = "nvidia.com/other"
    path.write_text(json.dumps(document))
    assert hint(host, "GPU-9") == f"run `gpuhook generate-cdi --output-file {run}/nvidia.yaml`"


def test_broken_spec_is_reported_once(host: Host) -> None:
    """The reason follows its path."""
    path = Path(host.dirs[1], "nvidia.json")
    path.write_text("{}")
    with pytest.raises(GpuhookError) as caught:
        host.resolve("GPU-0")
    assert caught.value.code == "GH1104"
    assert caught.value.message.count(str(path)) == 1
    assert f"; {path} is broken: /" in caught.value.message


def test_conflicting_files_are_a_fault(host: Host) -> None:
    """The fault of a name in two files of a directory has both; other names are not affected."""
    host.spec([device("GPU-1", "/dev/other")], name="other")
    with pytest.raises(GpuhookError) as caught:
        host.resolve("GPU-1")
    assert caught.value.code == "GH1103"
    assert f"{host.dirs[1]}/other.json" in caught.value.message
    assert host.resolve("GPU-0").devices == [f"{KIND}=GPU-0"]


def test_edits_are_filtered_before_they_are_merged(host: Host) -> None:
    """Each part with the spec that it is from."""
    kinds = []

    class Filter(PlainNode):
        def filter_edits(
            self, compiled: Compiled, edits: ContainerEdits, capabilities: frozenset[str]
        ) -> ContainerEdits:
            kinds.append(compiled.kind)
            return {"env": edits.get("env", [])}

    found = registry.load(host.dirs, host._no_yaml)
    grant = resolve.resolve_names(["GPU-0", "GPU-1"], ALL, Filter(found, KIND))
    assert grant.edits == {"env": ["D=GPU-0", "D=GPU-1"]}
    assert kinds == [KIND] * 3
