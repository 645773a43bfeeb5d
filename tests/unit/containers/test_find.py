# SPDX-License-Identifier: Apache-2.0
"""Finding containers in the state directories of runc and crun."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from gpuhook.containers.find import everything, find
from gpuhook.containers.hot import ledger
from gpuhook.containers.warm import state_roots
from gpuhook.errors import GpuhookError
from gpuhook.host.hot import state
from tests.unit.containers.state_node import Node

POD = {
    "io.kubernetes.cri.container-type": "container",
    "io.kubernetes.cri.container-name": "main",
    "io.kubernetes.cri.sandbox-name": "train-0",
    "io.kubernetes.cri.sandbox-namespace": "ml",
}
SANDBOX = {
    "io.kubernetes.cri.container-type": "sandbox",
    "io.kubernetes.cri.sandbox-name": "train-0",
    "io.kubernetes.cri.sandbox-namespace": "ml",
}


def refused(text: str, roots: list[str]) -> GpuhookError:
    with pytest.raises(GpuhookError) as caught:
        find(text, roots)
    return caught.value


def test_container_of_runc(node: Node) -> None:
    """Every fact of runc's state is read; the bundle is in a label."""
    pid, started = node.runc("abc1")
    found = find("abc1", node.roots)
    assert (found.id, found.pid, found.started, found.status) == ("abc1", pid, started, "running")
    assert (found.runtime, found.state_root) == ("runc", node.roots[0])
    assert found.bundle == str(node.place / "bundles/abc1")
    assert found.root_path == "/var/lib/c/abc1"
    assert found.config()["ociVersion"] == "1.0.2"
    with found.process() as process:
        assert process.pid == pid


def test_container_of_crun(node: Node) -> None:
    """Every fact of crun's status is read."""
    pid, started = node.crun("abc2")
    found = find("abc2", node.roots)
    assert (found.id, found.pid, found.started, found.status) == ("abc2", pid, started, "running")
    assert (found.runtime, found.state_root) == ("crun", node.roots[1])
    assert found.bundle == str(node.place / "bundles/abc2")
    assert found.root_path == "/var/lib/c/abc2"


def test_copy_of_config_json_of_crun(node: Node) -> None:
    """If the bundle is gone, crun's own copy of config.json applies."""
    node.crun("abc", bundle=str(node.place / "gone"))
    node.write("crun", "abc", "config.json", '{"hostname": "copy"}')
    assert find("abc", node.roots).config() == {"hostname": "copy"}


def test_created_container(node: Node) -> None:
    """The fifo shows that a container has not started yet."""
    node.runc("abc")
    node.write("runc", "abc", "exec.fifo", "")
    assert find("abc", node.roots).status == "created"


def test_stopped_container(node: Node) -> None:
    """A container whose process has exited is found, and has no process."""
    node.runc("abc")
    node.processes[0].kill()
    node.processes[0].wait()
    found = find("abc", node.roots)
    assert (found.pid, found.started, found.status) == (0, None, "stopped")
    with pytest.raises(GpuhookError) as caught:
        found.process()
    assert caught.value.code == "GH1738"
    assert everything(node.roots)[0] == []


def test_container_whose_pid_is_reused_is_not_running(node: Node) -> None:
    """Another process with the pid has another start time."""
    pid, started = node.process()
    node.runc("abc", init_process_pid=pid, init_process_start=started - 1)
    assert find("abc", node.roots).status == "stopped"


def test_prefix_of_one_id_is_enough(node: Node) -> None:
    """An id that is also a prefix of another one names its own container."""
    node.runc("abc1")
    node.crun("abc12")
    assert find("abc12", node.roots).id == "abc12"
    assert find("abc1", node.roots).id == "abc1"
    error = refused("abc", node.roots)
    assert error.code == "GH1736"
    assert f"abc1 (running in {node.roots[0]})" in error.message
    assert f"abc12 (running in {node.roots[1]})" in error.message


def test_running_container_is_preferred_to_stopped_ones(node: Node) -> None:
    """Of several matches, the running one is used."""
    node.runc("abc1")
    node.runc("abc2", init_process_pid=0)
    assert find("abc", node.roots).id == "abc1"


def test_running_containers_with_one_id_are_ambiguous(node: Node) -> None:
    """Ids are unique per state root only."""
    node.runc("abc")
    pid, started = node.process()
    document = {"pid": pid, "process-start-time": started}
    node.write("crun", "abc", "status", json.dumps(document))
    assert refused("abc", node.roots).code == "GH1736"


def test_links_between_roots_are_resolved(node: Node) -> None:
    """/var/run and /run are one directory."""
    node.runc("abc")
    (node.place / "link").symlink_to(node.roots[0])
    assert find("abc", [*node.roots, str(node.place / "link")]).id == "abc"
    assert len(everything([*node.roots, str(node.place / "link")])[0]) == 1


def test_unknown_container_is_a_fault(node: Node) -> None:
    """It names the searched directories, unreadable ones, and existing containers."""
    node.runc("abc")
    node.write("crun", "broken", "status", "{")
    error = refused("abd", [*node.roots, "/no/such/root"])
    assert error.code == "GH1735"
    assert f"searched {node.roots[0]}, {node.roots[1]}" in error.message
    assert "/no/such/root (there is no such directory)" in error.message
    assert f"{node.roots[1]}/broken (status: " in error.message
    assert "there are abc;" in error.hint


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("{", "status: "),
        ("[]", "status is not a JSON object"),
        ('{"pid": "1"}', "pid is not a pid"),
        ('{"pid": -1}', "pid is not a pid"),
        ('{"pid": 1, "process-start-time": "x"}', "process-start-time is not a number"),
        (" " * (17 << 20), "status is not a regular file of at most"),
    ],
    ids=["cut", "list", "text", "negative", "start", "huge"],
)
def test_unusable_state_refuses_only_its_container(node: Node, text: str, reason: str) -> None:
    """The fault has the reason; other containers are found."""
    node.runc("abc1")
    node.write("crun", "abc", "status", text)
    error = refused("abc", node.roots)
    assert error.code == "GH1739"
    assert f"{node.roots[1]}/abc" in error.message
    assert reason in error.message
    assert refused("ab", node.roots).code == "GH1736"
    living, broken = everything(node.roots)
    assert [found.id for found in living] == ["abc1"]
    (where, told) = next(iter(broken.items()))
    assert (len(broken), where, told.code) == (1, f"{node.roots[1]}/abc", "GH1739")
    assert reason in told.message


def test_directory_without_a_state_is_ignored(node: Node) -> None:
    """A runtime leaves one while it creates or removes a container."""
    os.mkdir(node.roots[0] + "/abc")
    assert "neither" in refused("abc", node.roots).message
    assert everything(node.roots) == ([], {})
    assert "abc" not in refused("other", node.roots).message


def test_many_unusable_states_are_counted(node: Node) -> None:
    """A few are named, the others counted."""
    for number in range(9):
        node.write("runc", f"abc{number}", "state.json", "{")
    message = refused("other", node.roots).message
    assert f"; not read: 9 of them, such as {node.roots[0]}/abc0 (" in message
    assert "abc6" not in message


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to give a file away")
def test_broken_state_of_a_user_does_not_fail_for_root(node: Node) -> None:
    """A user cannot make the search for all containers fail."""
    file = node.write("runc", "abc", "state.json", "{")
    for path in (file, file.parent):
        os.chown(path, 1000, 1000)
    assert everything(node.roots) == ([], {})


def test_fifo_in_place_of_a_state_does_not_block(node: Node) -> None:
    """A state that is not a regular file is not opened."""
    os.mkdir(node.roots[0] + "/abc")
    os.mkfifo(node.roots[0] + "/abc/state.json")
    assert "is not a regular file" in refused("abc", node.roots).message


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to give a file away")
def test_state_of_a_user_names_processes_of_that_user(node: Node) -> None:
    """It may name the processes of that user's namespaces, and no others."""
    node.crun("abc")
    os.chown(node.roots[1] + "/abc/status", 1000, 1000)
    error = refused("abc", node.roots)
    assert error.code == "GH1739"
    assert "does not belong to the owner of its directory" in error.message
    os.chown(node.roots[1] + "/abc", 1000, 1000)
    error = refused("abc", node.roots)
    assert error.code == "GH1739"
    assert "user 1000 wrote it" in error.message


def test_link_is_not_a_state(node: Node) -> None:
    """A link to a container's state is not a second container."""
    node.runc("abc")
    os.symlink(node.roots[0] + "/abc", node.roots[1] + "/other")
    assert refused("other", node.roots).code == "GH1739"
    assert [found.id for found in everything(node.roots)[0]] == ["abc"]


def test_root_without_a_running_container(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    """The hint says so; another user may only not see them."""
    assert refused("nosuch", node.roots).hint.startswith("no container is running here; ")
    monkeypatch.setattr(state, "is_rootless", lambda: True)
    assert refused("nosuch", node.roots).hint.startswith("this user cannot see any running ")


def test_pid_of_a_container(node: Node) -> None:
    """A pid names the container whose first process it is; a process on the host has none."""
    pid, _ = node.runc("abc")
    assert find(str(pid), node.roots).id == "abc"
    other, _ = node.process()
    assert refused(str(other), node.roots).code == "GH1737"
    assert refused(str(os.getpid()), node.roots).code == "GH1737"
    assert refused(str(1 << 22), node.roots).code == "GH1730"
    assert refused("1" * 5000, node.roots).code == "GH1735"


def test_number_that_is_a_pid_and_a_prefix(node: Node) -> None:
    """It is the container's prefix if no other container has the pid, else it is ambiguous."""
    other, _ = node.process()
    node.runc(f"{other}ff")
    assert find(str(other), node.roots).id == f"{other}ff"
    pid, _ = node.runc("abc")
    node.runc(f"{pid}ff")
    assert refused(str(pid), node.roots).code == "GH1736"


@pytest.mark.parametrize(
    "name", ["train-0", "ml/train-0", "train-0/main", "ml/train-0/main"], ids=str
)
def test_name_of_a_pod(node: Node, name: str) -> None:
    """A pod's name means its only container; the sandbox is ignored."""
    node.runc("abc1", SANDBOX)
    node.runc("abc2", POD)
    assert find(name, node.roots).id == "abc2"


def test_name_of_a_pod_with_two_containers_is_ambiguous(node: Node) -> None:
    """With the container's name it is unique."""
    node.runc("abc1", POD)
    node.runc("abc2", {**POD, "io.kubernetes.cri.container-name": "other"})
    assert refused("train-0", node.roots).code == "GH1736"
    assert find("train-0/other", node.roots).id == "abc2"


def test_state_roots_of_the_ledger(node: Node) -> None:
    """A container in the ledger is found in the state root of its runtime."""
    node.runc("abc")
    assert refused("abc", []).code == "GH1735"
    ledger.record(node.roots[0], "abc", {"pid": 0, "started": None})
    assert find("abc").id == "abc"
    assert [found.id for found in everything()[0]] == ["abc"]


def test_container_that_only_the_ledger_has(node: Node) -> None:
    """The hook of a CDI spec records the process and the bundle, and no state root."""
    pid, started = node.process()
    bundle = node.bundle("abc", POD)
    ledger.record("", "abc", {"pid": pid, "started": started, "bundle": bundle})
    (found,) = everything()[0]
    assert (found.id, found.pid, found.bundle, found.status) == ("abc", pid, bundle, "running")
    for name in (str(pid), "train-0", "abc", "ab"):
        assert find(name).pid == pid


@pytest.mark.parametrize(
    ("annotations", "bundle", "engine"),
    [
        ({"io.container.manager": "libpod"}, "", "podman"),
        ({"io.container.manager": "cri-o"}, "", "cri-o"),
        (None, "/run/containerd/io.containerd.runtime.v2.task/k8s.io/abc", "containerd"),
        (None, "/run/docker/containerd/daemon/io.containerd.runtime.v2.task/moby/abc", "docker"),
        (None, "", ""),
    ],
    ids=["podman", "cri-o", "containerd", "docker", "nobody"],
)
def test_engine_of_a_container(
    node: Node, annotations: dict[str, str] | None, bundle: str, engine: str
) -> None:
    """It is derived from the annotations, or from the path of the bundle."""
    labels = {"labels": [f"bundle={bundle}"]}
    config: dict[str, Any] = {"config": labels} if bundle else {}
    node.runc("abc", annotations, **config)
    assert find("abc", node.roots).engine == engine


def test_pattern_of_state_roots(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A star means each existing directory with that prefix."""
    for name in ("run/runc", "run/docker/runtime-runc/moby", "run/docker/other/moby", "user/crun"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "run/docker/runtime-file").write_text("")
    places = ("/run/runc", "/run/crun", "/run/docker/runtime-*/*")
    monkeypatch.setattr(state_roots, "PLACES", tuple(f"{tmp_path}{place}" for place in places))
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path / "user"))
    assert list(state_roots.present()) == [
        f"{tmp_path}/{name}" for name in ("run/runc", "run/docker/runtime-runc/moby", "user/crun")
    ]
