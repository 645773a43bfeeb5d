# SPDX-License-Identifier: Apache-2.0
"""The readings of a running node: services, processes, programs and driver."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from gpuhook.containers import find
from gpuhook.containers.warm.runtime_state import Found
from gpuhook.doctor import reading_collectors
from gpuhook.errors import fault
from gpuhook.inspect import gpu_containers
from gpuhook.inspect.gpu_containers import injectors
from gpuhook.node import daemons, node_programs
from gpuhook.node_facts.sources import node_readings
from gpuhook.node_facts.sources.node_tree import DirectoryTree
from gpuhook.target import running_container
from gpuhook.vendors import driver_worker
from gpuhook.vendors.nvidia.doctor import driver_dump
from gpuhook.vendors.vendor_inventory import NodePlace
from tests.simulated.node import make_node

SHOWN = """Id=containerd.service
LoadState=loaded
ActiveState=active
Result=success
UnitFileState=enabled

Id=kubelet.service
LoadState=not-found
ActiveState=inactive
Result=success
UnitFileState=
"""


def program(path: Path, text: str) -> str:
    """Make a shell script and return its path."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{text}\n", encoding="utf-8")
    path.chmod(0o755)
    return str(path)


def test_units_as_systemd_prints_them() -> None:
    assert daemons.parsed(SHOWN) == {
        "containerd.service": {
            "load": "loaded", "active": "active", "result": "success", "enabled": "enabled",
        },
        "kubelet.service": {
            "load": "not-found", "active": "inactive", "result": "success", "enabled": "",
        },
    }  # fmt: skip


def test_processes_are_those_of_engines(tmp_path: Path) -> None:
    tree = tmp_path / "node"
    for pid, comm, command in (
        (7, "dockerd", "/usr/bin/dockerd\0-H\0fd://\0"),
        (9, "k3s-server", "/usr/local/bin/k3s server"),
        (11, "bash", "bash\0"),
        (12, "containerd", ""),
    ):
        place = tree / f"proc/{pid}"
        place.mkdir(parents=True)
        (place / "comm").write_text(comm + "\n", encoding="utf-8")
        (place / "cmdline").write_text(command, encoding="utf-8")
        (place / "status").write_text("Uid:\t0\t0\t0\t0\n", encoding="utf-8")
        (place / "cgroup").write_text(f"0::/system.slice/{comm}.service\n", encoding="utf-8")
        stat = f"{pid} ({comm}) S 1 {' '.join('0' * 16)} 0 250 0 0\n"
        (place / "stat").write_text(stat, encoding="utf-8")
    (tree / "proc/stat").write_text("cpu 1 2\nbtime 1000\n", encoding="utf-8")
    (tree / "proc/7/exe").symlink_to("/usr/bin/dockerd")
    found = daemons.processes(DirectoryTree(str(tree)))
    assert [(one["pid"], one["name"], one["exe"]) for one in found] == [
        (7, "dockerd", "/usr/bin/dockerd"), (9, "k3s", ""), (12, "containerd", ""),
    ]  # fmt: skip
    assert found[0]["argv"] == ["/usr/bin/dockerd", "-H", "fd://"]
    assert found[0]["started"] == 1000 + 250 / os.sysconf("SC_CLK_TCK")


def test_hanging_program_is_killed(tmp_path: Path) -> None:
    """Also if a child keeps its output open."""
    path = program(tmp_path / "slow", "sleep 600 & sleep 600")
    with pytest.raises(OSError, match="did not answer within"):
        node_programs.ProgramOutput([path]).output(0.2)


def test_versions_of_programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(node_programs, "DIRECTORIES", (str(tmp_path),))
    program(tmp_path / "runc", 'echo "runc version 1.1.12-0ubuntu2"')
    program(tmp_path / "crun", "exit 3")
    program(tmp_path / "nvidia-ctk", 'echo "NVIDIA Container Toolkit CLI version 1.17.4"')
    program(tmp_path / "podman", "echo nothing")
    Path(program(tmp_path / "dockerd", "touch $0.ran")).chmod(0o777)
    found = node_programs.programs(DirectoryTree("/"))
    assert {name: told["version"] for name, told in found.items()} == {
        "runc": "1.1.12-0ubuntu2", "nvidia-ctk": "1.17.4", "crun": "", "dockerd": "", "podman": "",
    }  # fmt: skip
    assert found["runc"]["path"] == f"{tmp_path}/runc"
    assert found["crun"]["trouble"] == "it exited with status 3"
    assert not (tmp_path / "dockerd.ran").exists()
    assert "users other than root may change it" in found["dockerd"]["trouble"]


@pytest.mark.parametrize("options", [["--config", "/etc/k3s.toml"], ["-c=/etc/k3s.toml"], []])
def test_containerd_is_called_with_the_options_of_its_process(
    tmp_path: Path, options: list[str]
) -> None:
    path = program(tmp_path / "containerd", 'echo "# $*"')
    running = [{"name": "containerd", "exe": path, "argv": [path, *options]}]
    told = node_programs.containerd(DirectoryTree("/"), running)
    file = "--config /etc/k3s.toml " if options else ""
    assert told == {"config": f"# {file}config dump\n", "command": f"{path} {file}config dump"}


def test_node_without_containerd(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(node_programs, "DIRECTORIES", ())
    taken = reading_collectors.live_readings(DirectoryTree("/"), NodePlace())
    assert taken.of(node_readings.CONTAINERD).trouble.startswith(
        "containerd: there is no such program"
    )


def test_driver_is_read_in_a_child_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """NVML is read there with a deadline."""
    node = make_node(tmp_path, "t4", real_nodes=False)
    place = NodePlace(node.driver_root, node.dev_root, node.host_root)
    tree = DirectoryTree(node.host_root)
    taken = reading_collectors.live_readings(tree, place)
    assert taken.document(node_readings.INVENTORY)["gpus"][0]["name"] == "Tesla T4"
    maps = Path("/proc/self/maps").read_text("utf-8")
    assert str(tmp_path) not in maps
    monkeypatch.setattr(driver_worker, "SECONDS", 0.2)
    monkeypatch.setattr(driver_dump, "_dump", lambda _: time.sleep(600))
    late = reading_collectors.live_readings(tree, place).of(node_readings.INVENTORY)
    assert (late.document, late.code) == (None, "GH1256")
    shutil.rmtree(node.driver_root + "/usr")
    monkeypatch.undo()
    assert (
        reading_collectors.live_readings(tree, place).of(node_readings.INVENTORY).code == "GH1200"
    )


def test_node_without_systemd(tmp_path: Path) -> None:
    taken = reading_collectors.live_readings(
        DirectoryTree(str(tmp_path)), NodePlace(host_root=str(tmp_path))
    )
    assert taken.of(node_readings.UNITS).code == "GH1902"
    assert taken.document(node_readings.SELF)["version"]


PRESTART = "/usr/bin/nvidia-container-runtime-hook"


@pytest.mark.parametrize(
    ("spec", "entry", "expected"),
    [
        ({}, {}, []),
        ({"hooks": None, "annotations": None}, {}, []),
        ({"hooks": {"prestart": [{"path": PRESTART}]}}, {}, ["nvidia-legacy"]),
        ({"hooks": {"createContainer": [{"path": "/usr/bin/nvidia-ctk"}]}}, {}, ["nvidia-cdi"]),
        ({"io.gpuhook.record": {}}, {}, ["gpuhook"]),
        ({"annotations": {"io.gpuhook.record": "{}"}}, {}, []),
        ({}, {"route": "attach"}, ["gpuhook"]),
        (
            {"hooks": {"createContainer": [{"path": "/x", "args": ["gpuhook-hook", "apply"]}]}},
            {},
            ["gpuhook"],
        ),
        (
            {"hooks": {"prestart": [{"path": PRESTART}, {"path": "/opt/bin/gpuhook-prestart"}]}},
            {},
            ["gpuhook", "nvidia-legacy"],
        ),
    ],
)
def test_injectors_of_a_container(
    spec: dict[str, Any], entry: dict[str, Any], expected: list[str]
) -> None:
    assert injectors(spec, entry) == expected


def test_hook_with_nvidias_name_may_be_gpuhooks(tmp_path: Path) -> None:
    path = program(tmp_path / "nvidia-container-runtime-hook", "# gpuhook-prestart: the OCI hook")
    assert injectors({"hooks": {"prestart": [{"path": path}]}}, {}) == ["gpuhook"]


def test_unresponsive_container_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is reported after the deadline; the other containers are read."""

    @contextmanager
    def hold(found: Found) -> Iterator[Found]:
        if found.id == "slow":
            time.sleep(600)
        if found.id == "broken":
            raise fault("GH1733", path="/proc/7", reason="no")
        if found.id == "ended":
            raise fault("GH1732", pid=7)
        yield found

    monkeypatch.setattr(gpu_containers, "_PATIENCE", 0.3)
    monkeypatch.setattr(running_container, "hold", hold)
    monkeypatch.setattr(gpu_containers, "_has_root", lambda held: held.id != "plain")
    monkeypatch.setattr(gpu_containers, "_facts", lambda held, context: {"id": held.id})
    living = [Found(name) for name in ("first", "slow", "plain", "broken", "ended", "last")]
    monkeypatch.setattr(find, "everything", lambda roots: (living, {}))
    found = gpu_containers.inspect_all()
    assert [one["id"] for one in found["containers"]] == ["first", "last"]
    assert [(one["where"], one["code"]) for one in found["trouble"]] == [
        ("slow", "GH1760"), ("broken", "GH1733"),
    ]  # fmt: skip
    assert found["looked_at"] == 6


def test_many_unresponsive_containers_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpu_containers, "_PATIENCE", 0.1)
    monkeypatch.setattr(gpu_containers, "_AT_ONCE", 2)
    monkeypatch.setattr(gpu_containers, "_read", lambda context, found: time.sleep(600))
    living = [Found(str(number)) for number in range(6)]
    monkeypatch.setattr(find, "everything", lambda roots: (living, {}))
    codes = [one["code"] for one in gpu_containers.inspect_all()["trouble"]]
    assert codes == ["GH1760"] * 4 + ["GH1904"] * 2


def test_containers_are_listed_in_their_order(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpu_containers, "_AT_ONCE", 3)
    monkeypatch.setattr(gpu_containers, "_read", lambda context, found: {"id": found.id})
    living = [Found(str(number)) for number in range(10)]
    monkeypatch.setattr(find, "everything", lambda roots: (living, {}))
    assert [one["id"] for one in gpu_containers.inspect_all()["containers"]] == [
        one.id for one in living
    ]


@pytest.mark.parametrize(("is_mounted", "has_pids"), [(True, True), (False, True), (True, False)])
def test_containers_seen_from_inside_a_container(
    is_mounted: bool, has_pids: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The node's files are in another directory; its containers need its /run and pids."""
    boot = tmp_path / "proc/sys/kernel/random/boot_id"
    boot.parent.mkdir(parents=True)
    boot.write_bytes(Path("/proc/sys/kernel/random/boot_id").read_bytes())
    if is_mounted:
        (tmp_path / "run").symlink_to("/run")
    else:
        (tmp_path / "run").mkdir()
    pids = os.stat("/proc/self/ns/pid").st_ino
    monkeypatch.setattr(reading_collectors, "_INITIAL_PIDS", pids if has_pids else pids + 1)
    monkeypatch.setattr(gpu_containers, "inspect_all", lambda roots: {"looked_at": len(roots)})
    taken = reading_collectors.live_readings(DirectoryTree(str(tmp_path)), NodePlace(), ["a", "b"])
    found = taken.of(node_readings.CONTAINERS)
    if is_mounted and has_pids:
        assert found.document == {"looked_at": 2}
    else:
        assert (found.document, "hostPID" in found.trouble) == (None, True)


def test_launchers_under_nvidias_names(tmp_path: Path) -> None:
    """gpuhook's programs under NVIDIA's names do not have the version of NVIDIA's toolkit."""
    bindir = tmp_path / "usr/bin"
    bindir.mkdir(parents=True)
    (bindir / "nvidia-ctk").write_text('#!/bin/sh\nexec "/usr/bin/gpuhook" "$@"\n')
    (bindir / "nvidia-cdi-hook").write_text("#!/bin/sh\necho 1.18.0\n")
    for path in bindir.iterdir():
        path.chmod(0o755)
    assert list(node_programs.programs(DirectoryTree(str(tmp_path)))) == ["nvidia-cdi-hook"]
